"""SimpleLLMNode: a prompt in, a text or an object out."""

from __future__ import annotations

from datetime import date
from typing import Any, Literal

import pytest
from pydantic import BaseModel, Field

from jianmu.engine.events import Token
from jianmu.engine.ports import Const
from jianmu.errors import BadRequestError, ModelUnavailableError, RunError, SetupError
from jianmu.message import ImagePart, Message, Usage, human, system
from jianmu.model import ScriptedModel, Settings, Turn
from jianmu.nodes import SimpleLLMNode, Timeout
from jianmu.nodes.output import Output
from tests.cases.leaves import FAILURE, SUCCESS
from tests.nodes.talk import agent, asked, events_of, run

pytestmark = pytest.mark.anyio


class Recipe(BaseModel):
    """How to cook something."""

    name: str
    minutes: int = Field(gt=0)


class Kitchen(BaseModel):
    """A state with fields of several types."""

    topic: str = ""
    answer: str = ""
    recipe: Recipe | None = None
    outs: dict[str, Any] = Field(default_factory=dict)
    numbers: list[int] = Field(default_factory=list)


async def test_a_text_goes_to_its_field() -> None:
    """The prompt is a field, a constant or a function of the snapshot; the text goes to a field or a key of a dict."""
    for prompt, into, told in (
        ("topic", "answer", "sea"),
        (Const("hello"), "outs.a", "hello"),
        (lambda state: f"of {state.topic}", "answer", "of sea"),
    ):
        with ScriptedModel(["wide"]) as model:
            made = agent(SimpleLLMNode("ask", model=model, prompt=prompt, into=into), Kitchen)
            assert await run(made, topic="sea") is SUCCESS
        assert [(m.role, m.text) for m in asked(model)] == [("human", told)]
        assert made.state.answer == "wide" or made.state.outs == {"a": "wide"}


async def test_a_prompt_may_be_parts_or_messages() -> None:
    """A function may return parts with pictures, a message, or a whole conversation; `system` comes first."""
    picture = ImagePart(url="https://x/y.png")
    talk = [system("rules"), human("hello")]
    for prompt, expected in (
        (lambda _: ["what is this?", picture], [human(["what is this?", picture])]),
        (lambda _: talk[1], talk[1:]),
        (lambda _: talk, talk),
    ):
        with ScriptedModel(["wide"]) as model:
            node = SimpleLLMNode("ask", model=model, prompt=prompt, into="answer", system="be kind")
            await run(agent(node, Kitchen))
        assert [(m.role, m.content) for m in asked(model)] == [
            ("system", "be kind"),
            *((m.role, m.content) for m in expected),
        ]


async def test_an_object_is_validated() -> None:
    """With `output` the field gets an object of that type; the model is told its schema, and JSON in a fence counts."""
    for text in ('{"name": "tea", "minutes": 5}', '```json\n{"name": "tea", "minutes": 5}\n```\n'):
        with ScriptedModel([text]) as model:
            node = SimpleLLMNode("ask", model=model, prompt="topic", into="recipe", output=Recipe)
            made = agent(node, Kitchen)
            assert await run(made) is SUCCESS
        assert made.state.recipe == Recipe(name="tea", minutes=5)
        assert isinstance(made.state.recipe, Recipe)
        assert model.requests[0].output == Output(Recipe, "").spec


async def test_an_invalid_object_is_sent_back_once() -> None:
    """The model sees its reply and what is wrong with it, and the second reply counts."""
    with ScriptedModel(['{"name": "tea", "minutes": 0}', '{"name": "tea", "minutes": 5}']) as model:
        settings = Settings(seed=1)
        node = SimpleLLMNode("ask", model=model, prompt="topic", into="recipe", output=Recipe, settings=settings)
        made = agent(node, Kitchen)
        assert await run(made, topic="tea") is SUCCESS
    assert [m.role for m in asked(model)] == ["human", "ai", "human"]
    assert "- minutes: Input should be greater than 0" in asked(model)[-1].text
    assert (model.requests[1].output, model.requests[1].settings.seed) == (Output(Recipe, "").spec, 1)
    assert made.runner.context.usage.requests == 2


