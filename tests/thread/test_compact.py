"""A request that does not grow: what is old is said in short, once, and the transcript stays whole."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint
from hypothesis import given, settings
from hypothesis import strategies as st
from py_trees.behaviours import Success
from pydantic import BaseModel

from jianmu.agent import Agent
from jianmu.engine.events import Token
from jianmu.engine.limits import Limits
from jianmu.engine.state import Clear, Remove
from jianmu.errors import BadRequestError, LimitExceeded, ModelUnavailableError, SetupError
from jianmu.message import ImagePart, Message, ai, human, system, tool_result
from jianmu.model import ScriptedModel
from jianmu.nodes import AgentLLMNode, ContextBudget, Reminders, Repeat
from jianmu.nodes.projections import tokens_of
from jianmu.prebuilt import ReActState
from jianmu.stores import SQLiteStore
from jianmu.testing import Turn
from jianmu.thread import Compact, PlanReminder, StateMessageStore, ThreadState
from jianmu.tool import tool
from tests.cases.leaves import SUCCESS, nothing_left
from tests.nodes.test_projections import MESSAGES, check_paired
from tests.thread.turns import asked, call, rounds, run, run_stored, thread

pytestmark = pytest.mark.anyio


def said(first: int, last: int) -> list[Message]:
    """Return messages of a person and the model by turns; `m1` is a person's."""
    made = {True: human, False: ai}
    return [made[number % 2 == 1](f"m{number}", id=f"m{number}") for number in range(first, last + 1)]


def told(summary: str, *, has_gap: bool = False) -> str:
    """Return the message in which a summary is told."""
    gap = "\n[Messages after that are left out.]" if has_gap else ""
    return f"<summary>\nWhat was said before, in short:\n{summary}{gap}\n</summary>"


LEFT_OUT = "<summary>\nEarlier messages of this conversation are left out.\n</summary>"


def compact(talk: ScriptedModel, memory: ScriptedModel | None, **options: Any) -> Compact:
    """Return a model node in a Compact of ten messages."""
    options = {"messages": 10, "tokens": None, **options}
    return Compact("compact", AgentLLMNode("think", model=talk), model=memory, **options)


async def request(memory: Sequence[Any], *talk: Message, **options: Any) -> tuple[list[str], Agent[Any]]:
    """Run one request on a conversation; return its texts, and the agent."""
    values = options.pop("values", {})
    with ScriptedModel(["fine"]) as model, ScriptedModel(memory) as memories:
        made = thread(compact(model, memories, **options))
        assert await run(made, *talk, **values) is SUCCESS
    assert [*made.state.messages[:-1]] == [*talk]
    return asked(model), made


# The summary


async def test_what_there_is_room_for_is_left_as_it_is() -> None:
    """Nobody is asked, and the request is the conversation."""
    sent, made = await request([], *said(1, 9), human("m10"))
    assert sent == [f"m{number}" for number in range(1, 11)]
    assert (made.state.summary_text, made.state.summary_upto) == (None, None)


async def test_the_oldest_messages_become_a_summary() -> None:
    """Half of what there is room for stays; the state has the whole transcript, and up to where the summary goes."""
    sent, made = await request(["They counted."], *said(1, 11))
    assert sent == [told("They counted."), "m7", "m8", "m9", "m10", "m11"]
    assert (made.state.summary_text, made.state.summary_upto) == ("They counted.", "m6")
    assert len(made.state.messages) == 12
    assert made.state.usage.requests == 2


async def test_a_summary_is_made_once_and_extended_when_as_much_has_come() -> None:
    """Within the room that is left nobody is asked; then what is new is added to what is remembered."""
    with ScriptedModel(["fine"] * 4) as talk, ScriptedModel(["First.", "First, second."]) as memory:
        made = thread(compact(talk, memory))
        await run(made, *said(1, 11))  # 7 to 11, and an answer
        await run(made, *said(13, 14))  # with its answer 9
        await run(made, human("m15"))  # 10, with its answer 11
        assert len(memory.requests) == 1
        assert asked(talk)[0] == told("First.")
        assert len(asked(talk)) == 11
        await run(made, human("m16"))
    assert made.state.summary_text == "First, second."
    (_, second) = [one.messages[1].text for one in memory.requests]
    assert second.startswith("<remembered>\nFirst.\n</remembered>\n<said>\nPerson: m7\n")
    assert "m6" not in second
    assert asked(talk) == [told("First, second."), "m14", "fine", "m15", "fine", "m16"]


