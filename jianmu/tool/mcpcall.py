"""One call of a tool of an MCP server: what is sent, what comes back, what the server asks in between.

1. What goes wrong is told in the words of the errors below, whose texts are for the model.
2. A server of today's protocol ends a call with what it wants to know, and goes on when it is called with the answers.
   One of an older protocol asks in the midst of a call: the call is ended, and made again when the answers are in.
3. What goes between the threads is JSON, and no object of the library's.
"""

from __future__ import annotations

import functools
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, cast  # Any: results, which are of one of two types

import anyio
from pydantic import TypeAdapter, ValidationError

from jianmu.engine.answers import JsonObject

if TYPE_CHECKING:  # an extra: it may be absent
    from mcp import types
    from mcp.client import Client, ClientRequestContext
    from mcp.shared.exceptions import MCPError

NOT_SENT, FORGOTTEN = -31_999, -31_998
"""Codes of errors that no protocol has: a request did not reach the server, or the server does not know its sender."""
_WAITS = (0.05, 0.1, 0.25, 0.5, 1.0)  # seconds until a server is asked again that has said: not yet


class CallError(Exception):
    """A call came to nothing."""


class LostError(CallError):
    """The connection was lost during the call: whether it took effect is not known."""


class NotTakenError(CallError):
    """The server did not take the call.

    Attributes:
        why: it was not reached, it has forgotten this client, or its tools have changed.
    """

    def __init__(self, text: str, why: Literal["away", "forgotten", "changed"] = "away") -> None:
        super().__init__(text)
        self.why = why


class StateRefusedError(CallError):
    """The server does not know its own state any more: it was started anew, or took too long to be answered."""


@dataclass(frozen=True)
class Wanted:
    """What a server wants to know before a call goes on.

    Attributes:
        requests: by the server's key, what it asks a person: the parameters of `elicitation/create`.
        state: what it wants back as it is; nobody else's business.
        way: how the call goes on: with answers and state (`next`), or again from its top, where the same is asked
            again (`during`) or not (`before`).
    """

    requests: dict[str, JsonObject]
    state: str | None = None
    way: Literal["next", "during", "before"] = "next"


@dataclass
class Job:
    """One call, as long as it is under way.

    Attributes:
        name: the tool, as the server calls it.
        arguments: its arguments.
        is_harmless: whether it may be sent twice.
        responses: what people have said, by the server's key.
        state: what the server wants back.
        known: what people have said to questions that come again: question and answer.
    """

    name: str
    arguments: JsonObject
    is_harmless: bool = False
    responses: dict[str, JsonObject] | None = None
    state: str | None = None
    known: list[tuple[JsonObject, JsonObject]] = field(default_factory=list[tuple[JsonObject, JsonObject]])

    def answer(self, asked: JsonObject) -> JsonObject | None:
        """Return what was said to a question that comes again, once, or None."""
        found = next((pair for pair in self.known if pair[0] == asked), None)
        if found is not None:
            self.known.remove(found)
        return None if found is None else found[1]

    def answers(self, wanted: Wanted) -> dict[str, JsonObject] | None:
        """Return what was said to all that is wanted, if all of it comes again, or None."""
        asked = [*wanted.requests.values()]
        if not all(asked.count(one) <= [pair[0] for pair in self.known].count(one) for one in asked):
            return None
        return {key: self.answer(one) or {} for key, one in wanted.requests.items()}


