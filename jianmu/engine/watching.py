"""What makes a condition look again, and what tells loops that a coroutine started below them."""

from __future__ import annotations

from py_trees.behaviour import Behaviour

from jianmu.engine.context import NodeContext


def mark_loops(node: Behaviour, number: int) -> None:
    """Tell the nodes above that a coroutine was started below them in this pass."""
    above = node.parent
    while above is not None:
        above.async_started = number  # pyright: ignore[reportAttributeAccessIssue]  # a note on any node
        above = above.parent


def changed_since(context: NodeContext, reads: tuple[str, ...], version: int) -> bool:
    """Whether a field that a condition watches was changed by another writer after `version`.

    Watched are its `reads` and the fields of its inputs; with neither, all that are kept longer than a step.
    """
    manager = context.manager
    if manager.version == version:
        return False
    bound = [binding.field for binding in getattr(context.node, "port_bindings", {}).values() if binding.field]
    watched = (*reads, *bound) or manager.lasting_fields
    return any(_is_newer(manager.last_change(name), version, context.path) for name in watched)


def _is_newer(change: tuple[int, str | None], version: int, path: str) -> bool:
    """Whether a change came after `version` and from somebody else."""
    return change[0] > version and change[1] != path