async def test_what_the_model_that_remembers_is_shown() -> None:
    """Who said what, calls, results, names of files; long ones are cut, nothing is projected, no token is told."""
    talk = [
        human(["look", ImagePart(url="https://x.org/a.png")]),
        ai("hm", tool_calls=[call("1", "find", text="é" * 2000)]),
        tool_result("1", "r" * 5000),
        *said(1, 11),
    ]
    with ScriptedModel(["fine"]) as model, ScriptedModel(["Short."]) as memory:
        made = thread(Reminders("kind", compact(model, memory), remind="be kind"))
        async with made.stream({"messages": talk}) as events:
            heard = [event.path async for event in events if isinstance(event, Token)]
    lines = memory.requests[0].messages[1].text.splitlines()
    assert lines[:4] == ["<remembered>", "(nothing)", "</remembered>", "<said>"]
    assert lines[4:7] == ["Person: look", "Person: [image: https://x.org/a.png]", "Assistant: hm"]
    assert lines[7].startswith('Assistant: calls find {"text": "éé')
    assert (len(lines[7]) < 1100, len(lines[8]) < 2100, lines[8][:9]) == (True, True, "Result: r")
    assert (lines[9], lines[-2], lines[-1]) == ("Person: m1", "Assistant: m6", "</said>")
    assert "be kind" not in str(memory.requests)
    assert set(heard) == {"kind/compact/in order/think"}


async def test_tokens_are_counted_each_message_once() -> None:
    """`tokens` limits what `count` returns; a long conversation is not counted again in each round."""
    counted: list[str] = []

    def count(message: Message) -> int:
        counted.append(message.text)
        return 10

    @tool
    def work() -> str:
        """Work."""
        return "worked"

    calls = [call(str(number), "work") for number in range(5)]
    with ScriptedModel([*calls, "done"]) as model:
        node = Compact("compact", AgentLLMNode("think", model=model), model=ScriptedModel(), tokens=10_000, count=count)
        assert await run(thread(rounds(node, tools=[work])), *said(1, 501)) is SUCCESS
    assert len(counted) == 501 + 10
    sent, _ = await request(["Short."], *said(1, 11), messages=None, tokens=100, count=lambda _: 10, keep=0.3)
    assert sent == [told("Short."), "m9", "m10", "m11"]


async def test_a_message_that_was_edited_is_counted_anew() -> None:
    """Edited in place between two runs, wherever it stands: the request is as small as that of another program."""
    for place in ("m1", "m3", "m5"):
        model, memory = ScriptedModel(["fine"] * 2), ScriptedModel(["Short."] * 9)
        made = thread(compact(model, memory, messages=None, tokens=200))
        assert await run(made, *said(1, 5)) is SUCCESS
        StateMessageStore(made.state_manager).edit(place, content="word " * 200)
        assert await run(made, human("m7")) is SUCCESS
        assert memory.requests
        assert sum(map(tokens_of, model.requests[1].messages)) <= 200
    with ScriptedModel(["fine"] * 2) as model, ScriptedModel([]) as memory:
        made = thread(compact(model, memory, messages=None, tokens=200))
        assert await run(made, human("word " * 150, id="long"), *said(2, 3)) is SUCCESS
        StateMessageStore(made.state_manager).edit("long", content="short")
        assert await run(made, human("word " * 80)) is SUCCESS
    assert asked(model)[:3] == ["short", "m2", "m3"]


@pytest.mark.parametrize("keep", [0.1, 0.5, 1.0])
@pytest.mark.parametrize("before", [None, "old " * 5000])
async def test_a_long_summary_has_a_quarter_of_the_tokens(keep: float, before: str | None) -> None:
    """Whatever the model writes, or has written: the request has room for it, and nobody is asked in each round."""
    answers: list[Any] = [lambda request: "S " * 30_000] * 20
    model, memory = ScriptedModel(["fine"] * 21), ScriptedModel(answers)
    made = thread(compact(model, memory, messages=None, tokens=600, keep=keep))
    await run(made, human("zero", id="m0"), summary_text=before, summary_upto=before and "m0")
    for number in range(20):
        assert await run(made, human(f"{number} " * 80)) is SUCCESS
    for sent in model.requests:
        added = [one for one in sent.messages if one.text.startswith("<summary>")]
        assert sum(map(tokens_of, sent.messages)) <= 600 + 20  # the words around the summary
        assert sum(map(tokens_of, added)) <= 150 + 20
    assert len(added) == 1
    assert 2 <= len(memory.requests) <= 11
    assert "At most 75 words" in memory.requests[0].messages[0].text


