"""Models of providers by name: `lookup("anthropic:claude-sonnet-5-5")`."""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self  # Any: the library's models are generic in their client
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from anyio import CancelScope, move_on_after, to_thread
from anyio.lowlevel import current_token

from jianmu.engine.clock import Clock
from jianmu.errors import BadRequestError, MissingExtraError, ModelRefusedError, SetupError
from jianmu.model.base import REAL, ChatModel, Event, Finish, ModelRequest, Stream
from jianmu.model.faults import faults
from jianmu.model.generators import Owner
from jianmu.model.translate import Deltas, finish, wire_messages, wire_parameters, wire_settings

if TYPE_CHECKING:  # an extra: it may be absent
    from pydantic_ai.messages import ModelResponseStreamEvent
    from pydantic_ai.models import Model, StreamedResponse

COMPATIBLE = "openai_compatible"
OLLAMA = "http://localhost:11434/v1"
_USER = re.compile(r"//[^/#]*@")  # who logs in, and with what
CLOSING = 5.0
"""Seconds in which a connection has to be closed."""


def lookup(name: str, *, api_key: str | None = None) -> ChatModel:
    """Return a model by the name of its provider and its own name.

    `"openai:gpt-6-luna"`, `"anthropic:claude-sonnet-5-5"`, `"ollama:qwen3"`, and all other providers of pydantic-ai;
    `"openai_compatible:http://localhost:8080/v1#qwen3"` is a server of the OpenAI protocol and a model on it.

    Args:
        name: provider and model.
        api_key: by default what the environment variable of the provider says, `OPENAI_API_KEY` and so on;
            `OPENAI_COMPATIBLE_API_KEY` for a server by its address, where it wants one.

    Raises:
        MissingExtraError: the extra `llm`, or the package of this provider, is not installed.
        SetupError: the name has not this form, or nobody knows the provider. A missing key is found by `open()`.
    """
    provider, colon, model = name.partition(":")
    if not colon or not model:
        raise SetupError(f"a model is named 'provider:model', 'openai:gpt-6-luna' for example, not {name[:80]!r}")
    try:
        importlib.import_module("pydantic_ai.direct")  # it takes a second or two
    except ImportError:
        raise MissingExtraError("a model by name", "llm") from None
    if provider == COMPATIBLE:
        shown = f"{provider}:{_USER.sub('//', model)}"
        return ProviderModel(shown, _compatible(model, api_key or os.environ.get("OPENAI_COMPATIBLE_API_KEY")))
    return ProviderModel(name, _known(provider, model, api_key))


def _compatible(address: str, api_key: str | None) -> Callable[[], Model[Any]]:
    """Return what builds a model on a server of the OpenAI protocol."""
    url, _, model = address.partition("#")
    host = urlsplit(url).netloc.rpartition("@")[2]
    if not model or not host:
        raise SetupError(f"a server is named by its address and a model: '{COMPATIBLE}:http://localhost:8080/v1#qwen3'")
    from pydantic_ai.models.openai import OpenAIChatModel  # noqa: PLC0415  # an extra
    from pydantic_ai.profiles.openai import OpenAIModelProfile  # noqa: PLC0415  # an extra
    from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider  # noqa: PLC0415  # an extra

    # without it a reply that was cut off between two chunks would pass for a whole one
    profile = OpenAIModelProfile(openai_chat_streaming_requires_finish_reason=True)

    def build() -> Model[Any]:
        provider = OpenAICompatibleProvider(f"{COMPATIBLE}:{host}", base_url=url, api_key=api_key, profile=profile)
        return OpenAIChatModel(model, provider=provider)

    return build


def _known(provider: str, model: str, api_key: str | None) -> Callable[[], Model[Any]]:
    """Return what builds a model of a provider that the library knows."""
    from pydantic_ai.models import infer_model  # noqa: PLC0415  # an extra
    from pydantic_ai.providers import infer_provider, infer_provider_class  # noqa: PLC0415  # an extra

    try:
        kind: Callable[..., Any] = infer_provider_class(provider)
    except ImportError:
        raise MissingExtraError(f"the provider '{provider}'", provider, package="pydantic-ai-slim") from None
    except ValueError:
        raise SetupError(f"no provider is called '{provider[:80]}': 'openai', 'anthropic', 'ollama', …") from None
    options = {"api_key": api_key} if api_key else {}
    if provider == "ollama":
        options["base_url"] = os.environ.get("OLLAMA_BASE_URL") or OLLAMA
    return lambda: infer_model(f"{provider}:{model}", lambda name: kind(**options) if options else infer_provider(name))


