"""A tool made of a function: `@tool`.

1. A call never raises what the tool raised: every `Exception`, and `sys.exit()`, becomes a result that says so.
   Suspension, cancellation, and the errors of the program, the runtime and the store go up.
2. A tool is halted where it awaits. A sync one is in a thread, where nothing can halt it: it is waited for, up to the
   run's `halt_timeout`, and then left behind.
3. What a timeout cuts off may have taken effect, and the result says that this is not known.
"""

from __future__ import annotations

import copy
import functools
import inspect
import math
import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import nullcontext
from typing import Any, TypeAlias, cast, overload  # Any: functions, arguments and results are the user's

import anyio
import anyio.to_thread
from py_trees.behaviour import Behaviour
from pydantic import JsonValue, ValidationError

from jianmu.engine.answers import JsonObject
from jianmu.engine.clock import RealClock
from jianmu.engine.context import NodeContext
from jianmu.engine.effects import shielded
from jianmu.engine.suspend import Suspended
from jianmu.errors import RunError, SetupError, StoreError
from jianmu.tool.arguments import Arguments, GivenArguments, unwrapped
from jianmu.tool.cut import cut
from jianmu.tool.types import ToolCall, ToolResult, content_of

Approval: TypeAlias = bool | Callable[[dict[str, Any]], bool]
NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
MAX_RESULT_CHARS = 100_000
_GOES_UP = (SetupError, RunError, StoreError)
_ERROR_CHARS = 1000
_HALT_TIMEOUT = 5.0
_PLAIN = frozenset({str, int, float, bool, type(None), list, dict, ToolResult})


