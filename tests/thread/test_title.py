"""The title of a thread: given once, after the first exchange, by a model or by the text; a person's wins."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import anyio
import pytest
from anyio.lowlevel import checkpoint
from py_trees.behaviour import Behaviour
from pydantic import Field

from jianmu.agent import Agent
from jianmu.engine.clock import VirtualClock
from jianmu.engine.events import Token
from jianmu.engine.limits import Limits
from jianmu.engine.state import StateManager
from jianmu.errors import BadRequestError, ModelUnavailableError, SetupError
from jianmu.message import ImagePart, human
from jianmu.model import ScriptedModel
from jianmu.nodes import AgentLLMNode, Finally, Reminders
from jianmu.nodes import Sequence as InOrder
from jianmu.stores import SQLiteStore
from jianmu.testing import Turn
from jianmu.thread import ThreadState, Title, TodosState, give_title, renamed, title_of_text
from tests.cases.leaves import SUCCESS, nothing_left
from tests.thread.turns import asked, run, run_stored, thread

pytestmark = pytest.mark.anyio


def turn(talk: ScriptedModel, name: ScriptedModel | None = None, **options: Any) -> Behaviour:
    """Return a turn that answers, then names the thread; a turn that is broken off has a title too."""
    steps = [AgentLLMNode("think", model=talk), Title("title", model=name, **options)]
    return Finally("run", InOrder("main", memory=True, children=steps), Title.fallback)


async def named(*script: Any, first: Any = "How is tea made?", **options: Any) -> Agent[Any]:
    """Run a first turn whose title comes from a script; return the agent."""
    with ScriptedModel(["With water."]) as talk:
        made = thread(turn(talk, ScriptedModel(script)), **options)
        assert await run(made, human(first)) is SUCCESS
    return made


async def test_the_first_exchange_gives_a_title_by_a_model_once(tmp_path: Path) -> None:
    """The model is asked once, with what was said first; later turns, also in other programs, ask it no more."""
    with ScriptedModel(["With water."]) as talk, ScriptedModel(["Making tea"]) as name:
        made = await run_stored(tmp_path / "t.db", turn(talk, name), human("How is tea made?"))
    assert (made.state.title, made.state.title_by) == ("Making tea", "model")
    assert asked(name)[1:] == ["Person: How is tea made?\n\nAssistant: With water."]
    assert [one.text for one in made.state.messages] == ["How is tea made?", "With water."]
    with ScriptedModel(["You are welcome."]) as talk, ScriptedModel([]) as name:
        made = await run_stored(tmp_path / "t.db", turn(talk, name), human("Thanks"))
    assert (made.state.title, made.state.title_by) == ("Making tea", "model")


async def test_nobody_sees_the_title_come_in() -> None:
    """The request passes no projection, no token is told, and what it has cost is counted."""
    thinks = Turn("Making tea", reasoning="a title, hm")
    with ScriptedModel(["With water."]) as talk, ScriptedModel([thinks]) as name:
        made = thread(Reminders("kind", turn(talk, name), remind="be kind"))
        async with made.stream({"messages": [human("tea?")]}) as events:
            told = [event async for event in events]
    assert {event.path for event in told if isinstance(event, Token)} == {"kind/run/main/think"}
    assert "kind" not in "".join(asked(name))
    assert made.state.usage.requests == 2


async def test_without_a_model_the_text_is_the_title() -> None:
    """Nobody is asked; the first text of a person is the title."""
    with ScriptedModel(["With water."]) as talk:
        made = thread(turn(talk))
        assert await run(made, human("How is tea made?")) is SUCCESS
    assert (made.state.title, made.state.title_by) == ("How is tea made?", "text")


@pytest.mark.parametrize(
    ("reply", "title"),
    [
        ('"Making tea"', "Making tea"),
        ("Title: **Making tea**", "Making tea"),
        ("<think>hm\n\nTitle: no</think>\n\n# Making\ttea\nmore", "Making tea"),
        ("x " * 100, f"{'x ' * 29}x…"),
        ("\x1b[0m\n\x1b[1m'Making\x1b]0;pwned\x07 tea'\x1b[0m", "Making tea"),
    ],
)
async def test_what_a_model_adds_is_taken_off(reply: str, title: str) -> None:
    """Quotation marks, thoughts, marks of headings and further lines are no part of the title; a long one is cut."""
    assert (await named(reply)).state.title == title


UNSEEN = [
    ("a\x1b[2J\x1b]0;pwned\x07b", "ab"),
    ("a\x1b]8;;http://x.org\x1b\\b\x1bc\x9b", "abc"),
    ("one\r\ntwo\u2028three\tfour", "one two three four"),
    ("\u202eabc\u2066 \u200b\0\x7f\ud800", "abc \ufffd"),
    ("\N{MAN}\u200d\N{FEMALE SIGN}\ufe0f", "\N{MAN}\u200d\N{FEMALE SIGN}\ufe0f"),
]


@pytest.mark.parametrize(("given", "title"), UNSEEN)
def test_a_title_is_one_line_that_is_printed(given: str, title: str) -> None:
    """Whoever gives it, a node, a text or a person: nothing in it tells a terminal anything."""
    for give in (give_title, lambda state, text: state.update(renamed(text))):
        manager = StateManager(ThreadState)
        give(manager, given)
        assert manager.read("title") == title
        manager.update(renamed("\x1b[2J \n"))
        assert (manager.read("title"), manager.read("title_by")) == (None, None)
    assert title_of_text([human("\x1b[2J"), human(given)]) == title


BROKEN = [
    ModelUnavailableError("down", model="m"),
    BadRequestError("no key", model="m"),
    RuntimeError("a bug"),
    "<think>what is a title",
    Turn(reason="content_filter"),
    "",
    '""',
]


@pytest.mark.parametrize("reply", BROKEN)
async def test_a_model_that_fails_to_give_a_title_fails_no_run(reply: Any) -> None:
    """Whatever is wrong with it, the run succeeds, and the title is made of the text."""
    made = await named(reply)
    assert (made.state.title, made.state.title_by, made.state.done) == ("How is tea made?", "text", True)


async def test_a_model_that_cannot_be_opened_fails_no_run() -> None:
    """A model whose opening or closing raises gives no title, and the run succeeds."""

    class Locked(ScriptedModel):
        async def open(self) -> None:
            raise OSError("locked")

    class Stuck(ScriptedModel):
        async def close(self) -> None:
            raise OSError("stuck")

    for model, by in ((Locked(), "text"), (Stuck(["Tea"]), "model")):
        with ScriptedModel(["With water."]) as talk:
            made = thread(turn(talk, model))
            assert await run(made, human("Tea?")) is SUCCESS
        assert made.state.title_by == by


@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # trio has no cancellation but that of a scope
@pytest.mark.parametrize("when", ["open", "close", "stream"])
async def test_a_model_that_is_cancelled_from_inside_fails_no_run(when: str) -> None:
    """A task that the model waits for is cancelled by nobody of the runtime: at worst the title is of the text."""

    async def stray() -> None:
        task = asyncio.ensure_future(asyncio.sleep(9))
        await asyncio.sleep(0)
        task.cancel()
        await task

    class Stray(ScriptedModel):
        async def open(self) -> None:
            await (stray() if when == "open" else super().open())

        async def close(self) -> None:
            await (stray() if when == "close" else super().close())

        @asynccontextmanager
        async def stream(self, request: Any, **options: Any) -> AsyncGenerator[Any]:
            if when == "stream":
                await stray()
            async with super().stream(request, **options) as events:
                yield events

    with ScriptedModel(["With water."]) as talk:
        made = thread(turn(talk, Stray(["Tea"])))
        assert await run(made, human("Tea?")) is SUCCESS
    assert made.state.title_by == ("text" if when == "stream" else "model")


async def test_a_title_that_the_schema_refuses_fails_no_run() -> None:
    """A schema of one's own takes short titles only: the text's is taken, or none."""

    class Short(ThreadState):
        title: Annotated[str, Field(max_length=8)] | None = None

    for text, title in (("Tea?", "Tea?"), ("How is tea made?", None)):
        with ScriptedModel(["With water."]) as talk, ScriptedModel(["A title that is long"]) as name:
            made = thread(turn(talk, name), schema=Short)
            assert await run(made, human(text)) is SUCCESS
        assert made.state.title == title


async def test_a_slow_model_is_not_waited_for() -> None:
    """After `seconds` its request is ended, and the title is made of the text."""
    with ScriptedModel(["With water."]) as talk:
        slow = ScriptedModel([Turn("late", delay=3600)])
        clock = VirtualClock(autojump=True)
        made = thread(turn(talk, slow, seconds=3), clock=clock)
        assert await run(made, human("Tea?")) is SUCCESS
    assert (made.state.title_by, slow.alive, clock.now()) == ("text", 0, 3)


async def test_a_run_that_may_ask_no_more_has_a_title_of_its_text() -> None:
    """The run's limit is for its answers: no request is made beyond it, and the run does not fail for it."""
    made = await named(limits=Limits(requests=1))
    assert (made.state.title_by, made.state.final_answer) == ("text", "With water.")


