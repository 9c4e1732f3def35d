"""AgentLLMNode's options, the states that it works on, and what binding refuses."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Annotated, Any

import pytest
from py_trees.common import ParallelPolicy
from py_trees.composites import Parallel
from pydantic import BaseModel, Field

from jianmu.engine.events import Token
from jianmu.engine.state import Ephemeral
from jianmu.errors import NamespaceError, RunError, SetupError
from jianmu.message import Message, Usage, ai, human, tool_result
from jianmu.model import ScriptedModel, Settings, Turn
from jianmu.nodes import AgentLLMNode, ForEach, HasFinalAnswer, LoopUntilSuccess, Race, Sequence, SimpleLLMNode
from jianmu.tool import Toolbox, tool
from tests.cases.leaves import FAILURE, SUCCESS
from tests.nodes.talk import Talk, agent, asked, call, events_of, run

pytestmark = pytest.mark.anyio


@tool
def look(place: str) -> str:
    """Look somewhere."""
    return place


class Bare(BaseModel):
    """A state with a conversation and nothing else, and no reducer."""

    messages: list[Message] = Field(default_factory=list)


# What is asked


async def test_tools_and_settings_are_in_the_request() -> None:
    """The request has the tools' names, descriptions and schemas, and the settings."""
    for tools in ([look], Toolbox(look), [Toolbox(look)]):
        with ScriptedModel(["fine"]) as model:
            made = agent(AgentLLMNode("think", model=model, tools=tools, settings=Settings(temperature=0)))
            await run(made, human("hello"))
        request = model.requests[0]
        assert [(one.name, one.description, one.schema) for one in request.tools] == [
            ("look", "Look somewhere.", look.parameters)
        ]
        assert request.settings.temperature == 0


async def test_the_system_prompt_comes_first_and_follows_the_state() -> None:
    """`system` is a text or a function of the snapshot; it is in the request only; without one there is none."""
    for given, told in (("rules", ["rules"]), (lambda state: f"of {state.topic}", ["of sea"]), (lambda _: None, [])):
        with ScriptedModel(["fine"]) as model:
            made = agent(AgentLLMNode("think", model=model, system=given))
            await run(made, human("hello"), topic="sea")
        assert [m.text for m in asked(model)] == [*told, "hello"]
        assert [m.role for m in made.state.messages] == ["human", "ai"]


async def test_a_system_prompt_of_another_type_is_an_error() -> None:
    """A function that returns no text is an error that names the node and the option."""
    made = agent(AgentLLMNode("think", model=ScriptedModel(), system=lambda state: 3))  # type: ignore[arg-type,return-value]  # the fault
    with pytest.raises(RunError, match=r'AgentLLMNode\("think", system=...\) has to return a text or None, not int'):
        await run(made, human("hello"))


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"model": 3}, r"AgentLLMNode\(\"think\", model=...\) takes a ChatModel or the name of one, not 3"),
        ({"model": "nobody"}, "nobody"),
        ({"settings": {"temperature": 0}}, r"settings=...\) takes Settings\(...\), not"),
        ({"tools": look}, r"tools=...\) takes a Toolbox or a list of tools, not"),
        ({"system": 3}, r"system=...\) takes a text or None, or a function of the snapshot, not 3"),
        ({"output": lambda state: int}, r"AgentLLMNode\(\"think\", output=...\) takes a type, not a function"),
        ({"output": 3}, "3 has no JSON schema"),
        ({"output": Callable[[], int]}, "has no JSON schema"),
    ],
)
def test_options_of_another_shape_are_refused(options: dict[str, Any], problem: str) -> None:
    """Each is a SetupError when the node is built."""
    with pytest.raises(SetupError, match=problem):
        AgentLLMNode("think", **{"model": ScriptedModel(), **options})


# States


async def test_a_state_with_messages_alone_is_enough() -> None:
    """Fields that the schema does not have are left out; a list without a reducer is appended to as well."""
    with ScriptedModel(["one", "two"]) as model:
        nodes = [AgentLLMNode(name, model=model) for name in "ab"]
        made = agent(Sequence("s", memory=True, children=nodes), Bare)
        assert await run(made, human("hello")) is SUCCESS
    assert [m.text for m in made.state.messages] == ["hello", "one", "two"]


