"""Crash windows 19 to 28, by their numbers in the contract: dead there, what is promised happens."""

from __future__ import annotations

import os
import signal
from contextlib import nullcontext

import psycopg
import pytest
from psycopg import sql

from jianmu.engine.checkpoint import Sought
from jianmu.engine.questions import Answer
from jianmu.errors import ExpiredError
from jianmu.stores.base import Store
from tests.crash.conftest import COMBINATIONS, Crashes
from tests.crash.forge import Story
from tests.crash.hooks import Hook
from tests.crash.notes import Note
from tests.crash.points import Point, lines_of
from tests.crash.program import THREAD, Death
from tests.crash.promises import broken
from tests.crash.windows import (
    ACT,
    CLOSE,
    COMMITS,
    CONTROLLER,
    ENGINE,
    KILLED,
    MOVE,
    SHAPES,
    STORES,
    Tell,
    asked,
    found,
    look,
    noted,
    stopped,
    tampered,
    wait_for,
)
from tests.postgres import Server
from tests.stores.threads import picture

ENQUEUE = STORES + "sql:SQLStore.enqueue"
APPLY = ENGINE + "inputs:Inputs.apply"
FORK = STORES + "base:Store.fork"
WRITING = "jianmu/stores/writing.py"
TABLES = "jianmu/stores/tables.py"
WAITING = "SELECT pid FROM pg_stat_activity WHERE application_name = 'jianmu' AND wait_event_type = 'Lock'"
HALT = Hook(SHAPES + "Hang.hang", deed="halt")


def test_window_19_an_answer_before_the_lease_is_released(tell: Tell) -> None:
    """The release is refused, and the run goes on with the answer without anybody's help."""
    for story in tell("order", Hook(CLOSE, deed="answer"), is_killed=False):
        took = noted(story, "took", of="ask.0")[0]
        assert took["at"] < noted(story, "told")[0]["at"]
        assert noted(story, "told")[0]["asked"] == [asked(story.notes[-1], "ask.1")["id"]]


@pytest.mark.parametrize("hook", [Hook(CLOSE, deed="answer kill"), Hook(CLOSE, "after", deed="answer kill")])
def test_window_19_dead_between_an_answer_and_the_release(tell: Tell, hook: Hook) -> None:
    """The answer is in, and the thread is due: it is in nobody's hands, and everybody can see it."""
    for story in tell("order", hook):
        view = found(story)
        assert (view["due"], asked(view, "ask.0")["payload"]["by"]) == ([THREAD], 0)


@pytest.mark.parametrize("way", ["inbox", "agent"])
def test_window_20_dead_between_a_deadline_and_its_commit(tell: Tell, way: str) -> None:
    """The question is open, and the deadline counts when somebody looks again."""
    for story in tell("deadline", Hook(MOVE), way=way):
        assert asked(found(story), "ask")["status"] == "open"
        assert [note["answer"] for note in noted(story, "took")] == [{"by": "clock"}]


@pytest.mark.parametrize("combination", COMBINATIONS[1::4])
@pytest.mark.parametrize("when", ["before", "after"])
def test_window_20_an_answer_and_an_expiry(crashes: Crashes, combination: str, when: str) -> None:
    """One of them counts: the answer if the deadline was not committed, else it is refused."""

    async def answer(store: Store) -> None:
        (row,) = await store.questions(Sought(thread_id=THREAD, status=None))
        with pytest.raises(ExpiredError) if when == "after" else nullcontext():
            await store.inbox.answer(Answer(row.id, {"by": "late"}))

    forge = crashes.forges[0]
    story = forge.begin(crashes.plan("deadline", combination, Hook(MOVE, when)))
    assert forge.live(story) == KILLED
    look(crashes, story, answer)
    assert forge.live(story) == 0
    expected = {"by": "late"} if when == "before" else {"by": "clock"}
    assert [note["answer"] for note in noted(story, "took")] == [expected]
    assert broken(story) == []
    crashes.forget(story.plan)


def test_window_21_dead_between_an_expiry_and_its_delivery(tell: Tell) -> None:
    """The node is told once what the clock has answered."""
    for story in tell("deadline", Hook(CONTROLLER + "deliver")):
        view = asked(found(story), "ask")
        assert (view["status"], view["consumed"], found(story)["due"]) == ("expired", None, [THREAD])
        assert [note["life"] for note in noted(story, "took")] == [1]


