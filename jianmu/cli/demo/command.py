"""`jianmu demo`: a refund desk that asks you where its rule does not decide."""

from __future__ import annotations

import hashlib
import os
import re
import sys
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any, cast  # Any: JSON

from py_trees.common import Status
from rich.console import Console
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from jianmu.agent import Agent
from jianmu.cli.asker import Asker
from jianmu.cli.demo.gateway import Gateway
from jianmu.cli.demo.nodes import desk_tree
from jianmu.cli.demo.records import Desk
from jianmu.cli.demo.report import End, sum_line, write_report
from jianmu.cli.demo.rules import REVIEWER_RULE, review
from jianmu.cli.faults import Exit, UsageError, describe
from jianmu.cli.follow import Follower, Start
from jianmu.cli.keyboard import Keyboard, is_terminal
from jianmu.cli.load import check_writable
from jianmu.cli.loop import in_loop
from jianmu.cli.screen import Lines, LiveTree, is_live
from jianmu.cli.store import closing, file_of, open_store
from jianmu.cli.telling import ROUTINE
from jianmu.draw.outline import printable
from jianmu.engine.interaction import Suspension
from jianmu.errors import CorruptRecordError, SetupError, StateError, ThreadBusyError
from jianmu.stores.base import Store

SHIPPED = Path(__file__).parent / "refunds.jsonl"
REPORT = Path("refund-report.md")
OVER = ("finished", "failed")
BUSY = "the demo is open in another terminal: go on there, or name another file here"
UNFIT = (SetupError, StateError, CorruptRecordError)


def run_demo(file: Path | None, report: Path | None, place: str | None) -> Exit:
    """Work through a file of refund requests and write a report; what was left unfinished goes on."""
    source, target = file or SHIPPED, report or REPORT
    _check_readable(source)
    check_writable(target)
    if target.resolve() == source.resolve():
        raise UsageError(f"{target}: the report would take the place of the requests")
    store, is_attended = open_store(place, may_make=True), is_terminal()
    gateway = Gateway(file_of(place).parent / "payments.jsonl")
    tree = desk_tree(source, target, "you" if is_attended else "reviewer", gateway)
    agent = Agent(tree, state_schema=Desk, human=None if is_attended else _reviewer, store=store)
    print(f"refund desk: {source.name}{'' if is_attended else f'; no terminal, so {REVIEWER_RULE}'}", flush=True)
    end: End = "interrupted"
    try:
        end = in_loop(lambda: closing(store, partial(_work, agent, thread_of(source), is_attended=is_attended)))
    finally:
        if agent.thread_id is not None:
            _tell_end(agent.state, source, target, end)
    return Exit.SUCCESS if end == "finished" else Exit.SUSPENDED


def thread_of(source: Path) -> str:
    """Return the thread of a file: one that was left unfinished is found again by whoever names the same file."""
    name = re.sub(r"[^A-Za-z0-9.-]", "_", source.stem)[:40]
    return f"demo-{name}-{hashlib.sha256(os.fsencode(source.resolve())).hexdigest()[:8]}"


async def _work(agent: Agent[Desk], thread: str, store: Store, *, is_attended: bool) -> End:
    """Run the desk to its end."""
    stands = await store.thread(thread)
    if stands is not None and stands.is_held:
        raise UsageError(BUSY)
    start = await _start(agent, thread, store)
    screen = _screen(agent)
    asker = Asker(agent, screen, Keyboard(sys.stdin), show=_question) if is_attended else None
    try:
        outcome = await Follower(agent, screen, asker, waits=True).run(start)
    except ThreadBusyError:  # since it was looked at
        problem = BUSY
    except UNFIT as error:
        if agent.thread_id is not None:
            raise
        problem = f"{describe(error)}; `jianmu delete {thread}` gives up what was begun"
    else:
        return "finished" if outcome.status is Status.SUCCESS else "left open"
    raise UsageError(problem)


async def _start(agent: Agent[Desk], thread: str, store: Store) -> Start:
    """Return what goes on with a run that was left unfinished, or begins anew."""
    stands = await store.thread(thread)
    if stands is None or stands.status in OVER:
        if stands is not None:
            print("the run before has finished: this one begins anew", flush=True)
        return partial(agent.run_until_suspend, thread_id=thread)
    fields = (await store.show(thread)).fields
    done, total = (len(cast("list[Any]", fields.get(name, ()))) for name in ("filed", "requests"))
    print(f"going on where it was left: {done} of {total} settled", flush=True)
    return partial(agent.recover, thread)


def _tell_end(state: Desk, source: Path, target: Path, end: End) -> None:
    """Write the report of a run that was cut short, and tell how it ended."""
    if end != "finished":
        write_report(target, state, source, end)
    print(f"{sum_line(state)}{'' if end == 'finished' else f' ({end}; start it again to go on)'}")
    print(f"report: {target}", flush=True)


def _screen(agent: Agent[Desk]) -> Lines:
    console = Console(file=sys.stderr, highlight=False, markup=False, emoji=False)
    if is_live(console):
        return LiveTree(agent.root, console, footer=partial(_progress, agent))
    return Lines(ROUTINE)


def _progress(agent: Agent[Desk]) -> list[Table]:
    """Return the bar below the tree."""
    state = agent.state
    total, done = max(len(state.requests), 1), len(state.filed)
    grid = Table.grid(padding=(0, 1))
    words = f"{done} of {len(state.requests)} settled, {len(state.decisions)} decided"
    grid.add_row(ProgressBar(total=total, completed=done, width=30), Text(words, no_wrap=True))
    return [grid]


def _question(question: Suspension) -> list[str]:
    """Return a question without what only the scripted reviewer reads."""
    return printable(question.message).splitlines()


async def _reviewer(question: Suspension) -> bool:
    """Answer by the rule that was printed."""
    data = cast("dict[str, Any]", question.data)
    return review(Decimal(data["amount"]), data["days"])


def _check_readable(file: Path) -> None:
    """Refuse a file that cannot be read.

    Raises:
        UsageError: with the reason.
    """
    try:
        with file.open("rb"):
            return
    except OSError as error:
        problem = error.strerror
    raise UsageError(f"{file}: {problem}")