@pytest.mark.parametrize("annotation", [None, list[str], dict[str, Message]])
async def test_a_state_without_messages_is_refused(annotation: Any) -> None:
    """A schema without `messages`, or with something else of that name, is a SetupError with the line to write."""
    fields: dict[str, Any] = {"__annotations__": {"messages": annotation} if annotation else {}}
    schema = type("Other", (BaseModel,), {**fields, **({"messages": annotation()} if annotation else {})})
    with pytest.raises(SetupError, match=r"node 'think' keeps the conversation in 'messages', which Other lacks"):
        agent(AgentLLMNode("think", model=ScriptedModel()), schema)


class Folding(BaseModel):
    """A state whose fields have reducers of their own."""

    messages: list[Message] = Field(default_factory=list)
    actions: Annotated[list[Any], lambda old, new: [*old, *new]] = Field(default_factory=list)
    rounds: Annotated[int, lambda old, new: old + new] = 0
    usage: Annotated[Usage, lambda old, new: old + new] = Usage()


async def test_reducers_do_not_change_what_is_set() -> None:
    """`actions` is that of the newest reply and `rounds` the count, whatever their reducers do; `usage` is added up."""
    with ScriptedModel([[call("1")], [call("2")]]) as model:
        nodes = [AgentLLMNode(name, model=model) for name in "ab"]
        made = agent(Sequence("s", memory=True, children=nodes), Folding)
        await run(made, human("hello"))
    assert ([one.id for one in made.state.actions], made.state.rounds) == (["2"], 2)
    assert made.state.usage == Usage(requests=2)


async def test_an_answer_is_taken_back_when_the_model_goes_on() -> None:
    """`final_answer` and `done` tell of the newest reply: one with calls sets them back."""
    with ScriptedModel(["one", [call("1")]]) as model:
        nodes = [AgentLLMNode("a", model=model), HasFinalAnswer(), AgentLLMNode("b", model=model)]
        made = agent(Sequence("s", memory=True, children=nodes))
        assert await run(made, human("hello")) is SUCCESS
    assert (made.state.final_answer, made.state.done, made.state.rounds) == (None, False, 2)


class Strict(BaseModel):
    """A state whose answer has no default."""

    messages: Annotated[list[Message], operator.add] = Field(default_factory=list)
    final_answer: str


async def test_an_answer_without_a_default_is_not_taken_back() -> None:
    """Where there is no default to go back to, a reply with calls leaves the answer as it is."""
    with ScriptedModel([[call("1")]]) as model:
        made = agent(AgentLLMNode(model=model), Strict)
        assert await run(made, human("hello"), final_answer="old") is SUCCESS
    assert (made.state.final_answer, made.root.name) == ("old", "AgentLLMNode")


async def test_call_fields_are_reset_at_the_start() -> None:
    """While a second call is under way, nothing of the first one is in the call fields."""
    seen: list[tuple[str, int]] = []

    def look_at(_: object) -> bool:
        seen.append((made.state.streaming_output, len(made.state.actions)))
        return True

    turns = [Turn("first", calls=[call("1")]), Turn("second", check=look_at)]
    with ScriptedModel(turns) as model:
        made = agent(Sequence("s", memory=True, children=[AgentLLMNode(name, model=model) for name in "ab"]))
        await run(made, human("hello"))
    assert seen == [("", 0)]


async def test_ids_that_are_taken_are_not_used_again() -> None:
    """A call whose id another call has gets its own, in the message, in `actions` and so in all that follows."""
    talk = [human("hello"), ai(tool_calls=[call("1")]), tool_result("1", "x")]
    with ScriptedModel([[call("1"), call("2"), call("2"), call("")]]) as model:
        made = agent(AgentLLMNode("think", model=model))
        await run(made, *talk)
    ids = [one.id for one in made.state.messages[-1].tool_calls]
    assert ids == [one.id for one in made.state.actions] == ["1_2", "2", "2_2", "call"]


# Structured answers


class Place(BaseModel):
    """Somewhere."""

    name: str
    depth: int


class Found(Talk):
    """A state whose final answer is an object."""

    final_answer: Annotated[Place | None, Ephemeral(scope="run")] = None  # type: ignore[assignment]  # another type is meant


