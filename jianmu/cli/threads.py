"""`jianmu threads`, `show`, `history`, `prune`, `delete`: threads in a store, without their program."""

from __future__ import annotations

import sys
from functools import partial
from typing import Annotated

from cyclopts import Parameter
from rich.text import Text

from jianmu.cli.faults import Exit, UsageError
from jianmu.cli.keyboard import Keyboard, NoMoreInputError, is_terminal
from jianmu.cli.options import DEFAULTS, Number, Options
from jianmu.cli.output import (
    PAGE,
    Column,
    ago,
    ahead,
    check_limit,
    first_of,
    rows_of,
    short,
    tell,
    write_json,
    write_table,
)
from jianmu.cli.showing import show_thread, standing, status_text
from jianmu.cli.store import check_id, in_store, option
from jianmu.draw.outline import one_line
from jianmu.errors import UnknownThreadError
from jianmu.stores.base import Store
from jianmu.stores.history import Written
from jianmu.stores.threads import ThreadInfo, ThreadStatus
from jianmu.stores.titles import titles_of


def threads(
    *, status: ThreadStatus | None = None, after: str | None = None, limit: Number = None, options: Options = DEFAULTS
) -> Exit:
    """List threads and how they stand, in the order of their ids; with their titles, where their states have some.

    Args:
        status: which ones; crashed are those whose process died at work.
        after: the id of the last one of the page before.
        limit: how many at most; by default 100, with --json all.
        options: where they are, and how they are told.
    """
    check_limit(limit)
    in_store(options.store, partial(_list, status=status, after=after, limit=limit, options=options))
    return Exit.SUCCESS


async def _list(
    store: Store, *, status: ThreadStatus | None, after: str | None, limit: int | None, options: Options
) -> None:
    fetch = partial(store.list, status)
    if options.json:
        async for info in rows_of(fetch, _id, after, limit):
            write_json(info)
        return
    found, has_more = await first_of(fetch, _id, after, limit or PAGE)
    if not found:
        print("no threads", file=sys.stderr)
        return
    titles = await titles_of(store, [info.thread_id for info in found])
    title = [Column("title", gives="cut")] if titles else []
    how = [Column("status"), Column("due"), Column("changed"), Column("stands", gives="cut")]
    rows = [(info.thread_id, *([titles.get(info.thread_id, "")] if titles else ()), *_row(info)) for info in found]
    write_table([Column("thread", gives="fold"), *title, *how], rows)
    if has_more:
        print(one_line(f"there are more: --after {found[-1].thread_id}"), file=sys.stderr)


def _id(info: ThreadInfo) -> str:
    return info.thread_id


def _row(info: ThreadInfo) -> tuple[str | Text, ...]:
    return status_text(info.status), ahead(info.wake_at), ago(info.updated_at), standing(info)


def show(thread: str, /, *, at: Number = None, options: Options = DEFAULTS) -> Exit:
    """Show how a thread stands: what it waits for, its state, its position.

    Args:
        thread: its id.
        at: a number of its log, to show how it stood then.
        options: where it is, and how it is told.
    """
    if at is not None and at < 1:
        raise UsageError(f"--at {at}: the numbers of a log begin with 1")
    check_id(thread)
    view = in_store(options.store, lambda store: store.show(thread, at))
    if options.json:
        write_json(view)
    else:
        show_thread(view, option(options.store))
    return Exit.SUCCESS


def history(thread: str, /, *, after: Number = None, limit: Number = None, options: Options = DEFAULTS) -> Exit:
    """List what the transactions of a thread's log did, the oldest first.

    Args:
        thread: its id.
        after: the number of the last one of the page before.
        limit: how many at most; by default 100, with --json all.
        options: where it is, and how it is told.
    """
    check_limit(limit)
    check_id(thread)
    in_store(options.store, partial(_history, thread=thread, after=after or 0, limit=limit, options=options))
    return Exit.SUCCESS


async def _history(store: Store, *, thread: str, after: int, limit: int | None, options: Options) -> None:
    fetch = partial(store.history, thread)
    if options.json:
        async for written in rows_of(fetch, _number, after, limit):
            write_json(written)
        return
    found, has_more = await first_of(fetch, _number, after, limit or PAGE)
    number, size = Column("number", is_number=True), Column("bytes", is_number=True)
    lists = Column("writes", gives="cut"), Column("nodes", gives="cut")
    columns = [number, Column("time"), Column("for"), Column("status"), size, *lists]
    write_table(columns, map(_step, found))
    if has_more:
        print(f"there are more: --after {found[-1].number}", file=sys.stderr)


def _number(written: Written) -> int:
    return written.number


def _step(written: Written) -> tuple[str | Text, ...]:
    what = (written.what or "", status_text(written.status or ""), f"{written.size:,}")
    return str(written.number), short(written.time), *what, ", ".join(written.fields), ", ".join(written.nodes)


def prune(thread: str, /, *, at: Number = None, options: Options = DEFAULTS) -> Exit:
    """Remove what only the numbers of a thread's log before one needed; it goes on as before.

    Args:
        thread: its id.
        at: the number with which its log begins then; by default the last one.
        options: where it is, and how it is told.
    """
    check_id(thread)
    number = in_store(options.store, lambda store: store.prune(thread, at))
    tell({"thread_id": thread, "number": number}, f"the log of '{thread}' begins with number {number} now", options)
    return Exit.SUCCESS


def delete(
    thread: str,
    /,
    *,
    yes: Annotated[bool, Parameter(name=["--yes", "-y"], negative="")] = False,
    options: Options = DEFAULTS,
) -> Exit:
    """Delete a thread and all that belongs to it.

    Args:
        thread: its id.
        yes: do not ask.
        options: where it is, and how it is told.
    """
    check_id(thread)
    if not yes and not is_terminal():
        raise UsageError(f"delete '{thread}': there is no terminal to ask at: give --yes")
    is_gone = in_store(options.store, partial(_delete, thread=thread, is_sure=yes))
    tell({"thread_id": thread, "deleted": is_gone}, f"'{thread}' was {'deleted' if is_gone else 'kept'}", options)
    return Exit.SUCCESS if is_gone else Exit.FAILURE


async def _delete(store: Store, *, thread: str, is_sure: bool) -> bool:
    row = await store.thread(thread)
    if row is None:
        raise UnknownThreadError(f"there is no thread '{thread}' in the store", thread_id=thread)
    if not is_sure and not await _confirmed(one_line(f"delete thread '{thread}' ({row.status})? [y/n]: ")):
        return False
    await store.delete(thread)
    return True


async def _confirmed(prompt: str) -> bool:
    """Return what a person says at the terminal; no answer is a no."""
    print(prompt, end="", file=sys.stderr, flush=True)
    try:
        return (await Keyboard(sys.stdin).line()).strip().lower() in ("y", "yes")
    except NoMoreInputError:
        print(file=sys.stderr)
        return False
