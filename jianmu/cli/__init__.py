"""The `jianmu` command: run, resume, step and draw agents, and a demo."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.util import find_spec
from io import TextIOWrapper
from typing import cast

from jianmu.errors import MissingExtraError

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Carry out a command line and return the exit code.

    0 success, 1 failure, error or limit, 2 wrong usage, 3 suspended, 130 Ctrl-C.
    """
    if arguments is None:
        for stream in cast("tuple[object, ...]", (sys.stdout, sys.stderr)):
            if isinstance(stream, TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")  # a poor encoding must not end a run
    if not all(map(find_spec, ("cyclopts", "jsonschema", "rich"))):
        print(f"error: {MissingExtraError('the command line', 'cli')}", file=sys.stderr)
        return 2
    from jianmu.cli.app import execute  # noqa: PLC0415  # it imports the extra

    return execute(sys.argv[1:] if arguments is None else arguments)
