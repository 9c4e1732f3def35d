"""What was done, so that it is not done twice (STUB of the API; being filled in)."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Literal, Protocol

from jianmu.engine.answers import JsonObject
from jianmu.engine.questions import Origin, Request, Rounds

IDEMPOTENCY_KEY: ContextVar[str | None] = ContextVar("idempotency_key", default=None)


class OnceScope(Protocol):
    """What `once` needs of the node that calls it; one object per entry of the node."""

    origin: Origin
    used: set[str]        # keys used since the node was entered: fresh at each entry (start or re-start)
    halt_timeout: float   # seconds

    async def ask(self, request: Request, *, key: str) -> Any: ...   # suspends, or returns the payload
    async def sync(self) -> None: ...                                # after a start and after a result


class Journal:
    def begin(self, origin: Origin, key: str, name: str, arguments: str, *, per: Literal["round", "activation"] = "round") -> Any: ...
    def finish(self, id: str, result: Any) -> None: ...
    def fail(self, id: str, error: str) -> None: ...
    def forget_round(self, rounds: Rounds) -> None:
        """Remove the entries of a closed round; `rounds` ends with the closed (loop path, round)."""
        ...
    def new_activation(self, origin: Origin) -> None:
        """Tell that the node was initialised (not re-entered): `per="activation"` entries count anew."""
        ...
    def clear(self) -> None:
        """The run has ended."""
        ...
    def dump(self) -> JsonObject: ...
    def load(self, data: object) -> None: ...
    async def once(self, scope: OnceScope, key: str, fn: Callable[..., Any], *args: Any, result: Any = Any,
                   on_unknown: Literal["rerun", "ask", "fail"] = "rerun", effect: bool = True,
                   per: Literal["round", "activation"] = "round") -> Any: ...
