"""What the tests of the command line share."""

from __future__ import annotations

import sys

import pytest

from jianmu.cli import main
from tests.cli.command import HERE, Call


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Call:
    """Carry out a command line in this process; returns the exit code, stdout and stderr."""
    monkeypatch.chdir(HERE)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "__stdin__", None)

    def carry_out(*arguments: str) -> tuple[int, str, str]:
        code = main(arguments)
        out, err = capfd.readouterr()
        return code, out, err

    return carry_out
