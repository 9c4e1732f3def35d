"""AgentLLMNode asks a model for the next message of a conversation; HasFinalAnswer looks at what came of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias  # Any: snapshots, functions and output types are the users'

from py_trees.behaviour import Behaviour
from py_trees.common import Status
from pydantic_core import to_jsonable_python

from jianmu.engine.node import Node, NodeMixin
from jianmu.engine.state import WRITER, Clear, Replace
from jianmu.engine.tree import path_of
from jianmu.engine.typefit import fits
from jianmu.errors import SetupError
from jianmu.message import Message, ai
from jianmu.model.base import ChatModel, Finish, Settings, ToolSpec
from jianmu.nodes import conversation
from jianmu.nodes.base import call_of
from jianmu.nodes.beside import beside
from jianmu.nodes.pairing import KnownIds, with_own_ids, without_half
from jianmu.nodes.replies import ModelNode, Prompt
from jianmu.nodes.skill import Skill, skills_for, told_of_skills, with_skills
from jianmu.nodes.streaming import Shown
from jianmu.tool.base import Tool
from jianmu.tool.toolbox import Toolbox

Tools: TypeAlias = Toolbox | Iterable[Tool | Toolbox | Callable[..., Any]] | None
FIELDS = ("streaming_output", "actions", "rounds", "final_answer", "done")
"""What AgentLLMNode writes where the schema has it, in a namespace where it is Ephemeral."""

ANSWERS = ("final_answer", "done")
"""Those of them that only a reply without calls has."""

STRUCTURED = "structured_response"
"""The field for the answer as an object."""


class AgentLLMNode(ModelNode):
    """Ask the model for the next message of the conversation and append it.

    Reads `messages`. The request is the system prompt and the conversation, as the projections above the node change it
    (see RequestProjection); each tool call in it has exactly one result, next to it. Where the schema has the fields,
    it writes:
    - `streaming_output`: the text as it comes in, from "" at the start on;
    - `messages`: the reply, with its usage; calls whose id another call has get ids of their own;
    - `actions`: the calls of the reply, `[]` when there are none;
    - `rounds`: one more for each reply;
    - `final_answer` and `done`: the text (or the object, with `output`, where the field is of that type) and True for a
      reply without calls; for one with calls they go back to their defaults;
    - `structured_response`: the object of a reply without calls, with `output`; as JSON where the field takes that;
    - `usage`, a `jianmu.message.Usage`: what this thread has used so far, with this reply.

    Text and reasoning are told as `Token` events, and as `Retried` that what was told is void. Requests, tokens and
    cost count for the limits of the run.
    SUCCESS when a reply is in.
    RUNNING while it is awaited.
    FAILURE when the model refused, cannot be reached, takes no more requests or not so long ones, answered nothing, or,
    with `output`, twice something of another form; the feedback says why. `messages` stays as it is.
    What only the program can put right (`BadRequestError`: the key, the name of the model) is raised, and
    `LimitExceeded` before a request that the run may not send any more.
    Halting ends the request. Nothing is written; `streaming_output` stays until the next call.

    Args:
        name: the node's name.
        model: who is asked: a ChatModel, or its name as `jianmu.model.lookup` takes it.
        tools: what the model may call: a Toolbox, or tools and functions.
        system: the system prompt, or a function of the snapshot that returns it.
        settings: how to answer.
        output: the type that a reply without calls has to have; one that has not is sent back once.
        namespace: where the Ephemeral ones of the fields above are kept, `messages` apart.
    """

    def __init__(
        self,
        name: str | None = None,
        *,
        model: ChatModel | str,
        tools: Tools = None,
        system: Prompt = None,
        settings: Settings | None = None,
        output: Any = None,
        namespace: str | None = None,
    ) -> None:
        super().__init__(name, model=model, system=system, settings=settings, output=output)
        self._tools = toolbox_of(self, tools)
        self._kind = output
        self.namespace = namespace
        self._places: dict[str, str | None] = {}
        self._folded = set[str]()
        self._answers: dict[str, Clear] = {}
        self._skills: Sequence[Skill] = ()
        self._known = KnownIds()

    async def open(self) -> None:
        """Open the model and the tools for as long as the tree is open."""
        await self._tools.open()
        try:
            await super().open()
        except BaseException:
            await self._tools.close()
            raise

    async def close(self) -> None:
        """Close what `open` has opened."""
        try:
            await super().close()
        finally:
            await self._tools.close()

    def on_bound(self) -> None:
        """Refuse a state without `messages`, and a stream that another node writes at the same time."""
        conversation.require(self.context.manager, self.context.path)
        self._places = places_of(self, self.namespace)
        self._folded = {name for name in self._places if self.context.manager.has_reducer(name)}
        fields = self.context.manager.schema.fields
        self._answers = {name: Clear() for name in ANSWERS if name in fields and not fields[name].info.is_required()}
        if "streaming_output" in self._places:
            _refuse_shared(self)
        for one in self._tools.tools:
            one.on_offered(self)

    async def _work(self) -> Status:
        """Ask, and write the reply."""
        self._reset()
        shown, self._skills = self._shown(), skills_for(self)
        tools = with_skills(self, self._tools, self._skills).tools
        specs = [ToolSpec(one.name, one.description, one.parameters) for one in tools]
        request = self._request(conversation.messages_of(self.context), tools=specs)
        reply, value = await self._fitting(request, shown)
        self._write(reply, value, shown)
        return Status.SUCCESS

    def _reset(self) -> None:
        """Set the call fields back, in the name of the node."""
        token = WRITER.set(self.context.path)
        try:
            self.context.manager.reset_call_fields(self.namespace)
        finally:
            WRITER.reset(token)

    def _prompt(self) -> str:
        return told_of_skills(self._skills, super()._prompt())

    def _shown(self) -> Shown:
        if "streaming_output" not in self._places:
            return Shown(self.context, None)
        return Shown(self.context, lambda text: self._put({"streaming_output": text}))

    def _failed(self) -> None:
        """Count what was used all the same."""
        self._put({}, conversation.counted(self.context, self._spent))

    def _write(self, reply: Finish, value: Any, shown: Shown) -> None:
        """Write what came of a reply, in as few writes as there are places."""
        message = self._own(reply)
        if message.usage is None:
            message = message.model_copy(update={"usage": reply.usage})
        fields: dict[str, Any] = {"actions": [*message.tool_calls], "rounds": self._round()}
        if not message.tool_calls:
            fields |= {"final_answer": self._answer(message, value), "done": True}
        else:
            fields |= self._answers
        text = shown.rest()
        if text is not None:
            fields["streaming_output"] = text
        others = conversation.counted(self.context, self._spent)
        if not message.tool_calls and self._output is not None and STRUCTURED in self.context.manager.schema.fields:
            others[STRUCTURED] = Replace(to_jsonable_python(value))  # the state makes of it what the field takes
        if self.context.manager.has_reducer(conversation.FIELD):
            others[conversation.FIELD] = [message]
        else:
            conversation.append(self.context, [message])
        self._put(fields, others)

    def _own(self, reply: Finish) -> Message:
        """Return the message of a reply as the conversation can keep it: no id in it was taken, no call is half one."""
        known, message = self._known, reply.message
        known.look(conversation.messages_of(self.context))
        if message.id in known.messages:
            message = message.model_copy(update={"id": ai().id})
        if reply.reason == "length":
            message = without_half(message)
        return with_own_ids(message, known.calls) if message.tool_calls else message

    def _put(self, fields: Mapping[str, Any], plain: Mapping[str, Any] | None = None) -> None:
        """Write fields where they are kept; those that the schema does not have are left out."""
        by_place: dict[str | None, dict[str, Any]] = {self.namespace: {}, None: {**(plain or {})}}
        for name, value in fields.items():
            if name in self._places:
                is_folded = name in self._folded and not isinstance(value, Clear)
                by_place[self._places[name]][name] = Replace(value) if is_folded else value
        for place, values in by_place.items():
            if values:
                self.write_state(values, place)

    def _round(self) -> int:
        if "rounds" not in self._places:
            return 0
        return (self.context.manager.read("rounds", namespace=self._places["rounds"]) or 0) + 1

    def _answer(self, message: Message, value: Any) -> Any:
        types = self.context.manager.schema.types
        return value if fits(type(value), types.get("final_answer", str)) else message.text


class HasFinalAnswer(Node):
    """Whether the model has given its final answer: `done` is true, or `final_answer` has something in it.

    SUCCESS when it has.
    FAILURE when it has not.
    """

    def __init__(self, name: str | None = None, *, namespace: str | None = None) -> None:
        super().__init__(name)
        self._namespace = namespace
        self._places: dict[str, str | None] = {}

    def on_bound(self) -> None:
        """Refuse a state that has neither field."""
        places = places_of(self, self._namespace)
        self._places = {name: places[name] for name in ANSWERS if name in places}
        if not self._places:
            path, model = self.context.path, self.context.manager.schema.model.__name__
            raise SetupError(
                f"node '{path}' looks at the fields final_answer and done, and {model} has neither: write "
                f'final_answer: Annotated[str | None, Ephemeral(scope="run")] = None',
                path=path,
            )

    def update(self) -> Status:
        """Look at the fields."""
        read = self.context.manager.read
        for name, place in self._places.items():
            if read(name, namespace=place) not in (None, False, ""):
                return Status.SUCCESS
        return Status.FAILURE


def toolbox_of(node: Behaviour, tools: Tools) -> Toolbox:
    """Return what was given as `tools` as one box."""
    if isinstance(tools, Toolbox):
        return tools
    if isinstance(tools, Tool) or callable(tools) or isinstance(tools, str):
        raise SetupError(f"{call_of(node, 'tools')} takes a Toolbox or a list of tools, not {tools!r}: write [...]")
    return Toolbox(*(tools or ()))


def places_of(node: NodeMixin, namespace: str | None) -> dict[str, str | None]:
    """Return where each field that the schema has is kept: Ephemeral ones in the namespace, others as they are."""
    schema = node.context.manager.schema
    if namespace is not None:
        schema.check_namespace(namespace)
    known = {name: schema.fields[name] for name in FIELDS if name in schema.fields}
    return {name: namespace if field.policy.scope else None for name, field in known.items()}


def _refuse_shared(node: AgentLLMNode) -> None:
    """Refuse a node that would stream into the same field as another one at the same time."""
    for other in beside(node):
        if isinstance(other, AgentLLMNode) and other.namespace == node.namespace:
            one, two = sorted((path_of(node), path_of(other)))
            call = f'{type(other).__name__}("{other.name}", ..., namespace="{other.name}")'
            raise SetupError(
                f"nodes '{one}' and '{two}' may run at the same time and stream into the same fields: "
                f"give each a namespace of its own, {call}, "
                f'or each branch a state of its own, Agent(branch, Schema).as_node("{other.name}")',
                path=node.context.path,
            )
