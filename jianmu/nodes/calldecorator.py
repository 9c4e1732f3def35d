"""CallDecorator: what stands between a model's calls and the tools that carry them out.

1. It is found above the node that carries out the calls, the nearest first; it ends at an agent used as a node.
2. What it refuses is refused before anybody is asked for approval, and before any call of the reply is begun.
3. What it refines is refined inside of what is kept of a call: after a restart the result has the same text.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias, cast  # Any: snapshots are the users'

from py_trees.behaviour import Behaviour

from jianmu.engine.context import NodeContext
from jianmu.errors import RunError, SetupError, StoreError
from jianmu.nodes.base import Wrapper, around, call_of, is_async, plain, plain_methods
from jianmu.nodes.turn import CallOutcome
from jianmu.tool.cut import cut
from jianmu.tool.types import ToolCall

Refuse: TypeAlias = Callable[[ToolCall, Any], str | None]
Refine: TypeAlias = Callable[[ToolCall, CallOutcome, NodeContext], Awaitable[CallOutcome]]
_GOES_UP = (SetupError, RunError, StoreError)


class CallDecorator(Wrapper):
    """Look at each call of the ToolExecutors below, and at what comes of it: by functions, or by methods of that name.

    `refuse(call, snapshot)` returns None, or a text that is the call's result, an error; the call is then not carried
    out, not asked about and not counted. It is pure, and asked once for a call, also if the run is suspended and goes
    on. A subclass may have `refuse_again(call, snapshot)`, which is asked of a call that passed and was not begun since
    its reply waited for people: of what may have become wrong meanwhile, also in another program.
    `async refine(call, outcome, context)` returns what the model is shown of a call that was carried out; it gets the
    whole result, which is cut at the tool's limit afterwards (that of a delegate, before). It does not ask. If it
    raises, the result is an error that says so. The errors of the program and the runtime end the run as well, and so
    do a question and something else than an outcome; what was carried out is not carried out again then either.
    A subclass may have `on_calls(calls)`, which is told of the calls of a reply, once, before they are looked at.
    SUCCESS, FAILURE, RUNNING: as the child. Halting halts the child.

    Args:
        name: the node's name.
        child: what is below.
        refuse: says which calls are not to be carried out.
        refine: changes what comes of a call.

    Raises:
        SetupError: it does nothing, or one of the functions or methods cannot be called: only `refine` is an
            `async def`.
    """

    def __init__(
        self, name: str, child: Behaviour, *, refuse: Refuse | None = None, refine: Refine | None = None
    ) -> None:
        super().__init__(name, child)
        self._refuse, self._refine = refuse, refine
        plain_methods(self, "refuse", "refuse_again", "on_calls")
        if not is_async(self.refine):
            raise SetupError(f"{type(self).__name__}.refine() is awaited: write `async def refine(...)`")
        if refuse is not None:
            plain(self, "refuse", refuse)
        if refine is not None and not is_async(refine):
            raise SetupError(f"{call_of(self, 'refine')} takes an `async def`, not {refine!r}")
        own = any(getattr(type(self), hook) is not getattr(CallDecorator, hook) for hook in _HOOKS)
        if refuse is None and refine is None and not own:
            call = f'{type(self).__name__}("{name}", child)'
            raise SetupError(f"{call} does nothing: give refuse=... or refine=...")

    def on_calls(self, calls: Sequence[ToolCall]) -> None:
        """Be told of the calls of a reply that have no result yet; state may be written."""

    def refuse(self, call: ToolCall, snapshot: Any) -> str | None:
        """Return why a call is not to be carried out, for the model, or None."""
        return None if self._refuse is None else self._refuse(call, snapshot)

    def refuse_again(self, call: ToolCall, snapshot: Any) -> str | None:
        """Return why a call that has waited for people is not to be carried out after all, or None."""

    async def refine(self, call: ToolCall, outcome: CallOutcome, context: NodeContext) -> CallOutcome:
        """Return what the model is to be shown of a call that was carried out."""
        return outcome if self._refine is None else await self._refine(call, outcome, context)

    def refusal_of(self, call: ToolCall, *, again: bool = False) -> str | None:
        """Return what the node says of a call on the newest snapshot; writes are refused meanwhile."""
        name = "refuse_again" if again else "refuse"
        with _only_looking(self.context):
            text = cast("object", getattr(self, name)(call, self.read_state()))
        if text is None or (isinstance(text, str) and text):
            return text
        if inspect.iscoroutine(text):
            text.close()
        path, kind = self.context.path, "an empty one" if text == "" else type(text).__name__
        raise RunError(f"node '{path}': {name}() has to return a text or None, not {kind}", path=path)

    async def refined(self, call: ToolCall, outcome: CallOutcome, context: NodeContext) -> CallOutcome:
        """Return what the node makes of an outcome.

        Raises:
            RunError: it asks, or returns something else.
        """
        path = self.context.path
        part = context.copied()
        part.no_questions = (
            f"node '{path}': refine() may not ask, since the call was carried out: ask in a node after it"
        )
        try:
            made = cast("object", await self.refine(call, outcome, part))
        except Exception as error:  # noqa: BLE001  # the call was carried out: it keeps a result, and is not called again
            program = _of_the_program(error)
            if program is not None:
                raise program from None if program is error else error
            self.context.log.warning("a result could not be refined", tool=call.name, error=str(error))
            return unshown(call, error)
        if isinstance(made, CallOutcome):
            return made
        text = f"node '{path}': refine() has to return a CallOutcome, not {type(made).__name__}"
        raise RunError(text, path=path)


_HOOKS = ("refuse", "refuse_again", "refine", "on_calls")
_ERROR_CHARS = 1000


def unshown(call: ToolCall, error: Exception) -> CallOutcome:
    """Return the outcome of a call that was carried out, and what came of it could not be refined."""
    text = f"'{call.name}' was carried out, but its result cannot be shown: {type(error).__name__}: {error}"
    return CallOutcome(content=cut(text, _ERROR_CHARS), is_error=True)


def _of_the_program(error: Exception) -> Exception | None:
    """Return the error itself, or the first one of a group, that ends the run; None if there is none."""
    if isinstance(error, _GOES_UP):
        return error
    inner = cast("tuple[Exception, ...]", error.exceptions) if isinstance(error, ExceptionGroup) else ()
    return next((found for one in inner if (found := _of_the_program(one)) is not None), None)


def decorators_of(node: Behaviour) -> list[CallDecorator]:
    """Return the call decorators above a node on the same state, the nearest first."""
    return around(node, CallDecorator)


def names_of(node: Behaviour, option: str, given: Iterable[str]) -> frozenset[str]:
    """Return the names of tools that an option lists.

    Raises:
        SetupError: it is no list of texts.
    """
    listed = cast("object", given)
    names = tuple(given) if isinstance(listed, Iterable) and not isinstance(listed, str) else (None,)
    if not all(isinstance(cast("object", name), str) for name in names):
        raise SetupError(f"{call_of(node, option)} takes a list of names, not {given!r}")
    return frozenset(cast("tuple[str, ...]", names))


async def refined(
    decorators: Sequence[CallDecorator], call: ToolCall, outcome: CallOutcome, context: NodeContext
) -> CallOutcome:
    """Return an outcome after all of these have made something of it, in their order."""
    for one in decorators:
        outcome = await one.refined(call, outcome, context)
    return outcome


@contextmanager
def _only_looking(context: NodeContext) -> Generator[None]:
    context.is_read_only = True
    try:
        yield
    finally:
        context.is_read_only = False