async def test_two_invalid_objects_are_failure() -> None:
    """FAILURE with what is wrong; nothing is written."""
    with ScriptedModel(["tea", "more tea"]) as model:
        made = agent(SimpleLLMNode("ask", model=model, prompt="topic", into="recipe", output=Recipe), Kitchen)
        assert await run(made) is FAILURE
    assert (
        "the answer is no Recipe, also when asked for again: - the answer: Invalid JSON" in made.root.feedback_message
    )
    assert made.state.recipe is None


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (list[int], '{"value": [1, 2]}', [1, 2]),
        (Literal["yes", "no"], '{"value": "yes"}', "yes"),
        (date, '{"value": "2026-12-01"}', date(2026, 12, 1)),
        (Recipe | None, '{"value": null}', None),
        (list[Recipe], '{"value": [{"name": "tea", "minutes": 5}]}', [Recipe(name="tea", minutes=5)]),
        (dict[str, int], '{"a": 1}', {"a": 1}),
    ],
)
def test_types_that_are_no_objects_are_put_into_one(kind: Any, text: str, value: Any) -> None:
    """Providers take objects only: other types are asked for, and read, as the key `value` of one."""
    output = Output(kind, "here")
    assert output.spec.schema["type"] == "object"
    assert output.read(text) == value


def test_what_is_no_box_is_refused() -> None:
    """Without the key `value` it is told so."""
    for text in ("[1]", "no", '{"other": 1}'):
        with pytest.raises(ValueError, match='it is no JSON object with the key "value"'):
            Output(list[int], "here").read(text)


def test_the_model_is_told_of_ten_faults_at_most() -> None:
    """A reply with many faults does not fill the next request."""
    with pytest.raises(ValueError, match="integer") as found:
        Output(list[int], "here").read('{"value": ["x", ' + ", ".join(['"value"'] * 50) + "]}")
    assert len(str(found.value).splitlines()) == 10


class Tree(BaseModel):
    """A type that refers to itself."""

    children: list[Tree] = Field(default_factory=list)


def test_a_type_that_refers_to_itself_is_an_object() -> None:
    """Its schema is a reference to a definition: it is read as it is, and the model is told an object."""
    output = Output(Tree, "here")
    assert output.read('{"children": [{"children": []}]}') == Tree(children=[Tree()])


async def test_usage_and_tokens_are_told() -> None:
    """The text is told as Token events with the path; requests and tokens count for the run."""
    with ScriptedModel([Turn(["a", "b"], usage=Usage(input_tokens=3, output_tokens=2))]) as model:
        made = agent(SimpleLLMNode("ask", model=model, prompt="topic", into="answer"))
        events = await events_of(made)
    assert [(one.text, one.path) for one in events if isinstance(one, Token)] == [("a", "ask"), ("b", "ask")]
    usage = made.runner.context.usage
    assert (usage.requests, usage.tokens) == (1, 5)
    assert made.state.messages == []


async def test_errors_are_those_of_any_llm_node() -> None:
    """What a tree can answer is FAILURE, what it cannot is raised; a halt writes nothing."""
    with ScriptedModel([ModelUnavailableError("no")]) as model:
        made = agent(SimpleLLMNode("ask", model=model, prompt="topic", into="answer"))
        assert await run(made) is FAILURE
    with ScriptedModel([BadRequestError("no")]) as model, pytest.raises(BadRequestError):
        await run(agent(SimpleLLMNode("ask", model=model, prompt="topic", into="answer")))
    model = ScriptedModel([Turn("late", delay=9)])
    made = agent(Timeout("t", SimpleLLMNode("ask", model=model, prompt="topic", into="answer"), seconds=5))
    assert await run(made) is FAILURE
    assert (made.state.answer, model.alive) == ("", 0)


def test_fields_are_checked_when_the_tree_is_bound() -> None:
    """A field that is not there, or of another type, is a SetupError with the port."""
    for options, problem in (
        ({"prompt": "topik"}, "binds port 'prompt' to 'topik'"),
        ({"prompt": "numbers"}, "the port takes str, but 'numbers' is list"),
        ({"prompt": "topic", "into": "anser"}, "binds port 'into' to 'anser'"),
        ({"prompt": "topic", "into": "answer", "output": Recipe}, "the port gives Recipe, but 'answer' is str"),
    ):
        with pytest.raises(SetupError, match=problem):
            agent(SimpleLLMNode("ask", model=ScriptedModel(), **options), Kitchen)


async def test_a_prompt_that_is_none_is_an_error() -> None:
    """A function that returns nothing that can be asked is an error with the path."""
    for nothing in (None, 3):
        node = SimpleLLMNode("ask", model=ScriptedModel(), prompt=lambda _, what=nothing: what, into="answer")
        with pytest.raises(RunError, match=r"SimpleLLMNode\(\"ask\", prompt=...\) gives is a text, parts, or messages"):
            await run(agent(node))


async def test_messages_are_taken_as_they_are() -> None:
    """Messages that a function returns keep their ids."""
    given = human("hello")
    with ScriptedModel(["x"]) as model:
        await run(agent(SimpleLLMNode("ask", model=model, prompt=lambda _: [given])))
    sent: list[Message] = [*asked(model)]
    assert sent == [given]
