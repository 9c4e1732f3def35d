"""What MCP servers ask people, as questions of a run.

1. All that is needed to go on is in the questions themselves: any process that has the run's questions goes on.
2. What the server wants back is private: no inbox, event or prompt shows it.
"""

from __future__ import annotations

from typing import Any, TypeAlias, cast  # Any: answers, of the types asked for

from pydantic import JsonValue, TypeAdapter

from jianmu.engine.answers import JsonObject
from jianmu.engine.context import NodeContext
from jianmu.engine.request import Request
from jianmu.errors import NotAnsweredError, SetupError
from jianmu.tool.mcpcall import CallError, Wanted

Rounds: TypeAlias = list[tuple[Wanted, dict[str, JsonObject]]]
"""What was asked, round by round, and what was said to it, by the server's key."""

REASON = "elicitation"
_WANTED = TypeAdapter(Wanted)


class Round:
    """One round of questions of a call.

    Args:
        context: of the node that calls.
        call_id: the call.
        number: how many rounds there were before.
        origin: the server and its tool, as people are told of them.
    """

    def __init__(self, context: NodeContext, call_id: str, number: int, origin: dict[str, JsonValue]) -> None:
        self._context = context
        self._call_id = call_id
        self._number = number
        self._origin = origin

    def asked(self) -> Wanted | None:
        """Return what was asked in this round before the coroutine was entered again, or None."""
        key = self._context.scope + self._key(0)
        record = self._context.run.interaction.latest(self._context.origin(), key)
        return None if record is None else _WANTED.validate_python(record.private)

    async def ask(self, wanted: Wanted) -> dict[str, JsonObject]:
        """Return what people say, by the server's key, as it takes it; until they have, the coroutine ends here.

        Raises:
            CallError: it cannot be asked: its schema is none, for example.
        """
        private = cast("JsonValue", _WANTED.dump_python(wanted, mode="json"))
        asked = enumerate(wanted.requests.values())
        try:
            requests = [self._request(at, one, private if at == 0 else None) for at, one in asked]
        except SetupError as error:
            problem = str(error)
        else:
            return await self._ask(wanted, requests)
        raise CallError(f"The tool asks for input that nobody can give: {problem}")

    async def _ask(self, wanted: Wanted, requests: list[Request]) -> dict[str, JsonObject]:
        answers = await self._context.ask_all(requests)
        pairs = zip(wanted.requests.items(), answers, strict=True)
        return {key: _result(params, answer) for (key, params), answer in pairs}

    def _key(self, at: int) -> str:
        return f"{self._call_id}/input/{self._number}/{at}"

    def _request(self, at: int, params: JsonObject, private: JsonValue) -> Request:
        url = params.get("url")
        if url is not None and not str(url).startswith(("http://", "https://")):
            raise SetupError(f"{str(url)[:200]!r} is no address of the web")
        return Request(
            str(params.get("message") or "The server asks for your input."),
            answer=params["requestedSchema"] if url is None else bool,
            reason=REASON,
            key=self._key(at),
            metadata={"mcp": self._origin},
            private=private,
            tool_call_id=self._call_id,
            url=None if url is None else str(url),
        )


def _result(params: JsonObject, answer: Any) -> JsonObject:
    """Return an answer as a server takes it."""
    if isinstance(answer, NotAnsweredError):
        return {"action": "decline" if answer.reason.startswith("declined") else "cancel"}
    if "url" in params:
        return {"action": "accept" if answer else "decline"}
    return {"action": "accept", "content": answer}


def known(rounds: Rounds, *, everything: bool = False) -> list[tuple[JsonObject, JsonObject]]:
    """Return the questions that a server will ask again, with what was said.

    Args:
        rounds: what was asked and said.
        everything: whether the server asks all of it again, or only what it asked in the midst of calls.
    """
    again = [(wanted, said) for wanted, said in rounds if everything or wanted.way == "during"]
    return [(params, said[key]) for wanted, said in again for key, params in wanted.requests.items()]
