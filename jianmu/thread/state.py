"""ThreadState, and the parts that it is composed of: a schema takes those that it needs.

A part is a model with one field, or with a few that belong together. Two parts that declare one field with different
policies are a `SchemaError` when the state is built. There is no field for what to do next: that is the tree's.
"""

from __future__ import annotations

from typing import Annotated, Any, Generic  # Any: what was stored, which may be anything

from pydantic import BaseModel, BeforeValidator, Field, JsonValue, model_validator
from typing_extensions import TypeVar  # comes with Pydantic; until Python 3.13 `typing` has no default

from jianmu.engine.state import (
    Ephemeral,
    Internal,
    Reducer,
    Transient,
    add_by_id,
    merge_map,
    ordered_union,
    same_or_error,
)
from jianmu.message import Message
from jianmu.nodes.fields import RepliesState
from jianmu.thread.folds import (
    DELEGATIONS,
    SKILLS,
    count,
    kept_entries,
    name_giver,
    of_a_catalogue,
    or_dict,
    or_list,
    promote,
    replace_todos,
)
from jianmu.thread.items import (
    Delegation,
    Goal,
    LoadedSkill,
    Place,
    Promoted,
    SandboxRef,
    ThreadPaths,
    TitleBy,
    Todo,
    UploadedFile,
    ViewedImage,
)

T = TypeVar("T", default=JsonValue)


class MessagesState(BaseModel):
    """The conversation.

    Attributes:
        messages: by id: a new one goes to the end, a known one is replaced in its place, `Remove(id)` takes one out,
            `Clear()` all. One message may be given without a list.
    """

    messages: Annotated[list[Message], add_by_id()] = Field(default_factory=list[Message])


class StructuredState(BaseModel, Generic[T]):
    """The answer in a form of the caller's: `StructuredState[Report]`; any JSON where no type is given.

    Attributes:
        structured_response: validated; no input can write it.
    """

    structured_response: Annotated[T | None, Internal(input=False, output=True)] = None


class SandboxState(BaseModel):
    """The sandbox that the thread's programs run in.

    Attributes:
        sandbox: the first id stays; the same one changes nothing, another one is refused with both writers. None, and
            one without an id, are nothing new. `Replace(...)` and `Clear()` go past that.
    """

    sandbox: Annotated[SandboxRef | None, same_or_error("sandbox_id")] = None


class ThreadDataState(BaseModel):
    """Where the thread's files are on this machine.

    Attributes:
        thread_data: in no checkpoint; written at the start of each run.
    """

    thread_data: Annotated[ThreadPaths | None, Transient()] = None


class TitleState(BaseModel):
    """What the thread is called; `give_title` and `renamed` write it.

    Attributes:
        title: the last value; None is one.
        title_by: whom it is from; once it is "person" it stays so until `Clear()`.
    """

    title: str | None = None
    title_by: Annotated[TitleBy | None, Reducer(name_giver)] = None


class ArtifactsState(BaseModel):
    """The files that were made for people.

    Attributes:
        artifacts: paths, each once, in the order in which they came; None is nothing new.
    """

    artifacts: Annotated[
        list[Place], BeforeValidator(or_list, json_schema_input_type=list[Place] | None), ordered_union()
    ] = Field(default_factory=list[str])


class TodosState(BaseModel):
    """The plan.

    Attributes:
        todos: a write replaces the whole list, and `[]` clears it; None is nothing new.
    """

    todos: Annotated[list[Todo] | None, Reducer(replace_todos)] = None


class UploadsState(BaseModel):
    """The files of the current message.

    Attributes:
        uploaded_files: those of this run.
    """

    uploaded_files: Annotated[list[UploadedFile], Ephemeral(scope="run")] = Field(default_factory=list[UploadedFile])


class ViewedImagesState(BaseModel):
    """The images that the model is to be shown.

    Attributes:
        viewed_images: references by path; new ones are added, known ones replaced in their place. None and `{}` are
            nothing new, `Clear()` clears, `Remove(path)` takes one out.
    """

    viewed_images: Annotated[
        dict[Place, ViewedImage],
        BeforeValidator(or_dict, json_schema_input_type=dict[Place, ViewedImage] | None),
        merge_map(),
    ] = Field(default_factory=dict[str, ViewedImage])

    @model_validator(mode="before")
    @classmethod
    def _without_stored_bytes(cls, data: Any) -> Any:
        return kept_entries(data, "viewed_images", "actual_path")


class PromotedState(BaseModel):
    """The deferred tools that the model has found.

    Attributes:
        promoted: names of the same catalogue are added, another catalogue takes the place of the old one; None, and
            names of no catalogue, are nothing new.
    """

    promoted: Annotated[
        Promoted | None, BeforeValidator(of_a_catalogue, json_schema_input_type=Promoted | None), Reducer(promote)
    ] = None


class GoalState(BaseModel):
    """What the thread is for.

    Attributes:
        goal: the last value; None clears it.
    """

    goal: Goal | None = None


class DelegationsState(BaseModel):
    """The ledger of what was given to subagents.

    Attributes:
        delegations: the newest 50 by id. A finished one does not run again; the first `created_at` stays, and `run_id`
            where the new entry has none. None is nothing new, `Remove(id)` takes one out.
    """

    delegations: Annotated[
        list[Delegation], BeforeValidator(or_list, json_schema_input_type=list[Delegation] | None), DELEGATIONS
    ] = Field(default_factory=list[Delegation])

    @model_validator(mode="before")
    @classmethod
    def _without_stored_entries_of_no_id(cls, data: Any) -> Any:
        return kept_entries(data, "delegations", "id")


class SkillContextState(BaseModel):
    """The skills that the model has read.

    Attributes:
        skill_context: the newest 8 by path; one that is read again goes to the end. None is nothing new,
            `Remove(path)` takes one out.
    """

    skill_context: Annotated[
        list[LoadedSkill], BeforeValidator(or_list, json_schema_input_type=list[LoadedSkill] | None), SKILLS
    ] = Field(default_factory=list[LoadedSkill])

    @model_validator(mode="before")
    @classmethod
    def _without_stored_entries_of_no_path(cls, data: Any) -> Any:
        return kept_entries(data, "skill_context", "path")


class SummaryState(BaseModel):
    """What was said before, in short.

    Attributes:
        summary_text: the last value.
        summary_upto: the id of the last message that it holds; without it, it holds none of them.
    """

    summary_text: str | None = None
    summary_upto: str | None = None


class RepeatsState(BaseModel):
    """How often the model has asked for the same call.

    Attributes:
        repeats: counts of this run by call; a write adds to them.
    """

    repeats: Annotated[dict[str, int], Ephemeral(scope="run"), Internal(), Reducer(count)] = Field(
        default_factory=dict[str, int]
    )


class ThreadState(
    MessagesState,
    RepliesState,
    StructuredState[T],
    SandboxState,
    ThreadDataState,
    TitleState,
    ArtifactsState,
    TodosState,
    UploadsState,
    ViewedImagesState,
    PromotedState,
    GoalState,
    DelegationsState,
    SkillContextState,
    SummaryState,
    RepeatsState,
    Generic[T],
):
    """All that a capable assistant keeps of a thread; derive from it to add fields.

    `ThreadState[Report]` has a structured response of that type.
    """
