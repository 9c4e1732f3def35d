"""Ctrl-C in a terminal: the run is parked and cleaned up before the program ends, on both backends."""

from __future__ import annotations

import signal

import pytest

from tests.forks import started

PROGRAM = """
import sys
import anyio
from py_trees.common import ParallelPolicy, Status
from py_trees.composites import Parallel
from jianmu.agent import Agent
from jianmu.engine.node import AsyncNode, Node

class Forever(AsyncNode):
    async def update_async(self):
        try:
            await anyio.sleep_forever()
        finally:
            print("unwound", flush=True)
    async def cleanup(self):
        await anyio.sleep(0.05)
        print("cleaned", flush=True)

class Ready(AsyncNode):
    async def update_async(self):
        await anyio.sleep(0.02)
        print("ready", flush=True)
        return Status.SUCCESS

class Busy(Node):
    def update(self):
        self.wake()
        sum(range(1000))
        return Status.RUNNING

leaves = [Forever("x"), Ready("r"), *([Busy("y")] if len(sys.argv) > 2 else [])]
agent = Agent(Parallel("p", ParallelPolicy.SuccessOnAll(), children=leaves))
try:
    anyio.run(agent.run, backend=sys.argv[1])
except KeyboardInterrupt:
    print("interrupted", agent.status.name, len(agent.runner.tasks.lives), flush=True)
"""


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("load", [[], ["busy"]])
def test_ctrl_c_lets_the_cleanup_run(backend: str, load: list[str]) -> None:
    """While the loop sleeps and while it is busy: unwound, cleaned, then KeyboardInterrupt; nothing is left alive."""
    with started("tests.forks:run_text", PROGRAM, backend, *load, is_told_errors=True) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "ready\n"
        program.send_signal(signal.SIGINT)
        out, err = program.communicate(timeout=20)
    assert (out.splitlines(), err) == (["unwound", "cleaned", "interrupted INVALID 0"], "")