async def test_an_answer_has_the_form_that_is_asked_for() -> None:
    """With `output` the request has its schema; `final_answer` is the object where the field is of that type."""
    for schema, answer in ((Found, Place(name="sea", depth=3)), (Talk, '{"name": "sea", "depth": 3}')):
        with ScriptedModel([[call("1")], '{"name": "sea", "depth": 3}']) as model:
            nodes = [AgentLLMNode(name, model=model, output=Place) for name in "ab"]
            made = agent(Sequence("s", memory=True, children=nodes), schema)
            assert await run(made, human("hello")) is SUCCESS
        assert made.state.final_answer == answer
        spec = model.requests[0].output
        assert spec is not None
        assert (spec.name, spec.description, spec.schema["required"]) == ("Place", "Somewhere.", ["name", "depth"])


async def test_an_answer_of_another_form_is_sent_back_once() -> None:
    """The model is told what is wrong; only the second reply is in the conversation, and both are counted."""
    turns = [Turn('{"name": 3}', usage=Usage(output_tokens=5)), Turn('{"name": "sea", "depth": 3}')]
    with ScriptedModel(turns) as model:
        made = agent(AgentLLMNode("think", model=model, output=Place), Found)
        assert await run(made, human("hello")) is SUCCESS
    assert [m.role for m in asked(model)] == ["human", "ai", "human"]
    assert asked(model)[-1].text == (
        "Your answer does not have the form that was asked for:\n"
        "- name: Input should be a valid string\n- depth: Field required\n"
        "Answer again with the corrected JSON, and nothing else."
    )
    assert [m.text for m in made.state.messages] == ["hello", '{"name": "sea", "depth": 3}']
    assert made.state.streaming_output == '{"name": "sea", "depth": 3}'
    assert made.state.usage == Usage(output_tokens=5, requests=2)
    assert made.state.rounds == 1


async def test_calls_in_the_second_reply_are_calls() -> None:
    """A model that calls a tool when it is sent back its answer goes on with the call."""
    with ScriptedModel(["no", [call("1")]]) as model:
        made = agent(AgentLLMNode("think", model=model, output=Place))
        assert await run(made, human("hello")) is SUCCESS
    assert [one.id for one in made.state.actions] == ["1"]


async def test_two_answers_of_another_form_are_failure() -> None:
    """After the second one: FAILURE with what is wrong; the conversation is as before and the stream empty."""
    with ScriptedModel(["no", '{"name": "sea"}']) as model:
        made = agent(AgentLLMNode("think", model=model, output=Place))
        assert await run(made, human("hello")) is FAILURE
    assert made.root.feedback_message == (
        "model 'scripted': the answer is no Place, also when asked for again: - depth: Field required"
    )
    assert ([m.text for m in made.state.messages], made.state.streaming_output) == (["hello"], "")


# Side by side


def beside(model: ScriptedModel, *namespaces: str | None) -> Parallel:
    """Return LLM nodes in a Parallel."""
    nodes = [AgentLLMNode(f"n{place}", model=model, namespace=name) for place, name in enumerate(namespaces)]
    return Parallel("p", policy=ParallelPolicy.SuccessOnAll(), children=nodes)


async def test_two_streams_into_one_field_are_refused() -> None:
    """Two in a Parallel, at whatever depth, or in a Race, without a namespace each: SetupError with both paths."""
    model = ScriptedModel()
    deep = Sequence("s", memory=True, children=[AgentLLMNode("deep", model=model)])
    trees = [
        beside(model, None, None),
        beside(model, "a", "b", "a"),
        Parallel("p", policy=ParallelPolicy.SuccessOnAll(), children=[AgentLLMNode("n0", model=model), deep]),
        Race("p", [AgentLLMNode("n0", model=model), AgentLLMNode("n1", model=model)]),
    ]
    for tree, other in zip(trees, ("p/n1", "p/n2", "p/s/deep", "p/n1"), strict=True):
        with pytest.raises(SetupError) as found:
            agent(tree)
        name = other.rpartition("/")[2]
        assert str(found.value) == (
            f"nodes 'p/n0' and '{other}' may run at the same time and stream into the same fields: "
            f'give each a namespace of its own, AgentLLMNode("{name}", ..., namespace="{name}"), '
            f'or each branch a state of its own, Agent(branch, Schema).as_node("{name}")'
        )


