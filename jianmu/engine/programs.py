"""Whether a thread fits a program, and whether a program can be kept: what is asked before the first tick."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any  # Any: nodes of any class

from py_trees.behaviour import Behaviour
from py_trees.blackboard import Client
from py_trees.composites import Composite
from py_trees.decorators import Decorator

from jianmu.engine.answers import door_of
from jianmu.engine.interactive import InteractiveNode, declared_answer
from jianmu.engine.journal import read_entries
from jianmu.engine.questions import Suspension
from jianmu.engine.record import Record
from jianmu.engine.runrecord import RunRecord
from jianmu.engine.shapes import is_other_kind, is_same_shape
from jianmu.engine.spots import GONE, Misfit, Saved, may_build, refuse, rename_position, renamed
from jianmu.engine.tree import path_of, paths
from jianmu.errors import SetupError

AT_REST = ("new", "finished", "failed")
"""How a thread stands whose tree is nowhere."""
KNOWN = ("py_trees", "jianmu")
"""The packages whose nodes say what they keep."""
UNKNOWN = ("started", "unknown")
"""The states of an effect of which nobody knows what became."""


def unfit(root: Behaviour, record: RunRecord, aliases: Mapping[str, str] | None = None) -> list[Misfit]:
    """Return each path of a thread that does not fit a tree, with the reason; nothing is changed.

    Args:
        root: the top of the tree.
        record: the thread.
        aliases: old paths and what they are called now.

    Raises:
        CorruptRecordError: the record cannot be read.
    """
    if record.status in AT_REST:
        return []
    names = aliases or {}
    questions = [one for one in record.records if one.is_live]
    waiting = dict.fromkeys([*(one.origin.path for one in questions), *_unknown(record)])
    today = {path: node for node, path in paths(root)}
    found: list[Misfit] = []
    if record.position is not None:
        saved = Saved(rename_position(record.position, names), waiting)
        found = saved.unfit(today)
        waiting = {path: None for path in waiting if all(spot.was != path for spot in saved.spots)}
    found += [(path, GONE) for path in waiting if not _is_there(renamed(path, names), today)]
    told = {path for path, _ in found}
    return found + [misfit for misfit in _other_questions(questions, names, today) if misfit[0] not in told]


def check_program(root: Behaviour, record: RunRecord, aliases: Mapping[str, str] | None = None) -> None:
    """Refuse a thread that does not fit a tree, before anything is changed.

    Raises:
        CorruptRecordError: the record cannot be read.
        TreeMismatchError: with each path that does not fit, and why.
    """
    refuse(unfit(root, record, aliases))


def waiting_in(record: RunRecord) -> set[str]:
    """Return the saved paths of the nodes that have an open question, or an effect of unknown outcome."""
    return {*(one.origin.path for one in record.records if one.is_live), *_unknown(record)}


def check_keepable(root: Behaviour) -> None:
    """Refuse a tree with a branch of a user's that begins anew by `initialise` and does not say what it keeps.

    Raises:
        SetupError: there is one; with its path and what to write.
    """
    for node, path in paths(root):
        if not isinstance(node, Composite | Decorator) or (hasattr(node, "memento") and hasattr(node, "restore")):
            continue
        owner = next(base for base in type(node).__mro__ if "initialise" in vars(base))
        if owner.__module__.partition(".")[0] not in KNOWN:
            kind = type(node).__name__
            what = f"node '{path}' cannot be kept in a store, since {kind} overrides initialise()"
            way = f"give {kind} a memento(), which returns JSON or None, and a restore(value)"
            raise SetupError(f"{what}: {way}", path=path)


def uses_blackboard(root: Behaviour) -> list[str]:
    """Return the paths of the nodes that have a client of py_trees' blackboard, which no checkpoint has."""
    return [
        path for node, path in paths(root) if node.blackboards or isinstance(getattr(node, "blackboard", 0), Client)
    ]


class Program:
    """A tree as it was bound, to tell what was done to it since; what nodes build by themselves is no edit.

    Args:
        root: the top of the tree.
    """

    def __init__(self, root: Behaviour) -> None:
        self._root = root
        self._children = {id(node): (node, [*node.children]) for node, _ in paths(root)}

    def edited(self) -> list[str]:
        """Return the paths of nodes that were put in, and of those below which one was taken out or moved."""
        return [path_of(node) for node in self._reached() if self._is_edited(node)]

    def _reached(self) -> Iterator[Behaviour]:
        """Yield the nodes that no node has built by itself, parents first; nothing below those that were put in."""
        stack = [self._root]
        while stack:
            node = stack.pop()
            yield node
            if id(node) in self._children and not may_build(node):
                stack.extend(reversed(node.children))

    def _is_edited(self, node: Behaviour) -> bool:
        """Whether a node was put in, or what was below it is not all there in its order."""
        if id(node) not in self._children:
            return True
        left = [child for child in node.children if id(child) in self._children]
        return not may_build(node) and left != self._children[id(node)][1]


def _unknown(record: RunRecord) -> Iterator[str]:
    """Yield the paths of effects of which nobody knows what became."""
    return (entry.origin.path for entry in read_entries(record.journal) if entry.state in UNKNOWN)


def _is_there(path: str, today: Mapping[str, Behaviour]) -> bool:
    """Whether a node is there, or may be built when one above it is restored."""
    while path not in today and "/" in path:
        path = path.rpartition("/")[0]
        if path in today:
            return may_build(today[path])
    return path in today


def _other_questions(
    questions: list[Record], aliases: Mapping[str, str], today: Mapping[str, Behaviour]
) -> Iterator[Misfit]:
    """Yield the nodes that do not ask what their open questions have asked."""
    for one in questions:
        why = _problem(today.get(renamed(one.origin.path, aliases)), one.question)
        if why is not None:
            yield one.origin.path, why


def _problem(node: Any, question: Suspension) -> str | None:
    """Return what is other about a question's node, as far as that is known before it asks."""
    if not isinstance(node, InteractiveNode):
        return None
    request, kind, asked = node.known_request, node.answers, question.response_schema
    if request is not None and request.reason != question.reason:
        return "it asks of another reason than its open question"
    if request is not None or kind is not None:
        schema = door_of(kind).schema if request is None else request.door.schema
        is_other = not is_same_shape(schema, asked)
    else:
        declared = declared_answer(type(node))
        is_other = declared is not None and is_other_kind(declared.schema, asked)
    return "it asks for an answer of another type than its open question" if is_other else None
