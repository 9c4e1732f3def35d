"""The timeline of `todos`: written whole by the model, told again when they have rolled out, sent back at the end."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cases.leaves import SUCCESS
from tests.thread.timeline import World, call, said

pytestmark = pytest.mark.anyio


def todos(id: str, **items: str) -> object:
    """Return a call that writes the plan."""
    return call(id, "write_todos", todos=[{"content": name, "status": status} for name, status in items.items()])


async def test_an_early_answer_goes_back_to_the_model_twice_and_no_field_says_so(tmp_path: Path) -> None:
    """The document jumps by a field; here the loop goes on. In the store there is no field for what to do next."""
    world = World(tmp_path)
    script = [todos("1", read="pending"), "I am done", "Really", "It is over"]
    done = await world.program(script, said())
    assert (done.outcome.status, done.state.final_answer) == (SUCCESS, "It is over")
    assert done.marks("think", "finish plan") == ["think", "finish plan"] * 4
    assert "- [pending] read" in done.model.requests[2].messages[-1].text
    assert "- [pending] read" in done.model.requests[3].messages[-1].text
    assert not {"jump_to", "next", "goto"} & set(type(done.state).model_fields)
    assert not any(b"jump_to" in row for row in world.rows())


async def test_the_count_of_what_was_sent_back_survives_a_restart(tmp_path: Path) -> None:
    """Sent back once, suspended by a question, gone on with in another program: one more time, not two."""
    world = World(tmp_path)
    ask = call("q", "ask_clarification", question="Which one?")
    first = await world.program([todos("1", read="pending"), "done?", ask], said())
    assert first.outcome.suspended
    second = await world.resumed(["done!", "done.", "never"], "the first")
    assert second.state.final_answer == "done."
    assert len(second.model.requests) == 2


async def test_a_plan_stands_until_it_is_cleared(tmp_path: Path) -> None:
    """A turn that does not touch it leaves it; `[]` clears it; it is the only field that such a call writes."""
    world = World(tmp_path)
    first = await world.program([todos("1", read="completed", write="completed"), "done"], said())
    assert [one.content for one in first.state.todos] == ["read", "write"]
    second = await world.program(["hello"], said("hi"))
    assert (second.writes("todos"), second.state.todos) == ([], first.state.todos)
    third = await world.program([todos("2"), "cleared"], said("new plan"))
    assert (third.writes("todos"), third.state.todos) == ([("act", "todos")], [])