async def test_with_a_namespace_each_streams_by_itself() -> None:
    """Each node's Ephemeral fields are in its namespace; both replies are in `messages`; tokens have their paths."""
    model = ScriptedModel([Turn(["a1", "a2"], pause=1), Turn(["b1", "b2"], pause=1)])
    made = agent(beside(model, "a", "b"))
    events = await events_of(made, human("hello"))
    manager = made.state_manager
    texts = {name: manager.read("streaming_output", namespace=name) for name in "ab"}
    assert sorted(texts.values()) == ["a1a2", "b1b2"]
    assert [manager.read("rounds", namespace=name) for name in "ab"] == [1, 1]
    assert {manager.read("final_answer", namespace=name) for name in "ab"} == {"a1a2", "b1b2"}
    assert (made.state.streaming_output, made.state.rounds, made.state.done) == ("", 0, False)
    assert sorted(m.text for m in made.state.messages) == ["a1a2", "b1b2", "hello"]
    tokens = [(event.path, event.text) for event in events if isinstance(event, Token)]
    assert sorted(tokens) == sorted((f"p/n{'ab'.index(name)}", text) for name in "ab" for text in _pieces(texts[name]))


def _pieces(text: str) -> list[str]:
    return [text[:2], text[2:]]


async def test_one_after_the_other_needs_no_namespace() -> None:
    """Two in a Sequence inside of one branch, or agents with states of their own, may have the same fields."""
    with ScriptedModel(["a", "b", "c"]) as model:
        branch = Sequence("s", memory=True, children=[AgentLLMNode(name, model=model) for name in "ab"])
        inner = agent(AgentLLMNode("think", model=model)).as_node("inner", inputs={"messages": "messages"})
        tree = Parallel("p", policy=ParallelPolicy.SuccessOnAll(), children=[branch, inner])
        assert await run(agent(tree), human("hello")) is SUCCESS


async def test_a_namespace_needs_a_state_that_keeps_it() -> None:
    """A namespace on a schema without extra values is refused when the tree is bound."""

    class Closed(BaseModel):
        messages: list[Message] = Field(default_factory=list)

    with pytest.raises(NamespaceError, match="needs a schema that keeps extra values"):
        await run(agent(AgentLLMNode("think", model=ScriptedModel(), namespace="a"), Closed), human("x"))


async def test_each_item_of_a_foreach_can_ask() -> None:
    """Nodes that are put in meanwhile open their model themselves; the results are in order."""

    def body(item: str, _: int) -> Any:
        return SimpleLLMNode("ask", model=model, prompt=lambda _: item, into=f"outs.{item}")

    class Many(Talk):
        items: list[str] = Field(default_factory=list)
        outs: dict[str, str] = Field(default_factory=dict)

    class Opened(ScriptedModel):
        users = most = 0

        async def open(self) -> None:
            self.users += 1
            self.most = max(self.users, self.most)

        async def close(self) -> None:
            self.users -= 1

    with Opened([lambda request: request.messages[0].text.upper()] * 2) as model:
        made = agent(ForEach("each", body, over="items"), Many)
        assert await run(made, items=["a", "b"]) is SUCCESS
    assert made.state.outs == {"a": "A", "b": "B"}
    assert (model.users, model.most > 0) == (0, True)


async def test_items_that_stream_at_once_need_a_namespace_each() -> None:
    """LLM nodes in a ForEach that share a stream are refused when they are put in; with a namespace each they run."""

    def body(name: str, _: int) -> Any:
        return AgentLLMNode("think", model=model, namespace=name)

    for names, is_fine in ((["a", "b"], True), (["a", "a"], False)):
        model = ScriptedModel(["x", "y"])
        made = agent(ForEach("each", body, over=lambda _, names=names: names))
        if is_fine:
            assert await run(made, human("hello")) is SUCCESS
            continue
        with pytest.raises(SetupError, match="may run at the same time"):
            await run(made, human("hello"))


# HasFinalAnswer


async def test_a_loop_ends_with_the_final_answer() -> None:
    """HasFinalAnswer is FAILURE until the model answers without calls."""
    with ScriptedModel([[call("1")], "done"]) as model:
        think = AgentLLMNode("think", model=model, namespace="n")
        body = Sequence("round", memory=True, children=[think, HasFinalAnswer(namespace="n")])
        made = agent(LoopUntilSuccess("loop", body, max_iterations=5))
        assert await run(made, human("hello")) is SUCCESS
    assert made.state_manager.read("rounds", namespace="n") == 2


async def test_a_final_answer_needs_a_field() -> None:
    """A schema with neither field is a SetupError with the line to write."""
    with pytest.raises(SetupError, match="node 'HasFinalAnswer' looks at the fields final_answer and done, and Bare"):
        await run(agent(HasFinalAnswer(), Bare))
