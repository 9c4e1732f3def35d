"""Nodes made of functions: @action, @condition, @async_action, @async_condition."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import (  # Any: snapshots, ports and results are the user's
    Any,
    ClassVar,
    TypeVar,
    cast,
    get_origin,
    overload,
)

from py_trees.common import Status

from jianmu.engine.node import AsyncNode, Node, NodeMixin
from jianmu.engine.ports import In, Out
from jianmu.errors import InvalidStatusError, SetupError
from jianmu.nodes.options import is_async, verdict

Made = TypeVar("Made", bound=NodeMixin)


class Action(Node):
    """Call a function with the node's context and its inputs.

    Writes what the function returns, if that is a dict of updates.
    SUCCESS when it returns None, True, a dict or SUCCESS; FAILURE when it returns False or FAILURE.
    RUNNING when it returns that; it is called again when something has happened.
    """

    fn: ClassVar[Callable[..., Any]]  # Any: the function is the user's

    def update(self) -> Status:
        """Call the function."""
        return _settled(self, type(self).fn(self.context, **_inputs(self)))


class Condition(Node):
    """Ask a function of the snapshot.

    SUCCESS when it returns True, FAILURE when it returns False; never RUNNING.
    """

    fn: ClassVar[Callable[..., Any]]  # Any: as above

    def update(self) -> Status:
        """Ask the function."""
        return _judged(self, type(self).fn(self.read_state(), **_inputs(self)))


class AsyncAction(AsyncNode):
    """Await a function of the node's context and its inputs.

    Writes what the function returns, if that is a dict of updates.
    SUCCESS when it has returned None, True, a dict or SUCCESS; FAILURE when False or FAILURE.
    RUNNING while it is awaited.
    Halting cancels it.
    """

    fn: ClassVar[Callable[..., Awaitable[Any]]]  # Any: as above

    async def update_async(self) -> Status:
        """Await the function."""
        return _settled(self, await type(self).fn(self.context, **_inputs(self)))


class AsyncCondition(AsyncNode):
    """Await a condition on the snapshot.

    SUCCESS when it has returned True, FAILURE when False; RUNNING while it is awaited.
    While a composite that looks again is on, the result holds; it is evaluated again in the background
    when a field that it watches was changed: its inputs and `reads`, or else all that are kept.
    Halting cancels it.
    """

    is_condition: ClassVar[bool] = True
    fn: ClassVar[Callable[..., Awaitable[Any]]]  # Any: as above

    async def update_async(self) -> Status:
        """Await the function."""
        return _judged(self, await type(self).fn(self.read_state(), **_inputs(self)))


def action(fn: Callable[..., Any]) -> type[Action]:  # Any: as above
    """Make a class of nodes of a function: `@action def pay(context, amount: int): ...`.

    The function takes the node's context, then its inputs (`amount: In[int]` is the same); it returns
    a Status, None (SUCCESS), a bool, or a dict of updates (SUCCESS). `pay("pay", amount="refund.amount")`
    is a node, `pay.fn` the function.

    Raises:
        SetupError: it is async, or a parameter is no input.
    """
    return _made(Action, fn, "action")


def condition(fn: Callable[..., Any]) -> type[Condition]:  # Any: as above
    """Make a class of nodes of a function of the snapshot that returns a bool: `@condition def is_done(state): ...`.

    Raises:
        SetupError: it is async, or a further parameter is no input.
    """
    return _made(Condition, fn, "condition")


def async_action(fn: Callable[..., Awaitable[Any]]) -> type[AsyncAction]:  # Any: as above
    """Make a class of nodes of an async function, or of an object with `async def __call__`; see `action`.

    Raises:
        SetupError: it is not async, or a parameter is no input.
    """
    return _made(AsyncAction, fn, "async_action")


@overload
def async_condition(fn: Callable[..., Awaitable[Any]]) -> type[AsyncCondition]: ...  # Any: as above
@overload
def async_condition(
    *, reads: tuple[str, ...]
) -> Callable[[Callable[..., Awaitable[Any]]], type[AsyncCondition]]: ...  # Any: as above
def async_condition(fn: Callable[..., Any] | None = None, *, reads: tuple[str, ...] = ()) -> Any:  # Any: as above
    """Make a class of nodes of an async function of the snapshot that returns a bool.

    `@async_condition(reads=("score",))` says which fields make it look again.

    Raises:
        SetupError: it is not async, or a further parameter is no input.
    """
    if fn is None:
        return functools.partial(_made, AsyncCondition, word="async_condition", reads=reads)
    return _made(AsyncCondition, fn, "async_condition")


def _made(base: type[Made], fn: Callable[..., Any], word: str, **attributes: object) -> type[Made]:
    """Return a class of nodes for a function."""
    inner: Any = getattr(fn, "func", fn)  # Any: a function or an object; that in a functools.partial
    name: str = getattr(inner, "__name__", type(inner).__name__)
    if not callable(fn):
        raise SetupError(f"@{word} makes nodes of functions, not of {fn!r}")
    if is_async(fn) is not issubclass(base, AsyncNode):
        kind, other = ("async", f"async_{word}") if is_async(fn) else ("plain", word.removeprefix("async_"))
        raise SetupError(f"{name} is {'an' if kind == 'async' else 'a'} {kind} function: write @{other}, not @{word}")
    first, *ports = _parameters(fn, name, word)
    space: dict[str, object] = {
        "__module__": getattr(inner, "__module__", base.__module__),
        "__doc__": getattr(inner, "__doc__", None) or base.__doc__,
        "__qualname__": getattr(inner, "__qualname__", name),
        "__annotations__": {first.name: first.annotation, **{port.name: _port_type(port) for port in ports}},
        **{port.name: port.default for port in ports if port.default is not port.empty},
        "fn": staticmethod(fn),
        **attributes,
    }
    made = cast("type[Made]", type(name, (base,), space))
    if first.name in made.declared_ports:
        raise SetupError(
            f"{name} takes its inputs after the first parameter: write def {name}({_first(word)}, {first})"
        )
    for port in ports:
        declared = made.declared_ports.get(port.name)
        if declared is None or declared.is_output or port.kind not in (port.POSITIONAL_OR_KEYWORD, port.KEYWORD_ONLY):
            call = f"def {name}({first.name}, {port.name}: In[<type>])"
            raise SetupError(
                f"parameter '{port.name}' of {name} is no input: write {call}; return what is to be written"
            )
    return made


def _port_type(parameter: inspect.Parameter) -> Any:
    """Return the annotation of a parameter as a port's: `amount: float` is short for `amount: In[float]`."""
    annotation = parameter.annotation
    if isinstance(annotation, str):
        return annotation if "In[" in annotation or "Out[" in annotation else f"In[{annotation}]"
    if annotation is parameter.empty or annotation in (In, Out) or get_origin(annotation) in (In, Out):
        return annotation
    return In[annotation]


