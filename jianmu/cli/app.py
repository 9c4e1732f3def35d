"""The commands and their options."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Literal

from cyclopts import App, CycloptsError

from jianmu.cli import chat, checking, forking, inbox, threads, upkeep
from jianmu.cli.demo import run_demo
from jianmu.cli.drawing import Format, draw_agent
from jianmu.cli.ending import Kept
from jianmu.cli.faults import Exit, complain, report
from jianmu.cli.loop import Terminated
from jianmu.cli.options import Flag, Json, Number, Place
from jianmu.cli.runs import resume_agent, run_agent
from jianmu.cli.steps import step_agent
from jianmu.engine.entries import OnNewInput

app = App(
    name="jianmu",
    help="Behavior trees on an event loop over one typed state.",
    version=lambda: version("jianmu"),
    help_format="plaintext",
    suppress_keyboard_interrupt=False,
)

AGENTS = "Agents"


def execute(arguments: Sequence[str]) -> int:
    """Carry out a command line and return the exit code; errors are told on stderr."""
    is_debug = "--debug" in arguments
    try:
        code = app(list(arguments), exit_on_error=False, print_error=False, result_action="return_value")
        if sys.__stdout__ is not None:
            sys.__stdout__.flush()
    except CycloptsError as error:
        complain(f"{error}")
        print("see: jianmu --help", file=sys.stderr)
        return Exit.USAGE
    except KeyboardInterrupt as stop:
        print("interrupted", file=sys.stderr)
        return Exit.TERMINATED if isinstance(stop, Terminated) else Exit.INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Exit.FAILURE
    except Exception as error:  # noqa: BLE001  # whatever a user's program raises is told on one line
        return report(error, debug=is_debug)
    return code if isinstance(code, int) else Exit.SUCCESS


@app.command(group=AGENTS)
def run(
    agent: str,
    /,
    *,
    input: Json = None,
    thread: str | None = None,
    input_id: str | None = None,
    on_new_input: OnNewInput | None = None,
    store: Place = None,
    save: Path | None = None,
    quiet: Flag = False,
    debug: Flag = False,
) -> int:
    """Run an agent until it has a result; the output goes to stdout as JSON.

    Questions are asked at the terminal. Without one the run is suspended: exit code 3.

    Args:
        agent: module:name of an Agent, or of a function that returns one.
        input: fields of the state, a JSON object; @FILE reads a file, - reads stdin.
        thread: keep the run in the store under this id; without new input an unfinished one goes on.
        input_id: the input's id: what is delivered twice is applied once.
        on_new_input: what new input does to a run of the thread that is unfinished.
        store: where threads are kept.
        save: write the run's checkpoint to this file, however the run ends.
        quiet: show questions and errors only.
        debug: show the traceback of an error.
    """
    return run_agent(Kept(agent, save, thread, store), input, input_id, on_new_input, is_quiet=quiet)


@app.command(group=AGENTS)
def resume(
    agent: str,
    file: Path | None = None,
    /,
    *,
    thread: str | None = None,
    answer: Json = None,
    id: str | None = None,
    store: Place = None,
    save: Path | None = None,
    quiet: Flag = False,
    debug: Flag = False,
) -> int:
    """Go on with a run that was saved in a file, or with a thread of a store.

    Without --answer the open questions are asked at the terminal.

    Args:
        agent: module:name of an Agent, or of a function that returns one.
        file: the checkpoint; a refused answer leaves it as it was.
        thread: the thread, instead of a file.
        answer: the answer as JSON.
        id: the question that is answered, where several are open.
        store: where the thread is.
        save: write the checkpoint to this file instead of FILE.
        quiet: show questions and errors only.
        debug: show the traceback of an error.
    """
    return resume_agent(Kept(agent, save or file, thread, store), file, answer, id, is_quiet=quiet)


@app.command(group=AGENTS)
def step(
    agent: str,
    /,
    *,
    input: Json = None,
    ticks: Number = None,
    json: Flag = False,
    debug: Flag = False,
) -> int:
    """Tick an agent's tree and show each tick on a line: what ran, and what changed.

    A tick is over when the coroutines that it started have finished or wait for answers.

    Args:
        agent: module:name of an Agent, or of a function that returns one.
        input: fields of the state for the first tick, a JSON object; @FILE reads a file, - reads stdin.
        ticks: how many; by default until the tree has a result or waits, 100 at most.
        json: write each tick as a JSON object.
        debug: show the traceback of an error.
    """
    return step_agent(agent, input, ticks, is_json=json)


@app.command(group=AGENTS)
def tree(
    agent: str,
    /,
    *,
    format: Literal["text", "mermaid", "dot"] = "text",
    statuses: Path | None = None,
    debug: Flag = False,
) -> int:
    """Draw an agent's tree.

    Args:
        agent: module:name of an Agent, or of a function that returns one.
        format: the language of the drawing.
        statuses: a checkpoint whose statuses are shown.
        debug: show the traceback of an error.
    """
    return draw_agent(agent, Format(format), statuses)


@app.command(group=AGENTS)
def demo(file: Path | None = None, /, *, report: Path | None = None, store: Place = None, debug: Flag = False) -> int:
    """Work through refund requests: a rule decides what it can, and you decide the rest.

    Stop it as you like, also by a kill: started again it goes on where it was.

    Args:
        file: requests as JSON Lines; by default 20 that come with jianmu.
        report: where the report is written, as JSON if it is named so; by default refund-report.md.
        store: where what was done is kept.
        debug: show the traceback of an error.
    """
    return run_demo(file, report, store)


COMMANDS = {
    AGENTS: (chat.chat,),
    "Threads": (threads.threads, threads.show, threads.history, forking.fork, threads.prune, threads.delete),
    "Questions": (inbox.inbox, inbox.answer, inbox.approve, inbox.reject, inbox.claim, inbox.release),
    "Upkeep": (upkeep.drive, upkeep.recover, upkeep.sweep, upkeep.settle, checking.check_threads),
}
for group, commands in COMMANDS.items():
    for command in commands:
        app.command(command, group=group)
