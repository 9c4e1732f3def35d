"""Nodes made of functions: @action, @condition, @async_action, @async_condition."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, ClassVar, TypeVar, cast, get_origin, overload  # Any: snapshots, ports, results are the user's

from py_trees.behaviour import Behaviour
from py_trees.common import Status

from jianmu.engine.node import AsyncNode, Node, NodeMixin
from jianmu.engine.ports import In, Out
from jianmu.errors import InvalidStatusError, SetupError
from jianmu.nodes.base import TRUTH, checked, is_async

Made = TypeVar("Made", bound="Function")


class Function(NodeMixin, Behaviour):
    """What nodes made of functions share."""

    fn: ClassVar[Callable[..., Any]]
    is_condition: ClassVar[bool] = False

    def _called(self) -> Any:
        """Return what the function returns, or what is to be awaited."""
        first = self.read_state() if self.is_condition else self.context
        return type(self).fn(first, **{name: self.context.read_port(name) for name in self.declared_ports})

    def _settled(self, result: object) -> Status:
        """Return the status that a result means, and write what it gives."""
        if self.is_condition:
            result = checked(self, "a condition", TRUTH, result)
        if isinstance(result, Status):
            return result
        if isinstance(result, Mapping):
            self.write_state(cast("Mapping[str, Any]", result))
        elif result is not None and not isinstance(result, bool):
            path, kind = self.context.path, type(result).__name__
            text = f"node '{path}' returned {kind}: an action returns a Status, None, a bool, or a dict of updates"
            raise InvalidStatusError(text, path=path)
        return Status.FAILURE if result is False else Status.SUCCESS


class Action(Function, Node):
    """A node made by `action`."""

    def update(self) -> Status:
        """Call the function."""
        return self._settled(self._called())


class Condition(Action):
    """A node made by `condition`."""

    is_condition = True


class AsyncAction(Function, AsyncNode):
    """A node made by `async_action`."""

    async def update_async(self) -> Status:
        """Await the function."""
        return self._settled(await self._called())


class AsyncCondition(AsyncAction):
    """A node made by `async_condition`."""

    is_condition = True


def action(fn: Callable[..., Any]) -> type[Action]:
    """Make a class of nodes of a function: `@action def pay(context, amount: int): ...`.

    The function takes the node's context, then its inputs (`amount: In[int]` is the same).
    `pay("pay", amount="refund.amount")` is a node, `pay.fn` the function.
    SUCCESS when it returns None, True, SUCCESS, or a dict of updates, which is written.
    FAILURE when it returns False or FAILURE.
    RUNNING when it returns that; it is called again when something has happened.
    A function that cannot be used so is a `SetupError` with the line to write; the others do the same.
    """
    return _made(Action, fn, "action")


def condition(fn: Callable[..., Any]) -> type[Condition]:
    """Make a class of nodes of a function of the snapshot and of inputs: `@condition def is_done(state): ...`.

    SUCCESS when it returns True, FAILURE when it returns False; never RUNNING.
    """
    return _made(Condition, fn, "condition")


def async_action(fn: Callable[..., Awaitable[Any]]) -> type[AsyncAction]:
    """Make a class of nodes of an async function, or of an object with `async def __call__`.

    SUCCESS, FAILURE: as with `action`. RUNNING while it is awaited. Halting cancels it.
    """
    return _made(AsyncAction, fn, "async_action")


@overload
def async_condition(fn: Callable[..., Awaitable[Any]]) -> type[AsyncCondition]: ...
@overload
def async_condition(*, reads: tuple[str, ...]) -> Callable[[Callable[..., Awaitable[Any]]], type[AsyncCondition]]: ...
def async_condition(fn: Callable[..., Any] | None = None, *, reads: tuple[str, ...] = ()) -> Any:
    """Make a class of nodes of an async function of the snapshot that returns a bool.

    SUCCESS, FAILURE: as with `condition`. RUNNING while it is awaited. Halting cancels it.
    While a composite that looks again is on, the result holds; it is evaluated again in the background when a field
    that it watches was changed: its inputs and the `reads` of `@async_condition(reads=("score",))`, or else all that
    are kept.
    """
    make = functools.partial(_made, AsyncCondition, word="async_condition", reads=reads)
    return make if fn is None else make(fn)


def _made(base: type[Made], fn: Callable[..., Any], word: str, **attributes: object) -> type[Made]:
    """Return a class of nodes for a function."""
    inner: Any = getattr(fn, "func", fn)  # Any: a function or an object; that in a functools.partial
    name: str = getattr(inner, "__name__", type(inner).__name__)
    if not callable(fn):
        raise SetupError(f"@{word} makes nodes of functions, not of {fn!r}")
    if is_async(fn) is not issubclass(base, AsyncNode):
        kind = f"an async function: write @async_{word}" if is_async(fn) else f"a plain function: write @{word[6:]}"
        raise SetupError(f"{name} is {kind}, not @{word}")
    lead = "state" if word.endswith("condition") else "context"
    parameters = [*inspect.signature(fn).parameters.values()]
    if not parameters:
        raise SetupError(f"{name} takes nothing: write def {name}({lead})")
    first, *ports = parameters
    space = {
        "__module__": getattr(inner, "__module__", base.__module__),
        "__doc__": getattr(inner, "__doc__", None) or base.__doc__,
        "__qualname__": getattr(inner, "__qualname__", name),
        "__annotations__": {first.name: first.annotation} | {port.name: _port_type(port.annotation) for port in ports},
        "fn": staticmethod(fn),
    }
    defaults = {port.name: port.default for port in ports if port.default is not port.empty}
    made = cast("type[Made]", type(name, (base,), defaults | space | attributes))
    if first.name in made.declared_ports:
        raise SetupError(f"{name} takes its inputs after the first parameter: write def {name}({lead}, {first})")
    for port in ports:
        declared = made.declared_ports.get(port.name)
        if declared is None or declared.is_output or port.kind not in (port.POSITIONAL_OR_KEYWORD, port.KEYWORD_ONLY):
            call = f"write def {name}({first.name}, {port.name}: In[<type>]); return what is to be written"
            raise SetupError(f"parameter '{port.name}' of {name} is no input: {call}")
    return made


def _port_type(annotation: Any) -> Any:
    """Return the annotation of a parameter as a port's: `amount: float` is short for `amount: In[float]`."""
    if isinstance(annotation, str):
        return annotation if "In[" in annotation or "Out[" in annotation else f"In[{annotation}]"
    is_port = annotation is inspect.Parameter.empty or (get_origin(annotation) or annotation) in (In, Out)
    return annotation if is_port else In[annotation]
