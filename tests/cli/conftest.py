"""What the tests of the command line share."""

from __future__ import annotations

import sys
from pathlib import Path

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


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A place for a store, which all commands of the test use; it is not there yet."""
    place = tmp_path / "kept" / "runs.db"
    monkeypatch.setenv("JIANMU_STORE", str(place))
    monkeypatch.setenv("SHOP", str(tmp_path))
    return place
