"""Races between processes: K09, K35, racing answers and deadlines (I15), and I29 with a kill."""

from __future__ import annotations

import json
import queue
import signal
import threading
from collections.abc import Awaitable, Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest

from jianmu.agent import Agent
from jianmu.engine.request import fail
from jianmu.stores.sql import SQLStore
from tests.anystore import Stores
from tests.cases.people import SUCCESS, AskInside, Desk, ask, par
from tests.conftest import FULL
from tests.forks import started

pytestmark = pytest.mark.anyio
ROOT = Path(__file__).parents[2]
WITHIN = 60.0
PAIRS = [("sqlite", "asyncio"), ("postgres", "trio"), ("sqlite", "trio"), ("postgres", "asyncio")]
each_pair = pytest.mark.parametrize(
    ("any_store", "anyio_backend"),
    [pytest.param(*pair, marks=[pytest.mark.full] * (at > 1)) for at, pair in enumerate(PAIRS)],
    indirect=["any_store"],
)


class Process:
    """A worker, and what it has told."""

    def __init__(self, arguments: list[str]) -> None:
        self.process = started("tests.cases.worker:run", *arguments)
        self._lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)
        self._lines.put("")

    def hear(self) -> dict[str, Any]:
        """Return the next thing that it tells; why it has ended, if it has, stands in its stderr."""
        told = self._lines.get(timeout=WITHIN)
        assert told, f"the worker has ended: {self.process.wait(WITHIN)}"
        return json.loads(told)

    def say(self, **command: Any) -> None:
        """Give it a command, or a word that a leaf waits for."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(command) + "\n")
        self.process.stdin.flush()

    def ask(self, **command: Any) -> dict[str, Any]:
        """Give it a command and return what it tells next."""
        self.say(**command)
        return self.hear()

    def signal(self, number: int) -> None:
        """Send it a signal."""
        self.process.send_signal(number)

    def end(self) -> None:
        """Kill it, if it is still there."""
        with self.process:
            self.process.kill()


Start = Callable[..., Process]


@pytest.fixture
def start(any_store: Stores, anyio_backend: str, tmp_path: Path) -> Iterator[Start]:
    """Start workers on the store; what still runs after the test is killed."""
    started: list[Process] = []

    def run(
        tree: str, *, seconds: float = 10 * WITHIN, every: float = 10
    ) -> Process:  # no machine stands still so long
        arguments = [anyio_backend, tree, str(tmp_path / "effects"), str(seconds), str(every)]
        started.append(Process([*arguments, any_store.kind, *any_store.place()]))
        return started[-1]

    yield run
    for process in started:
        process.end()


async def until(claim: Callable[[], Awaitable[bool]]) -> None:
    """Wait until something has come true in another process."""
    with anyio.fail_after(WITHIN):
        while not await claim():  # noqa: ASYNC110  # what is waited for is in a store
            await anyio.sleep(0.01)


@each_pair
async def test_k09_of_two_processes_one_goes_on(any_store: Stores, start: Start, tmp_path: Path) -> None:
    """Both resume the thread at the same time: the effect happens once, the other is told that the thread is busy."""
    workers = [start("pay"), start("pay")]
    assert [worker.hear() for worker in workers] == [{"event": "ready"}] * 2
    assert workers[0].ask(do="run", thread="t1")["result"][0] == "RUNNING"
    for number, worker in enumerate(workers):
        worker.say(do="resume", thread="t1", answer=f"of {number}")
    heard = [worker.hear() for worker in workers]
    first = heard.index({"event": "paying"})
    assert heard[1 - first] == {"error": "ThreadBusyError"}
    assert workers[1 - first].ask(do="recover", thread="t1") == {"error": "ThreadBusyError"}
    assert workers[first].ask(go=True) == {"result": "SUCCESS"}
    assert (tmp_path / "effects").read_text() == "paid\n"
    view = await any_store.reader().show("t1")
    assert (view.status, view.fields["values"]) == ("finished", {"q": f"of {first}"})
    assert workers[1 - first].ask(do="recover", thread="t1") == {"result": "SUCCESS"}


@each_pair
@pytest.mark.parametrize(
    ("then", "every"),
    [
        pytest.param("taken over", 0.05, marks=pytest.mark.full),
        ("made anew", 1000.0),
        pytest.param("taken over", 1000.0, marks=pytest.mark.full),
        pytest.param("made anew", 0.05, marks=pytest.mark.full),
    ],
)
async def test_k35_a_holder_that_was_paused_writes_nothing_more(
    any_store: Stores, start: Start, then: str, every: float
) -> None:
    """Stopped past its lease; whether its keeper or its next commit finds out, the store has nothing of it."""
    store = any_store.reader()
    paused, other = start("hold", seconds=1, every=every), start("hold")
    assert [worker.hear() for worker in (paused, other)] == [{"event": "ready"}] * 2
    paused.say(do="run", thread="t1")
    assert paused.hear() == {"event": "holding"}
    paused.signal(signal.SIGSTOP)
    fences = [(await store.thread("t1")).fence]
    await until(lambda: _is_free(store))
    assert (await store.due(datetime.now().astimezone())) == ["t1"]
    if then == "made anew":
        assert await store.delete("t1")
        other.say(do="run", thread="t1")
    else:
        other.say(do="recover", thread="t1")
    assert other.hear() == {"event": "holding"}
    paused.signal(signal.SIGCONT)
    paused.say(go=True)
    assert paused.hear() == {"error": "LeaseLostError"}
    fences.append((await store.thread("t1")).fence)
    assert other.ask(go=True)["result"] in ("SUCCESS", ["SUCCESS", []])
    view = await store.show("t1")
    twice = [] if then == "made anew" else ["before"]
    assert (view.status, view.fields["log"]) in [
        ("finished", [*twice, "before", "after", "end"]),
        ("finished", ["before", "after", "end"]),  # it was stopped before its write was saved
    ]
    assert fences[0] < fences[1]
    assert paused.ask(do="recover", thread="t1") == {"result": "SUCCESS"}


async def _is_free(store: SQLStore) -> bool:
    row = await store.thread("t1")
    return row is not None and not row.is_held


@each_pair
async def test_six_answers_and_an_expiry_at_once_have_one_winner(any_store: Stores, start: Start) -> None:
    """From three processes, over and over: exactly one end, everybody is told the right thing, the node gets it."""
    workers = [start("three") for _ in range(3)]
    assert [worker.hear() for worker in workers] == [{"event": "ready"}] * 3
    winners: list[str] = []
    for turn in range(40 if FULL else 6):
        thread = f"t{turn}"

        agent = Agent(ask("q", str, expires=[fail(after=3600)]), Desk, store=any_store.reader())
        question = (await agent.run_until_suspend(thread_id=thread)).suspensions[0]
        at = question.expires_at
        assert at is not None
        before = (at - timedelta(seconds=1)).isoformat()
        for worker in workers[:2]:
            worker.say(do="race", id=question.id, count=3, now=before, name=thread)
        workers[2].say(do="sweep", now=at.isoformat())
        *answers, expired = [worker.hear()["result"] for worker in workers]
        told = [*answers[0], *answers[1]]
        assert (told + expired).count("accepted") + expired.count("expired") == 1
        late = "ExpiredError" if expired else "AlreadyAnsweredError"
        assert [one for one in told if one != "accepted"] == [late] * (6 - told.count("accepted"))
        winners.append("expired" if expired else "answered")

        agent = Agent(ask("q", str), Desk, store=any_store.reader())
        status, values = (await agent.recover(thread)).status, agent.state.values
        assert (status is SUCCESS, values.get("q", "").startswith(thread)) == (not expired,) * 2
    assert not FULL or set(winners) == {"expired", "answered"}


@each_pair
async def test_i29_answers_are_durable_when_the_call_returns(any_store: Stores, start: Start) -> None:
    """All or none; the process is killed when the call has returned, and `recover` gives each to its node, once."""
    worker = start("three")
    assert worker.hear() == {"event": "ready"}
    status, ids = worker.ask(do="run", thread="t1")["result"]
    assert (status, len(ids)) == ("RUNNING", 3)

    async def paths() -> dict[str, str]:
        return {one.path: one.id for one in await any_store.reader().inbox.pending()}

    found = await paths()
    a, b, c = (found[f"main/{name}"] for name in "abc")
    wrong = worker.ask(do="answer", thread="t1", payloads={a: "A", b: "B", c: "three"})
    assert (wrong, await paths()) == ({"error": "InvalidAnswerError"}, found)
    assert worker.ask(do="answer", thread="t1", payloads={a: "A", b: "B", c: 3}) == {"result": "answered"}
    worker.signal(signal.SIGKILL)
    worker.process.wait(WITHIN)

    store = any_store.reader()
    assert (await store.show("t1")).fields["values"] == {}
    assert await store.due(datetime.now().astimezone()) == ["t1"]
    agent = Agent(par("main", ask("a", str), AskInside("b", str), ask("c", int)), Desk, store=store)
    assert (await agent.recover("t1")).status is SUCCESS
    assert agent.state.values == {"a": "A", "b": "B", "c": 3}