@pytest.mark.parametrize(
    "hook", [Hook(ENQUEUE), Hook(ENQUEUE, "after"), Hook(ENQUEUE, "after", count=2), Hook(APPLY), Hook(APPLY, "after")]
)
def test_window_22_dead_before_a_queued_input_is_applied(tell: Tell, hook: Hook) -> None:
    """Each input is applied once, in the order in which they came."""
    for story in tell("queued", hook):
        assert found(story)["fields"]["inputs"] == []
        assert story.notes[-1]["fields"]["inputs"] == ["second", "third"]


def test_window_22_dead_after_a_queued_input_was_applied(tell: Tell) -> None:
    """It is not applied again."""
    for story in tell("queued", Hook(ENGINE + "holding:Holding._tell", since=APPLY)):
        assert found(story)["fields"]["inputs"] == ["second"]
        assert story.notes[-1]["fields"]["inputs"] == ["second", "third"]


def test_window_23_dead_between_a_halt_and_its_commit(tell: Tell) -> None:
    """The node that was halted waits, and its question is open, as before."""
    for story in tell("halted", Hook(CONTROLLER + "withdraw_open", "after", since=ACT + "act_now")):
        view = found(story)
        assert (asked(view, "ask.0")["status"], view["position"]["rounds/race/slow/ask"]) == ("open", "RUNNING")


@pytest.mark.parametrize("combination", COMBINATIONS[2::5])
def test_window_23_an_answer_meanwhile_counts(crashes: Crashes, combination: str) -> None:
    """The answer that came after the death is the question's end."""

    async def answer(store: Store) -> None:
        (question,) = await store.inbox.pending()
        await store.inbox.answer(Answer(question.id, {"by": "late"}))

    forge = crashes.forges[0]
    hook = Hook(CONTROLLER + "withdraw_open", "after", since=ACT + "act_now")
    story = forge.begin(crashes.plan("halted", combination, hook))
    assert forge.live(story) == KILLED
    look(crashes, story, answer)
    assert forge.live(story) == 0
    question = asked(story.notes[-1], "ask.0")
    assert (question["status"], question["payload"]) == ("answered", {"by": "late"})
    assert story.notes[-1]["status"] == "finished"
    assert len(noted(story, "effect", receipt="quick.0")) == 1
    crashes.forget(story.plan)


@pytest.mark.parametrize("line", lines_of(WRITING, "trim"))
def test_window_24_dead_while_the_log_is_pruned(tell: Tell, line: int) -> None:
    """The log is as before, or as after it."""
    for story in tell("tidied", Point(WRITING, line, "before")):
        assert found(story)["log"][0][0] == 1


@pytest.mark.parametrize(
    "death",
    [
        Hook(STORES + "writing:acquire", since=FORK),
        Hook(STORES + "writing:acquire", "after", since=FORK),
        tuple(Hook(commit, since=FORK) for commit in COMMITS),
        tuple(Hook(commit, "after", since=FORK) for commit in COMMITS),
    ],
    ids=["acquire", "acquired", "commit", "committed"],
)
def test_window_24_dead_while_a_fork_is_made(tell: Tell, death: Death) -> None:
    """It is whole, or it is not there and can be made."""
    for story in tell("tidied", death):
        assert [one["status"] for one in story.notes[-1]["list"]] == ["finished", "suspended"]
        forks = [one for one in found(story)["list"] if one["thread_id"] == "t2"]
        assert all((one["questions"], one["number"]) == (1, 1) for one in forks)


def test_window_24_dead_while_a_snapshot_is_written(tell: Tell) -> None:
    """What was last committed loads; the snapshot is there when its transaction is."""
    for story in tell("big", Hook(ENGINE + "recording:Recording._snapshot", "after"), level="sync"):
        assert found(story)["is_read"]


@pytest.mark.parametrize("line", [*lines_of(TABLES, "create"), *lines_of(TABLES, "migrate")])
def test_window_24_dead_while_tables_are_made(tell: Tell, line: int) -> None:
    """They are made by the next one who comes."""
    for story in tell("order", Point(TABLES, line, "before"), is_new=True):
        assert found(story)["list"] == []


