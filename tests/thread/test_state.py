"""ThreadState and its parts: the policies of the table, who may write what, and what two parts may not say."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field, ValidationError

from jianmu.engine.state import (
    Clear,
    Ephemeral,
    Internal,
    Remove,
    Replace,
    StateChange,
    StateManager,
    Transient,
    add_by_id,
    ordered_union,
)
from jianmu.errors import SchemaError, StateWriteError, UnsetStateError
from jianmu.message import Message, ai, human
from jianmu.thread import (
    ArtifactsState,
    Delegation,
    Goal,
    MessagesState,
    Promoted,
    SandboxRef,
    SandboxState,
    StructuredState,
    ThreadPaths,
    ThreadState,
    TitleState,
    Todo,
    TodosState,
    UploadedFile,
    ViewedImage,
    give_title,
    renamed,
    title_of_text,
)


class Report(BaseModel, frozen=True):
    """A structured response."""

    subject: str
    pages: int


# The parts


def test_a_schema_takes_the_parts_that_it_needs() -> None:
    """A user's schema has the fields of its parts and its own, and no others."""

    class Mine(MessagesState, TodosState):
        mood: str = "calm"

    manager = StateManager(Mine)
    manager.update({"messages": human("hello"), "todos": [Todo(content="listen")], "mood": "glad"})
    assert set(Mine.model_fields) == {"messages", "todos", "mood"}
    assert manager.get().todos == [Todo(content="listen")]


def test_the_fields_have_the_policies_of_the_table() -> None:
    """What is run-scoped, transient, or closed to callers is so, and nothing else is."""
    fields = StateManager(ThreadState).schema.fields
    policies = {name: field.policy for name, field in fields.items()}
    assert {name: policy.scope for name, policy in policies.items() if policy.scope} == {
        **dict.fromkeys(("uploaded_files", "repeats", "final_answer", "done", "rounds"), "run"),
        "actions": "step",
        "streaming_output": "call",
    }
    assert [name for name, policy in policies.items() if policy.transient] == ["thread_data"]
    closed = {name: policy.in_output for name, policy in policies.items() if not policy.in_input}
    assert closed == {"structured_response": True, "approvals": False, "repeats": False}


def test_control_flow_has_no_field() -> None:
    """Nothing says where to go next; the fields that there are are these."""
    assert set(ThreadState.model_fields) == {
        *("messages", "final_answer", "done", "actions", "rounds", "streaming_output", "usage", "approvals"),
        *("structured_response", "sandbox", "thread_data", "title", "title_by", "artifacts", "todos"),
        *("uploaded_files", "viewed_images", "promoted", "goal", "delegations", "skill_context", "summary_text"),
        *("summary_upto", "repeats"),
    }


def test_two_parts_that_differ_over_a_field_are_refused_by_name() -> None:
    """A part that keeps artifacts otherwise cannot be mixed with ours: the error names both and the field."""

    class Newest(BaseModel):
        artifacts: Annotated[list[str], ordered_union(max=3)] = Field(default_factory=list)

    class Torn(ArtifactsState, Newest):
        pass

    class Meant(ArtifactsState, Newest):
        artifacts: Annotated[list[str], ordered_union(max=3)] = Field(default_factory=list)

    with pytest.raises(SchemaError, match=r"Torn\.artifacts is declared differently by ArtifactsState and Newest"):
        StateManager(Torn)
    assert StateManager(Meant).get().artifacts == []


@pytest.mark.parametrize(
    ("field", "annotation"),
    [
        ("messages", list[Message]),
        ("sandbox", Annotated[SandboxRef | None, Transient()]),
        ("thread_data", ThreadPaths | None),
        ("uploaded_files", Annotated[list[UploadedFile] | None, Ephemeral(scope="step")]),
        ("structured_response", Annotated[Report | None, Internal()]),
        ("title_by", str | None),
    ],
)
def test_each_policy_tells_parts_apart(field: str, annotation: Any) -> None:
    """Reducer, scope, transience and who may see a field: a difference in any of them is one."""
    other: Any = type("Other", (BaseModel,), {"__annotations__": {field: annotation}, field: None})
    torn: Any = type("Torn", (ThreadState, other), {})
    with pytest.raises(SchemaError, match=rf"Torn\.{field} is declared differently by \w+State and Other"):
        StateManager(torn)


def test_two_parts_that_agree_may_be_mixed() -> None:
    """A part of somebody else with the same policy is no conflict."""

    class Talk(BaseModel):
        messages: Annotated[list[Message], add_by_id()] = Field(default_factory=list)

    class Both(Talk, ThreadState):
        pass

    assert StateManager(Both).get().messages == []


