"""`jianmu fork`: a new thread that goes on from a point of another one, with its program or without it."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from functools import partial

from jianmu.cli.faults import Exit, UsageError
from jianmu.cli.load import load_agent
from jianmu.cli.loop import in_loop
from jianmu.cli.options import DEFAULTS, Number, Options
from jianmu.cli.output import tell
from jianmu.cli.store import check_id, closing, give_store, in_store, unknown
from jianmu.draw.outline import one_line
from jianmu.errors import UnknownThreadError
from jianmu.stores.base import Store


def fork(
    thread: str, new: str | None = None, /, *, at: Number = None, agent: str | None = None, options: Options = DEFAULTS
) -> Exit:
    """Make a new thread that goes on from a number of another one's log, and write its id.

    Without its program the state is copied as it stood. With --agent, a thread of `jianmu.thread` gets a sandbox of its
    own and keeps the name that a person has given it since. The files of a thread are copied in no case.

    Args:
        thread: the id of the other one, which stays as it is.
        new: the new one's id; by default one that is made up.
        at: the number; by default the last one.
        agent: module:name of an Agent, or of a function that returns one: the thread's program.
        options: where it is, and how it is told.
    """
    for id in (thread, new or thread):
        check_id(id)
    if agent is None:
        made = in_store(options.store, partial(_copied, thread=thread, new=new, at=at))
    else:
        with redirect_stdout(sys.stderr):
            made = _forked(agent, thread, new, at, options.store)
    tell({"thread_id": made}, made, options)
    return Exit.SUCCESS


async def _copied(store: Store, *, thread: str, new: str | None, at: int | None) -> str:
    """Make a fork without its program, and say what it lacks."""
    made = await store.fork(thread, new, at=at)
    newest, own = (await store.show(thread)).fields, (await store.show(made)).fields
    lacks = ["a sandbox of its own"] if own.get("sandbox") else []
    if newest.get("title_by") == "person" and newest.get("title") != own.get("title"):
        lacks.append(f"the name '{newest.get('title')}'")
    if lacks:
        line = f"'{made}' does not have {' and '.join(lacks)}: fork it with --agent module:name to give it that"
        print(one_line(line), file=sys.stderr)
    return made


def _forked(target: str, thread: str, new: str | None, at: int | None, place: str | None) -> str:
    from jianmu.thread import fork_thread  # noqa: PLC0415  # other commands start faster without it

    agent = load_agent(target)
    store = give_store(agent, place)
    try:
        return in_loop(lambda: closing(store, lambda _: fork_thread(agent, thread, new, at=at)))
    except UnknownThreadError as error:
        text = unknown(error)
    raise UsageError(text)
