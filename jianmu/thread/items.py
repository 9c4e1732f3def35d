"""What the fields of a thread's state hold: references and short texts, never bytes.

1. A key that a model does not know is left out, so what an older version has stored can be read.
2. A key that has no value is not stored either.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Annotated, Literal, Self, TypeAlias, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PlainSerializer

from jianmu.tool.types import Text

V = TypeVar("V")
FINISHED = frozenset({"completed", "failed", "cancelled", "timed_out"})
"""The statuses of a delegation that nothing follows but another of them."""
_ITEM = ConfigDict(defer_build=True, frozen=True, extra="ignore", allow_inf_nan=False)

TodoStatus: TypeAlias = Literal["pending", "in_progress", "completed"]
GoalStatus: TypeAlias = Literal["active", "paused", "completed", "abandoned"]
DelegationStatus: TypeAlias = Literal[
    "pending", "running", "in_progress", "completed", "failed", "cancelled", "timed_out"
]
TitleBy: TypeAlias = Literal["model", "text", "person"]
"""Who a title is from: a model, the text of the first message, or a person."""


def _is_none(value: object) -> bool:
    return value is None


def _by_reference(path: str) -> str:
    if path[:5].lower() == "data:":
        raise ValueError("the state refers to files: save the bytes and give their path")
    return path


def _on_one_line(text: str) -> str:
    return " ".join(text.split())


def _distinct(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))


Maybe: TypeAlias = Annotated[V | None, Field(exclude_if=_is_none)]  # not stored where it has no value
Name: TypeAlias = Annotated[Text, Field(min_length=1)]
Place: TypeAlias = Annotated[Text, Field(min_length=1, max_length=4096), AfterValidator(_by_reference)]
"""The path of a file, never what is in it."""
HostPath: TypeAlias = Annotated[Path, PlainSerializer(str)]


class SandboxRef(BaseModel):
    """The sandbox of a thread.

    Attributes:
        sandbox_id: what it is opened by; None where there is none yet.
    """

    model_config = _ITEM

    sandbox_id: Name | None = None

    @classmethod
    def of(cls, thread_id: str) -> Self:
        """Return the sandbox of a thread: the same one in each of its runs, and of no other thread."""
        return cls(sandbox_id=f"sandbox-{hashlib.sha256(thread_id.encode()).hexdigest()[:16]}")


class ThreadPaths(BaseModel):
    """Where the files of a thread are on this machine.

    Attributes:
        workspace_path: what it works in.
        uploads_path: what people have given.
        outputs_path: what it has made for them.
    """

    model_config = _ITEM

    workspace_path: HostPath
    uploads_path: HostPath
    outputs_path: HostPath


class Todo(BaseModel):
    """One item of a plan.

    Attributes:
        content: what is to be done.
        status: how far it is.
    """

    model_config = _ITEM

    content: Name
    status: TodoStatus = "pending"

    @property
    def is_open(self) -> bool:
        """Whether it is still to be done."""
        return self.status != "completed"


class UploadedFile(BaseModel):
    """A file that came with the current message.

    Attributes:
        filename: its name.
        size: bytes.
        path: where the model finds it.
        extension: of its name, without the dot.
        mime_type: what it is, where that is known.
    """

    model_config = _ITEM

    filename: Name
    size: int = Field(ge=0)
    path: Place
    extension: Text = ""
    mime_type: Maybe[Text] = None


class ViewedImage(BaseModel):
    """An image that the model has asked to see, by reference; its bytes go into a request only.

    Attributes:
        mime_type: what it is by its content, such as `image/png`.
        size: bytes.
        actual_path: the file, under the thread's folders.
        digest: SHA-256 of the bytes, in hex, where it was taken.
    """

    model_config = _ITEM

    mime_type: Annotated[Name, Field(max_length=127)]
    size: int = Field(ge=0)
    actual_path: Place
    digest: Maybe[Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]] = None


class Promoted(BaseModel):
    """Deferred tools that the model may see and call.

    Attributes:
        catalog_hash: of the catalogue that the names are from: `Toolbox.catalogue_hash`.
        names: the tools, each once.
    """

    model_config = _ITEM

    catalog_hash: Name
    names: Annotated[tuple[Name, ...], AfterValidator(_distinct)] = ()


class Goal(BaseModel):
    """What a thread is for.

    Attributes:
        objective: what is to be reached.
        status: how it stands.
    """

    model_config = _ITEM

    objective: Name
    status: GoalStatus = "active"


class Delegation(BaseModel):
    """A task that was given to a subagent.

    Attributes:
        id: of the call that gave it.
        status: how far it is.
        created_at: when it was given, as whoever gave it writes times.
        run_id: the run that carries it out.
        name: the subagent.
        task: what was asked.
        result_brief: what came of it, in short.
    """

    model_config = _ITEM

    id: Name
    status: DelegationStatus
    created_at: Maybe[Text] = None
    run_id: Maybe[Text] = None
    name: Maybe[Text] = None
    task: Maybe[Text] = None
    result_brief: Maybe[Text] = None

    @property
    def is_finished(self) -> bool:
        """Whether its subagent has ended, in whatever way."""
        return self.status in FINISHED


class LoadedSkill(BaseModel):
    """A skill whose instructions the model has read; they are in the conversation, not here.

    Attributes:
        name: the skill.
        path: its file, by which it is known.
        description: what it is for, on one line.
        loaded_at: a number that grows, of whoever loads it.
    """

    model_config = _ITEM

    name: Name
    path: Place
    description: Annotated[Text, AfterValidator(_on_one_line)] = ""
    loaded_at: int = 0
