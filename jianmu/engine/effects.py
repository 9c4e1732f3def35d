"""How the function of `once` is named, called and kept: names, digests of arguments, threads, results."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import json
from collections.abc import Awaitable, Callable
from typing import Any, Literal, cast  # Any: the functions, arguments and results are the user's

import anyio
import anyio.to_thread
from pydantic import BaseModel, JsonValue, TypeAdapter, create_model
from pydantic_core import from_json, to_json, to_jsonable_python

from jianmu.engine.questions import digest
from jianmu.errors import SetupError


class Call:
    """A function with its arguments, named and digested alike in every process.

    Args:
        where: the effect as errors name it.
        fn: the function, async or sync; partials are looked through.
        args: its arguments; they need a JSON form.
        is_fixed: whether they are known to have one and not to change, so that it is made when it is asked for.
    """

    def __init__(self, where: str, fn: Callable[..., Any], args: tuple[Any, ...], *, is_fixed: bool = False) -> None:
        self.where = where
        self._call = whole = functools.partial(fn, *args)
        inner: Any = whole.func
        self.name: str = getattr(inner, "__qualname__", type(inner).__qualname__)
        self.is_async = inspect.iscoroutinefunction(inner) or inspect.iscoroutinefunction(inner.__call__)
        given = (whole.args, whole.keywords)
        self.arguments = functools.partial(_SORTED.encode, given) if is_fixed else self._text(*given)

    def _text(self, args: tuple[Any, ...], keywords: dict[str, Any]) -> str:
        """Return the arguments as a text that is the same in every process; of a long one its digest."""
        try:
            text = _SORTED.encode([args, keywords])
            return text if len(text) < _LONG else digest_of(text)
        except (ValueError, TypeError, RecursionError) as error:
            problem = str(error) if isinstance(error, _NoJsonError) else type(error).__name__
        raise SetupError(
            f"{self.where}: an argument of {self.name} has no JSON form ({problem}):"
            " take clients and the like from self.context.deps, and give what tells one call from another"
        )

    async def run(self) -> Any:
        """Return what the function returns; a sync one runs in a thread."""
        if self.is_async:
            return await self._call()
        return await anyio.to_thread.run_sync(self._run_sync, abandon_on_cancel=True)

    def _run_sync(self) -> Any:
        value = self._call()
        if inspect.iscoroutine(value):
            value.close()
            raise SetupError(f"{self.where}: {self.name} returned a coroutine: give once the async function itself")
        return value


def digest_of(arguments: str | Callable[[], str]) -> str:
    """Return the digest of arguments, which may be their text still, or what makes it: that is a JSON list."""
    text = arguments if isinstance(arguments, str) else arguments()
    return digest("arguments", text) if text.startswith("[") else text


class _NoJsonError(ValueError):
    """A value has no JSON form; the text names its class."""


def _plain(value: Any) -> Any:
    """Return a value as plainer ones whose text is the same in every process."""
    if isinstance(value, (set, frozenset)):
        return sorted(json.dumps(item, default=_plain, sort_keys=True) for item in cast("set[object]", value))
    if isinstance(value, BaseModel):
        return dict(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {item.name: getattr(value, item.name) for item in dataclasses.fields(value)}
    try:
        return to_jsonable_python(value)
    except ValueError:
        pass
    raise _NoJsonError(type(value).__name__)


_LONG = 1_000
"""Characters from which on arguments are not kept as they are."""
_SORTED = json.JSONEncoder(default=_plain, sort_keys=True)


class Result:
    """The type of a result, which passes through JSON also the first time."""

    def __init__(self, where: str, kind: Any) -> None:
        self._where = where
        self._kind = kind
        self._adapter = _adapter(kind) if isinstance(kind, type) else TypeAdapter[Any](kind)

    def passed(self, value: object) -> tuple[JsonValue, Any]:
        """Return what is kept of a result, and what is read from that, which shares nothing with it.

        Raises:
            SetupError: the result does not come back from JSON as this type.
        """
        try:
            text = self._adapter.serializer.to_json(value, by_alias=True, round_trip=True, warnings=False)
            kept = from_json(b"[%b]" % text, allow_inf_nan=False)[0]  # it stands in an entry, as deep as in a list
            return kept, self._adapter.validator.validate_json(text)
        except (ValueError, TypeError) as error:
            problem = type(error).__name__
        kind = getattr(self._kind, "__name__", str(self._kind))
        raise SetupError(
            f"{self._where}: its result, {type(value).__name__}, cannot be kept as JSON of the type {kind} ({problem}):"
            " give its type, once(..., result=...)"
        )

    def from_json(self, kept: JsonValue) -> Any:
        """Return a kept result, a new object each time."""
        return self._adapter.validate_json(to_json(kept))

    @property
    def outcome(self) -> Any:
        """The type of a person's word on a lost call: `{happened, result}`; a result only if it happened."""
        optional = self._accepts(None)
        return create_model(
            "Happened", happened=(Literal[True], ...), result=(self._kind, None if optional else ...)
        ) | create_model("NotHappened", happened=(Literal[False], ...))

    def _accepts(self, value: object) -> bool:
        try:
            self._adapter.validate_python(value)
        except ValueError:
            return False
        return True


@functools.lru_cache(maxsize=64)
def _adapter(kind: type) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


async def shielded(work: Callable[[], Awaitable[None]], grace: float) -> None:
    """Do `work` to its end; a cancellation waits for it up to `grace` seconds, then leaves it."""
    shield = anyio.CancelScope(shield=True)
    over = anyio.Event()
    raised: list[Exception] = []

    async def run() -> None:
        with shield:
            try:
                await work()
            except Exception as error:  # noqa: BLE001  # raised below, outside of the group that would wrap it
                raised.append(error)
        over.set()

    try:
        async with anyio.create_task_group() as group:
            group.start_soon(run)
            try:
                await over.wait()
            finally:
                shield.deadline = anyio.current_time() + grace
    finally:
        if raised:
            raise raised[0]
