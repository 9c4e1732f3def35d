"""How a run ended, told to whoever called: the output on stdout, the rest on stderr, and an exit code."""

from __future__ import annotations

import json
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any  # Any: agents of every schema

from py_trees.common import Status

from jianmu.agent import Agent
from jianmu.cli.faults import Exit, complain, describe
from jianmu.cli.forms import hint
from jianmu.cli.load import write_text
from jianmu.cli.output import show_output
from jianmu.cli.store import option
from jianmu.draw.outline import one_line
from jianmu.engine.interaction import Suspension
from jianmu.engine.limits import exceeded
from jianmu.engine.outcome import Outcome
from jianmu.engine.tree import path_of
from jianmu.errors import StalledError
from jianmu.nodes.reasons import failed_node

AnyAgent = Agent[Any]


@dataclass(frozen=True)
class Kept:
    """What is kept of a run.

    Attributes:
        target: the agent, as it was named.
        file: where its checkpoint is written.
        thread: its thread, in a store.
        place: the store, as it was named.
    """

    target: str
    file: Path | None = None
    thread: str | None = None
    place: str | None = None

    def save(self, agent: AnyAgent) -> None:
        """Write the run's checkpoint, if it is wanted and a run has begun."""
        if self.file is not None and agent.thread_id is not None:
            write_text(self.file, json.dumps(agent.dump_checkpoint(), ensure_ascii=False, indent=1) + "\n")

    def way(self, command: str) -> str:
        """Return the command line that goes on."""
        name = f"--thread {shlex.quote(self.thread)}" if self.thread is not None else shlex.quote(str(self.file))
        return f"jianmu {command} {self.target} {name}{option(self.place) if self.thread is not None else ''}"


def conclude(agent: AnyAgent, outcome: Outcome, kept: Kept, *, is_left_open: bool) -> Exit:
    """Tell how a run ended and return the exit code."""
    if outcome.limit is not None:
        error = exceeded(agent.runner.context.limits, agent.runner.context.usage)
        complain(describe(error) if error else f"LimitExceeded: {outcome.limit}")
        return Exit.FAILURE
    if outcome.stalled:
        complain(describe(StalledError("nothing can wake the tree but a write from outside")))
        return Exit.FAILURE
    show_output(outcome.output)
    if outcome.thread_id != agent.thread_id:
        print("another process is at work on the thread: the input waits for its turn", file=sys.stderr)
        return Exit.SUSPENDED
    if outcome.suspended or is_left_open:
        _tell_open(agent.interaction.pending, kept)
        return Exit.SUSPENDED
    if outcome.status is Status.SUCCESS:
        return Exit.SUCCESS
    if outcome.status is Status.FAILURE:
        _tell_failure(agent)
    else:
        complain("the run was halted")
    return Exit.FAILURE


def _tell_open(questions: tuple[Suspension, ...], kept: Kept) -> None:
    """Say what waits, and how it is answered."""
    for question in questions:
        text = one_line(" ".join(question.message.split()))
        print(f"waits: {one_line(question.path)}: {text}", file=sys.stderr)
        print(f"  id {question.id}, to be answered with {one_line(hint(question.response_schema))}", file=sys.stderr)
    if kept.file is None and kept.thread is None:
        print("nothing was saved: give --thread ID or --save FILE to go on later", file=sys.stderr)
        return
    name = f" --id {questions[0].id}" if len(questions) > 1 else ""
    print(f"go on: {kept.way('resume')}{name} --answer JSON", file=sys.stderr)


def _tell_failure(agent: AnyAgent) -> None:
    """Say which node made the tree fail."""
    node = failed_node(agent.root)
    why = f": {node.feedback_message}" if node.feedback_message else ""
    print(one_line(f"failure: the tree failed at '{path_of(node)}'{why}"), file=sys.stderr)
