"""How a run ended, told to whoever called: the output on stdout, the rest on stderr, and an exit code."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Any  # Any: JSON, agents of every schema

from py_trees.common import Status
from pydantic_core import to_jsonable_python

from jianmu.agent import Agent
from jianmu.cli.faults import Exit, complain, describe
from jianmu.cli.forms import hint
from jianmu.cli.load import write_text
from jianmu.draw.outline import one_line
from jianmu.engine.interaction import Suspension
from jianmu.engine.limits import exceeded
from jianmu.engine.outcome import Outcome
from jianmu.engine.tree import path_of
from jianmu.errors import StalledError

AnyAgent = Agent[Any]


def keep(agent: AnyAgent, file: Path | None) -> None:
    """Write the run's checkpoint, if it is wanted and a run has begun."""
    if file is not None and agent.thread_id is not None:
        write_text(file, json.dumps(agent.dump_checkpoint(), ensure_ascii=False, indent=1) + "\n")


def conclude(agent: AnyAgent, outcome: Outcome, target: str, save: Path | None, *, is_left_open: bool) -> Exit:
    """Tell how a run ended and return the exit code."""
    if outcome.limit is not None:
        error = exceeded(agent.runner.context.limits, agent.runner.context.usage)
        complain(describe(error) if error else f"LimitExceeded: {outcome.limit}")
        return Exit.FAILURE
    if outcome.stalled:
        complain(describe(StalledError("nothing can wake the tree but a write from outside")))
        return Exit.FAILURE
    show_output(outcome.output)
    if outcome.suspended or is_left_open:
        _tell_open(agent.interaction.pending, target, save)
        return Exit.SUSPENDED
    if outcome.status is Status.SUCCESS:
        return Exit.SUCCESS
    if outcome.status is Status.FAILURE:
        _tell_failure(agent)
    else:
        complain("the run was halted")
    return Exit.FAILURE


def show_output(output: dict[str, Any]) -> None:
    """Write the output to stdout as JSON: indented on a terminal, else on one line."""
    stdout = sys.__stdout__ or sys.stdout
    value = to_jsonable_python(output, fallback=str, inf_nan_mode="null")
    is_unicode = "utf" in (stdout.encoding or "").lower()
    text = json.dumps(value, ensure_ascii=not is_unicode, indent=2 if stdout.isatty() else None, allow_nan=False)
    print(text, file=stdout, flush=True)


def _tell_open(questions: tuple[Suspension, ...], target: str, save: Path | None) -> None:
    """Say what waits, and how it is answered."""
    for question in questions:
        text = one_line(" ".join(question.message.split()))
        print(f"waits: {one_line(question.path)}: {text}", file=sys.stderr)
        print(f"  id {question.id}, to be answered with {one_line(hint(question.response_schema))}", file=sys.stderr)
    if save is None:
        print("nothing was saved: give --save FILE to go on later", file=sys.stderr)
        return
    name = f" --id {questions[0].id}" if len(questions) > 1 else ""
    print(f"go on: jianmu resume {target} {shlex.quote(str(save))}{name} --answer JSON", file=sys.stderr)


def _tell_failure(agent: AnyAgent) -> None:
    """Say which node made the tree fail."""
    node = agent.root.tip() or agent.root
    why = f": {node.feedback_message}" if node.feedback_message else ""
    print(one_line(f"failure: the tree failed at '{path_of(node)}'{why}"), file=sys.stderr)
