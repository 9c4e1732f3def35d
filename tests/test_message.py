"""Messages and tool calls: frozen, with ids minted once."""

from __future__ import annotations

import operator
from typing import Annotated

import pytest
from pydantic import BaseModel, ValidationError

from jianmu.engine.state import StateManager
from jianmu.message import Message, ai, human, system, tool_result
from jianmu.tool.types import TextPart, ToolCall, ToolResult


def test_each_function_makes_its_role() -> None:
    """human, ai, system and tool_result differ by their role and what belongs to it."""
    call = ToolCall(id="c1", name="look", arguments={"q": [1]})
    made = [human("h"), ai("a", tool_calls=[call]), system("s"), tool_result("c1", "found")]
    assert [message.role for message in made] == ["human", "ai", "system", "tool"]
    assert [message.content for message in made] == ["h", "a", "s", "found"]
    assert made[1].tool_calls == (call,)
    assert made[3].tool_result == ToolResult(call_id="c1", content="found", is_error=False)
    assert tool_result("c1", {"rows": 2}, is_error=True).tool_result == ToolResult(
        call_id="c1", content={"rows": 2}, is_error=True
    )
    assert human([{"type": "text", "text": "x"}], name="ann").content == (TextPart(text="x"),)


def test_ids_are_minted_when_a_message_is_made() -> None:
    """Every message has its own id, which validation, dumping and loading keep."""
    first, second = human("x"), human("x")
    assert first.id != second.id
    assert human("x", id="mine").id == "mine"
    assert Message.model_validate_json(first.model_dump_json()) == first


@pytest.mark.parametrize("model", [human("x"), ToolCall(id="1", name="t"), ToolResult(call_id="1")])
def test_they_are_frozen(model: BaseModel) -> None:
    """Nothing can be assigned."""
    with pytest.raises(ValidationError, match="frozen"):
        setattr(model, next(iter(type(model).model_fields)), "other")


def test_an_unknown_role_is_refused() -> None:
    """There are four roles."""
    with pytest.raises(ValidationError, match="role"):
        Message(role="user", content="x")


def test_a_message_without_an_id_keeps_the_one_it_got_in_the_state() -> None:
    """An id that is minted when a dict is written is the same after a later write, saving and loading."""

    class Talk(BaseModel):
        messages: Annotated[list[Message], operator.add] = []

    manager = StateManager(Talk)
    manager.attach_store_check()
    manager.update({"messages": [{"role": "human", "content": "x"}]})
    minted = manager.get().messages[0].id
    manager.update({"messages": [ai("y")]})
    loaded = StateManager(Talk)
    loaded.load_checkpoint(manager.dump_checkpoint())
    assert minted
    assert manager.get().messages[0].id == loaded.get().messages[0].id == minted
