"""The lines at which a program may be killed: those that await, and those that call a store or its database.

A point is a line of a file, and when: `before` it, `within` it (the coroutine is suspended there, or the function is
left there), `after` it (the next line of the same function).
"""

from __future__ import annotations

import ast
import os
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

ROOT = Path(__file__).parents[2]
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
FOLDERS = ("jianmu/engine", "jianmu/nodes", "jianmu/stores")
SAYS = {"say", "execute", "work", "attempt", "connect", "renew", "commit"}
"""What calls a store or its database without an await."""


def waits(node: ast.AST) -> bool:
    """Whether a piece of a program awaits, or calls a store or its database."""
    if isinstance(node, ast.Await | ast.AsyncWith | ast.AsyncFor):
        return True
    if not isinstance(node, ast.Call):
        return False
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", None)
    return name in SAYS


@cache
def lines(file: str) -> frozenset[int]:
    """Return the lines of a file at which something is waited for or written."""
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    return frozenset(node.lineno for node in ast.walk(tree) if waits(node) and isinstance(node, ast.stmt | ast.expr))


@cache
def files() -> tuple[str, ...]:
    """Return the files with such lines: those of the library that run in a life, and the shapes."""
    found = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]
    names = [path.relative_to(ROOT).as_posix() for path in sorted(found)]
    names = [name for name in names if not name.startswith("jianmu/engine/state/")]  # it keeps nothing anywhere
    return tuple(name for name in (*names, "jianmu/agent.py", "tests/crash/shapes.py") if lines(name))


def lines_of(file: str, function: str) -> list[int]:
    """Return those of them that stand in one function."""
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    found = next(node for node in ast.walk(tree) if isinstance(node, FUNCTIONS) and node.name == function)
    return sorted(line for line in lines(file) if found.lineno < line <= (found.end_lineno or 0))


@dataclass(frozen=True, order=True)
class Point:
    """Where, when, and the how-manieth time."""

    file: str
    line: int
    when: str
    count: int = 1

    def __str__(self) -> str:
        """Return it as it stands in a report."""
        return f"{self.file}:{self.line} {self.when} #{self.count}"


class Tracer:
    """Counts how often points are passed, and kills the process at one of them.

    Args:
        fatal: the point, or None.

    Attributes:
        counts: whether it does so now.
    """

    def __init__(self, fatal: Point | None = None) -> None:
        self.passed: Counter[tuple[str, int, str]] = Counter()
        self.counts = True
        self._fatal = None if fatal is None else (fatal.file, fatal.line, fatal.when)
        self._count = 0 if fatal is None else fatal.count
        self._files = {str(ROOT / file): (file, lines(file)) for file in files()}
        self._known: dict[CodeType, tuple[str, frozenset[int]] | None] = {}

    def start(self) -> None:
        """Watch this thread and all that are started from now on."""
        threading.settrace(self._enter)
        sys.settrace(self._enter)

    def stop(self) -> None:
        """Watch this thread no more, and no new ones."""
        threading.settrace(None)  # pyright: ignore[reportArgumentType]  # that is how it is ended
        sys.settrace(None)

    def counted(self) -> Iterator[tuple[str, int, str, int]]:
        """Yield the points that were passed, and how often."""
        for (file, line, when), count in sorted(self.passed.items()):
            yield file, line, when, count

    def _enter(self, frame: FrameType, event: str, arg: Any) -> Callable[..., Any] | None:
        """Return what watches a function, if it has lines that count."""
        code = frame.f_code
        found = self._known.get(code, self)
        if found is self:
            found = self._known[code] = self._look(code)
        return None if found is None else self._watch(*found, frame.f_lineno)

    def _look(self, code: CodeType) -> tuple[str, frozenset[int]] | None:
        file, counted = self._files.get(code.co_filename, ("", frozenset[int]()))
        own = counted & {line for _, _, line in code.co_lines() if line is not None}
        return (file, own) if own else None

    def _watch(self, file: str, counted: frozenset[int], last: int) -> Callable[..., Any]:
        """Return what watches one function, or one stretch of a coroutine, which goes on at the line `last`."""

        def watch(frame: FrameType, event: str, arg: Any) -> Callable[..., Any]:
            nonlocal last
            if event == "line":
                line = frame.f_lineno
                if last in counted and last != line:
                    self._pass(file, last, "after")
                if line in counted:
                    self._pass(file, line, "before")
                last = line
            elif event == "return" and last in counted:
                self._pass(file, last, "within")
            return watch

        return watch

    def _pass(self, *point: Any) -> None:
        if not self.counts:
            return
        self.passed[point] += 1
        if point == self._fatal and self.passed[point] == self._count:
            os.kill(os.getpid(), signal.SIGKILL)
