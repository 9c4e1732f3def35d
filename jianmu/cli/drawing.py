"""`jianmu tree`."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from enum import StrEnum
from pathlib import Path

from py_trees.behaviour import Behaviour
from py_trees.common import Status
from pydantic import BaseModel, ConfigDict, ValidationError
from rich.console import Console

from jianmu.cli.faults import Exit, UsageError
from jianmu.cli.load import load_agent, read_checkpoint
from jianmu.cli.picture import picture
from jianmu.draw import dot, mermaid, text
from jianmu.engine.tree import paths


class Format(StrEnum):
    """The language of a drawing."""

    TEXT = "text"
    MERMAID = "mermaid"
    DOT = "dot"


DRAW = {Format.TEXT: text, Format.MERMAID: mermaid, Format.DOT: dot}


class _Entry(BaseModel):
    """What a checkpoint says of one node."""

    status: str = "INVALID"


class _Position(BaseModel):
    """The part of a checkpoint that is drawn."""

    model_config = ConfigDict(extra="ignore")

    paths: list[str]
    nodes: dict[int, _Entry]


class _Record(BaseModel):
    model_config = ConfigDict(extra="ignore")

    position: _Position


def draw_agent(target: str, format: Format, statuses: Path | None) -> Exit:
    """Draw an agent's tree on stdout, with the statuses of a checkpoint if there is one."""
    record = read_checkpoint(statuses) if statuses is not None else None
    with redirect_stdout(sys.stderr):
        root = load_agent(target).root
    if statuses is not None:
        _apply(root, record, statuses)
    if format is Format.TEXT and sys.stdout.isatty():
        console = Console(file=sys.stdout, highlight=False, markup=False, emoji=False)
        for line in picture(root):
            console.print(line)
    else:
        print(DRAW[format](root))
    return Exit.SUCCESS


def _apply(root: Behaviour, record: object, file: Path) -> None:
    """Give the nodes the statuses of a checkpoint; nothing is set up and nothing is run.

    Raises:
        UsageError: it is no checkpoint, or one of another tree.
    """
    try:
        position = _Record.model_validate(record).position
        found = {position.paths[number]: Status[entry.status] for number, entry in position.nodes.items()}
    except (ValidationError, KeyError, IndexError):
        raise UsageError(f"{file} is no checkpoint: it has no position") from None
    nodes = {path: node for node, path in paths(root)}
    missing = next((path for path in found if path not in nodes), None)
    if missing is not None:
        raise UsageError(f"{file} belongs to another tree: this one has no node '{missing}'")
    for path, status in found.items():
        nodes[path].status = status
