"""What nodes open and close: `setup` and `shutdown` of py_trees, `open` and `close` of jianmu."""

from __future__ import annotations

from collections.abc import Mapping
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
        self._opened: list[Any] = []  # Any: nodes that have close()

    def setup(self) -> None:
        """Call each node's `setup`, once."""
        if self._is_set_up:
            return
        self.setup_subtree(self._root)
        self._is_set_up = True

    def setup_subtree(self, top: Behaviour) -> None:
        """Call `setup` of all nodes of a subtree, children first."""
        for node in walk(top):
            try:
                node.setup(**self._arguments)
            except Exception as error:
                error.add_note(f"raised by setup() of node '{path_of(node)}'")
                raise

    async def open(self) -> None:
        """Await each node's `open`; if one raises, those that are open are closed again."""
        for node in walk(self._root):
            opens = getattr(node, "open", None)
            if opens is None and getattr(node, "close", None) is None:
                continue
            try:
                if opens is not None:
                    await opens()
            except BaseException as error:
                error.add_note(f"raised by open() of node '{path_of(node)}'")
                await self.close()
                raise
            self._opened.append(node)

    async def close(self) -> None:
        """Await each open node's `close`, the last first, out of reach of cancellation.

        Raises:
            ExceptionGroup: of what they raised, after all have had their turn.
        """
        raised: list[Exception] = []
        with anyio.CancelScope(shield=True):
            while self._opened:
                node = self._opened.pop()
                closes = getattr(node, "close", None)
                try:
                    if closes is not None:
                        await closes()
                except Exception as error:  # noqa: BLE001  # the others must be closed too
                    error.add_note(f"raised by close() of node '{path_of(node)}'")
                    raised.append(error)
        if raised:
            raise raised[0] if len(raised) == 1 else ExceptionGroup("nodes failed to close", raised)

    def shutdown(self) -> None:
        """Call each node's `shutdown`, if they were set up."""
        if not self._is_set_up:
            return
        self._is_set_up = False
        for node in walk(self._root):
            node.shutdown()
