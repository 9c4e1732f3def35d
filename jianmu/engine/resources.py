"""What nodes open and close: `setup` and `shutdown` of py_trees, `open` and `close` of jianmu."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Any

import anyio
from py_trees.behaviour import Behaviour

from jianmu.engine.tree import path_of, walk


class Resources:
    """Sets up, opens, closes and shuts down the nodes of one tree.

    `setup` is called once for each node, children first, until `shutdown`; `open` and `close` are
    awaited round the time in which coroutines may live, `close` in reverse order.

    Args:
        root: the tree.
        arguments: given to each `setup`.
    """

    def __init__(self, root: Behaviour, arguments: Mapping[str, Any]) -> None:  # Any: the user's own
        self._root = root
        self._arguments = arguments
        self._is_set_up = False
        self._openers: list[Behaviour] = []
        self._closers: list[Behaviour] = []
        self._opened: list[Behaviour] = []

    def setup(self) -> None:
        """Call each node's `setup`, once."""
        if not self._is_set_up:
            self._openers.clear()
            self._closers.clear()
            self.setup_subtree(self._root)
            self._is_set_up = True

    def setup_subtree(self, top: Behaviour) -> None:
        """Call `setup` of all nodes of a subtree, children first."""
        for node in walk(top):
            if _overrides(node, "setup"):
                with _noted(node, "setup"):
                    node.setup(**self._arguments)
            if _hook(node, "open") or _hook(node, "close"):
                self._openers.append(node)
            if _overrides(node, "shutdown"):
                self._closers.append(node)

    async def open(self) -> None:
        """Await each node's `open`; if one raises, those that are open are closed again."""
        for node in self._openers:
            try:
                with _noted(node, "open"):
                    await _called(node, "open")
            except BaseException:
                await self.close()
                raise
            self._opened.append(node)

    async def close(self) -> None:
        """Await each open node's `close`, the last first, out of reach of cancellation.

        Raises:
            ExceptionGroup: of what they raised, if several did, after all have had their turn.
        """
        raised: list[Exception] = []
        with anyio.CancelScope(shield=True):
            while self._opened:
                node = self._opened.pop()
                try:
                    with _noted(node, "close"):
                        await _called(node, "close")
                except Exception as error:  # noqa: BLE001  # the others must be closed too
                    raised.append(error)
        if raised:
            raise raised[0] if len(raised) == 1 else ExceptionGroup("nodes failed to close", raised)

    def shutdown(self) -> None:
        """Call each node's `shutdown`, if they were set up."""
        if self._is_set_up:
            self._is_set_up = False
            for node in self._closers:
                node.shutdown()


def _overrides(node: Behaviour, what: str) -> bool:
    """Whether a node has a hook that does more than py_trees' empty one."""
    return getattr(type(node), what) is not getattr(Behaviour, what) or what in node.__dict__


@contextmanager
def _noted(node: Behaviour, what: str) -> Generator[None]:
    """Add to an exception whose it is."""
    try:
        yield
    except Exception as error:
        error.add_note(f"raised by {what}() of node '{path_of(node)}'")
        raise


async def _called(node: Behaviour, what: str) -> None:
    """Await a node's hook, if it has it."""
    hook = _hook(node, what)
    if hook is not None:
        await hook()


def _hook(node: Behaviour, what: str) -> Callable[[], Awaitable[object]] | None:
    """Return a node's `open` or `close`; a plain method of that name means something else."""
    found = getattr(node, what, None)
    return found if inspect.iscoroutinefunction(found) else None