def test_a_schema_may_require_fields_of_its_own() -> None:
    """What a user's schema requires is waited for, and what was stored before is cleaned all the same."""

    class Mine(ThreadState):
        owner: str

    manager = StateManager(Mine)
    with pytest.raises(UnsetStateError, match="owner"):
        manager.get()
    manager.load_checkpoint(
        {"version": 3, "fields": {"owner": "ada", "delegations": [{"status": "failed"}]}, "spent": []}
    )
    assert (manager.get().owner, manager.get().delegations) == ("ada", [])


# What the fields hold


@pytest.mark.parametrize(
    "item",
    [
        SandboxRef.of("t1"),
        ThreadPaths(workspace_path="w", uploads_path="u", outputs_path="o"),  # pyright: ignore[reportArgumentType]  # text
        Todo(content="x"),
        UploadedFile(filename="a", size=1, path="a"),
        ViewedImage(mime_type="image/png", size=1, actual_path="a.png"),
        Promoted(catalog_hash="h"),
        Goal(objective="x"),
        Delegation(id="a", status="running"),
    ],
    ids=lambda item: type(item).__name__,
)
def test_items_are_frozen(item: BaseModel) -> None:
    """Nobody changes an item: a new one is written."""
    with pytest.raises(ValidationError, match="frozen"):
        setattr(item, next(iter(type(item).model_fields)), "other")


def test_an_unknown_key_of_an_item_is_left_out_and_a_wrong_one_refused() -> None:
    """What another version has added goes; what is of the wrong kind is an error that names the field."""
    manager = StateManager(ThreadState)
    manager.update({"todos": [{"content": "x", "status": "pending", "colour": "red"}]})
    assert manager.get().todos == [Todo(content="x")]
    for field, wrong in (
        ("todos", [{"content": "x", "status": "postponed"}]),
        ("goal", {"objective": ""}),
        ("delegations", [{"id": "a", "status": "sleeping"}]),
        ("uploaded_files", [{"filename": "a", "size": -1, "path": "a"}]),
        ("viewed_images", {"a": {"mime_type": "image/png", "size": 1, "actual_path": "data:image/png;base64,AAAA"}}),
        ("viewed_images", {"a": {"mime_type": "image/png", "size": 1, "actual_path": "a", "digest": "AAAA"}}),
        ("viewed_images", {"a": {"mime_type": "image/png", "base64": "AAAA"}}),
        ("viewed_images", {"data:image/png,AAAA": {"mime_type": "image/png", "size": 1, "actual_path": "a"}}),
        ("artifacts", ["data:image/png,AAAA"]),
        ("artifacts", [""]),
    ):
        with pytest.raises(StateWriteError, match=f"field '{field}' takes"):
            manager.update({field: wrong})


def test_texts_of_a_model_can_always_be_stored() -> None:
    """Half characters, as cut streams leave them, do not keep an item from being stored."""
    manager = StateManager(ThreadState)
    manager.attach_store_check()
    manager.update({"todos": [{"content": "cut \ud83d"}], "goal": {"objective": "\ud83d\ude00"}})
    assert manager.get().todos == [Todo(content="cut \ufffd")]
    assert manager.get().goal == Goal(objective="\U0001f600")


def test_a_field_whose_type_admits_none_says_so_in_its_schema() -> None:
    """For the seven fields where None is nothing new, the JSON schema of what can be given admits null."""
    given = ThreadState.model_json_schema(mode="validation")["properties"]
    seven = ("sandbox", "artifacts", "todos", "viewed_images", "promoted", "delegations", "skill_context")
    assert [name for name in seven if {"type": "null"} not in given[name]["anyOf"]] == []


# Field by field


def test_a_sandbox_conflict_names_the_field_and_both_writers() -> None:
    """Another sandbox is never taken silently: the error names the field and who wrote, and holds neither id."""
    manager = StateManager(SandboxState)
    manager.update({"sandbox": SandboxRef.of("t1")}, _writer="agent/start")
    with pytest.raises(StateWriteError) as caught:
        manager.update({"sandbox": SandboxRef.of("t2")}, _writer="agent/tools")
    assert str(caught.value) == (
        "field 'sandbox' takes jianmu.thread.items.SandboxRef | None and was given SandboxRef: the reducer "
        "same_or_error raised ConflictError: another one is there; writer 'agent/tools', previous writer "
        "'agent/start'; nothing was changed"
    )
    assert manager.get().sandbox == SandboxRef.of("t1")
    assert caught.value.__cause__ is caught.value.__context__ is None