@dataclass
class _Live:
    """A model of the library on one event loop, to which its connections belong."""

    model: Model[Any]
    users: int = 0


class ProviderModel(ChatModel):
    """A model of a provider, through pydantic-ai; made by `lookup`.

    Args:
        name: what it is called.
        build: makes a model object of the library, one for each event loop.
    """

    def __init__(self, name: str, build: Callable[[], Model[Any]]) -> None:
        self.name = name
        self._build = build
        self._live: WeakKeyDictionary[object, _Live] = WeakKeyDictionary()

    def stream(self, request: ModelRequest, *, clock: Clock = REAL) -> Stream:
        """Return the provider's reply; the clock is not used."""
        return _Reply(self, request)

    async def open(self) -> None:
        """Make the model object and its connections for this event loop."""
        await self.use()

    async def use(self) -> Model[Any]:
        """Return the model object of this event loop, which is counted as used until `close`.

        Raises:
            SetupError: the key of the provider is not known, for example.
        """
        here = current_token().native_token
        live = self._live.get(here)
        if live is None:
            with faults(self.name):
                live = self._live[here] = _Live(self._build())
        live.users += 1
        if live.users == 1:
            with CancelScope(shield=True):
                await live.model.__aenter__()
        return live.model

    async def close(self) -> None:
        """Close the connections on this event loop when nobody uses them any more."""
        live = self._live.get(current_token().native_token)
        if live is None:
            return
        live.users -= 1
        if live.users == 0:
            del self._live[current_token().native_token]
            with CancelScope(shield=True), move_on_after(CLOSING):
                await live.model.__aexit__(None, None, None)


class _Reply:
    """The stream of one request to a provider."""

    def __init__(self, model: ProviderModel, request: ModelRequest) -> None:
        self._model = model
        self._request = request
        self._deltas = Deltas()
        self._owner = Owner()
        self._block: AbstractAsyncContextManager[StreamedResponse] | None = None
        self._source: StreamedResponse | None = None
        self._events: AsyncIterator[ModelResponseStreamEvent] | None = None

    async def __aenter__(self) -> Self:
        model = await self._model.use()
        try:
            await self._send(model)
        except BaseException as error:
            await self.__aexit__(type(error), error, error.__traceback__)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            with CancelScope(shield=True), move_on_after(CLOSING):
                await self._leave()
        finally:
            await self._model.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        while self._events is not None:
            with faults(self._model.name):
                event = await self._owner.call(_next(self._events))
            if event is None:
                self._events = None
                return self._finish()
            if (delta := self._deltas.read(event)) is not None:
                return delta
        raise StopAsyncIteration

    async def _send(self, model: Model[Any]) -> None:
        """Send the request and wait for the head of the reply."""
        from pydantic_ai.direct import model_request_stream  # noqa: PLC0415  # an extra

        is_native = bool(model.profile.get("supports_json_schema_output", False))
        try:
            messages = await to_thread.run_sync(wire_messages, self._request.messages)
        except OSError as error:
            raise BadRequestError("a file that a message refers to cannot be read", model=self._model.name) from error
        parameters = wire_parameters(self._request, is_native)
        settings = wire_settings(self._request.settings)
        with faults(self._model.name):
            self._block = model_request_stream(
                model, messages, model_settings=settings, model_request_parameters=parameters
            )
            self._source = source = await self._owner.call(self._block.__aenter__())
            self._events = aiter(source)

    def _finish(self) -> Finish:
        assert self._source is not None
        response = self._source.get()
        end = finish(response)
        if end.reason == "content_filter" and not end.message.content:
            raise ModelRefusedError("the provider's policy stopped the reply", model=self._model.name)
        return end

    async def _leave(self) -> None:
        """End the request, if it is not over."""
        block, self._block, self._events = self._block, None, None
        if block is not None:
            with suppress(Exception):  # of a connection that is given up
                await self._owner.call(block.__aexit__(None, None, None))
        await self._owner.close()


async def _next(events: AsyncIterator[ModelResponseStreamEvent]) -> ModelResponseStreamEvent | None:
    return await anext(events, None)