# What always stays


async def test_the_newest_message_of_a_person_stays() -> None:
    """In a turn of many rounds it is the oldest: it stays, after the summary; calls stay with their results."""

    @tool
    def work() -> str:
        """Work."""
        return "worked"

    calls = [[call(f"{number}a", "work"), call(f"{number}b", "work")] for number in range(5)]
    with ScriptedModel([*calls, "done"]) as model, ScriptedModel(["One.", "Two."]) as memory:
        made = thread(rounds(compact(model, memory, messages=6), tools=[work]))
        assert await run(made, human("do it")) is SUCCESS
    assert asked(model) == [told("Two."), "do it", *["ai(work work)", "worked", "worked"] * 2]
    for one in model.requests:
        check_paired(one.messages)
    assert len(made.state.messages) == 17
    assert made.state.summary_upto == made.state.messages[9].id


async def test_the_newest_reply_stays_with_its_results() -> None:
    """Also when it alone is more than there is room for."""
    talk = [
        *said(1, 3),
        ai(tool_calls=[call("1", "work"), call("2", "work")]),
        tool_result("1", "a"),
        tool_result("2", "b"),
    ]
    sent, _ = await request(["Short.", "Shorter."], *talk, messages=2)
    assert sent == [told("Shorter."), "m3", "ai(work work)", "a", "b"]


async def test_system_messages_and_what_projections_add_stay() -> None:
    """A system prompt, a system message in the middle and reminders stay, in their order."""
    with ScriptedModel(["fine"]) as model, ScriptedModel(["Sh", "Short."]) as memory:
        think = Reminders("kind", AgentLLMNode("think", model=model, system="rules"), remind="be kind")
        made = thread(Compact("compact", think, model=memory, messages=4, tokens=None))
        assert await run(made, *said(1, 2), system("more rules"), *said(3, 6), human("m7")) is SUCCESS
    assert asked(model) == ["rules", "more rules", told("Short."), "m6", "m7", "<reminder>\nbe kind\n</reminder>"]


async def test_the_plan_comes_back_when_it_is_summarised() -> None:
    """Todos, promoted tools and images are not touched; open items are told again, whichever projection is nearer."""
    plan = [{"content": "x", "status": "pending"}]
    talk = [ai(tool_calls=[call("1", "write_todos", todos=plan)]), tool_result("1", "ok"), *said(1, 11)]
    for is_inside in (True, False):
        with ScriptedModel(["fine"]) as model, ScriptedModel(["Short."]) as memory:
            think = AgentLLMNode("think", model=model)
            tree = (
                Compact("c", PlanReminder("plan", think), model=memory, messages=10)
                if is_inside
                else PlanReminder("plan", Compact("c", think, model=memory, messages=10))
            )
            made = thread(tree)
            assert await run(made, *talk, todos=plan, promoted={"catalog_hash": "h", "names": ["a"]}) is SUCCESS
        assert asked(model)[0] == told("Short.")
        assert "- [pending] x" in asked(model)[-1]
        assert made.state.promoted.names == ("a",)


# What goes wrong

BROKEN: list[Any] = [
    ModelUnavailableError("down", model="m"), BadRequestError("no key", model="m"), RuntimeError("a bug"), "<think>no"
]  # fmt: skip


@pytest.mark.parametrize("reply", BROKEN)
async def test_without_a_summary_the_oldest_are_cut(reply: Any) -> None:
    """Whatever is wrong with the model, the run goes on, with as many messages as there is room for."""
    sent, made = await request([reply], *said(1, 21))
    assert sent == [LEFT_OUT, *(f"m{number}" for number in range(12, 22))]
    assert (made.state.summary_text, made.state.repeats) == (None, {"compact:failed": 1})