async def test_a_rename_while_the_model_is_asked_wins() -> None:
    """A person's title stays, whatever the model comes up with."""
    made: list[Agent[Any]] = []

    def rename(_: Any) -> str:
        made[0].state_manager.update(renamed("Mine"))
        return "Making tea"

    with ScriptedModel(["With water."]) as talk, ScriptedModel([rename]) as name:
        made.append(thread(turn(talk, name)))
        assert await run(made[0], human("Tea?")) is SUCCESS
    assert (made[0].state.title, made[0].state.title_by) == ("Mine", "person")


async def test_before_an_exchange_there_is_none() -> None:
    """Without a reply nobody is asked; a first message without a text gets its title from the reply alone."""
    made = thread(InOrder("main", memory=True, children=[Silent("think", model=ScriptedModel()), Title("title")]))
    assert await run(made, human("Tea?")) is SUCCESS
    assert made.state.title is None
    made = await named("A cat", first=[ImagePart(url="https://x.org/cat.png")])
    assert made.state.title == "A cat"


class Silent(AgentLLMNode):
    """Asks nobody."""

    async def update_async(self) -> Any:
        """Succeed."""
        return SUCCESS


@pytest.mark.parametrize("in_title", [False, True])
async def test_t07_an_interrupted_first_turn_has_a_title_in_the_store(tmp_path: Path, in_title: bool) -> None:
    """T07: halted while a model is asked: a title of the person's text, no other request, and it stays so."""
    begun: list[bool] = []
    late = [lambda _: (begun.append(True), Turn("late", delay=3600))[1]]
    talk, name = ScriptedModel(["fine"] if in_title else late), ScriptedModel(late if in_title else [])
    async with SQLiteStore(tmp_path / "t.db") as store:
        made: Agent[Any] = Agent(turn(talk, name, seconds=7200), state_schema=ThreadState, store=store)
        with anyio.fail_after(20), nothing_left(made):
            async with anyio.create_task_group() as group:
                group.start_soon(partial(made.run, {"messages": human("How is tea made?")}, thread_id="t"))
                while not begun:
                    await checkpoint()
                made.halt()
    assert len(name.requests) == in_title
    async with SQLiteStore(tmp_path / "t.db") as store:
        fields = (await store.show("t")).fields
        assert (fields["title"], fields["title_by"]) == ("How is tea made?", "text")
        with ScriptedModel([] if in_title else ["fine"]) as talk, ScriptedModel([]) as name:
            made = Agent(turn(talk, name), state_schema=ThreadState, store=store)
            assert (await made.recover("t")).status is SUCCESS
    assert (made.state.title, made.state.title_by) == ("How is tea made?", "text")