def test_writers_at_once_that_start_the_same_sandbox_agree() -> None:
    """Three lazy starts in threads of their own, of a sandbox that is named by the thread: one sandbox, no conflict."""
    manager = StateManager(SandboxState)
    go = threading.Barrier(3)

    def start() -> None:
        go.wait(timeout=5)
        manager.update({"sandbox": SandboxRef.of("t1")})

    threads = [threading.Thread(target=start) for _ in range(3)]
    for one in threads:
        one.start()
    for one in threads:
        one.join(timeout=5)
    assert manager.version == 3
    assert manager.get().sandbox == SandboxRef.of("t1")


def test_the_id_of_a_sandbox_follows_from_its_thread() -> None:
    """The same thread has the same sandbox in every process; other threads have others, whatever is in their names."""
    ids = {SandboxRef.of(thread).sandbox_id for thread in ("a", "a", "b", "../a", "a/b", "")}
    assert len(ids) == 5
    assert SandboxRef.of("a").sandbox_id == "sandbox-ca978112ca1bbdca"


def test_no_path_of_the_machine_is_in_a_checkpoint() -> None:
    """`thread_data` is in memory only; after a load it is not there."""
    manager = StateManager(ThreadState)
    paths = {"workspace_path": "/srv/t1/w", "uploads_path": "/srv/t1/u", "outputs_path": "/srv/t1/o"}
    manager.update({"thread_data": paths, "artifacts": ["/mnt/user-data/outputs/a.html"]})
    assert manager.get().thread_data == ThreadPaths.model_validate(paths)
    stored = manager.dump_checkpoint()
    assert "/srv" not in str(stored)
    manager.load_checkpoint(stored)
    assert manager.get().thread_data is None
    assert Path("/srv") in ThreadPaths.model_validate(paths).workspace_path.parents


def test_parallel_writers_lose_no_artifact() -> None:
    """Twenty threads present two files each, one of them the same for all: every file once."""
    manager = StateManager(ArtifactsState)
    threads = [
        threading.Thread(target=manager.update, args=({"artifacts": ["index.html", f"{number}.png"]},))
        for number in range(20)
    ]
    for one in threads:
        one.start()
    for one in threads:
        one.join(timeout=5)
    assert sorted(manager.get().artifacts) == sorted(["index.html", *(f"{number}.png" for number in range(20))])


def test_images_are_cleared_by_saying_so() -> None:
    """`Clear()` and `Remove(path)` take images out; an empty dict, as a tool that found none writes it, does not."""
    manager = StateManager(ThreadState)
    image = ViewedImage(mime_type="image/png", size=1, actual_path="a.png")
    manager.update({"viewed_images": {"a.png": image, "b.png": image}})
    manager.update({"viewed_images": {}})
    manager.update({"viewed_images": Remove("a.png")})
    assert list(manager.get().viewed_images) == ["b.png"]
    with pytest.raises(StateWriteError, match=r"a key that is not there: 'a\.png'"):
        manager.update({"viewed_images": Remove("a.png")})
    manager.update({"viewed_images": Clear()})
    assert manager.get().viewed_images == {}


def test_bytes_that_an_older_version_has_stored_are_left_out_on_load() -> None:
    """An image that was stored with its bytes is no reference, and is not loaded; a reference loses its bytes."""
    manager = StateManager(ThreadState)
    known = {"mime_type": "image/png", "size": 3, "actual_path": "b.png"}
    stored = {"a.png": {"mime_type": "image/png", "base64": "QUFB"}, "b.png": {**known, "base64": "QUFB"}}
    manager.load_checkpoint({"version": 1, "fields": {"viewed_images": stored}, "spent": []})
    assert manager.dump_checkpoint()["fields"]["viewed_images"] == {"b.png": known}


def test_a_structured_response_is_validated_and_not_a_callers_to_give() -> None:
    """It is of the type that the schema names; no input can forge it, and the output has it."""
    manager = StateManager(ThreadState[Report])
    manager.update({"structured_response": {"subject": "trees", "pages": 3}})
    assert manager.get().structured_response == Report(subject="trees", pages=3)
    assert manager.output()["structured_response"] == Report(subject="trees", pages=3)
    assert "structured_response" not in manager.schema.input_fields
    with pytest.raises(StateWriteError, match="field 'structured_response' takes"):
        manager.update({"structured_response": {"subject": "trees"}})
    plain = StateManager(StructuredState)
    plain.update({"structured_response": {"any": ["json", 1]}})
    with pytest.raises(StateWriteError, match="invalid-json-value"):
        plain.update({"structured_response": object()})


