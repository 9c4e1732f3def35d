"""Crash windows 1 to 18, by their numbers in the contract: dead there, what is promised happens."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jianmu.engine.questions import Answer, Origin, question_id
from jianmu.errors import AlreadyAnsweredError
from jianmu.stores.base import Store
from tests.crash.conftest import COMBINATIONS, Crashes
from tests.crash.forge import Story
from tests.crash.hooks import Hook
from tests.crash.program import THREAD, Death
from tests.crash.windows import (
    ACT,
    BEGIN,
    CARRY_OUT,
    CLOSE,
    CONTROLLER,
    ENGINE,
    JOURNAL,
    KILLED,
    MOVE,
    RESUMED,
    SHAPES,
    STORES,
    Tell,
    asked,
    effect,
    found,
    look,
    noted,
)

FIRST = question_id(Origin(THREAD, 1, "rounds/work/ask", (("rounds", 0),)), "ask", 0)


@pytest.mark.parametrize(
    "hook", [Hook(STORES + "sql:SQLStore.take"), Hook(ENGINE + "holding:Holding.take", "after"), Hook(BEGIN)]
)
def test_window_01_dead_before_the_first_commit(tell: Tell, hook: Hook) -> None:
    """Nothing has happened, and the same input is applied once."""
    for story in tell("order", hook):
        assert found(story)["list"] == []
        assert noted(story, "requested", 0) + noted(story, "entered", 0) == []


def test_window_02_dead_between_a_pass_and_its_commit(tell: Tell) -> None:
    """The pass is repeated, on the state as it was."""
    for story in tell("policies", Hook(ENGINE + "holding:Holding.after_pass")):
        view = found(story)
        assert (view["position"], view["fields"]["log"], len(view["log"])) == ({}, [], 1)


def test_window_03_dead_between_request_and_its_commit(tell: Tell) -> None:
    """The node is asked for its request again, under the same id; nobody had been told."""
    for story in tell("order", Hook(CONTROLLER + "ask", "after")):
        assert (found(story)["asked"], noted(story, "told", 0)) == ([], [])
        assert len(noted(story, "requested")) == 3
        assert asked(story.notes[-1], "ask.0")["id"] == FIRST


def test_window_04_dead_before_the_caller_is_told_of_a_question(tell: Tell) -> None:
    """It is the same question with the same id, and the node is not asked for it again."""
    for story in tell("order", Hook(CLOSE, "after")):
        assert asked(found(story), "ask.0")["status"] == "open"
        assert (len(noted(story, "requested")), noted(story, "told", 0)) == (2, [])
        assert noted(story, "told", 1)[0]["asked"] == [FIRST]


@pytest.mark.parametrize("way", ["inbox", "resume", "agent"])
@pytest.mark.parametrize(
    "hook", [(Hook(MOVE), RESUMED), Hook(STORES + "writing:move"), Hook(STORES + "writing:move", "after")]
)
def test_window_05_dead_between_an_answer_and_its_commit(tell: Tell, way: str, hook: Death) -> None:
    """It was not accepted: the question is open, and the one who sends it again is the one who counts."""
    for story in tell("order", hook, way=way):
        assert asked(found(story), "ask.0")["status"] == "open"
        assert asked(story.notes[-1], "ask.0")["payload"]["by"] == 1


@pytest.mark.parametrize("way", ["inbox", "resume", "agent"])
def test_window_06_dead_before_an_answer_is_acknowledged(tell: Tell, way: str) -> None:
    """It counts."""
    for story in tell("order", (Hook(MOVE, "after"), replace(RESUMED, when="after")), way=way):
        assert asked(found(story), "ask.0")["status"] == "answered"
        assert asked(story.notes[-1], "ask.0")["payload"]["by"] == 0
        assert noted(story, "accepted", 0) == []


@pytest.mark.parametrize("combination", COMBINATIONS[::4])
def test_window_06_sent_again_it_is_the_same_answer(crashes: Crashes, combination: str) -> None:
    """The same key is accepted and changes nothing; any other answer gets the record of the first one."""

    async def send_again(store: Store) -> None:
        (record,) = await store.inbox.answer(Answer(FIRST, {"by": 0, "to": "ask.0"}, key=f"key of {FIRST}"))
        assert record.status == "answered"
        with pytest.raises(AlreadyAnsweredError) as refused:
            await store.inbox.answer(Answer(FIRST, {"by": 5}, key="another"))
        assert refused.value.record.answer.payload == {"by": 0, "to": "ask.0"}

    story = crashes.forges[0].begin(crashes.plan("order", combination, Hook(MOVE, "after")))
    assert crashes.forges[0].live(story) == KILLED
    look(crashes, story, send_again)
    assert crashes.forges[0].live(story) == 0
    assert asked(story.notes[-1], "ask.0")["payload"] == {"by": 0, "to": "ask.0"}
    crashes.forget(story.plan)


def test_window_07_dead_between_an_answer_and_the_drive(tell: Tell) -> None:
    """The question is never open again, and the thread is due."""
    for story in tell("order", Hook(STORES + "inbox:Inbox.answer", "after")):
        view = found(story)
        assert (asked(view, "ask.0")["status"], view["due"], view["status"]) == ("answered", [THREAD], "suspended")


@pytest.mark.parametrize("way", ["inbox", "resume", "agent", "nowait", "outside"])
@pytest.mark.parametrize("shape", ["order", "talk", "each", "inner"])
def test_window_08_dead_before_the_node_is_told(tell: Tell, shape: str, way: str) -> None:
    """It is told the same answer in its next life; whatever it could have seen is in the store."""
    for story in tell(shape, Hook(CONTROLLER + "deliver"), way=way):
        assert noted(story, "took", 0) == []
        assert noted(story, "took", 1)[0]["answer"]["by"] == 0


def test_window_09_dead_between_on_answer_and_its_commit(tell: Tell) -> None:
    """It is told the same answer again; what it wrote is neither kept nor there twice."""
    for story in tell("order", Hook(SHAPES + "Ask.on_answer", "after")):
        view = found(story)
        assert (view["fields"]["said"], asked(view, "ask.0")["consumed"]) == ({}, None)
        assert [note["life"] for note in noted(story, "took", of="ask.0")] == [0, 1]


def test_window_10_dead_between_that_commit_and_the_next_start(tell: Tell) -> None:
    """The node is never told again, and what follows it is started."""
    for story in tell("order", Hook(CARRY_OUT, since=SHAPES + "Ask.on_answer"), level="sync"):
        assert asked(found(story), "ask.0")["consumed"]
        assert [note["life"] for note in noted(story, "took", of="ask.0")] == [0]
        assert [note["life"] for note in noted(story, "effect", receipt="charge.1")] == [1]


@pytest.mark.parametrize("hook", [Hook(JOURNAL + "once"), Hook(JOURNAL + "begin", "after")])
def test_window_11_dead_before_the_start_of_an_effect_is_committed(tell: Tell, hook: Hook) -> None:
    """The effect is done as if nothing had been."""
    for story in tell("order", hook):
        assert found(story)["effects"] == {}
        assert len(noted(story, "effect", receipt="charge.0")) == 1


@pytest.mark.parametrize("name", ["rerun", "asks", "fails"])
def test_window_12_dead_between_start_and_effect(tell: Tell, name: str) -> None:
    """The outcome is unknown; the policy decides, and the effect is done once."""
    for story in tell("policies", Hook(ACT + "act_now", of=name)):
        assert effect(found(story), name) == "started"
        assert len(noted(story, "effect", receipt=name)) == 1
        _decided(story)


@pytest.mark.parametrize("place", [ACT + "act_now", ACT + "act_slowly"])
@pytest.mark.parametrize("name", ["rerun", "asks", "fails"])
def test_window_13_dead_between_effect_and_result(tell: Tell, name: str, place: str) -> None:
    """The outcome is unknown; the policy decides: done again under the same key, or settled by what people say."""
    for story in tell("policies", Hook(place, "after", of=name)):
        assert effect(found(story), name) == "started"
        calls = noted(story, "effect", receipt=name)
        assert (len(calls), len({note["key"] for note in calls})) == (2 if name == "rerun" else 1, 1)
        _decided(story)


def test_window_14_dead_between_a_result_and_its_commit(tell: Tell) -> None:
    """What only memory knew is unknown."""
    for story in tell("order", Hook(JOURNAL + "finish", "after")):
        assert "started" in {one["state"] for one in found(story)["effects"].values()}


@pytest.mark.parametrize("dies", [(), (Hook(CLOSE, "after"),)], ids=["lives", "dies"])
def test_window_14_halted_in_an_effect(tell: Tell, dies: tuple[Hook, ...]) -> None:
    """An effect in which the run was halted has an unknown outcome too, also when the process dies after that."""
    halt = Hook(ACT + "act_now", "after", of="fails", deed="halt")
    for story in tell("policies", (halt, *dies), is_killed=bool(dies)):
        assert (len(noted(story, "effect", receipt="fails")), bool(noted(story, "unknown"))) == (1, True)
        assert not dies or effect(found(story), "fails") == "unknown"


def test_window_15_dead_between_a_result_and_the_next_write(tell: Tell) -> None:
    """The node is entered again and has the result; the function is not called."""
    for story in tell("order", Hook(JOURNAL + "once", "after")):
        done = [key for key, one in found(story)["effects"].items() if one["state"] == "done"]
        assert done
        assert [note for note in noted(story, "effect", 1) if note["key"] in done] == []


def test_window_16_dead_after_a_write_that_an_await_follows(tell: Tell) -> None:
    """The cut has the write; the node is entered again, and writes it once more."""
    since = SHAPES + "Early.update_async"
    for story in tell("policies", Hook(ENGINE + "holding:Holding._tell", since=since), level="sync"):
        assert (found(story)["fields"]["early"], story.notes[-1]["fields"]["early"]) == (["early"], ["early"] * 2)


def test_window_17_dead_between_the_last_write_and_the_commit_of_its_pass(tell: Tell) -> None:
    """The node is entered again; its last write is on disk once."""
    hook = Hook(ENGINE + "activity:Activity.settle", "after", since=SHAPES + "Early.update_async")
    for story in tell("policies", hook):
        assert found(story)["fields"]["log"].count("early") == 0
        assert story.notes[-1]["fields"]["log"].count("early") == 1
        assert len(noted(story, "entered", path="main/early")) == 2


def test_window_18_dead_between_the_commit_of_a_pass_and_the_next_start(tell: Tell) -> None:
    """What has finished is not entered again."""
    for story in tell("big", Hook(CARRY_OUT, since=ENGINE + "activity:Activity.settle"), level="sync"):
        assert found(story)["position"]["main/big0"] == "SUCCESS"
        assert len(noted(story, "entered", path="main/big0")) == 1
        assert noted(story, "entered", 0, path="main/big1") == []


def _decided(story: Story) -> None:
    """Check that people were asked about an effect where that is its policy, and told where it is to fail."""
    questions = [one for one in story.notes[-1]["asked"] if one["reason"] == "unknown_outcome"]
    unknown = [effect(found(story), name) == "started" for name in ("asks", "fails")]
    assert [len(questions) == 1, len(noted(story, "unknown")) == 1] == unknown
