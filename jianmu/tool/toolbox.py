"""Tools by name: boxes, boxes of boxes, and what is chosen of them."""

from __future__ import annotations

import difflib
import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, ClassVar, Self  # Any: functions of the user's
from weakref import WeakKeyDictionary

import anyio

from jianmu.errors import SetupError
from jianmu.tool.base import Tool


class Toolbox:
    """Tools with names of their own, made of tools, functions and other boxes.

    What is in a box is looked up when it is asked for: a box of boxes follows those whose tools change.
    A box with a life of its own (a connection) overrides `start` and `stop`, and `tools`.

    Args:
        parts: tools, functions (as `@tool` would take them), and boxes.

    Raises:
        SetupError: two different tools have one name.
    """

    is_live: ClassVar[bool] = False
    """Whether the tools of this class of boxes change, or are known only while it is open."""

    def __init__(self, *parts: Tool | Toolbox | Callable[..., Any]) -> None:
        self.parts = tuple(part if isinstance(part, (Tool, Toolbox)) else Tool(part) for part in parts)
        self._users = 0
        self._closing: AsyncExitStack | None = None
        self._gate = anyio.Lock()
        self._fixed: tuple[Tool, ...] | None = None
        if not self._changes():
            self._fixed = self._found()
            len(self.tools)  # finds a name that two have

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The tools, in order.

        Raises:
            SetupError: two different tools have one name.
        """
        return self._found() if self._fixed is None else self._fixed

    def _found(self) -> tuple[Tool, ...]:
        """Return the tools of the parts as they are now."""
        found: dict[str, Tool] = {}
        for part in self.parts:
            for one in part.tools if isinstance(part, Toolbox) else (part,):
                other = found.setdefault(one.name, one)
                if other is not one:
                    is_same = other.origin == one.origin
                    whose = (
                        f"both of {one.origin}; leave one out, or" if is_same else f"{other.origin} and {one.origin};"
                    )
                    raise SetupError(
                        f"two tools are named '{one.name}': {whose} give one another name,"
                        f' Tool(fn, name="...") or box.prefixed("..._")'
                    )
        return tuple(found.values())

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the tools, in order."""
        return tuple(one.name for one in self.tools)

    def __iter__(self) -> Iterator[Tool]:
        """Go through the tools."""
        return iter(self.tools)

    def __len__(self) -> int:
        """How many tools there are."""
        return len(self.tools)

    def __contains__(self, name: object) -> bool:
        """Whether a tool has this name."""
        return name in self.names

    def get(self, name: str) -> Tool | None:
        """Return the tool of this name, or None."""
        return next((one for one in self.tools if one.name == name), None)

    def missing(self, name: str) -> str:
        """Return what a model is told that has called a tool which is not there."""
        near = difflib.get_close_matches(name, self.names, 1)
        hint = f"did you mean '{near[0]}'? There are" if near else "there are"
        return f"There is no tool '{name[:64]}', so nothing was called; {hint}: {', '.join(self.names) or 'none'}."

    def only(self, *names: str) -> Toolbox:
        """Return the box with these tools only.

        Raises:
            SetupError: one is not there; of a box whose tools change this is not known.
        """
        for name in () if self._changes() else names:
            if name not in self.names:
                raise SetupError(f"a toolbox has no tool '{name}': there are: {', '.join(self.names) or 'none'}")
        return self.where(lambda one: one.name in names)

    def without(self, *names: str) -> Toolbox:
        """Return the box without these tools."""
        return self.where(lambda one: one.name not in names)

    def where(self, predicate: Callable[[Tool], bool]) -> Toolbox:
        """Return the box with those tools only for which `predicate` returns true."""
        return _Chosen(self, lambda one: one if predicate(one) else None)

    def prefixed(self, prefix: str) -> Toolbox:
        """Return the box with `prefix` before each name."""
        return _Chosen(self, _kept(lambda one: one.replace(name=prefix + one.name)))

    def with_options(self, **options: Any) -> Toolbox:
        """Return the box with other options for each of its tools: those of a tool, but for the name.

        `Toolbox(box.where(reads), box.where(writes).with_options(requires_approval=True))`

        Raises:
            SetupError: there is no such option, or it has another shape; of a box whose tools change this is found when
                its tools are asked for.
        """
        if "name" in options:
            raise SetupError("a box has no two tools of one name: with_options() takes other options, not name=")
        made = _Chosen(self, _kept(lambda one: one.replace(**options)))
        if not self._changes():
            len(made.tools)
        return made

    @property
    def catalogue_hash(self) -> str:
        """16 hex digits that stand for what the model is shown of these tools, in whatever order."""
        shown = sorted((one.name, one.description, json.dumps(one.parameters, sort_keys=True)) for one in self.tools)
        return hashlib.sha256(json.dumps(shown).encode()).hexdigest()[:16]

    # Its life

    async def open(self) -> None:
        """Open the boxes in it and then itself; what is open already stays so until its last `close`."""
        if self._users == 0:
            self._gate = anyio.Lock()  # of this event loop
        self._users += 1
        try:
            async with self._gate:
                if self._closing is None:
                    self._closing = await self._opened()
        except BaseException:
            self._users -= 1
            raise

    async def _opened(self) -> AsyncExitStack:
        """Open everything and return how it is closed again; if something raises, what was opened is closed."""
        async with AsyncExitStack() as stack:
            for part in self.parts:
                if isinstance(part, Toolbox):
                    await part.open()
                    stack.push_async_callback(part.close)
            await self.start()
            stack.push_async_callback(self.stop)
            return stack.pop_all()

    async def close(self) -> None:
        """Close it, and then the boxes in it, if nobody else has it open: all of them, also if one raises.

        A cancellation does not cut this off.
        """
        if self._users == 0:
            return
        try:
            with anyio.CancelScope(shield=True):
                await self._close_if_last()
        finally:
            self._users -= 1

    async def _close_if_last(self) -> None:
        async with self._gate:
            if self._users == 1 and self._closing is not None:
                closing, self._closing = self._closing, None
                await closing.aclose()

    async def start(self) -> None:
        """Do what is to be done when the box is opened; for boxes with a life."""

    async def stop(self) -> None:
        """Do what is to be done when the box is closed; for boxes with a life."""

    async def __aenter__(self) -> Self:
        """Open it."""
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        await self.close()

    def _changes(self) -> bool:
        return self.is_live or any(isinstance(part, Toolbox) and part._changes() for part in self.parts)


def _kept(make: Callable[[Tool], Tool]) -> Callable[[Tool], Tool]:
    """Return a function that makes a tool of another one, and the same one each time."""
    made = WeakKeyDictionary[Tool, Tool]()
    return lambda one: made.get(one) or made.setdefault(one, make(one))


class _Chosen(Toolbox):
    """What `choose` makes of the tools of a box: the same one, one with another name, or None."""

    def __init__(self, box: Toolbox, choose: Callable[[Tool], Tool | None]) -> None:
        self._choose = choose
        super().__init__(box)

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The tools that were chosen, in order."""
        return tuple(made for one in super().tools if (made := self._choose(one)) is not None)