def test_messages_are_appended_edited_and_removed_by_id() -> None:
    """One message may stand for a list of it; its id was minted when it was made, and stays."""
    manager = StateManager(MessagesState)
    first = human("hello")
    manager.update({"messages": first})
    manager.update({"messages": [ai("hi", id="r"), ai("hi there", id="r")]})
    manager.update({"messages": first.model_copy(update={"content": "hello!"})})
    assert [(one.id, one.text) for one in manager.get().messages] == [(first.id, "hello!"), ("r", "hi there")]
    manager.update({"messages": Remove(first.id)})
    assert [one.id for one in manager.get().messages] == ["r"]


def test_t06_repeats_are_counted_per_run() -> None:
    """T06: five runs with one call each end with 1, one run with five ends with 5; parallel counts add up."""
    manager, ends = StateManager(ThreadState), list[int]()
    for calls in (1, 1, 1, 1, 1, 5):
        manager.reset_run_fields()
        for _ in range(calls):
            manager.update({"repeats": {"search": 1}})
        ends.append(manager.get().repeats["search"])
    assert ends == [1, 1, 1, 1, 1, 5]


# The title


def test_a_title_comes_once_by_itself() -> None:
    """The first one that comes stays, on one line and not too long; an empty one is none."""
    manager = StateManager(TitleState)
    assert not give_title(manager, None)
    assert not give_title(manager, " \n")
    assert give_title(manager, "  How to\nmake tea " + "x" * 99)
    assert not give_title(manager, "Another")
    held = manager.get()
    assert (held.title, held.title_by) == ("How to make tea " + "x" * 43 + "…", "model")


def test_a_rename_wins_whenever_it_comes() -> None:
    """Before, after, or in the middle of the model's title: the person's is there at the end."""
    before, after, between = (StateManager(TitleState) for _ in range(3))
    before.update(renamed("Mine"))
    assert not give_title(before, "The model's")
    give_title(after, "The model's")
    after.update(renamed("Mine"))

    def rename(change: StateChange) -> None:
        if "title" in change.changed and change.version == 1:
            between.update(renamed("Mine"))

    between.subscribe(rename)
    assert give_title(between, "The model's")
    assert {(one.get().title, one.get().title_by) for one in (before, after, between)} == {("Mine", "person")}


def test_a_title_that_a_person_takes_away_may_come_again() -> None:
    """After `renamed(None)` there is none, and the next one may be the model's."""
    manager = StateManager(TitleState)
    manager.update(renamed("Mine"))
    manager.update(renamed(None))
    assert give_title(manager, "The model's")
    assert manager.get().title_by == "model"


def test_a_title_of_a_text_is_that_of_the_first_person() -> None:
    """It needs no model: the first text of a person, on one line; None where nobody has said anything."""
    assert title_of_text([ai("Welcome"), human("  "), human("Make a\nreport"), human("now")]) == "Make a report"
    assert title_of_text([ai("Welcome")]) is None


# Promoted tools


def test_names_of_another_catalogue_go() -> None:
    """What was promoted before the tools were changed is gone with the first write under the new catalogue."""
    manager = StateManager(ThreadState)
    manager.update({"promoted": Promoted(catalog_hash="old", names=("send", "send", "find"))})
    assert manager.get().promoted == Promoted(catalog_hash="old", names=("send", "find"))
    manager.update({"promoted": Promoted(catalog_hash="new", names=("find",))})
    assert manager.get().promoted == Promoted(catalog_hash="new", names=("find",))


# What a write is


@pytest.mark.parametrize("op", [Replace(None), Clear()], ids=["Replace", "Clear"])
@pytest.mark.parametrize("field", ["artifacts", "viewed_images", "delegations", "skill_context"])
def test_an_empty_collection_is_never_none(field: str, op: object) -> None:
    """Who reads one of these fields finds a list or a dict, whatever was written."""
    manager = StateManager(ThreadState)
    manager.update({field: op})
    assert manager.read(field) in ([], {})


def test_types_of_status_are_those_of_the_issue() -> None:
    """An open item is one that is not completed; every way to end is an end."""
    statuses: list[Literal["pending", "in_progress", "completed"]] = ["pending", "in_progress", "completed"]
    assert [Todo(content="x", status=one).is_open for one in statuses] == [True, True, False]
    ended = [one for one in ("failed", "cancelled", "timed_out", "completed", "running", "pending", "in_progress")
             if Delegation.model_validate({"id": "a", "status": one}).is_finished]  # fmt: skip
    assert ended == ["failed", "cancelled", "timed_out", "completed"]
