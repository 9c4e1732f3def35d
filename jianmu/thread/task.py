"""Tasks: what a model gives to a subagent, which works in the thread's folders, and the ledger of it.

1. What goes in is what the model writes, and what is bound: by default where the thread's files are, and its sandbox.
2. What comes out is the result, and what is bound: by default the files that were made for people.
3. The ledger, `delegations`, has an entry for each call that was begun or waits for its turn, by the call's id.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, ClassVar  # Any: the snapshot, and JSON

from py_trees.behaviour import Behaviour
from py_trees.common import Status
from pydantic import BaseModel

from jianmu.engine.context import NodeContext
from jianmu.engine.node import NodeMixin
from jianmu.engine.state import StateManager
from jianmu.errors import SetupError
from jianmu.nodes.base import Number, is_number
from jianmu.nodes.delegates import Delegate, Delegated, Giving, Standing, Taking, built
from jianmu.nodes.fields import RepliesState
from jianmu.nodes.subagent import Inputs, Outputs, SubAgent
from jianmu.nodes.timing import Timeout
from jianmu.nodes.turn import CallOutcome
from jianmu.thread.items import Delegation, ThreadPaths
from jianmu.thread.part import Part, require_fields
from jianmu.thread.paths import masked
from jianmu.thread.state import ArtifactsState, MessagesState, RepeatsState, SandboxState, ThreadDataState
from jianmu.tool.base import Approval
from jianmu.tool.types import ToolCall

LEDGER = "delegations"
BRIEF = 300
"""Characters of a task, and of what came of it, in the ledger."""
_IN = ("thread_data", "sandbox")
_OUT = ("artifacts", "sandbox")


class TaskState(MessagesState, RepliesState, ThreadDataState, SandboxState, ArtifactsState, RepeatsState):
    """What a subagent keeps while it does a task; derive from it to add fields."""


class TaskNode(Part, Delegated):
    """The tree of a task, on its own state; see `Delegated`.

    Writes `delegations`, by the node that calls it, and what its outputs are bound to.
    """

    writes: ClassVar[tuple[str, ...]] = (LEDGER,)

    def on_bound(self) -> None:
        """Refuse a schema without the ledger, and inner names that the inner schema does not have."""
        Part.on_bound(self)
        SubAgent.on_bound(self)


class Task(Delegate):
    """A subagent as a tool, noted in the ledger; `task` makes one.

    Attributes:
        needs: the fields that the state of the thread has to have.
    """

    needs: tuple[str, ...] = (LEDGER,)

    def on_offered(self, node: Behaviour) -> None:
        """Refuse a state that lacks what goes in and comes out."""
        if isinstance(node, NodeMixin):
            require_fields(node, *self.needs)

    def standing(self, node: Delegated, outcome: CallOutcome) -> Standing:
        """Return how a call stands that a tree has done."""
        inner = node.decorated
        if node.status is not Status.SUCCESS and isinstance(inner, Timeout) and inner.memento() == 0.0:
            return "timed_out"
        return super().standing(node, outcome)

    def note(self, call: ToolCall, stands: Standing, context: NodeContext, outcome: CallOutcome | None = None) -> None:
        """Write how a call stands into the ledger."""
        entry = Delegation(
            id=call.id,
            status=stands,
            created_at=context.clock.utc().isoformat(timespec="seconds"),
            run_id=str(context.run.run),
            name=self.name,
            task=_brief(_asked(call.arguments)),
            result_brief=None if outcome is None else _brief(_masked(context, _text(outcome))),
        )
        context.write_state({LEDGER: [entry]})


def task(
    name: str,
    build: Callable[[], Behaviour],
    *,
    state_schema: type[BaseModel] = TaskState,
    arguments: Taking | None = None,
    result: Giving = "final_answer",
    inputs: Inputs = None,
    outputs: Outputs = None,
    seconds: Number | None = None,
    description: str | None = None,
    requires_approval: Approval = False,
    copies: int = 3,
) -> Task:
    """Return a tool with which the model gives a task to a subagent that works in the thread's folders.

    A subagent knows nothing of the conversation and writes nothing of it: it has a state of its own, afresh for each
    task. Its sandbox and its folders are those of the thread. Its questions are the run's, with their whole path.
    What decorates the calls of the thread's tree does not decorate those of a subagent: it has its own decorators.

        task("research", lambda: react("researcher", model=model, tools=box), description="Looks things up.")

    Args:
        name: what the model calls it by.
        build: returns the subagent's tree; called once for each copy.
        state_schema: of the subagent's own state.
        arguments: returns what goes into that state; by default one text, `task`, is its only message.
        result: the field that is the result, or a function of the snapshot.
        inputs: outer fields by inner ones, beside `thread_data` and `sandbox`, which go in where the schema has them.
        outputs: inner fields by outer ones, beside `artifacts` and `sandbox`.
        seconds: how long one task may take; the time stands still while it waits only for people.
        description: what the model is told.
        requires_approval: as with every tool.
        copies: how many tasks of one reply are done side by side; others wait for their turn.

    Raises:
        SetupError: something in it cannot work.
    """
    if not is_number(copies, int) or copies < 1:
        raise SetupError(f'task("{name}", build, copies=3) takes a whole number from 1 up, not copies={copies!r}')
    known = StateManager(state_schema).schema.types
    taken = {**{field: field for field in _IN if field in known}, **(inputs or {})}
    given = {**{field: field for field in _OUT if field in known}, **(outputs or {})}
    nodes: list[TaskNode] = []
    for _ in range(copies):
        root = built("task", name, build)
        root = root if seconds is None else Timeout("time", root, seconds=seconds)
        nodes.append(TaskNode(name, root, StateManager(state_schema), is_fresh=True, inputs=taken, outputs=given))
    made = Task(
        name, nodes, arguments=arguments, result=result, description=description, requires_approval=requires_approval
    )
    own = {*(inputs or {}), *(outputs or {})}
    made.needs = (LEDGER, *dict.fromkeys(field for field in (*_IN, *_OUT) if field in known and field not in own))
    return made


def _asked(arguments: Mapping[str, Any]) -> str:
    """Return what was asked, in a text."""
    texts = [one for one in arguments.values() if isinstance(one, str)]
    return texts[0] if len(arguments) == 1 and texts else json.dumps(arguments, ensure_ascii=False)


def _text(outcome: CallOutcome) -> str:
    content = outcome.content
    return content if isinstance(content, str) else "\n".join(part.text for part in content if part.type == "text")


def _masked(context: NodeContext, text: str) -> str:
    """Return a text with virtual paths, where the state knows the thread's folder."""
    known = "thread_data" in context.manager.schema.fields
    paths: ThreadPaths | None = context.manager.read("thread_data") if known else None
    if paths is None:
        return text
    folder = paths.workspace_path.parent
    return masked(text, folder, folder if folder.parent.name == "" else folder.parent)


def _brief(text: str) -> str:
    return text if len(text) <= BRIEF else f"{text[: BRIEF - 1].rstrip()}…"
