"""A real small model on loopback, end to end; `make test-model` installs and runs it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from pydantic import BaseModel, Field

from jianmu import Agent, Status, human
from jianmu.engine.events import Token
from jianmu.model import Settings, lookup
from jianmu.nodes import SimpleLLMNode
from jianmu.prebuilt import ReActState, react

pytestmark = [pytest.mark.anyio, pytest.mark.model, pytest.mark.timeout(900)]
SERVER = Path(__file__).with_name("smollm.py")


@pytest.fixture(scope="module")
def model() -> Iterator[str]:
    """The name of the model, whose server runs."""
    command = [os.environ["JIANMU_MODEL"], str(SERVER)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        address = next(line.strip() for line in process.stdout if line.startswith("http://"))
        yield f"openai_compatible:{address}#smollm2"
        process.kill()


async def test_a_reply_streams_into_the_conversation(model: str) -> None:
    """The text comes in pieces, is the reply and the final answer, and its tokens are counted."""
    tree = react("talk", model=lookup(model), tools=[], settings=Settings(max_tokens=24))
    agent = Agent(tree, state_schema=ReActState)
    pieces: list[str] = []
    with anyio.fail_after(600):
        async with agent.stream({"messages": [human("Say hello in one short sentence.")]}) as events:
            async for event in events:
                pieces += [event.text] if isinstance(event, Token) else []
    reply = agent.state.messages[-1]
    assert (agent.status, reply.role, reply.text) == (Status.SUCCESS, "ai", "".join(pieces))
    assert len(pieces) > 3
    assert agent.state.final_answer == reply.text
    assert reply.usage is not None
    assert 0 < reply.usage.output_tokens <= 24


class Cat(BaseModel):
    """A cat."""

    name: str = Field(max_length=12)
    age: int = Field(ge=0, le=30)


class Shelter(BaseModel):
    """Who is there."""

    cat: Cat | None = None


async def test_a_structured_output_is_an_object(model: str) -> None:
    """The server holds the model to the schema, and the field has a validated object."""
    node = SimpleLLMNode(
        "ask",
        model=lookup(model),
        prompt=lambda _: "Give a JSON object for a cat named Tom aged 3.",
        output=Cat,
        into="cat",
        settings=Settings(max_tokens=60),
    )
    agent = Agent(node, state_schema=Shelter)
    with anyio.fail_after(600):
        assert await agent.run() is Status.SUCCESS
    assert isinstance(agent.state.cat, Cat)