class Tool:
    """A function that a model can call.

    A parameter named `context`, or annotated as a `NodeContext`, is given the context of the node that calls the tool;
    one named `deps` what the caller gave as `deps`. The model sees neither. All others need an annotation.

    Args:
        fn: async, or sync and then run in a thread; `tool.fn` is it, and calling the tool calls it. It returns a text,
            parts, anything that has a JSON form, or a `ToolResult`, whose call's id is filled in.
        name: what the model calls it by; by default the function's name.
        description: what the model is told; by default the docstring up to its first section.
        parameters: the JSON schema of the arguments, where they are not known from the signature: `fn` gets them as one
            dict, its first parameter.
        timeout: seconds, on the agent's clock, after which a call is cut off.
        requires_approval: whether a person is asked before a call, or a function of the arguments (a dict, defaults
            among them) that says so; if it raises, or returns no bool, a person is asked.
        idempotent: whether a call that may have happened can be repeated.
        max_result_chars: where a result is cut; None is nowhere.
        names: what stands around the function, for annotations that are texts.

    Attributes:
        parameters: the JSON schema of the arguments.
        is_async: whether the function is async.
        origin: where it comes from, as errors name it.

    Raises:
        SetupError: the function cannot be a tool, or an option has another shape.
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        *,
        name: str | None = None,
        description: str | None = None,
        parameters: Mapping[str, Any] | None = None,
        timeout: float | None = None,
        requires_approval: Approval = False,
        idempotent: bool = False,
        max_result_chars: int | None = MAX_RESULT_CHARS,
        names: Mapping[str, Any] | None = None,
    ) -> None:
        inner = unwrapped(fn)
        if not callable(inner) or isinstance(inner, (type, Tool)):
            hint = f": write {inner.__name__}()" if isinstance(inner, type) and issubclass(inner, Tool) else ""
            raise SetupError(f"a tool is made of a function, not of {fn!r}{hint}")
        self.fn: Callable[..., Any] = fn
        qualified = getattr(inner, "__qualname__", type(inner).__qualname__)
        self.origin = f"{getattr(inner, '__module__', '?')}.{qualified}"
        where = f"tool {self.origin}"
        calls = (inner, getattr(inner, "__call__", None))  # noqa: B004  # its kind is looked at
        if any(inspect.isgeneratorfunction(one) or inspect.isasyncgenfunction(one) for one in calls):
            raise SetupError(f"{where} is a generator: return one value")
        if _makes_tools(inner):
            needed = [one.name for one in inspect.signature(inner).parameters.values() if one.default is one.empty]
            raise SetupError(f"{where} is no tool, it returns one: write {inner.__name__}({', '.join(needed)})")
        self.is_async = any(inspect.iscoroutinefunction(one) for one in calls)
        self._arguments = (
            Arguments(fn, where, names or {}) if parameters is None else GivenArguments(parameters, fn, where)
        )
        self.parameters: JsonObject = self._arguments.schema
        self.name: str = getattr(inner, "__name__", type(inner).__name__) if name is None else name
        self.description = self._arguments.description if description is None else description
        self.timeout, self.requires_approval = timeout, requires_approval
        self.idempotent, self.max_result_chars = idempotent, max_result_chars
        self._check_options()

    def __repr__(self) -> str:
        """Return name and origin."""
        return f"Tool({self.name!r}, {self.origin})"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function as it is."""
        return self.fn(*args, **kwargs)

    def replace(self, **options: Any) -> Tool:
        """Return the same tool with other options, those of the constructor from `name` on.

        Raises:
            SetupError: there is no such option, or it has another shape.
        """
        made = copy.copy(self)
        for option, value in options.items():
            if option not in _OPTIONS:
                raise SetupError(f"tool '{self.name}' has no option {option}=: there are: {', '.join(_OPTIONS)}")
            setattr(made, option, value)
        made._check_options()  # of this class
        return made

    def on_offered(self, node: Behaviour) -> None:
        """Refuse, with a SetupError, a tree in which a model node offers the tool to no use; the tree is bound."""

    def check(self, call: ToolCall) -> str | None:
        """Return what is wrong with the arguments of a call, for the model, or None."""
        try:
            self._read(call)
        except ValueError as error:
            return str(error)
        return None

    def needs_approval(self, arguments: Mapping[str, JsonValue]) -> bool:
        """Return whether a person has to be asked before this call; in doubt it is so."""
        if isinstance(self.requires_approval, bool):
            return self.requires_approval
        try:
            return self.requires_approval(self._arguments.read(arguments)) is not False
        except Exception:  # noqa: BLE001  # whatever goes wrong in it: a person is asked
            return True

    async def call(self, call: ToolCall, *, context: NodeContext | None = None, deps: Any = None) -> ToolResult:
        """Return the result of a call: what the tool returned, or an error as a text for the model.

        Args:
            call: the call; its name is not looked at.
            context: of the node that calls.
            deps: given to the tool as `deps`; by default those of the context.

        Raises:
            SetupError: the tool takes a context, and there is none.
        """
        given = {"context": context, "deps": deps if deps is not None or context is None else context.deps}
        if context is None and "context" in self._arguments.injected.values():
            raise SetupError(f"tool '{self.name}' takes the context of a node: call it with context=")
        try:
            values = self._read(call)
        except ValueError as error:
            return self._failed(call, str(error))
        values |= {name: given[kind] for name, kind in self._arguments.injected.items()}
        try:
            value = await self._timed(call, context, values)
        except _GOES_UP:
            raise
        except _TimedOut:
            text = f"'{self.name}' was cut off after {self.timeout:g} seconds; whether it took effect is not known."
            return self._failed(call, text)
        except Exception as error:  # noqa: BLE001  # rule 1
            return self._failed(call, f"'{self.name}' failed: {_cause(error)}")
        try:
            return self._made(value, call)
        except ValidationError:
            return self._failed(call, f"'{self.name}' was carried out, but its result cannot be shown: it is invalid.")
        except ValueError as error:
            return self._failed(call, f"'{self.name}' was carried out, but its result cannot be shown: {error}.")

    def _made(self, value: object, call: ToolCall) -> ToolResult:
        """Return the result that a function's value stands for; one that it has made may be an unchecked copy."""
        if isinstance(value, ToolResult):
            made = type(value).model_validate({**value.__dict__, "call_id": call.id})
            return made.model_copy(update={"content": cut(made.content, self.max_result_chars)})
        return ToolResult(call_id=call.id, content=cut(content_of(value), self.max_result_chars))

    def _read(self, call: ToolCall) -> dict[str, Any]:
        """Return the values of a call's arguments; a ValueError tells the model what is wrong with them."""
        if call.raw is not None:
            raise ValueError(f"The arguments of '{self.name}' are no JSON object, so it was not called: send one.")
        try:
            return self._arguments.read(call.arguments)
        except ValueError as error:
            problem = str(error)
        raise ValueError(f"The arguments of '{self.name}' do not fit, so it was not called:\n{problem}")

    def _failed(self, call: ToolCall, text: str) -> ToolResult:
        return ToolResult(call_id=call.id, content=cut(text, self.max_result_chars), is_error=True)

    async def _timed(self, call: ToolCall, context: NodeContext | None, values: dict[str, Any]) -> Any:
        """Return what the function returns, cut off after the timeout; a result that is in beats a late timer."""
        if self.timeout is None:
            return await self._run(call, context, values, [])
        clock, seconds = (RealClock() if context is None else context.clock), self.timeout
        returned: list[Any] = []
        raised: list[BaseException] = []
        async with anyio.create_task_group() as group:

            async def watch() -> None:
                await clock.sleep(seconds)
                group.cancel_scope.cancel()

            group.start_soon(watch)
            try:
                await self._run(call, context, values, returned)
            except (Exception, Suspended) as error:  # noqa: BLE001  # raised below, outside of the group
                raised.append(error)
            group.cancel_scope.cancel()
        if raised:
            raise raised[0]
        if not returned:
            raise _TimedOut
        return returned[0]

    async def _run(
        self, call: ToolCall, context: NodeContext | None, values: dict[str, Any], returned: list[Any]
    ) -> Any:
        """Return what the function returns, and put it into `returned`, also if it comes in while it is halted."""
        del call  # for tools that are no functions
        work = functools.partial(self.fn, **values)

        async def in_thread() -> None:
            returned.extend(await anyio.to_thread.run_sync(stays, abandon_on_cancel=True))

        def stays() -> list[Any]:  # what ends the process would end the event loop, and not the thread
            with _NO_EXIT:
                return [work()]

        if self.is_async:
            with _NO_EXIT:
                returned.append(await work())
        else:
            grace = _HALT_TIMEOUT if context is None else context.run.halt_timeout
            with nullcontext() if context is None else context.clock.working():
                await shielded(in_thread, grace)
        if type(returned[0]) not in _PLAIN and inspect.isawaitable(returned[0]):
            returned[:] = [await cast("Awaitable[Any]", returned.pop())]
        return returned[0]

    def _check_options(self) -> None:
        approval: object = self.requires_approval
        is_rule = callable(approval) and not inspect.iscoroutinefunction(approval)
        shapes = {
            "name": (_is_name(self.name), "1 to 64 letters, digits, _ or -"),
            "description": (isinstance(cast("object", self.description), str), "a text"),
            "timeout": (self.timeout is None or _is_seconds(self.timeout), "a number of seconds above 0"),
            "requires_approval": (
                isinstance(approval, bool) or is_rule,
                "a bool, or a plain function of the arguments",
            ),
            "idempotent": (isinstance(cast("object", self.idempotent), bool), "a bool"),
            "max_result_chars": (_is_count(self.max_result_chars), "a whole number from 1 up, or None"),
        }
        for option, (fits, wanted) in shapes.items():
            if not fits:
                raise SetupError(f"tool {self.origin}: {option}={getattr(self, option)!r}: it takes {wanted}")


