"""What a node of a thread's tree says of itself, and the check that the tree around it fits."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from typing import ClassVar, TypeAlias

from py_trees.behaviour import Behaviour
from py_trees.composites import Composite

from jianmu.engine.context import NodeContext
from jianmu.engine.node import NodeMixin
from jianmu.engine.tree import descend, path_of
from jianmu.errors import SetupError
from jianmu.nodes.beside import beside
from jianmu.nodes.llm import AgentLLMNode
from jianmu.nodes.tools import ToolExecutor
from jianmu.thread import state

Kinds: TypeAlias = tuple[type[Behaviour], ...]


class Part(NodeMixin, Behaviour):
    """A node that says what it needs; a tree in which that is not so is refused before its first tick.

    A node that builds its subtree later, as a ForEach does, may build there what is missing: then it is not missed.

    Attributes:
        reads: the fields that it reads.
        writes: the fields that it writes; the schema has both.
        requires: kinds of nodes of which the tree has one each that has to do with it.
        before: kinds whose nodes come later in the tree's order: parents first, then from left to right. Those that
            may be at work at the same time come neither later nor earlier.
        after: kinds whose nodes come earlier. Of both only those that it `concerns`.
        wraps: kinds of nodes of which there is one each below it.
        twice: what would happen twice if another one of its kind stood above it.
    """

    reads: ClassVar[tuple[str, ...]] = ()
    writes: ClassVar[tuple[str, ...]] = ()
    requires: ClassVar[Kinds] = ()
    before: ClassVar[Kinds] = ()
    after: ClassVar[Kinds] = ()
    wraps: ClassVar[Kinds] = ()
    twice: ClassVar[str] = ""

    def on_bound(self) -> None:
        """Refuse a schema without the fields, and a tree in another order.

        Raises:
            SetupError: with what to write.
        """
        require_fields(self, *self.reads, *self.writes)
        around = nodes_around(self)
        for kind in () if any(map(_builds_later, around)) else self.requires:
            if not any(isinstance(node, kind) and _concerns(node, self) for node in around):
                raise self._refused(f"needs {_a(kind)} in its tree: put {kind.__name__}(...) {self._side(kind)}")
        self._check_below()
        self._check_order(around)
        for above in nodes_above(self):
            if self.twice and getattr(above, "twice", "") == self.twice:
                raise self._refused(f"stands below '{path_of(above)}', and {self.twice} twice: leave one out")

    def concerns(self, node: Behaviour) -> bool:
        """Whether a node of a kind in `before` or `after` has to do with this one; the others may stand anywhere."""
        return True

    def _check_below(self) -> None:
        below = [*_on_this_state(self)]
        if self._may_build_below() or all(any(isinstance(node, kind) for node in below) for kind in self.wraps):
            return
        child = "react(...)" if self.wraps == (AgentLLMNode, ToolExecutor) else f"{self.wraps[0].__name__}(...)"
        signature = inspect.signature(type(self)).parameters.values()
        given = [one.name for one in signature if one.kind is one.KEYWORD_ONLY and one.default is one.empty]
        line = f'{type(self).__name__}("{self.name}", {", ".join([child, *(f"{name}=..." for name in given)])})'
        raise self._refused(f"needs {' and '.join(map(_a, self.wraps))} below it: write {line}")

    def _may_build_below(self) -> bool:
        """Whether a node below builds its subtree later, so that nobody knows yet what will be there."""
        return any(map(_builds_later, _on_this_state(self)))

    def _check_order(self, around: Sequence[Behaviour]) -> None:
        for node in beside(self):
            if isinstance(node, (*self.before, *self.after)) and self.concerns(node):
                side = "before" if isinstance(node, self.before) else "after"
                raise self._refused(f"may be at work at the same time as '{path_of(node)}': put it {side} that node")
        place = next(place for place, node in enumerate(around) if node is self)
        for node in around[:place]:
            if isinstance(node, self.before) and self.concerns(node):
                raise self._refused(f"comes after '{path_of(node)}', which uses what it does: put it before that node")
        for node in around[place + 1 :]:
            if isinstance(node, self.after) and self.concerns(node):
                raise self._refused(f"comes before '{path_of(node)}', whose work it uses: put it after that node")

    def _side(self, kind: type[Behaviour]) -> str:
        """Return where others of a kind belong."""
        if wrapped := getattr(kind, "wraps", ()):
            return f"around {' and '.join('the model' if one is AgentLLMNode else _a(one) for one in wrapped)}"
        if AgentLLMNode in getattr(kind, "after", ()):
            return "after the model"
        return "below or after it" if issubclass(kind, self.before) else "before it"

    def _refused(self, why: str) -> SetupError:
        path, kind = self.context.path, type(self).__name__
        return SetupError(f"node '{path}' ({kind}) {why}", path=path)


def require_fields(node: NodeMixin, *names: str) -> None:
    """Refuse a schema that lacks a field.

    Raises:
        SetupError: with the part of the state to derive from.
    """
    fields_for(node.context, *names)


def fields_for(context: NodeContext, *names: str) -> None:
    """Refuse a schema that lacks a field which a tool needs; as `require_fields`."""
    schema, path = context.manager.schema, context.path
    for name in names:
        if name not in schema.fields:
            bases = _PARTS.get(name, "...")
            model, line = schema.model.__name__, f"class {schema.model.__name__}({bases}, ...)"
            raise SetupError(f"node '{path}' needs the field {name}, which {model} lacks: {line}", path=path)


def nodes_around(node: Behaviour) -> list[Behaviour]:
    """Return all nodes of the tree that are on the same state, parents first."""
    return [*_on_this_state(_top(node))]


def nodes_above(node: Behaviour) -> Iterator[Behaviour]:
    """Yield the nodes above a node that are on the same state, the nearest first."""
    while node.parent is not None and getattr(node.parent, "inner_state", None) is None:
        node = node.parent
        yield node


def _top(node: Behaviour) -> Behaviour:
    """Return the highest node on the same state."""
    return [node, *nodes_above(node)][-1]


def _on_this_state(top: Behaviour) -> Iterator[Behaviour]:
    """Yield the nodes of a tree, parents first, without those inside of an agent used as a node."""
    hidden: set[int] = set()
    for node in descend(top):
        if id(node) in hidden or getattr(node, "inner_state", None) is not None:
            hidden |= {id(below) for below in node.children}
        if id(node) not in hidden:
            yield node


def _builds_later(node: Behaviour) -> bool:
    """Whether a node builds its children when it is entered: it had none when it was bound."""
    return isinstance(node, Composite) and not getattr(node, "bound_children", len(node.children))


def _concerns(node: Behaviour, other: Behaviour) -> bool:
    return not isinstance(node, Part) or node.concerns(other)


def _a(kind: type[Behaviour]) -> str:
    return f"{'an' if kind.__name__[0] in 'AEIOU' else 'a'} {kind.__name__}"


_PARTS = {
    field: part.__name__
    for part in vars(state).values()
    if isinstance(part, type) and part.__name__.endswith("State") and part.__name__ != "ThreadState"
    for field in getattr(part, "__annotations__", {})
}
