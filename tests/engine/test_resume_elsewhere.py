"""A run that was suspended here goes on in another process, from JSON text alone, as it would have gone on here."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import anyio
import pytest

from jianmu.engine import passes
from tests import forks
from tests.engine.elsewhere import build, go_on
from tests.house import ROOT

WRONG = {
    "ours": [["main/p", "blue"], ["main/p", "2"], ["main/o", "yes"], ["main/o", {"approved": 1}]],
    "typed": [
        ["main/date", "tomorrow"],
        ["main/date", 5],
        ["main/list", [{"street": 5}]],
        ["main/list", {"street": "x"}],
        ["main/talk", "2030-99-01"],
    ],
}
ANSWERS: dict[str, list[list[Any]]] = {
    "stock": [["main/rounds/round/tries/turn/limit/not/nor/q", n] for n in range(3)]
    + [["main/rounds/round/again", "x"]]
    + [["main/rounds/round/tries/turn/limit/not/nor/q", 9]],
    "ours": [
        ["main/a/limit/q1", 1],
        ["main/b/round/q2", 2],
        ["main/c/not/q3", 3],
        ["main/d/try/q4", 4],
        ["main/e/catch/f/q5", 5],
        ["main/g/q6", 6],
        ["main/h/q7", 7],
        ["main/i/q8", 8],
        ["main/j/k/q9", 9],
        ["main/l/x/x", "X"],
        ["main/m/q11", 11],
        ["main/o", True],
        ["main/p", 2],
        ["main/s", {"job": "done"}],
        ["main/t", "no number"],
        ["main/t", 15],
        ["main/b/round/q2", 22],
        ["main/l/y/y", "Y"],
    ],
    "nested": [
        ["main/agent/mid/first/deep/twice/q", 1],
        ["main/agent/mid/first/deep/twice/q", 2],
        ["main/agent/mid/z", 3],
    ],
    "typed": [
        ["main/talk", "2031-02-03"],
        ["main/date", "2032-03-04"],
        ["main/list", [{"street": "s", "since": "2033-01-01"}]],
        ["main/talk", {"street": "t"}],
    ],
    "looks": [["main/choice/odd", 6], ["main/choice/even", 8], ["main/last", "x"]],
    "effects": [["main/retry/talk", "A"], ["main/retry/talk", "B"], ["main/last", "C"]],
}


async def _both(tree: str, backend: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return how a tree goes on here, and how it does there."""
    for _ in range(1000):
        next(passes.NUMBERS)  # as if this process had ticked more than the other one will
    agent = build(tree)
    with anyio.fail_after(30):
        assert (await agent.run_until_suspend(thread_id="t1")).suspended
        checkpoint = agent.dump_checkpoint()
        job = {"tree": tree, "checkpoint": checkpoint, "answers": ANSWERS[tree], "wrong": WRONG.get(tree, [])}
        command = [*forks.command("tests.engine.elsewhere:main", *forks.JIANMU), backend]
        other = await anyio.run_process(command, input=json.dumps([job]).encode(), cwd=ROOT, stderr=subprocess.STDOUT)
        here = await go_on(agent, job["answers"], job["wrong"])
    return json.loads(json.dumps(here)), json.loads(other.stdout)[0]


@pytest.mark.anyio
@pytest.mark.parametrize("tree", ANSWERS)
async def test_a_run_goes_on_in_another_process_as_here(tree: str, anyio_backend: str) -> None:
    """Position, mementos, questions, journal, inner agents and typed answers: all as without the change of process."""
    here, there = await _both(tree, anyio_backend)
    effects = there.pop("deps"), here.pop("deps")
    assert there == here
    assert there["refused"] == len(WRONG.get(tree, []))
    assert len(there["asked"]) == {"stock": 1, "ours": 16, "nested": 1, "typed": 3, "effects": 1, "looks": 2}[tree]
    if tree == "effects":
        assert effects == ([7], [5, 7])  # the first was done here, before, and is not done there
        assert there["state"]["values"] == {"talk": [5, "A", 7, "B"], "last": "C"}
    if tree == "typed":
        assert there["state"]["values"]["talk"] == ["date", 2031, "Address", 2000]
    assert there["status"] == {"stock": "RUNNING", "ours": "RUNNING"}.get(tree, "SUCCESS")