_OPTIONS = ("name", "description", "timeout", "requires_approval", "idempotent", "max_result_chars")


@overload
def tool(fn: Callable[..., Any], /) -> Tool: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    parameters: Mapping[str, Any] | None = None,
    timeout: float | None = None,
    requires_approval: Approval = False,
    idempotent: bool = False,
    max_result_chars: int | None = MAX_RESULT_CHARS,
) -> Callable[[Callable[..., Any]], Tool]: ...
def tool(fn: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Make a tool of a function: `@tool`, or `@tool(timeout=10, requires_approval=True)`; `Tool` tells of the options.

    The types of the arguments come from the annotations, their descriptions from the docstring's section `Args:` or
    from `Annotated[int, Field(description="…")]`.
    """
    frame = inspect.currentframe()
    names = {} if frame is None or frame.f_back is None else frame.f_back.f_locals
    made = functools.partial(Tool, names=names, **options)
    return made if fn is None else made(fn)


class _TimedOut(Exception):  # noqa: N818  # it ends a call and is no error that anybody meets
    """The tool was cut off."""


def _makes_tools(fn: Any) -> bool:  # Any: whatever a tool is to be made of
    """Whether a function says that it returns a tool, or a box of tools."""
    made = getattr(fn, "__annotations__", {}).get("return")
    made = fn.__globals__.get(made) if isinstance(made, str) and inspect.isfunction(fn) else made
    return isinstance(made, type) and (issubclass(made, Tool) or made.__name__ == "Toolbox")


def _cause(error: BaseException) -> str:
    """Return an exception as the model is told of it; of a group with one, that one."""
    group: Any = error
    while isinstance(group, BaseExceptionGroup) and len(cast("Any", group).exceptions) == 1:
        group = error = cast("Any", group).exceptions[0]
    try:
        text = str(error)[:_ERROR_CHARS]
    except Exception:  # noqa: BLE001  # the exception's own code raises
        text = ""
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


class _NoExit:
    """Has a tool that wants to end the process fail instead."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if not isinstance(error, SystemExit):
            return
        raise RuntimeError(f"it has called sys.exit({error.code!r})")


_NO_EXIT = _NoExit()


def _is_name(name: object) -> bool:
    return isinstance(name, str) and NAME.fullmatch(name) is not None


def _is_seconds(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf


def _is_count(value: object) -> bool:
    return value is None or (isinstance(value, int) and not isinstance(value, bool) and value > 0)
