"""What nodes open and close: `setup` and `shutdown` of py_trees, `open` and `close` of jianmu."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Any

import anyio
from py_trees.behaviour import Behaviour

from jianmu.engine.tree import path_of, walk
from jianmu.errors import SetupError


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
        self._is_set_up = self._is_open = False
        self._openers: list[Behaviour] = []
        self._closers: list[Behaviour] = []
        self._opened: list[Behaviour] = []

    def setup(self) -> None:
        """Call each node's `setup`, once; if one raises, those that are set up are shut down again."""
        if self._is_set_up:
            return
        self._is_set_up = True
        try:
            self.add(self._root)
        except BaseException:
            self.shutdown()
            raise

    def replace(self, root: Behaviour) -> None:
        """Look after another tree; this one is shut down."""
        if self._is_set_up:
            self.shutdown()
        self._root = root

    def add(self, top: Behaviour) -> None:
        """Set up all nodes of a subtree, children first; while the tree is not set up they are left for later.

        One with `can_be_late` that is put in later opens what it needs when it needs it: it is not opened here.

        Raises:
            SetupError: a node wants to be opened, and the tree is open already.
        """
        for node in walk(top) if self._is_set_up else ():
            if getattr(node.setup, "__func__", None) is not Behaviour.setup:
                with _noted(node, "setup"):
                    node.setup(**self._arguments)
            if getattr(node.shutdown, "__func__", None) is not Behaviour.shutdown:
                self._closers.append(node)
            if _hook(node, "open") or _hook(node, "close"):
                if self._is_open and getattr(node, "can_be_late", False):
                    continue
                self._refuse_late(node)
                self._openers.append(node)

    def _refuse_late(self, node: Behaviour) -> None:
        """Refuse to open a node in the midst of a pass, where nothing is awaited."""
        if self._is_open:
            path = path_of(node)
            raise SetupError(
                f"node '{path}' has open() or close(), which are awaited round the whole run, and was put in "
                "meanwhile: open what it needs in its update_async(), or in a node that is there from the start",
                path=path,
            )

    async def open(self) -> None:
        """Await each node's `open`; if one raises, those that are open are closed again, and all are shut down."""
        self._is_open = True
        try:
            for node in self._openers:
                with _noted(node, "open"):
                    await _called(node, "open")
                self._opened.append(node)
        except BaseException:
            await self.end()
            raise

    async def end(self) -> None:
        """Close and shut down each node; raises as `close` does."""
        try:
            await self.close()
        finally:
            self.shutdown()

    async def close(self) -> None:
        """Await each open node's `close`, the last first, out of reach of cancellation.

        Raises:
            BaseException: what one of them raised, several as a group, after all have had their turn.
        """
        self._is_open = False
        if not self._opened:
            return
        turns = _Turns("close")
        with anyio.CancelScope(shield=True):
            while self._opened:
                with turns.of(self._opened.pop()) as node:
                    await _called(node, "close")
        turns.end()

    def shutdown(self) -> None:
        """Call each node's `shutdown`, if they were set up; raises as `close` does."""
        self._is_set_up = False
        self._openers.clear()
        turns, closers = _Turns("shutdown"), self._closers
        self._closers = []
        for node in closers:
            with turns.of(node):
                node.shutdown()
        turns.end()


class _Turns:
    """Gives each of some nodes its turn, whatever the others raise."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._raised: list[BaseException] = []

    @contextmanager
    def of(self, node: Behaviour) -> Generator[Behaviour]:
        """Keep what is raised in a node's turn."""
        try:
            with _noted(node, self._what):
                yield node
        except BaseException as error:  # noqa: BLE001  # raised at the end
            self._raised.append(error)

    def end(self) -> None:
        """Raise what was kept."""
        if len(self._raised) == 1:
            raise self._raised[0]
        if self._raised:
            raise BaseExceptionGroup(f"nodes failed to {self._what}", self._raised)


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
    return found if found is not None and inspect.iscoroutinefunction(found) else None
