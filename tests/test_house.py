"""How the house is built: imports run downwards, files and functions stay small, exceptions have reasons."""

from __future__ import annotations

import ast
import functools
import graphlib
import os
import statistics
import subprocess
import sys

from tests.house import FUNCTIONS, ROOT, Source, import_graph, imported, lazy_imports, length, nesting, silent, sources

FILES = sources("jianmu")
COMMAND_LINE = ("jianmu/cli", "jianmu/__main__")


@functools.cache
def graph() -> dict[str, set[str]]:
    """Return who imports whom."""
    return import_graph(FILES)


def test_import_contracts_hold() -> None:
    """Layers: engine never imports message, tool, model or nodes; nodes never stores; nobody upwards."""
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command; lint_imports_command()"]
    environment = {**os.environ, "COLUMNS": "200"}
    done = subprocess.run(
        [*command, "--no-cache"], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_there_is_no_import_circle() -> None:
    """No module reaches itself through imports, those under TYPE_CHECKING and in functions included."""
    order = list(graphlib.TopologicalSorter(graph()).static_order())
    assert len(order) == len(FILES)


def test_nobody_imports_the_top() -> None:
    """`jianmu` itself is for users: nothing inside it imports from it."""
    assert [name for name, others in graph().items() if "jianmu" in others and name != "jianmu.__main__"] == []


def test_state_is_the_lowest_part_of_the_engine() -> None:
    """`engine.state` imports nothing of jianmu but itself and the errors."""
    allowed = ("jianmu.errors", "jianmu.engine.state")
    found = {
        name: sorted(other for other in others if not other.startswith(allowed))
        for name, others in graph().items()
        if name.startswith("jianmu.engine.state")
    }
    assert {name: others for name, others in found.items() if others} == {}


def test_asyncio_is_imported_nowhere() -> None:
    """All concurrency goes through anyio, so that trio works as well."""
    names = [(file.where, name) for file in FILES for node in file.nodes for name in imported(node)]
    assert [place for place in names if place[1].split(".")[0] == "asyncio"] == []


def test_only_extras_are_imported_late() -> None:
    """A function of the library imports nothing of jianmu: such an import hides a circle."""
    found = [
        file.at(node)
        for file in FILES
        if not file.where.startswith(COMMAND_LINE)
        for node, name in lazy_imports(file)
        if name.split(".")[0] == "jianmu"
    ]
    assert found == []


LINES = {
    "jianmu/engine/": 15_335,
    "jianmu/nodes/": 5_500,
    "jianmu/stores/": 2_810,
    "jianmu/testing/": 1_950,
    "jianmu/thread/": 6_220,
}
"""The lines of the parts, as they are: the engine has far more than it was to have, and grows for faults only."""


def test_files_are_short() -> None:
    """The median file has at most 150 lines, the longest 400; no part of the library grows unseen."""
    counts = {file.where: file.lines for file in FILES}
    assert {where: count for where, count in counts.items() if count > 400} == {}
    assert statistics.median(counts.values()) <= 150
    for part, most in LINES.items():
        assert sum(count for where, count in counts.items() if where.startswith(part)) <= most


def test_functions_are_short() -> None:
    """At least 60 % of the functions have 10 lines or fewer, none has more than 60."""
    lengths = {file.at(function): length(function) for file in FILES for function in file.functions()}
    assert {where: count for where, count in lengths.items() if count > 60} == {}
    assert sum(count <= 10 for count in lengths.values()) >= 0.6 * len(lengths)


def test_functions_are_flat() -> None:
    """No function nests more than three blocks."""
    assert [file.at(function) for file in FILES for function in file.functions() if nesting(function) > 3] == []


def test_exceptions_have_reasons() -> None:
    """A comment that silences a tool is followed by a second one that says why."""
    everything = [*FILES, *sources("tests"), *sources("examples"), *sources("bench")]
    assert [place for file in everything for place in silent(file)] == []


def test_any_has_a_reason() -> None:
    """Each line with an `Any` says why in a comment, or the import of it does so for the whole module."""
    assert [place for file in FILES for place in unexplained_any(file)] == []


def test_every_test_states_its_promise() -> None:
    """Each test has a docstring."""
    outer = [(file, node) for file in sources("tests") for node in file.tree.body]
    inner = [(file, node) for file, outside in outer if isinstance(outside, ast.ClassDef) for node in outside.body]
    tests = [(file, node) for file, node in (*outer, *inner) if isinstance(node, FUNCTIONS)]
    named = [(file, node) for file, node in tests if node.name.startswith("test_")]
    assert [file.at(node) for file, node in named if not ast.get_docstring(node)] == []
    assert len(named) > 2_000


def unexplained_any(file: Source) -> list[str]:
    """Return the places in a file that use `Any` without a reason."""
    if "Any" not in file.text:
        return []
    explained = {number for number, _ in file.comments()}
    for node in file.nodes:
        if isinstance(node, ast.ImportFrom) and "typing.Any" in imported(node) and node.lineno in explained:
            return []
    used = {node.lineno for node in file.nodes if isinstance(node, ast.Name) and node.id == "Any"}
    return [f"{file.where}:{number}" for number in sorted(used - explained)]
