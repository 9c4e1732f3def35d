"""What the tests of the chat share: agents of plain coroutines, a conversation, and the screen of the app as text."""

from __future__ import annotations

import operator
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Annotated, Any

import anyio
from anyio.lowlevel import checkpoint
from py_trees.behaviour import Behaviour
from py_trees.common import Status
from pydantic import BaseModel, Field
from textual.pilot import Pilot

from jianmu.agent import Agent
from jianmu.engine.events import Token
from jianmu.engine.node import AsyncNode
from jianmu.message import Message, ai
from jianmu.terminal.app import ChatApp
from jianmu.terminal.conversation import Conversation
from jianmu.terminal.prompt import Prompt

Script = Callable[["Says"], Awaitable[Any]]
SECONDS = 60


class Talk(BaseModel):
    """A conversation, and something to look at."""

    messages: Annotated[list[Message], operator.add] = Field(default_factory=list)
    topic: str = ""


class Says(AsyncNode):
    """A node that does what a function says; it stands for a model and its tools.

    Args:
        script: what it does in each turn.
    """

    def __init__(self, script: Script, name: str = "says") -> None:
        super().__init__(name)
        self.script = script
        self.gate = anyio.Event()

    async def update_async(self) -> Status:
        """Do it."""
        status = await self.script(self)
        return status if isinstance(status, Status) else Status.SUCCESS

    def stream(self, *pieces: str) -> None:
        """Tell the pieces of a reply."""
        for piece in pieces:
            self.context.emit(Token(text=piece))

    def say(self, text: str, **more: Any) -> None:
        """Append a reply to the conversation."""
        self.write_state({"messages": [ai(text, **more)]})


async def echo(node: Says) -> None:
    """Reply with what was said, in two pieces."""
    said = node.read_state().messages[-1].text
    node.stream("You said: ", said)
    node.say(f"You said: {said}")


async def endless(node: Says) -> None:
    """Begin a reply and never end it."""
    node.stream("Well, ", "let me think")
    await anyio.sleep_forever()


def agent_of(script: Script | Behaviour = echo, **options: Any) -> Agent[Any]:
    """Return an agent whose tree is one node."""
    return Agent(script if isinstance(script, Behaviour) else Says(script), options.pop("schema", Talk), **options)


async def until(is_so: Callable[[], object]) -> None:
    """Return when something is so."""
    with anyio.fail_after(SECONDS):
        while not is_so():
            await checkpoint()


def blocks(talk: Conversation) -> list[tuple[str, ...]]:
    """Return what a transcript shows, in short."""
    talk.drain()
    found: list[tuple[str, ...]] = []
    for block in talk.transcript.blocks:
        words = (getattr(block, name, None) for name in ("name", "text", "state", "kind", "result", "end"))
        found.append((type(block).__name__, *(word for word in words if isinstance(word, str) and word)))
    return found


class Screen:
    """The chat without a terminal."""

    def __init__(self, app: ChatApp, pilot: Pilot[None]) -> None:
        self.app = app
        self.pilot = pilot
        self.talk = app.conversation

    @property
    def prompt(self) -> Prompt:
        """Where one types."""
        return self.app.screen_stack[0].query_one(Prompt)

    async def press(self, *keys: str) -> None:
        """Press keys, and show what came of them."""
        await self.pilot.press(*keys)
        await self.look()

    async def say(self, text: str) -> None:
        """Send a text, and wait until its turn is over or asks something."""
        self.prompt.text = text
        await self.press("enter")
        await until(lambda: not self.talk.is_on or self.talk.questions)
        await self.look()

    async def look(self) -> None:
        """Have what has happened shown."""
        for _ in range(2):
            await self.app.follow()
            await self.pilot.pause()

    @property
    def text(self) -> str:
        """What is shown, without the empty lines."""
        strips = self.app.screen._compositor.render_strips()  # no public way gives the text
        return "\n".join(line for strip in strips if (line := strip.text.rstrip()))

    @property
    def notices(self) -> list[str]:
        """What is said in passing, at the edge of the screen."""
        return [one.message for one in self.app._notifications]  # no public way gives them

    def shows(self, text: str) -> bool:
        """Whether a text is shown."""
        return text in self.text


@asynccontextmanager
async def screen_of(
    agent: Agent[Any], thread_id: str | None = None, size: tuple[int, int] = (80, 24)
) -> AsyncGenerator[Screen]:
    """Show a chat with an agent, without a terminal."""
    talk = Conversation(agent, thread_id or "t1")
    with anyio.fail_after(SECONDS):
        async with anyio.create_task_group() as group:
            app = ChatApp(talk, group.start_soon, has_thread=thread_id is not None)
            async with app.run_test(size=size) as pilot:
                screen = Screen(app, pilot)
                await screen.look()
                yield screen
            talk.leave()
    talk.close()
