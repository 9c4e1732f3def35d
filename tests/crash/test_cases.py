"""Cases of durability that need a real death, by their ids: K12, K13, K14, K17, K18, K23, I29."""

from __future__ import annotations

import json
import shutil
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest

from jianmu.engine.journal import OnUnknown
from tests.crash.conftest import COMBINATIONS, SOME, Crashes, mostly_full
from tests.crash.hooks import Hook
from tests.crash.points import Point, lines_of
from tests.crash.promises import broken
from tests.crash.sweep import share, told
from tests.crash.windows import ACT, CONTROLLER, ENGINE, SHAPES, STORES, Tell, effect, found, noted

WRITING = "jianmu/stores/writing.py"


@pytest.mark.parametrize("combination", mostly_full(COMBINATIONS, *SOME))
def test_k12_killed_at_each_await_after_an_answer(crashes: Crashes, combination: str, full: bool) -> None:
    """The question is not open again, the node has the answer, effects are done once or as their policy says."""
    (counted,) = crashes.run_all([crashes.plan("talk", combination, since="accepted", is_counted=True)])
    places = [place for *place, count in counted.all("passed")[0]["points"] if full or count > 1]
    chosen = share(places, combination) if full else [Random(combination).choice(places)]
    plans = [crashes.plan("talk", combination, Point(*place), since="accepted") for place in chosen]
    stories = crashes.run_all(plans)
    assert told(stories) == {}
    assert sum(story.kills for story in stories) >= 0.6 * len(plans)
    for story in stories:
        answered = {note["id"] for note in noted(story, "accepted", 0)}
        assert answered
        assert [
            one
            for view in story.all("found")
            for one in view["asked"]
            if one["id"] in answered and one["status"] == "open"
        ] == []


def test_k13_killed_while_the_first_leaf_is_at_work(tell: Tell) -> None:
    """The thread is in the list, its state holds the input, and it goes on."""
    for story in tell("order", Hook(ACT + "act_now"), level="sync"):
        view = found(story)
        assert [(one["thread_id"], one["status"]) for one in view["list"]] == [("t1", "crashed")]
        assert (view["fields"]["start"], view["fields"]["items"]) == (7, ["a", "b"])
        assert view["position"]["rounds/work/charge"] == "RUNNING"


@pytest.mark.parametrize("line", lines_of(WRITING, "commit"))
@pytest.mark.parametrize("count", mostly_full([2, 3, 5], 1))
def test_k14_killed_in_the_midst_of_saving_a_large_state(crashes: Crashes, line: int, count: int) -> None:
    """What was committed before is there whole, and nothing of what was not."""
    plan = crashes.plan("big", "sqlite-asyncio-sync", Point(WRITING, line, "before", count))
    story = crashes.run(plan)
    assert broken(story) == []
    fields = found(story).get("fields") if story.kills else None
    assert not fields or fields["text"] == (fields["log"][-1][-1] * 300_000 if fields["log"] else "")


@pytest.mark.parametrize("part", [0.1, 0.5, 0.9, 0.999])
def test_k14_a_file_that_was_cut_off_in_a_save(crashes: Crashes, part: float) -> None:
    """A save of which the disk has only the first part is none; all before it is there."""
    forge = crashes.forges[0]
    story = forge.begin(crashes.plan("big", "sqlite-asyncio-sync", Hook(STORES + "sql:SQLStore.commit", "after", 4)))
    forge.live(story)
    log = Path(f"{story.plan.place}-wal")
    whole = log.read_bytes()
    log.write_bytes(whole[: int(len(whole) - 300_000 * (1 - part))])
    assert forge.live(story) == 0
    assert found(story)["fields"]["log"] == ["big0"]
    crashes.forget(story.plan)


@pytest.mark.parametrize("combination", mostly_full(COMBINATIONS[:6], 1))
@pytest.mark.parametrize("name", ["rerun", "asks", "fails"])
def test_k17_continued_from_a_copy_of_each_save(crashes: Crashes, combination: str, name: OnUnknown) -> None:
    """State and statuses of each copy fit together; what was done is not done again, what was begun as declared."""
    forge = crashes.forges[0]
    story = forge.begin(
        crashes.plan("policies", combination, Hook(STORES + "sql:SQLStore.commit", "after", 0, deed="copy"))
    )
    assert forge.live(story) == 0
    keys = {note["key"] for note in noted(story, "effect", receipt=name)}
    for copied in story.all("copied"):
        copy = forge.begin(crashes.plan("policies", combination, way=story.plan.way))
        shutil.copy(f"{story.plan.place}.{copied['number']}", copy.plan.place)
        before = [note for note in story.notes if note["at"] < copied["at"]]
        copy.path.write_text("".join(json.dumps(note) + "\n" for note in before))
        copy.codes.append(-9)
        assert forge.live(copy) == 0
        assert broken(copy) == [], copied
        state = effect(found(copy), name)
        again = noted(copy, "effect", 1, receipt=name)
        assert {note["key"] for note in again} <= keys
        assert not again or state != "done"
        assert not noted(copy, "effect", 0, receipt=name) or not again or name == "rerun"
        crashes.forget(copy.plan)
    crashes.forget(story.plan)


@pytest.mark.parametrize("combination", mostly_full(COMBINATIONS[::3], 0, 3))
def test_k18_killed_after_each_failure(crashes: Crashes, combination: str) -> None:
    """Three failures in all are FAILURE, in however many lives; log numbers never repeat."""
    store, backend, _ = combination.split("-")
    dies = Hook(ENGINE + "holding:Holding.after_pass", "after", since=SHAPES + "Fail.update_async")
    story = crashes.run(crashes.plan("failing", f"{store}-{backend}-sync", dies, dies))
    assert (story.kills, len(story.all("tried")), story.notes[-1]["status"]) == (2, 3, "failed")
    assert [note["status"] for note in story.all("told")] == ["FAILURE"]
    logs = [view["log"] for view in (*story.all("found"), *story.all("final"))]
    assert all(new[: len(old)] == old for old, new in pairwise(logs))


def test_k23_killed_in_the_middle_of_an_effect(tell: Tell) -> None:
    """The second attempt has the key of the first; each round of a loop has its own."""
    for story in tell("order", Hook(ACT + "act_now", "after", of="charge"), Hook(ACT + "act_now", "after", of="ship")):
        keys = {
            receipt: {note["key"] for note in noted(story, "effect", receipt=receipt)}
            for receipt in ("charge.0", "charge.1")
        }
        assert len(noted(story, "effect", receipt="charge.0")) >= 2
        assert (len(keys["charge.0"]), len(keys["charge.0"] | keys["charge.1"])) == (1, 2)


@pytest.mark.parametrize("way", ["inbox", "agent"])
def test_i29_several_answers_at_once_are_all_or_none(tell: Tell, way: str) -> None:
    """One does not fit: none is taken. Mended and killed right after: each node gets its own, once."""
    hook = Hook(CONTROLLER + "answer" if way == "agent" else STORES + "inbox:Inbox.answer", "after")
    for story in tell("three", hook, way=way):
        assert len(noted(story, "refused", 0)[0]["open"]) == 3
        assert {one["status"] for one in found(story)["asked"]} == {"answered"}
        assert noted(story, "took", 0) == []
        assert sorted(note["of"] for note in noted(story, "took", 1)) == ["a", "b", "c"]
        assert all(note["answer"] == {"by": 0, "to": note["of"]} for note in noted(story, "took"))
