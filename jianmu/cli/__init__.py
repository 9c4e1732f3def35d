"""The `jianmu` command: run, resume, step and draw agents, and a demo."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

from jianmu.errors import MissingExtraError

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Carry out a command line and return the exit code.

    0 success, 1 failure, error or limit, 2 wrong usage, 3 suspended, 130 Ctrl-C.
    """
    try:
        for name in ("cyclopts", "jsonschema", "rich"):
            importlib.import_module(name)
    except ImportError:
        print(f"error: {MissingExtraError('the command line', 'cli')}", file=sys.stderr)
        return 2
    from jianmu.cli.app import execute  # noqa: PLC0415  # it imports the extra

    return execute(sys.argv[1:] if arguments is None else arguments)
