"""`jianmu recover`, `drive`, `sweep`, `settle`: what keeps threads going."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from functools import partial
from typing import Annotated

from cyclopts import Parameter
from py_trees.common import Status

from jianmu.cli.driver import Driver
from jianmu.cli.ending import Kept
from jianmu.cli.faults import Exit, complain
from jianmu.cli.load import load_agent, parse_json
from jianmu.cli.loop import in_loop
from jianmu.cli.options import DEFAULTS, Flag, Json, Options, Place
from jianmu.cli.output import duration, say, write_json
from jianmu.cli.runs import recover_agent
from jianmu.cli.store import check_id, closing, give_store, in_store
from jianmu.draw.outline import one_line
from jianmu.engine.outcome import Outcome

ENDED = {Status.SUCCESS: "finished", Status.FAILURE: "failed", Status.INVALID: "interrupted"}
SHORTEST = 0.05
"""Seconds between two looks, at least."""


def recover(
    agent: str,
    thread: str,
    /,
    *,
    wait: Flag = False,
    store: Place = None,
    quiet: Flag = False,
    debug: Flag = False,
) -> Exit:
    """Go on with an unfinished thread until its next question or its end; nobody is asked.

    Args:
        agent: module:name of an Agent, or of a function that returns one.
        thread: its id.
        wait: wait for another process that is at work on it.
        store: where it is.
        quiet: show questions and errors only.
        debug: show the traceback of an error.
    """
    return recover_agent(Kept(agent, thread=check_id(thread), place=store), waits=wait, is_quiet=quiet)


def drive(agent: str, /, *, once: Flag = False, every: str = "1s", options: Options = DEFAULTS) -> Exit:
    """Go on with whatever is due, again and again: answered questions, deadlines, what a crash has left.

    Several may do so at once, also on several machines.

    Args:
        agent: module:name of an Agent, or of a function that returns one.
        once: end when nothing is due.
        every: how long to wait before looking again, like 5s or 1m.
        options: where the threads are, and how it is told what came of them.
    """
    pause = duration(every, "--every")
    with redirect_stdout(sys.stderr):
        made = load_agent(agent)
        store = give_store(made, options.store, may_make=not once)
        driver = Driver(made, store, partial(_tell_driven, is_json=options.json), max(pause, SHORTEST))
        if not once:
            print("driving what is due; Ctrl-C ends it", file=sys.stderr, flush=True)
        in_loop(lambda: closing(store, lambda _: driver.once() if once else driver.forever()))
    return Exit.FAILURE if driver.failures else Exit.SUCCESS


def _tell_driven(thread_id: str, outcome: Outcome | None, problem: str | None, *, is_json: bool) -> None:
    """Tell what came of a thread."""
    questions = () if outcome is None else outcome.suspensions
    status = None if outcome is None else _standing(outcome)
    if problem is not None:
        complain(f"thread '{thread_id}': {problem}")
    if is_json:
        ids = [question.id for question in questions]
        write_json({"thread_id": thread_id, "status": status, "questions": ids, "problem": problem})
    elif status is not None:
        paths = ", ".join(question.path for question in questions)
        say(one_line(f"{thread_id}: {status}{f', waits at {paths}' if paths else ''}"))


def _standing(outcome: Outcome) -> str:
    return "suspended" if outcome.suspended else ENDED.get(outcome.status, "interrupted")


def sweep(*, options: Options = DEFAULTS) -> Exit:
    """Carry out the deadlines of open questions that have passed: escalate, answer by default, expire.

    Args:
        options: where the questions are, and how it is told what became of them.
    """
    moved = in_store(options.store, lambda store: store.sweep())
    for question in moved:
        if options.json:
            write_json(question)
        else:
            whom = f"open, for {question.assignee}" if question.status == "open" else question.status
            say(one_line(f"{question.thread_id}: {question.path}: {whom}"))
    if not moved:
        print("no deadline has passed", file=sys.stderr)
    return Exit.SUCCESS


def settle(
    thread: str,
    effect: str,
    /,
    *,
    happened: Annotated[bool, Parameter(negative="--not-happened")],
    result: Json = None,
    path: str | None = None,
    options: Options = DEFAULTS,
) -> Exit:
    """Write down what became of an effect whose outcome nobody knows; its thread is due then.

    Args:
        thread: the thread's id.
        effect: the effect's id, as `show` tells it, or its key.
        happened: whether it happened; what has not is called again, under the same idempotency key.
        result: what it returned, JSON.
        path: the path of its node, where several have used the key.
        options: where the thread is, and how it is told.
    """
    check_id(thread)
    value = None if result is None else parse_json(result, "--result")
    entry = in_store(
        options.store, lambda store: store.settle(thread, effect, happened=happened, result=value, path=path)
    )
    if options.json:
        write_json(entry)
    else:
        say(one_line(f"{entry.origin.path}: {entry.name} {'happened' if happened else 'has not happened'}"))
    return Exit.SUCCESS
