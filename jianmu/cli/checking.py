"""`jianmu check-threads`: whether today's program could go on with the threads of a store."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import redirect_stdout
from functools import partial
from typing import Any  # Any: agents of every schema

from jianmu.agent import Agent
from jianmu.cli.faults import Exit, describe
from jianmu.cli.load import load_agent
from jianmu.cli.loop import in_loop
from jianmu.cli.options import DEFAULTS, Options
from jianmu.cli.output import Column, rows_of, say, write_json, write_table
from jianmu.cli.showing import status_text
from jianmu.cli.store import closing, give_store
from jianmu.errors import UnknownThreadError
from jianmu.stores.base import Store
from jianmu.stores.threads import ThreadInfo, ThreadStatus


def check_threads(agent: str, /, *, status: ThreadStatus | None = None, options: Options = DEFAULTS) -> Exit:
    """Load each thread into today's program, and list those that it could not go on with, and why; nothing is run.

    Args:
        agent: module:name of an Agent, or of a function that returns one.
        status: which threads.
        options: where they are, and how it is told.
    """
    with redirect_stdout(sys.stderr):
        made = load_agent(agent)
        store = give_store(made, options.store)
        wrong = in_loop(lambda: closing(store, partial(_check, agent=made, status=status, options=options)))
    return Exit.FAILURE if wrong else Exit.SUCCESS


async def _check(store: Store, *, agent: Agent[Any], status: ThreadStatus | None, options: Options) -> int:
    """Tell which threads do not fit, and return how many."""
    count, wrong = 0, list[tuple[ThreadInfo, str]]()
    async for info in _threads(store, status):
        count += 1
        problem = await _problem(agent, info.thread_id)
        if problem is not None:
            wrong.append((info, problem))
            if options.json:
                write_json({"thread_id": info.thread_id, "status": info.status, "problem": problem})
    if options.json:
        return len(wrong)
    if wrong:
        columns = [Column("thread", gives="fold"), Column("status"), Column("why", gives="fold")]
        write_table(columns, [(info.thread_id, status_text(info.status), why) for info, why in wrong])
    say(f"{len(wrong):,} of {count:,} threads do not fit")
    return len(wrong)


def _threads(store: Store, status: ThreadStatus | None) -> AsyncIterator[ThreadInfo]:
    return rows_of(partial(store.list, status), lambda info: info.thread_id, None, None)


async def _problem(agent: Agent[Any], thread_id: str) -> str | None:
    """Return why a thread cannot be loaded, or None."""
    try:
        await agent.load(thread_id)
    except UnknownThreadError:  # deleted meanwhile
        return None
    except Exception as error:  # noqa: BLE001  # a user's restore() or migration may raise anything
        return describe(error)
    return None
