"""`jianmu run` and `jianmu resume`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path
from typing import Any  # Any: JSON, agents of every schema

from rich.console import Console

from jianmu.agent import Agent
from jianmu.cli.asker import Asker
from jianmu.cli.drive import Drive
from jianmu.cli.ending import conclude, keep
from jianmu.cli.faults import Exit, UsageError, describe, is_usage
from jianmu.cli.forms import hint
from jianmu.cli.keyboard import Keyboard, is_terminal
from jianmu.cli.load import check_writable, load_agent, parse_json, read_checkpoint, read_input
from jianmu.cli.loop import in_loop
from jianmu.cli.screen import Lines, LiveTree, is_live
from jianmu.cli.telling import QUESTIONS
from jianmu.engine.events import Event
from jianmu.engine.interaction import Answer
from jianmu.engine.outcome import Outcome
from jianmu.engine.stream import Stream
from jianmu.errors import InteractionError, InvalidAnswerError, SetupError, StateError, StoreError

AnyAgent = Agent[Any]
OVER = ("finished", "failed")


def run_agent(target: str, given: str | None, save: Path | None, *, is_quiet: bool) -> Exit:
    """Run an agent; its output goes to stdout as JSON, all else to stderr."""
    fields = read_input(given)
    if save is not None:
        check_writable(save)
    with redirect_stdout(sys.stderr):
        agent = load_agent(target)
        has_human = agent.runner.options.human is not None
        waits = has_human or is_terminal()
        start = partial(agent.stream, fields, until_suspend=not waits)
        return _followed(agent, start, target, save, is_quiet=is_quiet, may_ask=not has_human)


def resume_agent(
    target: str, file: Path, answer: str | None, id: str | None, save: Path | None, *, is_quiet: bool
) -> Exit:
    """Go on with a saved run; its checkpoint takes the place of the one before."""
    record = read_checkpoint(file)
    payload = parse_json(answer, "--answer") if answer is not None else None
    if id is not None and answer is None:
        raise UsageError("--id names the question that --answer answers: give both")
    check_writable(save or file)
    with redirect_stdout(sys.stderr):
        agent = load_agent(target)
        _load(agent, record, file)
        if answer is not None:
            _answer(agent, Answer(id, payload))
            keep(agent, save or file)
        drive = Drive(agent, Lines(), None)
        return _followed(agent, drive.recovery, target, save or file, is_quiet=is_quiet, may_ask=True)


def _load(agent: AnyAgent, record: dict[str, Any], file: Path) -> None:
    """Have the agent take over a run that is not over."""
    try:
        agent.load_checkpoint(record)
    except (StoreError, SetupError, StateError) as error:
        raise UsageError(f"{file}: {describe(error)}") from None
    if record["status"] in OVER:
        raise UsageError(f"{file}: this run is over ({record['status']}): there is nothing to go on with")


def _answer(agent: AnyAgent, answer: Answer) -> None:
    try:
        in_loop(partial(agent.interaction.answer, answer))
    except InteractionError as error:
        text = describe(error)
        if isinstance(error, InvalidAnswerError) and error.id is not None:
            text += f"; answer with {hint(agent.interaction.record(error.id).question.response_schema)}"
    else:
        return
    raise UsageError(text)


def _screen(agent: AnyAgent, *, is_quiet: bool, is_asked: bool) -> Lines:
    """Return what shows a run: a live tree where stderr is a terminal that can show one, else lines."""
    if is_quiet:
        return Lines((Event,))
    console = Console(file=sys.stderr, highlight=False, markup=False, emoji=False)
    return LiveTree(agent.root, console) if is_live(console) else Lines(QUESTIONS if is_asked else ())


def _followed(
    agent: AnyAgent,
    start: Callable[[], Stream],
    target: str,
    save: Path | None,
    *,
    is_quiet: bool,
    may_ask: bool,
) -> Exit:
    """Follow a run to its end, however it ends."""
    is_asked = may_ask and is_terminal()
    screen = _screen(agent, is_quiet=is_quiet, is_asked=is_asked)

    async def follow() -> tuple[Outcome, bool]:
        asker = Asker(agent, screen, Keyboard(sys.stdin)) if is_asked else None
        outcome = await Drive(agent, screen, asker).run(start)
        return outcome, asker is not None and asker.is_over

    try:
        outcome, is_left_open = in_loop(follow)
    except BaseException as error:
        if not is_usage(error):
            keep(agent, save)
        raise
    keep(agent, save)
    return conclude(agent, outcome, target, save, is_left_open=is_left_open)