def _parameters(fn: Callable[..., Any], name: str, word: str) -> list[inspect.Parameter]:
    """Return a function's parameters, the first of which takes the context or the snapshot."""
    found = list(inspect.signature(fn).parameters.values())
    if found:
        return found
    raise SetupError(f"{name} takes nothing: write def {name}({_first(word)})")


def _first(word: str) -> str:
    """Return what the first parameter is called."""
    return "state" if word.endswith("condition") else "context"


def _inputs(node: NodeMixin) -> dict[str, Any]:
    """Return the values of a node's inputs."""
    return {name: node.context.read_port(name) for name in node.declared_ports}


def _settled(node: NodeMixin, result: object) -> Status:
    """Return the status that an action's result means, and write what it gives."""
    if isinstance(result, Status):
        return result
    if isinstance(result, Mapping):
        node.write_state(cast("Mapping[str, Any]", result))
        return Status.SUCCESS
    if result is None or isinstance(result, bool):
        return Status.FAILURE if result is False else Status.SUCCESS
    path, kind = node.context.path, type(result).__name__
    text = f"node '{path}' returned {kind}: an action returns a Status, None, a bool, or a dict of updates"
    raise InvalidStatusError(text, path=path)


def _judged(node: NodeMixin, result: object) -> Status:
    """Return the status that a condition's result means."""
    return Status.SUCCESS if verdict(node, "a condition", result) else Status.FAILURE
