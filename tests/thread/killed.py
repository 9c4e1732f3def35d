"""A program that is killed while its assistant runs a command: `python -m tests.thread.killed <folder>`."""

from __future__ import annotations

import sys
from pathlib import Path

import anyio

from jianmu.message import human
from jianmu.stores import SQLiteStore
from jianmu.testing import ScriptedModel
from tests.thread.timeline import World, call

COMMAND = "echo once >> log.txt; sleep 60"


async def main() -> None:
    """Run a command that takes a minute."""
    world = World(Path(sys.argv[1]))
    async with SQLiteStore(world.path) as store:
        plan = {"todos": [{"content": "wait", "status": "completed"}]}
        script = [call("1", "write_todos", **plan), call("2", "bash", command=COMMAND)]
        await world.agent(ScriptedModel(script), store=store).run({"messages": [human("Wait a bit")]}, thread_id="t")


if __name__ == "__main__":
    anyio.run(main)