class _Turn:
    """A call while it is with the server; `wanted` is what the server has asked in the midst of it."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.scope = anyio.CancelScope()
        self.ended = anyio.Event()
        self.wanted: Wanted | None = None


_TURN: ContextVar[_Turn | None] = ContextVar("mcp_turn", default=None)


class Calls:
    """The calls that are under way to one server.

    Args:
        server: what the server is called.
    """

    def __init__(self, server: str) -> None:
        self._server = server
        self._turns: list[_Turn] = []

    async def make(self, client: Client, job: Job) -> JsonObject | Wanted:
        """Return what a call has given, or what the server wants to know first.

        Raises:
            CallError: it came to nothing.
        """
        from mcp.shared.exceptions import MCPError  # noqa: PLC0415  # an extra

        turn = _Turn(replace(job, known=[*job.known]))  # a second attempt is asked the same again
        token = _TURN.set(turn)
        self._turns.append(turn)
        try:
            with turn.scope:
                return await _replied(client, turn.job)
        except MCPError as error:
            return self._read(error, job)
        except ValidationError:
            raise CallError(f"'{job.name}' was called, and what came back is no result of a tool.") from None
        finally:
            self._turns.remove(turn)
            turn.ended.set()
            _TURN.reset(token)
        assert turn.wanted is not None  # nobody else cancels this scope
        return turn.wanted

    def _read(self, error: MCPError, job: Job) -> Wanted:
        """Return what an error asks for; raise in our words what asks for nothing."""
        from mcp import types  # noqa: PLC0415  # an extra

        if error.code == types.URL_ELICITATION_REQUIRED:
            asked = types.ElicitationRequiredErrorData.model_validate(error.data)
            return Wanted({str(at): params_of(one) for at, one in enumerate(asked.elicitations)}, way="before")
        if error.code == types.CONNECTION_CLOSED:
            text = f"The connection to the MCP server '{self._server}' was lost during the call"
            raise LostError(f"{text}; whether '{job.name}' took effect is not known.") from None
        not_taken = f"The MCP server '{self._server}' did not take the call of '{job.name}', so nothing was called"
        if error.code == NOT_SENT:
            raise NotTakenError(f"{not_taken}: {error.message}.") from None
        if error.code == types.HEADER_MISMATCH:
            raise NotTakenError(f"{not_taken}: its tools have changed.", "changed") from None
        if error.code == FORGOTTEN:
            raise NotTakenError(f"{not_taken}: it does not know this client any more.", "forgotten") from None
        told = f"'{job.name}' failed: {error.message}"
        is_refused = error.code == types.INVALID_PARAMS and job.state is not None
        raise (StateRefusedError if is_refused else CallError)(told) from None

    async def elicited(
        self, context: ClientRequestContext, params: types.ElicitRequestParams
    ) -> types.ElicitResult | types.ErrorData:
        """Answer what is asked in the midst of a call; if nobody has said it yet, end the call.

        Over HTTP the connection says which call it belongs to; else there has to be one only.
        """
        from mcp.types import INVALID_REQUEST, ElicitResult, ErrorData  # noqa: PLC0415  # an extra

        del context
        turn = _TURN.get() or (self._turns[0] if len(self._turns) == 1 else None)
        if turn is None:
            text = f"{len(self._turns)} calls are under way, and nothing says which of them asks: make them one by one"
            return ErrorData(code=INVALID_REQUEST, message=text)
        asked = params_of(params)
        known = turn.job.answer(asked)
        if known is not None:
            return ElicitResult.model_validate(known)
        turn.wanted = Wanted({"0": asked}, way="during")
        turn.scope.cancel()
        await turn.ended.wait()
        return ErrorData(code=INVALID_REQUEST, message="the call has ended; it comes again with the answer")


async def _replied(client: Client, job: Job) -> JsonObject | Wanted:
    """Send a call, again and again while the server says no more than: not yet."""
    from mcp import types  # noqa: PLC0415  # an extra

    waits = iter(_WAITS)
    responses, state = job.responses, job.state
    while True:
        answers: Any = responses or None
        params = types.CallToolRequestParams(
            name=job.name, arguments=job.arguments, input_responses=answers, request_state=state
        )
        result = await client.session.send_request(types.CallToolRequest(params=params), _results())
        if result.result_type != "input_required":
            return result.model_dump(mode="json", by_alias=True, exclude_none=True)
        asked = cast("types.InputRequiredResult", result)
        wanted = _wanted(job, asked)
        responses, state = job.answers(wanted), wanted.state
        if responses is None:
            return wanted
        if not responses:
            await anyio.sleep(next(waits, _WAITS[-1]))


def _wanted(job: Job, asked: types.InputRequiredResult) -> Wanted:
    from mcp import types  # noqa: PLC0415  # an extra

    requests: dict[str, JsonObject] = {}
    for key, one in (asked.input_requests or {}).items():
        if not isinstance(one, types.ElicitRequest):
            raise CallError(f"'{job.name}' wants '{one.method}' of its caller, which is not offered.")
        requests[key] = params_of(one.params)
    return Wanted(requests, asked.request_state)


def params_of(params: types.ElicitRequestParams) -> JsonObject:
    """Return what a server asks as JSON, without what is different each time."""
    return params.model_dump(mode="json", by_alias=True, exclude_none=True, exclude={"meta", "task"})


@functools.cache
def _results() -> TypeAdapter[Any]:
    from mcp import types  # noqa: PLC0415  # an extra

    return TypeAdapter(types.CallToolResult | types.InputRequiredResult)