async def test_a_run_asks_in_vain_twice_and_the_next_one_asks_again() -> None:
    """After two failures in a run nobody is asked any more; what was remembered is still told."""
    down = ModelUnavailableError("down", model="m")
    with ScriptedModel(["fine"] * 4) as talk, ScriptedModel([down, down, "New."]) as memory:
        made = thread(Repeat("again", compact(talk, memory), times=3))
        assert await run(made, *said(1, 21), summary_text="Old.", summary_upto="m4") is SUCCESS
        assert made.state.repeats == {"compact:failed": 2}
        assert (len(memory.requests), asked(talk)[0], len(asked(talk))) == (2, told("Old.", has_gap=True), 11)
        made = thread(compact(talk, memory))
        assert await run(made, *said(1, 15), summary_text="Old.", summary_upto="m4") is SUCCESS
    assert asked(talk)[0] == told("New.")


async def test_a_run_that_may_ask_no_more_is_cut() -> None:
    """A limit of the run is no error of the summary: the model node says so, when it may not ask either."""
    with ScriptedModel([]) as talk, ScriptedModel([]) as memory:
        made = thread(compact(talk, memory), limits=Limits(requests=0))
        with pytest.raises(LimitExceeded) as caught:
            await run(made, *said(1, 11))
    assert caught.value.path == "compact/in order/think"


async def test_a_slow_model_is_not_waited_for() -> None:
    """After `seconds` its request is ended."""
    sent, made = await request([Turn("late", delay=3600)], *said(1, 11), seconds=3)
    assert sent[0] == LEFT_OUT
    assert made.state.summary_text is None


async def test_without_a_model_the_oldest_are_cut() -> None:
    """`model=None` summarises nothing."""
    with ScriptedModel(["fine"]) as talk:
        made = thread(compact(talk, None, messages=2))
        assert await run(made, *said(1, 5)) is SUCCESS
    assert asked(talk) == [LEFT_OUT, "m4", "m5"]


# The watermark


async def test_a_summary_of_messages_that_are_gone_is_void() -> None:
    """The conversation was cleared, or its last message taken out: what is there is all there is, and is read anew."""
    with ScriptedModel(["fine"] * 3) as talk, ScriptedModel(["One.", "Two."]) as memory:
        made = thread(compact(talk, memory))
        await run(made, *said(1, 11))
        made.state_manager.update({"messages": Remove("m6")})
        await run(made, human("m13"))
        assert "<remembered>\n(nothing)\n</remembered>\n<said>\nPerson: m1\n" in memory.requests[1].messages[1].text
        assert asked(talk)[0] == told("Two.")
        made.state_manager.update({"messages": Clear()})
        await run(made, human("anew"))
    assert asked(talk) == ["anew"]


async def test_a_summary_that_came_from_elsewhere_is_told() -> None:
    """Without a last message it holds none of these; a watermark without a summary counts for nothing."""
    sent, _ = await request([], *said(1, 3), values={"summary_text": "They met before."})
    assert sent == [told("They met before."), "m1", "m2", "m3"]
    sent, _ = await request([], *said(1, 3), values={"summary_upto": "m2"})
    assert sent == ["m1", "m2", "m3"]


async def test_a_long_thread_is_read_in_pieces_and_goes_on_after_a_restart(tmp_path: Path) -> None:
    """A hundred messages at once: each piece is read once, also when the program ends in the midst of it."""
    memory = ScriptedModel(["1", "2", Turn("late", delay=3600)])
    async with SQLiteStore(tmp_path / "t.db") as store:
        made: Agent[Any] = Agent(compact(ScriptedModel([]), memory, seconds=7200), ThreadState, store=store)
        with anyio.fail_after(20), nothing_left(made):
            async with anyio.create_task_group() as group:
                group.start_soon(partial(made.run, {"messages": said(1, 101)}, thread_id="t"))
                while len(memory.requests) < 3:
                    await checkpoint()
                group.cancel_scope.cancel()
    async with SQLiteStore(tmp_path / "t.db") as store:
        fields = (await store.show("t")).fields
        assert (fields["summary_text"], fields["summary_upto"]) == ("2", "m20")
        with ScriptedModel(["fine"]) as talk, ScriptedModel([str(number) for number in range(3, 11)]) as rest:
            made = Agent(compact(talk, rest), ThreadState, store=store)
            assert (await made.recover("t")).status is SUCCESS
    read = [one.messages[1].text for one in (*memory.requests[:2], *rest.requests)]
    lines = [line for text in read for line in text.splitlines() if ": m" in line]
    assert [line.rpartition(" ")[2] for line in lines] == [f"m{number}" for number in range(1, 97)]
    assert asked(talk) == [told("10"), *(f"m{number}" for number in range(97, 102))]
    with ScriptedModel(["fine"]) as talk, ScriptedModel([]) as rest:
        made = await run_stored(tmp_path / "t.db", compact(talk, rest), human("and?"))
    assert asked(talk)[0] == told("10")
    assert len(made.state.messages) == 104