async def test_a_failed_first_turn_has_a_title() -> None:
    """A first turn in which the model fails has a title of the person's text."""
    made = thread(turn(ScriptedModel([ModelUnavailableError("down", model="m")]), ScriptedModel([])))
    await run(made, human("Tea?"))
    assert made.state.title == "Tea?"


def test_two_titles_are_refused() -> None:
    """A thread has one title: a second node that gives it would do nothing, or ask in vain."""
    think = AgentLLMNode("think", model=ScriptedModel())
    with pytest.raises(SetupError) as caught:
        Agent(InOrder("main", memory=True, children=[think, Title("one"), Title("two")]), ThreadState)
    assert str(caught.value) == ("node 'main/one' (Title) and 'main/two' both give the thread its title: leave one out")


def test_a_tree_in_another_order_is_refused() -> None:
    """A title before the model that answers, or without one, or without a field for it, is refused."""
    think = AgentLLMNode("think", model=ScriptedModel())
    with pytest.raises(SetupError) as caught:
        Agent(InOrder("main", memory=True, children=[Title("title"), think]), ThreadState)
    assert str(caught.value) == (
        "node 'main/title' (Title) comes before 'main/think', whose work it uses: put it after that node"
    )
    with pytest.raises(SetupError, match=r"needs an AgentLLMNode in its tree: put AgentLLMNode\(...\) before it"):
        Agent(Title("title"), ThreadState)
    with pytest.raises(SetupError, match="needs the field messages, which TodosState lacks"):
        Agent(Title("title"), TodosState)
    with pytest.raises(SetupError, match=r'Title\("t", seconds=...\) takes seconds above 0'):
        Title("t", seconds=0)
