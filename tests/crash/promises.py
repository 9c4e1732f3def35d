"""What is promised of a run that was killed, as functions of the notes of its lives: each returns what was broken.

A life that was killed leaves a `found` behind, written by the next one before it does anything: what was in the store
then; a run that was interrupted does so too. The last life ends with a `final`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from math import inf
from typing import Any

from tests.crash.forge import Story
from tests.crash.notes import Note
from tests.crash.shapes import INPUT, QUEUED, SHAPES, Shape

Promise = Callable[[Story], Iterator[str]]
UNKNOWN = ("started", "unknown")


def broken(story: Story) -> list[str]:
    """Return all that was not kept."""
    if not story.codes or story.codes[-1] != 0:
        return [f"the last life ended with {story.codes}: {story.errors[-2000:]}"]
    return [text for promise in PROMISES for text in promise(story)]


def views(story: Story) -> list[Note]:
    """Return what was in the store, from life to life."""
    return [note for note in story.notes if note["what"] in ("found", "final")]


def log_only_grows(story: Story) -> Iterator[str]:
    """Numbers of the log only rise and never repeat, nor do fences; what was written stays."""
    nothing: Note = {"log": [], "fence": 0}
    for before, after in pairwise([nothing, *views(story)]):
        old, new = before.get("log", []), after.get("log", [])
        numbers = [number for number, _ in new]
        first = min(numbers, default=inf) if shape_of(story).ending == "tidy" else 1
        if any(entry not in new for entry in old if entry[0] >= first):
            yield f"the log has changed from {old} to {new}"
        if numbers != sorted(set(numbers)):
            yield f"the log's numbers are {numbers}"
        if after.get("fence", 1) < (before.get("fence", 0) if after["what"] == "found" else 0):
            yield f"fence {after['fence']} came after fence {before.get('fence')}"


def ends_as_without_a_crash(story: Story) -> Iterator[str]:
    """State and status at the end are those of a run that nobody killed."""
    shape, final = shape_of(story), story.notes[-1]
    fields = final["fields"]
    if final["status"] != "finished" or final["effects"] or final["due"] or final["position"]:
        yield f"the end is {final['status']}, due {final['due']}, at {final['position']}, with {final['effects']}"
    if sorted(fields["log"]) != sorted(shape.logged):
        yield f"the log in the state is {fields['log']}"
    if sorted(fields["said"]) != sorted(shape.said):
        yield f"the answers in the state are {fields['said']}"
    if (fields["start"], fields["items"]) != (INPUT["start"], INPUT["items"]):
        yield f"the input in the state is {fields['start']}, {fields['items']}"
    if fields["inputs"] != ([*QUEUED] if shape.ending == "queue" else []):
        yield f"the later inputs in the state are {fields['inputs']}"


def writes_before_an_await_come_at_least_once(story: Story) -> Iterator[str]:
    """What is written before an await and outside of `once` is there, once more at most for each kill."""
    early = Counter(story.notes[-1]["fields"]["early"])
    expected = [name for name in shape_of(story).logged if name.startswith("early")]
    if story.plan.shape != "inner" and sorted(early) != sorted(expected):
        yield f"the early writes are {early}"
    if any(count > 1 + story.kills for count in early.values()):
        yield f"after {story.kills} kills the early writes are {early}"


def answers_are_kept(story: Story) -> Iterator[str]:
    """An answer that was accepted is the one that counts; one end of a question is never followed by another."""
    accepted: dict[str, Any] = {}
    ended: dict[str, Any] = {}
    for note in story.notes:
        if note["what"] == "accepted" and accepted.setdefault(note["id"], note["payload"]) != note["payload"]:
            yield f"question {note['id']} was answered twice: {accepted[note['id']]}, {note['payload']}"
        for asked in note.get("asked", []) if note["what"] in ("found", "final") else ():
            if asked["id"] in accepted and asked["payload"] != accepted[asked["id"]]:
                yield f"the answer to {asked['of']} was {accepted[asked['id']]} and is {asked['payload']}"
            end = (asked["status"], asked["payload"], asked["source"])
            if asked["id"] in ended and ended[asked["id"]] != end:
                yield f"question {asked['of']} ended as {ended[asked['id']]}, and now as {end}"
            if asked["status"] != "open":
                ended[asked["id"]] = end


def answers_reach_their_nodes(story: Story) -> Iterator[str]:
    """A node is told the answer to its question and no other one, and none after its delivery was committed."""
    final = {asked["of"]: asked["payload"] for asked in story.notes[-1]["asked"]}
    delivered: set[str] = set()
    for note in story.notes:
        if note["what"] == "took" and note["answer"] != final[note["of"]]:
            yield f"{note['of']} was told {note['answer']}, and the answer is {final[note['of']]}"
        if note["what"] == "took" and note["of"] in delivered and not note["of"].startswith("talk"):
            yield f"{note['of']} was told again what it had been told"
        if note["what"] == "found":
            delivered |= {asked["of"] for asked in note["asked"] if asked["consumed"] is not None}
    said = story.notes[-1]["fields"]["said"]
    if any(said[name] != final[name] for name in said):
        yield f"the state holds {said}, and the answers are {final}"


def nothing_is_asked_twice(story: Story) -> Iterator[str]:
    """Each node asks once in each round; what was shown is there from then on, as it was shown."""
    shape = shape_of(story)
    asked = sorted(one["of"] for one in story.notes[-1]["asked"] if one["reason"] != "unknown_outcome")
    twice = [name for name, count in Counter(asked).items() if count > 1]
    if twice or not (set(asked) <= set(shape.asked) if shape.is_halted else asked == sorted(shape.asked)):
        yield f"the questions are {asked}"
    known: dict[str, str] = {}
    for note in story.notes:
        rows = {one["id"]: one["asked"] for one in note["asked"]} if note["what"] in ("found", "final") else None
        if rows is not None and not known.items() <= rows.items():
            yield f"a question has changed or is gone: {known} {rows}"
        if note["what"] == "told":
            known |= {id: known.get(id, "") for id in note["asked"]}
        known = {id: rows.get(id, "") for id in (*known, *rows)} if rows is not None else known
        known = {id: text for id, text in known.items() if text}


def effects_happen_once(story: Story) -> Iterator[str]:
    """Each effect happens under one key, once; again only where its outcome was unknown and the policy says so."""
    done = [note for note in story.notes if note["what"] == "effect"]
    keys: dict[str, set[str]] = {}
    for note in done:
        keys.setdefault(note["receipt"], set()).add(note["key"])
    if sorted(keys) != sorted(shape_of(story).receipts) or any(len(found) != 1 for found in keys.values()):
        yield f"the effects and their keys are {keys}"
    for receipt, (key, *_) in ((receipt, list(found)) for receipt, found in keys.items()):
        yield from _happened_as_allowed(story, receipt, key, [note for note in done if note["key"] == key])


def _happened_as_allowed(story: Story, receipt: str, key: str, done: list[Note]) -> Iterator[str]:
    unknown = [note for note in story.notes if note["what"] == "found" and _state(note, key) in UNKNOWN]
    allowed = 1 + (len(unknown) if done[0]["policy"] == "rerun" else 0)
    if len(done) > allowed:
        yield f"{receipt} happened {len(done)} times, {allowed} are allowed"
    over = [note for note in story.notes if note["what"] == "found" and _is_done(note, receipt, key)]
    if over and done[-1]["at"] > over[0]["at"]:
        yield f"{receipt} happened again after its result was in the store"


def _state(found: Note, key: str) -> str | None:
    return found.get("effects", {}).get(key, {}).get("state")


def _is_done(found: Note, receipt: str, key: str) -> bool:
    return _state(found, key) == "done" or receipt in found.get("fields", {}).get("log", ())


def starts_are_in_the_store(story: Story) -> Iterator[str]:
    """What has happened in the world was begun in the store before."""
    happened: dict[str, str] = {}
    for note in story.notes:
        if note["what"] == "effect":
            happened[note["receipt"]] = note["key"]
        if note["what"] != "found":
            continue
        for receipt, key in happened.items():
            if _state(note, key) is None and receipt not in note.get("fields", {}).get("log", ()):
                yield f"{receipt} has happened, and the store does not know of it"


def unknown_outcomes_follow_their_policy(story: Story) -> Iterator[str]:
    """People are asked about an effect only where its outcome is unknown, and once for each time."""
    asked = [one for one in story.notes[-1]["asked"] if one["reason"] == "unknown_outcome"]
    allowed = sum(_any_unknown(note, "asks") for note in story.notes if note["what"] == "found")
    if len(asked) > allowed:
        yield f"{len(asked)} questions about outcomes were asked, {allowed} are allowed"
    if story.all("unknown") and not any(_any_unknown(note, "fails") for note in story.all("found")):
        yield "an outcome was called unknown that was not"


def _any_unknown(found: Note, receipt: str) -> bool:
    effects: Mapping[str, Any] = found.get("effects", {})
    return any(one["state"] in UNKNOWN and one["origin"]["path"].endswith(receipt) for one in effects.values())


def is_listed_from_the_first_transaction(story: Story) -> Iterator[str]:
    """From the first pass on the thread is in `list`, and its state holds the input, which every node sees."""
    has_begun = False
    for note in story.notes:
        if note["what"] in ("entered", "requested"):
            has_begun = True
            if note["start"] != INPUT["start"]:
                yield f"{note['path']} saw the input {note['start']}"
        if note["what"] != "found":
            continue
        ids = [one["thread_id"] for one in note["list"]]
        if has_begun and ("t1" not in ids or note.get("fields", {}).get("start") != INPUT["start"]):
            yield f"a thread that ran is listed as {note['list']} with {note.get('fields')}"
        if ids and "log" not in note:
            yield "the thread is listed and cannot be shown"


def is_due_if_nobody_drives_it(story: Story) -> Iterator[str]:
    """A thread is in `due` after a crash, and when an answer is in that its node was not told."""
    for note in (note for note in story.notes if note["what"] == "found" and "log" in note):
        waits = [one["of"] for one in note["asked"] if one["status"] != "open" and one["consumed"] is None]
        has_to_be = bool(waits) or note["status"] in ("crashed", "running")
        if has_to_be and "t1" not in note["due"]:
            yield f"the thread is {note['status']}, answered are {waits}, and it is not due"
        if note["status"] == "suspended" and not waits and note["due"] and shape_of(story).ending == "answer":
            yield "the thread waits for people alone, and it is due"
        if note["status"] == "suspended" and shape_of(story).ending == "clock" and note["wake_at"] is None:
            yield "the thread waits for a deadline, and nobody is told when it comes"
        if note["status"] in ("running", "idle"):
            yield f"after a kill the thread is {note['status']}"


def nothing_finished_is_entered_again(story: Story) -> Iterator[str]:
    """A node whose finish was committed is not executed again, where it is in no loop."""
    finished: set[str] = set()
    for note in story.notes:
        if note["what"] in ("entered", "requested") and note["path"] in finished:
            yield f"{note['path']} had finished, and was entered again"
        ended = [path for path, status in note.get("position", {}).items() if status == "SUCCESS"]
        finished |= {path for path in ended if "rounds" not in path and note["what"] == "found"}


def sync_loses_the_pass_in_progress_at_most(story: Story) -> Iterator[str]:
    """With `sync` a coroutine is started after its pass was saved."""
    entered: set[str] = set()
    for note in story.notes:
        if note["what"] == "entered":
            entered.add(note["path"])
        elif note["what"] == "found":
            lost = {path for path in entered if path not in note.get("position", {}) and not _was_left(note)}
            if lost and story.plan.level == "sync":
                yield f"{lost} were entered, and the store has {note.get('position')}"
            entered.clear()


def _was_left(found: Note) -> bool:
    """Whether the round that a node was entered in may be over, or the run."""
    return found["status"] == "finished" or len(found["fields"]["log"]) > 0


def input_is_applied_once(story: Story) -> Iterator[str]:
    """The input delivered again returns the outcome of the first time, and runs nothing."""
    again = story.all("again")[-1]
    if (again["status"], again["is_same"]) != ("SUCCESS", True):
        yield f"the same input has returned {again}"
    told = story.all("told")[-1]["at"]
    ran = [note for note in story.notes[told : again["at"]] if note["what"] in ("entered", "effect", "requested")]
    if ran or story.notes[-1]["list"][0]["run"] != 1:
        yield f"the same input has run {ran}"


def shape_of(story: Story) -> Shape:
    """Return the shape that was run."""
    return SHAPES[story.plan.shape]


PROMISES: tuple[Promise, ...] = (
    log_only_grows,
    ends_as_without_a_crash,
    writes_before_an_await_come_at_least_once,
    answers_are_kept,
    answers_reach_their_nodes,
    nothing_is_asked_twice,
    effects_happen_once,
    starts_are_in_the_store,
    unknown_outcomes_follow_their_policy,
    is_listed_from_the_first_transaction,
    is_due_if_nobody_drives_it,
    nothing_finished_is_entered_again,
    sync_loses_the_pass_in_progress_at_most,
    input_is_applied_once,
)
