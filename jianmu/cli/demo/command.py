"""`jianmu demo`: a refund desk that asks you where its rule does not decide."""

from __future__ import annotations

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
from jianmu.cli.demo.nodes import desk_tree
from jianmu.cli.demo.records import Desk
from jianmu.cli.demo.report import End, sum_line, write_report
from jianmu.cli.demo.rules import REVIEWER_RULE, review
from jianmu.cli.faults import Exit, UsageError
from jianmu.cli.follow import Follower
from jianmu.cli.keyboard import Keyboard, is_terminal
from jianmu.cli.load import check_writable
from jianmu.cli.loop import in_loop
from jianmu.cli.screen import Lines, LiveTree, is_live
from jianmu.cli.telling import ROUTINE
from jianmu.draw.outline import printable
from jianmu.engine.interaction import Suspension

SHIPPED = Path(__file__).parent / "refunds.jsonl"
REPORT = Path("refund-report.md")


def run_demo(file: Path | None, report: Path | None) -> Exit:
    """Work through a file of refund requests and write a report."""
    source, target = file or SHIPPED, report or REPORT
    _check_readable(source)
    check_writable(target)
    if target.resolve() == source.resolve():
        raise UsageError(f"{target}: the report would take the place of the requests")
    is_attended = is_terminal()
    by = "you" if is_attended else "reviewer"
    human = None if is_attended else _reviewer
    agent = Agent(desk_tree(source, target, by), state_schema=Desk, human=human)
    print(f"refund desk: {source.name}{'' if is_attended else f'; no terminal, so {REVIEWER_RULE}'}", flush=True)
    end: End = "interrupted"
    try:
        end = in_loop(partial(_work, agent, is_attended=is_attended))
    finally:
        if end != "finished":
            write_report(target, agent.state, source, end)
        print(f"{sum_line(agent.state)}{'' if end == 'finished' else f' ({end})'}")
        print(f"report: {target}", flush=True)
    return Exit.SUCCESS if end == "finished" else Exit.SUSPENDED


async def _work(agent: Agent[Desk], *, is_attended: bool) -> End:
    """Run the desk to its end."""
    screen = _screen(agent)
    asker = Asker(agent, screen, Keyboard(sys.stdin), show=_question) if is_attended else None
    outcome = await Follower(agent, screen, asker, waits=True).run(agent.run_until_suspend)
    return "finished" if outcome.status is Status.SUCCESS else "left open"


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
