"""Measures of the source: who imports whom, how long, how deep."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).parent.parent
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
BLOCKS = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Try, ast.TryStar, ast.Match)
SILENCERS = re.compile(r"#\s*(?:noqa|type:\s*ignore|pyright:\s*ignore|ruff:\s*noqa)[^#]*")


@dataclass(frozen=True)
class Source:
    """One file of Python."""

    path: Path

    @property
    def where(self) -> str:
        """The path from the top of the repository."""
        return self.path.relative_to(ROOT).as_posix()

    @property
    def module(self) -> str:
        """The dotted name."""
        return ".".join(self.path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")

    @cached_property
    def text(self) -> str:
        """The whole text."""
        return self.path.read_text(encoding="utf-8")

    @cached_property
    def tree(self) -> ast.Module:
        """The parsed text."""
        return ast.parse(self.text, self.where)

    @property
    def lines(self) -> int:
        """How many lines the file has."""
        return len(self.text.splitlines())

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """All parts of the tree."""
        return list(ast.walk(self.tree))

    def functions(self) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
        """Return all functions and methods, nested ones too."""
        return [node for node in self.nodes if isinstance(node, FUNCTIONS)]

    def at(self, node: ast.stmt) -> str:
        """Return where a definition stands, for a message."""
        return f"{self.where}:{node.lineno} {getattr(node, 'name', '')}".strip()

    def comments(self) -> Iterator[tuple[int, str]]:
        """Yield the line number and text of each comment; what looks like one inside a string is none."""
        for token in tokenize.generate_tokens(io.StringIO(self.text).readline):
            if token.type == tokenize.COMMENT:
                yield token.start[0], token.string


def sources(folder: str) -> list[Source]:
    """Return the Python files below a folder of the repository."""
    return [Source(path) for path in sorted((ROOT / folder).rglob("*.py"))]


def imported(node: ast.AST) -> list[str]:
    """Return the dotted names that an import statement may mean, `from a import b` as `a.b`."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        return [f"{node.module}.{alias.name}" for alias in node.names]
    return []


def import_graph(files: list[Source]) -> dict[str, set[str]]:
    """Return for each module those of the project that it imports, wherever the statement stands."""
    modules = {file.module for file in files}
    graph: dict[str, set[str]] = {}
    for file in files:
        names = [name for node in file.nodes for name in imported(node)]
        graph[file.module] = {nearest(name, modules) for name in names} - {"", file.module}
    return graph


def nearest(name: str, modules: set[str]) -> str:
    """Return the module that a dotted name lies in, or an empty text."""
    while name and name not in modules:
        name = name.rpartition(".")[0]
    return name


def length(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Return the lines of a function, its docstring included, its decorators not."""
    return (function.end_lineno or function.lineno) - function.lineno + 1


def nesting(node: ast.AST, depth: int = 0) -> int:
    """Return how many blocks deep a function goes; definitions inside it count for themselves."""
    own = [
        child for child in ast.iter_child_nodes(node) if not isinstance(child, (*FUNCTIONS, ast.ClassDef, ast.Lambda))
    ]
    return max((nesting(child, depth + isinstance(child, BLOCKS)) for child in own), default=depth)


def lazy_imports(file: Source) -> Iterator[tuple[ast.stmt, str]]:
    """Yield the imports inside functions, with the dotted name."""
    for function in file.functions():
        for node in ast.walk(function):
            yield from ((node, name) for name in imported(node) if isinstance(node, ast.stmt))


def silent(file: Source) -> Iterator[str]:
    """Yield the places that silence a tool without giving a reason after it."""
    for number, comment in file.comments() if SILENCERS.search(file.text) else ():
        found = SILENCERS.search(comment)
        if found and not comment[found.end() :].strip("# "):
            yield f"{file.where}:{number} {comment}"