@pytest.mark.parametrize("count", [2, 5, 8, 11])
def test_window_25_dead_between_a_commit_and_its_reply(tell: Tell, count: int) -> None:
    """What was committed is there once, whether anybody was told or not."""
    hooks = (
        Hook(STORES + "sqlite:Database.work", "after", count),
        Hook(STORES + "postgres:PostgresStore._persist", "after", count),
    )
    for story in tell("order", hooks):
        assert story.kills == 1


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_window_25_the_server_commits_after_the_death(crashes: Crashes, postgres: Server, backend: str) -> None:
    """A statement that was sent before the death and is carried out after it counts once."""
    plan = crashes.plan("order", f"postgres-{backend}-async", Hook(CLOSE, deed="stop"))
    story = crashes.forges[0].begin(plan)
    with stopped(crashes, story) as process, psycopg.connect(postgres.dsn) as lock:
        lock.execute(sql.SQL("SELECT 1 FROM {} FOR UPDATE").format(sql.Identifier(plan.schema, "threads")))
        os.kill(process, signal.SIGCONT)
        wait_for(lambda: lock.execute(WAITING).fetchone())
        before = look(crashes, story, lambda store: store.log(THREAD))
        os.kill(process, signal.SIGKILL)
    assert story.codes == [KILLED]
    wait_for(lambda: len(look(crashes, story, lambda store: store.log(THREAD))) > len(before) or None)
    assert crashes.forges[0].live(story) == 0
    assert broken(story) == []
    assert found(story)["status"] == "suspended"
    crashes.forget(plan)


@pytest.mark.parametrize("combination", COMBINATIONS[::4])
@pytest.mark.parametrize("when", ["before", "after"])
def test_window_26_a_lease_that_was_lost_in_an_effect(crashes: Crashes, combination: str, when: str) -> None:
    """The one who slept writes nothing any more; for the one who has the thread now the effect's outcome is unknown."""
    story = crashes.forges[0].begin(crashes.plan("order", combination, Hook(ACT + "act_now", when, deed="stop")))
    later = Story(story.plan, story.path, [KILLED])
    with stopped(crashes, story) as process:
        tampered(story, "UPDATE threads SET lease_until = 0")
        assert crashes.forges[1].live(later) == 0
        assert broken(later) == []
        before = look(crashes, story, lambda store: picture(store, THREAD))
        os.kill(process, signal.SIGCONT)
    assert (story.codes, "LeaseLostError" in story.errors) == ([1], True)
    assert look(crashes, story, lambda store: picture(store, THREAD)) == before
    for receipt in ("charge.0", "ship.0"):
        calls = noted(story, "effect", receipt=receipt)
        assert (len(calls), len({note["key"] for note in calls})) == (2, 1)
    crashes.forget(story.plan)


def test_window_27_dead_between_the_last_commit_and_the_return(tell: Tell) -> None:
    """The same input returns the outcome of that run, and runs nothing."""
    for story in tell("order", Hook(ENGINE + "calls:Calls._tell_end", count=3)):
        assert found(story)["status"] == "finished"
        assert noted(story, "entered", 1) + noted(story, "requested", 1) == []
        assert [note["status"] for note in noted(story, "told", 1)] == ["SUCCESS"]


def test_window_28_halted_and_not_killed(tell: Tell) -> None:
    """The position is that before the halt, the state that after the cleanup; the run goes on from there."""
    for story in tell("cancelled", HALT, is_killed=False):
        assert _is_parked(found(story, 0))


def test_window_28_dead_in_the_cleanup_of_a_halt(tell: Tell) -> None:
    """It is as if the process had been killed before the halt."""
    for story in tell("cancelled", (HALT, Hook(SHAPES + "Hang.cleanup"))):
        view = found(story)
        assert (view["status"], view["fields"]["text"]) == ("crashed", "")


def test_window_28_dead_after_the_commit_of_a_halt(tell: Tell) -> None:
    """The position is that before the halt, the state that after the cleanup; the questions are open."""
    for story in tell("cancelled", (HALT, Hook(CLOSE, "after"))):
        assert _is_parked(found(story))


def _is_parked(view: Note) -> bool:
    position = {path: status for path, status in view["position"].items() if path != "all/charge"}
    told = (view["status"], view["fields"]["text"], asked(view, "ask")["status"], position)
    return told == ("interrupted", "cleaned", "open", dict.fromkeys(("all", "all/ask", "all/hang"), "RUNNING"))
