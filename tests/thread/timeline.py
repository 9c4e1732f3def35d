"""What the timelines share: assistants in programs of their own on one store, and who has written what, in order."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio

from jianmu.agent import Agent
from jianmu.engine.events import Event, NodeStarted, StateChanged
from jianmu.message import Message, human
from jianmu.model import ScriptedModel
from jianmu.stores import SQLiteStore
from jianmu.thread import Sandboxes, ThreadFolders, thread_agent
from jianmu.thread.sandboxlocal import LocalSandbox
from jianmu.tool import ToolCall
from tests.thread.boxes import small

SECONDS = 60


class World:
    """A folder with a store and the folders of threads, in which one program after the other runs.

    Args:
        root: the folder.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.path = root / "runs.db"
        self.folders = ThreadFolders(root / "threads")
        self.made: list[LocalSandbox] = []

    @property
    def thread(self) -> Path:
        """The folder of the thread."""
        return self.folders.folder("t")

    def sandboxes(self) -> Sandboxes:
        """Return real sandboxes with small limits; those that are made are counted."""

        def make(thread: str) -> LocalSandbox:
            self.made.append(LocalSandbox(self.folders, thread, limits=small()))
            return self.made[-1]

        return Sandboxes(make)

    def agent(self, model: ScriptedModel, tools: Any = (), **options: Any) -> Agent[Any]:
        """Return an assistant that works here."""
        given = {"folders": self.folders, "sandbox": self.sandboxes(), **options}
        return thread_agent(model, tools, **given)

    async def program(self, script: Sequence[Any], *messages: Message, tools: Any = (), **options: Any) -> Program:
        """Run a turn of the thread `t` in a program of its own, which is over then."""
        given = {"messages": [*messages]}
        return await self._ran(script, tools, options, lambda made: made.run_until_suspend(given, thread_id="t"))

    async def resumed(self, script: Sequence[Any], answer: Any, tools: Any = (), **options: Any) -> Program:
        """Answer the open question in a program of its own, and go on until the end or the next one."""
        return await self._ran(script, tools, options, lambda made: made.resume(answer, thread_id="t"))

    async def recovered(self, script: Sequence[Any], tools: Any = (), **options: Any) -> Program:
        """Go on with what was cut short, in a program of its own."""
        return await self._ran(script, tools, options, lambda made: made.recover("t"))

    async def _ran(self, script: Sequence[Any], tools: Any, options: Any, work: Callable[[Any], Any]) -> Program:
        async with SQLiteStore(self.path) as store:
            model = ScriptedModel(script)
            made = self.agent(model, tools, store=store, **options)
            heard: list[Event] = []
            forget = made.runner.context.events.add(heard.append)
            with anyio.fail_after(SECONDS):
                outcome = await work(made)
            forget()
            return Program(made, model, heard, outcome)

    def rows(self) -> list[bytes]:
        """Return all that the store has, row by row."""
        with closing(sqlite3.connect(self.path)) as db:
            tables = [name for (name,) in db.execute("select name from sqlite_master where type = 'table'")]
            return [repr(row).encode() for table in tables for row in db.execute(f"select * from {table}")]


class Program:
    """What one program has done: its agent, as it was at the end, the model, and what was heard.

    Args:
        agent: the agent.
        model: the model.
        heard: the events.
        outcome: how the turn ended.
    """

    def __init__(self, agent: Agent[Any], model: ScriptedModel, heard: list[Event], outcome: Any) -> None:
        self.agent, self.model, self.outcome = agent, model, outcome
        self._heard = heard

    @property
    def state(self) -> Any:
        """The state at the end."""
        return self.agent.state

    def writes(self, *fields: str) -> list[tuple[str, str]]:
        """Return who has written these fields, in order: the last part of the node's path, and the field."""
        changes = [one for one in self._heard if isinstance(one, StateChanged)]
        return [
            ((one.writer or "").rpartition("/")[2], name) for one in changes for name in one.changed if name in fields
        ]

    def marks(self, *names: str) -> list[str]:
        """Return which of these nodes have started, and which fields were written, in order."""
        found: list[str] = []
        for one in self._heard:
            if isinstance(one, NodeStarted) and one.path.rpartition("/")[2] in names:
                found.append(one.path.rpartition("/")[2])
            if isinstance(one, StateChanged):
                found += [f"+{name}" for name in one.changed if name in names]
        return found


def call(id: str, name: str, **arguments: Any) -> ToolCall:
    """Return a call."""
    return ToolCall(id=id, name=name, arguments=arguments)


def said(text: str = "go on", **more: Any) -> Message:
    """Return a message of a person."""
    return human(text, **more)


def seen(what: Callable[[Any], Any], into: list[Any], reply: Any) -> Callable[[Any], Any]:
    """Return a turn of a script that notes something of the request before it replies."""

    def turn(request: Any) -> Any:
        into.append(what(request))
        return reply

    return turn
