"""The store that a command line names."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar  # Any: agents of every schema

import anyio

from jianmu.agent import Agent
from jianmu.cli.faults import UsageError, describe
from jianmu.cli.loop import in_loop
from jianmu.cli.options import VARIABLE
from jianmu.engine.checkpoint import check_thread_id
from jianmu.errors import MissingExtraError, StoreError, UnknownThreadError
from jianmu.stores import PostgresStore, SQLiteStore
from jianmu.stores.base import Store

T = TypeVar("T")
FILE = ".jianmu/runs.db"
SERVERS = ("postgresql://", "postgres://")


def open_store(place: str | None, *, may_make: bool = False) -> Store:
    """Return the store at a place, which opens itself on first use.

    Args:
        place: a path, or the URL of a database of PostgreSQL; None: the default.
        may_make: whether one that is not there is made; else it is a mistake.

    Raises:
        UsageError: there is none, or the place is none.
    """
    text = place or FILE
    if text.startswith(SERVERS):
        return _server(text)
    if "://" in text or "\0" in text:
        raise UsageError("--store takes a path, or postgresql://user@host/name")
    path = Path(text)
    if path.is_dir():
        raise UsageError(f"--store {text} is a folder: name a file")
    if not (may_make or path.exists()):
        raise UsageError(f"there is no store {text}: name one with --store, or begin a thread with `run --thread`")
    return SQLiteStore(path)


def _server(dsn: str) -> Store:
    try:
        return PostgresStore(dsn)
    except (StoreError, MissingExtraError) as error:
        problem = describe(error)
    raise UsageError(problem)


def file_of(place: str | None) -> Path:
    """Return the file of a store, or the one that it would have if it were in a file."""
    return Path(FILE if not place or place.startswith(SERVERS) else place)


def give_store(agent: Agent[Any], place: str | None, *, may_make: bool = False) -> Store:
    """Have an agent keep its threads in the store at a place, unless it has one of its own; return the store.

    Raises:
        UsageError: there is no such store, or the agent's own does less than jianmu's stores.
    """
    own = agent.store
    if own is None:
        store = open_store(place, may_make=may_make)
        agent.attach(store)
        return store
    if not isinstance(own, Store):
        name = type(own).__name__
        raise UsageError(f"the agent's store is {name}: the command line needs one that derives from jianmu's Store")
    if place is not None:
        print(f"the agent has a store of its own: that one is used, not {place}", file=sys.stderr)
    return own


def in_store(place: str | None, work: Callable[[Store], Awaitable[T]]) -> T:
    """Do something with a store that is there, in a loop of its own.

    Raises:
        UsageError: there is no such store, or no thread with the id that was given.
    """
    store = open_store(place)
    try:
        return in_loop(lambda: closing(store, work))
    except UnknownThreadError as error:
        text = unknown(error)
    raise UsageError(text)


def unknown(error: UnknownThreadError) -> str:
    """Return that there is no such thread, in a line."""
    return describe(error).partition(": run(")[0]


async def closing(store: Store, work: Callable[[Store], Awaitable[T]]) -> T:
    """Do something with a store, and close it."""
    try:
        return await work(store)
    finally:
        with anyio.CancelScope(shield=True):
            await store.close()


def check_id(thread_id: str) -> str:
    """Return the id of a thread, as it was given.

    Raises:
        UsageError: it can be none.
    """
    try:
        return check_thread_id(thread_id)
    except StoreError as error:
        problem = str(error)
    raise UsageError(problem)


def option(place: str | None) -> str:
    """Return the option that names a store once more, if it is needed, without a password."""
    if not place or place == os.environ.get(VARIABLE):
        return ""
    return " --store postgresql://…" if place.startswith(SERVERS) else f" --store {shlex.quote(place)}"
