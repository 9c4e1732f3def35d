"""`jianmu run`, `jianmu resume` and `jianmu recover`."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path
from typing import Any, TypeVar  # Any: JSON, agents of every schema

from rich.console import Console

from jianmu.agent import Agent
from jianmu.cli.asker import Asker
from jianmu.cli.ending import Kept, conclude
from jianmu.cli.faults import Exit, UsageError, describe, describe_refusal, is_usage
from jianmu.cli.follow import Follower, Start
from jianmu.cli.forms import hint
from jianmu.cli.keyboard import Keyboard, is_terminal
from jianmu.cli.load import check_writable, load_agent, parse_json, read_checkpoint, read_input
from jianmu.cli.loop import in_loop
from jianmu.cli.screen import Lines, LiveTree, is_live
from jianmu.cli.store import check_id, closing, give_store, unknown
from jianmu.cli.telling import QUESTIONS
from jianmu.engine.entries import OnNewInput
from jianmu.engine.events import Event
from jianmu.engine.interaction import Answer
from jianmu.engine.outcome import Outcome
from jianmu.errors import (
    InteractionError,
    InvalidAnswerError,
    NotAnsweredError,
    SetupError,
    StateError,
    StoreError,
    UnfinishedRunError,
    UnknownThreadError,
)
from jianmu.stores.base import Store

T = TypeVar("T")
AnyAgent = Agent[Any]
OVER = ("finished", "failed")


def run_agent(
    kept: Kept, given: str | None, input_id: str | None, on_new_input: OnNewInput | None, *, is_quiet: bool
) -> Exit:
    """Run an agent; its output goes to stdout as JSON, all else to stderr."""
    fields = read_input(given)
    if (input_id or on_new_input) and kept.thread is None:
        raise UsageError("--input-id and --on-new-input are about a thread: give --thread")
    _check(kept)
    with redirect_stdout(sys.stderr):
        agent = load_agent(kept.target)
        if kept.thread is None:
            return _followed(agent, partial(agent.run_until_suspend, fields), kept, is_quiet=is_quiet)
        store = give_store(agent, kept.place, may_make=True)
        call = partial(agent.run_until_suspend, fields, input_id=input_id, on_new_input=on_new_input)
        is_bare = not (fields or input_id or on_new_input)
        start = partial(_begin, agent, store, kept, None if is_bare else call)
        return _followed(agent, start, kept, store, is_quiet=is_quiet)


async def _begin(agent: AnyAgent, store: Store, kept: Kept, call: Callable[..., Awaitable[Outcome]] | None) -> Outcome:
    """Start a run of a thread; without a call that has something new, an unfinished one goes on."""
    thread = kept.thread or ""
    if call is None:
        stands = await store.thread(thread)
        if stands is not None and stands.status not in OVER:
            return await agent.recover(thread)
    try:
        return await (call or agent.run_until_suspend)(thread_id=thread)
    except UnfinishedRunError as error:
        kind = type(error).__name__
    text = f"{kind}: thread '{thread}' has an unfinished run: `{kept.way('run')}` goes on with it"
    raise UsageError(f"{text}, --on-new-input withdraw gives it up, --on-new-input queue waits for its end")


def resume_agent(kept: Kept, file: Path | None, answer: str | None, id: str | None, *, is_quiet: bool) -> Exit:
    """Go on with a run from its checkpoint, or from its store."""
    if (file is None) == (kept.thread is None):
        raise UsageError("name what to go on with: the FILE of a checkpoint, or --thread ID")
    if id is not None and answer is None:
        raise UsageError("--id names the question that --answer answers: give both")
    payload = parse_json(answer, "--answer") if answer is not None else None
    said = Answer(id, payload) if answer is not None else None
    _check(kept)
    record = read_checkpoint(file) if file is not None else None
    with redirect_stdout(sys.stderr):
        agent = load_agent(kept.target)
        if file is None or record is None:
            return _resume_thread(agent, said, kept, is_quiet=is_quiet)
        _load(agent, record, file)
        if said is not None:
            in_loop(partial(_refusing, agent, partial(agent.interaction.answer, said)))
            kept.save(agent)
        return _followed(agent, agent.recover, kept, is_quiet=is_quiet)


def _resume_thread(agent: AnyAgent, said: Answer | None, kept: Kept, *, is_quiet: bool) -> Exit:
    """Answer, if wanted, and go on with a thread."""
    store = give_store(agent, kept.place)
    start = partial(agent.recover, kept.thread)
    if said is not None:
        start = partial(_refusing, agent, partial(agent.resume, said, thread_id=kept.thread))
    return _followed(agent, start, kept, store, is_quiet=is_quiet)


def recover_agent(kept: Kept, *, waits: bool, is_quiet: bool) -> Exit:
    """Go on with a thread until its next question or its end; nobody is asked."""
    with redirect_stdout(sys.stderr):
        agent = load_agent(kept.target)
        store = give_store(agent, kept.place)
        start = partial(agent.recover, kept.thread, wait=waits)
        return _followed(agent, start, kept, store, is_quiet=is_quiet, may_ask=False)


def _check(kept: Kept) -> None:
    """Refuse what could not be kept at the end of a run, before the run.

    Raises:
        UsageError: with the reason.
    """
    if kept.thread is not None:
        check_id(kept.thread)
        if kept.file is not None:
            raise UsageError("--save writes a file, --thread keeps the run in a store: give one of them")
    if kept.file is not None:
        check_writable(kept.file)


def _load(agent: AnyAgent, record: dict[str, Any], file: Path) -> None:
    """Have the agent take over a run that is not over."""
    try:
        agent.load_checkpoint(record)
    except (StoreError, SetupError, StateError) as error:
        raise UsageError(f"{file}: {describe(error)}") from None
    if record["status"] in OVER:
        raise UsageError(f"{file}: this run is over ({record['status']}): there is nothing to go on with")


async def _refusing(agent: AnyAgent, call: Callable[[], Awaitable[T]]) -> T:
    """Do something with an answer.

    Raises:
        UsageError: the answer was refused.
    """
    try:
        return await call()
    except InteractionError as error:
        if isinstance(error, NotAnsweredError) or getattr(error, "__notes__", ()):
            raise  # a node's own
        text = describe(error)
        if isinstance(error, InvalidAnswerError) and error.id is not None:
            text = describe_refusal(error, hint(agent.interaction.record(error.id).question.response_schema))
    raise UsageError(text)


def _screen(agent: AnyAgent, *, is_quiet: bool, is_asked: bool) -> Lines:
    """Return what shows a run: a live tree where stderr is a terminal that can show one, else lines."""
    if is_quiet:
        return Lines((Event,))
    console = Console(file=sys.stderr, highlight=False, markup=False, emoji=False)
    return LiveTree(agent.root, console) if is_live(console) else Lines(QUESTIONS if is_asked else ())


def _followed(
    agent: AnyAgent, start: Start, kept: Kept, store: Store | None = None, *, is_quiet: bool, may_ask: bool = True
) -> Exit:
    """Follow a run to its end, however it ends."""
    has_human = agent.runner.options.human is not None
    is_asked = may_ask and not has_human and is_terminal()
    screen = _screen(agent, is_quiet=is_quiet, is_asked=is_asked)

    async def follow() -> tuple[Outcome, bool]:
        asker = Asker(agent, screen, Keyboard(sys.stdin)) if is_asked else None
        outcome = await Follower(agent, screen, asker, waits=may_ask and (is_asked or has_human)).run(start)
        return outcome, asker is not None and asker.is_over

    try:
        outcome, is_left_open = in_loop(follow if store is None else lambda: closing(store, lambda _: follow()))
    except UnknownThreadError as error:
        raise UsageError(unknown(error)) from None
    except BaseException as error:
        if not is_usage(error):
            kept.save(agent)
        raise
    kept.save(agent)
    return conclude(agent, outcome, kept, is_left_open=is_left_open)
