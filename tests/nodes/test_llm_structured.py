"""An answer as an object: in `structured_response`, where the schema has it."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel

from jianmu.message import human
from jianmu.model import ScriptedModel
from jianmu.nodes import AgentLLMNode
from jianmu.thread import MessagesState, RepliesState, StructuredState
from jianmu.tool.types import ToolCall
from tests.cases.leaves import FAILURE, SUCCESS
from tests.nodes.talk import agent, run

pytestmark = pytest.mark.anyio


class Report(BaseModel):
    """An answer."""

    subject: str
    pages: int = 1


class Typed(MessagesState, RepliesState, StructuredState[Report]):
    """Takes a Report."""


class Loose(MessagesState, RepliesState, StructuredState):
    """Takes any JSON."""


SAID = '{"subject": "tea", "pages": 3}'


@pytest.mark.parametrize(
    ("schema", "value"), [(Typed, Report(subject="tea", pages=3)), (Loose, {"subject": "tea", "pages": 3})]
)
async def test_the_answer_is_there_as_the_field_takes_it(schema: Any, value: Any) -> None:
    """A model where the field is of that type, JSON where it takes any; the text is the final answer."""
    with ScriptedModel([SAID]) as model:
        made = agent(AgentLLMNode("think", model=model, output=Report), schema)
        assert await run(made, human("write")) is SUCCESS
    assert made.state.structured_response == value
    assert made.state.final_answer == SAID


async def test_calls_and_answers_of_another_form_write_nothing() -> None:
    """A reply that calls a tool is no answer; one that does not fit twice is a failure."""
    for script, status in (([ToolCall(id="1", name="look")], SUCCESS), (["no", "no"], FAILURE)):
        with ScriptedModel(script) as model:
            made = agent(AgentLLMNode("think", model=model, output=Report), Typed)
            assert await run(made, human("write")) is status
        assert made.state.structured_response is None


async def test_without_a_type_the_field_is_left_alone() -> None:
    """A text is no object."""
    with ScriptedModel(["hello"]) as model:
        made = agent(AgentLLMNode("think", model=model), Loose)
        await run(made, human("write"))
    assert made.state.structured_response is None