async def test_a_budget_that_stands_nearer_changes_nothing() -> None:
    """Where another projection has cut more than the summary holds, the summary stands before what is left."""
    with ScriptedModel(["fine"]) as talk, ScriptedModel(["Short."]) as memory:
        inner = ContextBudget("budget", AgentLLMNode("think", model=talk), messages=2)
        made = thread(Compact("compact", inner, model=memory, messages=10, tokens=None))
        assert await run(made, *said(1, 11)) is SUCCESS
    assert asked(talk)[0] == told("Short.")
    assert asked(talk)[-2:] == ["m10", "m11"]


@settings(max_examples=60)
@given(st.lists(MESSAGES, max_size=14), st.integers(1, 6), st.sampled_from([0.3, 0.5, 1.0]), st.booleans())
def test_whatever_the_conversation_is_the_request_can_be_sent(
    messages: list[Message], most: int, keep: float, fails: bool
) -> None:
    """Calls are paired, the newest message of a person and all system messages are in it, nothing is there twice."""
    answers: list[Any] = [ModelUnavailableError("down", model="m") if fails else "Short."] * 40
    model, memory = ScriptedModel(["fine"]), ScriptedModel(answers)
    made = Agent(compact(model, memory, messages=most, keep=keep), ThreadState)
    made.run_sync({"messages": messages})
    sent = model.requests[0].messages
    check_paired(sent)
    people = [one for one in messages if one.role == "human"]
    assert not people or people[-1] in sent
    assert [one for one in messages if one.role == "system"] == [one for one in sent if one.role == "system"]
    assert len({one.id for one in sent}) == len(sent)
    assert [*made.state.messages[:-1]] == messages
    order = [one.id for one in messages]
    kept = [order.index(one.id) for one in sent if one.id in order and one.role != "tool"]
    assert kept == sorted(kept) or any(one.role == "system" for one in sent)


# What is refused


def test_trees_and_options_that_cannot_work_are_refused() -> None:
    """It needs a model below it, the fields, and options that are numbers."""

    def refusal(root: Any, schema: type[BaseModel] = ThreadState) -> str:
        with pytest.raises(SetupError) as caught:
            Agent(root, schema)
        return str(caught.value)

    def think() -> AgentLLMNode:
        return AgentLLMNode("think", model=ScriptedModel())

    assert "needs the field summary_text, which ReActState lacks: class ReActState(SummaryState" in refusal(
        Compact("compact", think(), model=None), ReActState
    )
    assert refusal(Compact("compact", Success("leaf"), model=None)) == (
        "node 'compact' (Compact) needs an AgentLLMNode below it: write "
        'Compact("compact", AgentLLMNode(...), model=...)'
    )
    assert refusal(Compact("outer", Compact("inner", think(), model=None), model=None)) == (
        "node 'outer/in order/inner' (Compact) stands below 'outer', and the conversation would be summarised twice: "
        "leave one out"
    )
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"messages": 0}, "a whole number from 1 up"),
        ({"tokens": 1.5}, "a whole number from 1 up"),
        ({"keep": 0}, "a number above 0, up to 1"),
        ({"seconds": 0}, "seconds above 0"),
    ]
    for option, wanted in wrong:
        with pytest.raises(SetupError, match=rf'Compact\("c", child, {next(iter(option))}=...\) takes {wanted}'):
            Compact("c", think(), model=None, **option)
    with pytest.raises(SetupError, match=r'Compact\("c", child\) limits nothing: give messages=... or tokens=...'):
        Compact("c", think(), model=None, tokens=None)
    with pytest.raises(SetupError, match=r'Compact\("c", child, count=...\) takes a function, not 7'):
        Compact("c", think(), model=None, count=7)  # pyright: ignore[reportArgumentType]  # a user's mistake
