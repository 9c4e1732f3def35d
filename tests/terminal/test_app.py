"""The chat on a screen without a terminal; textual runs on asyncio alone."""

from __future__ import annotations

import operator
import re
from typing import Annotated, Any

import anyio
import pytest
from inline_snapshot import snapshot
from pydantic import BaseModel, Field
from textual.widgets import Button, Input, RadioSet, TextArea

from jianmu import Approve
from jianmu.engine.events import Retried, Token
from jianmu.engine.interaction import Answer, Approval
from jianmu.engine.request import Request
from jianmu.message import Message, human, tool_result
from jianmu.stores import MemoryStore
from jianmu.terminal.assistant import scripted_agent
from jianmu.terminal.conversation import Conversation
from jianmu.terminal.views import SHOWN, BlockView, CallView, ReplyView, ThoughtView
from jianmu.thread import ThreadState
from jianmu.tool.types import ToolCall
from tests.house import ROOT
from tests.pages import blocks
from tests.terminal.kit import Says, agent_of, echo, endless, screen_of, until

pytestmark = pytest.mark.anyio

CALL = ToolCall(id="c1", name="pay", arguments={"amount": 40, "to": "Ada"})


@pytest.fixture
def anyio_backend() -> str:
    """What textual runs on."""
    return "asyncio"


async def reply(node: Says) -> None:
    """Reply in Markdown."""
    text = "# Title\n\nSome *words* and:\n\n- one\n- two\n\n```python\nx = 1\n```\n"
    node.stream(*re.findall(r"\S+\s*", text))
    node.say(text)


async def paying(node: Says) -> None:
    """Have a call approved, and say what came of it."""

    def speak() -> None:
        node.say("I will pay.", tool_calls=[CALL])

    await node.once("speak", speak, effect=False)
    data = {"tool": "pay", "arguments": CALL.arguments}
    request = Request(
        "May 'pay' be called?",
        answer=Approval,
        reason="approval",
        key="pay",
        data=data,
        tool_call_id="c1",
        metadata={"remembers": "tool"},
    )
    given = await node.ask(request, key="pay")
    done = f"{given.approved} {given.edited_args} {given.reason} {given.remember}"
    node.write_state({"messages": [tool_result("c1", done, is_error=not given.approved)]})


def asking(kind: Any, message: str = "What is it?") -> Any:
    """Return what asks something and replies with the answer."""

    async def ask(node: Says) -> None:
        node.say(repr(await node.ask(Request(message, answer=kind), key="k")))

    return ask


async def test_a_turn_on_a_small_screen() -> None:
    """What was said, the reply as Markdown, and where to type."""
    async with screen_of(agent_of(reply)) as screen:
        await screen.say("hi")
        assert screen.text == snapshot("""\
 ▌ hi
  Title
  Some words and:
  • one
  • two
    x = 1
╭──────────────────────────────────────────────────────────────────────────────╮
│ Say something; Enter sends, F1 shows the keys                                │
╰──────────────────────────────────────────────────────────────────────────────╯
 ● ready  ·  t1
 ^c Stop  ^q Quit  ^t Tree  ^r Question  ^g Go on  ^o Threads  ^n New  f1 Keys\
""")


async def test_a_turn_on_a_large_screen() -> None:
    """The tree and the state stand beside it."""
    async with screen_of(agent_of(reply), size=(120, 24)) as screen:
        await screen.say("hi")
        assert screen.text == snapshot("""\
                                                                            ▊ tree
                                                                            ▊ ✓ says (Says)
                                                                            ▊
                                                                            ▊
                                                                            ▊
                                                                            ▊
 ▌ hi                                                                       ▊
                                                                            ▊
  Title                                                                     ▊
                                                                            ▊
  Some words and:                                                           ▊
                                                                            ▊
  • one                                                                     ▊ state
  • two                                                                     ▊ messages: 2 messages
                                                                            ▊
                                                                            ▊
    x = 1                                                                   ▊
                                                                            ▊
                                                                            ▊
╭──────────────────────────────────────────────────────────────────────────────────────────────────────────────────────╮
│ Say something; Enter sends, F1 shows the keys                                                                        │
╰──────────────────────────────────────────────────────────────────────────────────────────────────────────────────────╯
 ● ready  ·  t1
 ^c Stop  ^q Quit  ^t Tree  ^r Question  ^g Go on  ^o Threads  ^n New  f1 Keys\
""")


async def test_an_approval() -> None:
    """The dialog has the arguments, and leaves the conversation in sight."""
    async with screen_of(agent_of(paying), size=(80, 30)) as screen:
        await screen.say("pay Ada")
        assert screen.text == snapshot("""\
╭──────────────────────────────────────────────────────────────────────────────╮
│ May 'pay' be called?                                                         │
│ asked by says                                                                │
│ its arguments, which you may edit:                                           │
│ ▊▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▎ │
│ ▊ {                                                                        ▎ │
│ ▊   "amount": 40,                                                          ▎ │
│ ▊   "to": "Ada"                                                            ▎ │
│ ▊ }                                                                        ▎ │
│ ▊▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▎ │
│ a message, if you reject it                                                  │
│ ▐ ▌ Do not ask for this tool again in this thread                            │
│                                                                              │
│     Approve            Reject                                                │
╰──────────────────────────────────────────────────────────────────────────────╯
 ▌ pay Ada
  I will pay.
  ? pay  amount=40, to="Ada"  waits for your approval (Ctrl-R)
╭──────────────────────────────────────────────────────────────────────────────╮
│ Say something; Enter sends, F1 shows the keys                                │
╰──────────────────────────────────────────────────────────────────────────────╯
 ? 1 question waits  ·  t1
 tab Choose  ^c Stop the turn  esc Later  ^y Approve\
""")


async def test_approving_with_other_arguments() -> None:
    """What is no JSON object is refused in the dialog; what is one goes to the tool instead."""
    async with screen_of(agent_of(paying)) as screen:
        await screen.say("pay")
        area = screen.app.screen.query_one("#arguments", TextArea)
        area.text = '{"amount": 1'
        await screen.press("ctrl+y")
        assert screen.shows("not JSON: Expecting ',' delimiter (line 1, column 13)")
        area.text = "[]"
        await screen.press("ctrl+y")
        assert screen.shows("arguments are a JSON object, {...}")
        area.text = '{"amount": 1}'
        await screen.press("ctrl+y")
        await until(lambda: not screen.talk.is_on)
        await screen.look()
        assert screen.shows("│ True {'amount': 1} None False")


async def test_rejecting_with_a_message() -> None:
    """Tab goes through the dialog; Enter after the message rejects."""
    async with screen_of(agent_of(paying)) as screen:
        await screen.say("pay")
        screen.app.screen.query_one("#reason", Input).focus()
        screen.app.screen.query_one("#reason", Input).value = "too much"
        await screen.press("tab", "space")
        screen.app.screen.query_one("#reject", Button).press()
        await until(lambda: not screen.talk.is_on)
        await screen.look()
        assert screen.shows("✗ pay")
        assert screen.shows("│ False None too much True")


async def test_the_page_shows_what_is_shown() -> None:
    """The screen in the page about the chat is the one of the scripted assistant at an approval."""
    (page,) = [block.code for block in blocks(ROOT / "docs/concepts/chat.md") if "--thread t1" in block.info]
    async with screen_of(scripted_agent(0.0), size=(80, 26)) as screen:
        await screen.say("note: buy milk")
        assert screen.text + "\n" == page


async def test_a_question_waits_until_somebody_turns_to_it() -> None:
    """Keys meant for the prompt answer nothing; Escape, Ctrl-R and Ctrl-Y do; other spaces are no other arguments."""
    async with screen_of(agent_of(paying)) as screen:
        await screen.say("pay")
        await screen.press("enter", "y", "space", "enter")
        assert screen.talk.questions
        assert screen.app.screen.focused is None
        await screen.press("escape")
        assert screen.shows('? pay  amount=40, to="Ada"  waits for your approval (Ctrl-R)')
        assert screen.shows("? 1 question waits")
        await screen.press("ctrl+r")
        screen.app.screen.query_one("#arguments", TextArea).text = '{"to": "Ada", "amount": 40}'
        await screen.press("ctrl+y")
        await until(lambda: not screen.talk.is_on)
        await screen.look()
        assert screen.shows("✓ pay")
        assert screen.shows("│ True None None False")


async def test_a_question_that_is_answered_elsewhere_goes_away() -> None:
    """The dialog closes when its question has ended."""
    async with screen_of(agent_of(paying)) as screen:
        await screen.say("pay")
        await screen.talk.agent.interaction.answer(Answer(None, True))
        await until(lambda: not screen.talk.is_on)
        await screen.look()
        assert not screen.shows("Approve")
        assert screen.shows("✓ pay")


async def test_ctrl_c_in_a_dialog_stops_the_turn() -> None:
    """The question stays open until the next message."""
    async with screen_of(agent_of(paying)) as screen:
        await screen.say("pay")
        await screen.press("ctrl+c")
        await until(lambda: not screen.talk.is_on)
        await screen.look()
        assert screen.shows("Stopped.")
        assert not screen.shows("Approve")
        assert screen.shows("● ready")


async def test_an_approval_of_a_node_shows_what_it_is_for() -> None:
    """Where there is no call, its data are shown, and nothing is offered that nobody would remember."""
    tree = Approve("pay?", Says(echo), message="Pay?", show=lambda _: {"amount": 40})
    async with screen_of(agent_of(tree)) as screen:
        await screen.say("hi")
        assert screen.shows('"amount": 40')
        assert not screen.shows("Do not ask")
        screen.app.screen.query_one("#reject", Button).press()
        await until(lambda: not screen.talk.is_on)
        await screen.look()
        assert screen.shows("? Pay?  answered: rejected")
        assert screen.shows("The turn failed at 'pay?': rejected")


async def test_a_long_question_leaves_its_buttons_in_sight() -> None:
    """On a small screen too; the question scrolls."""
    text = "Which one of these many? " * 50
    async with screen_of(agent_of(asking({"enum": list(range(50))}, message=text)), size=(40, 12)) as screen:
        await screen.say("choose")
        assert screen.shows("Answer")
        assert screen.shows("Which one of these many?")


class Order(BaseModel):
    """An answer of several parts."""

    name: str
    is_gift: bool
    count: int = 1


async def test_a_form() -> None:
    """A field for each part; what is wrong is told at the foot."""
    async with screen_of(agent_of(asking(Order)), size=(80, 24)) as screen:
        await screen.say("order")
        await screen.press("tab", *"tea", "ctrl+y")
        assert screen.text == snapshot("""\
╭──────────────────────────────────────────────────────────────────────────────╮
│ What is it?                                                                  │
│ asked by says                                                                │
│ Name                                                                         │
│ tea                                                                          │
│ Is Gift                                                                      │
│ ▐ ▌ yes                                                                      │
│ ▐ ▌ no                                                                       │
│ Count (may be left out)                                                      │
│ 1                                                                            │
│ Is Gift: choose yes or no                                                    │
│      Answer           Decline                                                │
╰──────────────────────────────────────────────────────────────────────────────╯
 ▌ order
  ? What is it?  waits for an answer (Ctrl-R)
╭──────────────────────────────────────────────────────────────────────────────╮
│ Say something; Enter sends, F1 shows the keys                                │
╰──────────────────────────────────────────────────────────────────────────────╯
 ? 1 question waits  ·  t1
 ^c Stop the turn  tab Choose  esc Later  ^y Answer\
""")
        await screen.press("tab", "space", "tab", "backspace", *"two", "enter")
        assert screen.shows("Count: type a whole number")
        await screen.press("backspace", "backspace", "backspace", "2", "enter")
        await until(lambda: not screen.talk.is_on)
        await screen.look()
        assert screen.shows("Order(name='tea', is_gift=True, count=2)")


async def test_a_choice() -> None:
    """One of several, with the keys."""
    async with screen_of(agent_of(asking({"enum": ["red", "green"]}))) as screen:
        await screen.say("choose")
        await screen.press("ctrl+y")
        assert screen.shows("choose one")
        await screen.press("tab", "down", "space")
        assert screen.app.screen.query_one(RadioSet).pressed_index == 1
        await screen.press("ctrl+y")
        await until(lambda: not screen.talk.is_on)
        await screen.look()
        assert screen.shows("? What is it?  answered: green")


async def test_an_empty_text_is_sent_at_the_second_time_only() -> None:
    """Enter that was meant for something else answers nothing."""
    async with screen_of(agent_of(asking(str))) as screen:
        await screen.say("ask")
        await screen.press("tab", "enter")
        assert screen.shows("nothing was typed: once more sends it so")
        await screen.press("enter")
        await until(lambda: not screen.talk.is_on)
        await screen.look()
        assert screen.talk.agent.state.messages[-1].text == "''"


async def test_what_was_wrong_is_said_until_something_is_changed() -> None:
    """It stays while nothing is done, and goes with the first letter."""
    async with screen_of(agent_of(asking(str))) as screen:
        await screen.say("ask")
        await screen.press("tab", "enter")
        assert screen.shows("nothing was typed")
        await screen.press("x")
        assert not screen.shows("nothing was typed")


async def test_a_question_of_another_shape_is_answered_with_json() -> None:
    """Data and address are shown; one may decline to answer."""
    more = {"data": {"list": [1]}, "url": "https://example.org/x"}

    async def ask(node: Says) -> None:
        found = await node.ask(Request("What is it?", answer=list[int], **more), key="one")
        await node.ask(Request(f"And beside {found}?"), key="two")

    async with screen_of(agent_of(ask)) as screen:
        await screen.say("list")
        assert screen.shows("Answer it there, then say so here: https://example.org/x")
        assert screen.shows('"list": [')
        screen.app.screen.query_one("#field-0", TextArea).text = '["a"]'
        await screen.press("ctrl+y")
        assert screen.shows("at 0: ")
        screen.app.screen.query_one("#field-0", TextArea).text = "[2]"
        await screen.press("ctrl+y")
        await until(lambda: screen.talk.questions)
        await screen.look()
        assert screen.shows("And beside [2]?")
        screen.app.screen.query_one("#decline", Button).press()
        await until(lambda: not screen.talk.is_on)
        await screen.look()
        assert screen.shows("answered: decline")


async def test_ctrl_c_stops_what_is_streamed() -> None:
    """The prompt stays usable, and a second turn waits for the first."""
    node = Says(endless)
    async with screen_of(agent_of(node)) as screen:
        screen.prompt.text = "hi"
        await screen.press("enter")
        await until(lambda: len(screen.talk.transcript.blocks) == 2 or screen.talk.drain())
        screen.prompt.text = "more"
        await screen.press("enter")
        assert screen.prompt.text == "more"
        await screen.press("ctrl+c")
        await until(lambda: not screen.talk.is_on)
        await screen.look()
        assert screen.shows("Well, let me think")
        assert screen.shows("Stopped. What the model was saying is not part of the conversation.")
        node.script = echo
        await screen.press("enter")
        await until(lambda: not screen.talk.is_on)
        await screen.look()
        assert screen.shows("You said: ")


async def test_ctrl_c_quits_at_the_second_time_only() -> None:
    """Where nothing is going on."""
    async with screen_of(agent_of()) as screen:
        await screen.press("ctrl+c")
        assert screen.app.is_running
        await screen.press("ctrl+c")
        assert screen.app._exit  # textual tells it nowhere else


async def test_quitting_ends_the_turn() -> None:
    """Nothing of it is alive when the chat is gone."""
    async with screen_of(agent_of(endless)) as screen:
        screen.prompt.text = "hi"
        await screen.press("enter")
        await until(lambda: screen.talk.is_on)
        await screen.press("ctrl+q")
        await until(lambda: not screen.talk.is_on)


async def test_a_refused_message_comes_back_to_the_prompt() -> None:
    """A thread that somebody else works on; the text is not lost."""
    store = MemoryStore()
    other = agent_of(endless, store=store)
    async with anyio.create_task_group() as group:

        async def hold() -> None:
            await other.run({"messages": []}, thread_id="t1")

        group.start_soon(hold)
        await until(lambda: other.root.status.name == "RUNNING")
        async with screen_of(agent_of(store=store), "t1") as screen:
            assert screen.shows("Another program is at work on this thread.")
            await screen.say("hello")
            assert screen.shows("ThreadBusyError: thread 't1' is held by")
            assert screen.prompt.text == "hello"
        other.halt()


async def test_a_thread_whose_question_waits_in_another_program_says_so() -> None:
    """No question is shown as if it could be answered here; Ctrl-R looks again, and goes on when it is free."""
    store = MemoryStore()
    other = Conversation(agent_of(paying, store=store), "t1")
    async with anyio.create_task_group() as group:
        group.start_soon(other.send, "pay")
        await until(lambda: other.questions)
        async with screen_of(agent_of(paying, store=store), "t1") as screen:
            assert screen.shows("■ another program has this thread")
            await screen.say("hello")
            assert not screen.shows("waits for")
            assert screen.shows("· pay")
            assert screen.shows("■ another program has this thread")
            await screen.press("ctrl+r")
            assert screen.notices == ["Still held by another program."]
            other.leave()
            await until(lambda: not other.is_on)
            await screen.press("ctrl+r")
            await until(lambda: screen.talk.questions)
            await screen.look()
            assert screen.shows("May 'pay' be called?")


async def test_who_sends_while_a_question_waits_is_told_of_it() -> None:
    """It was put off; a message, another thread and a new one have to wait."""
    async with screen_of(agent_of(paying, store=MemoryStore())) as screen:
        await screen.say("pay")
        await screen.press("escape")
        for keys in ("enter", "ctrl+o", "ctrl+n"):
            screen.app.clear_notifications()
            screen.prompt.text = "more"
            await screen.press(keys)
            assert screen.notices == ["A question waits: Ctrl-R."]
        assert screen.prompt.text == "more"


async def test_a_question_whose_turn_was_stopped_waits_no_more() -> None:
    """What can be done is said; Ctrl-G asks it again."""
    async with screen_of(agent_of(asking(str), store=MemoryStore())) as screen:
        await screen.say("ask")
        await screen.press("ctrl+c")
        await until(lambda: not screen.talk.is_on)
        await screen.look()
        assert screen.shows("? What is it?  not answered")
        assert screen.shows("Ctrl-G goes on with")
        await screen.press("ctrl+g")
        await until(lambda: screen.talk.questions)
        await screen.press("escape")
        assert screen.shows("? What is it?  waits for an answer (Ctrl-R)")


async def test_threads_can_be_chosen() -> None:
    """A new one, and back to the first."""
    async with screen_of(agent_of(store=MemoryStore())) as screen:
        await screen.say("one")
        await screen.press("ctrl+n")
        assert not screen.shows("You said: one")
        await screen.say("two")
        await screen.press("ctrl+o")
        assert screen.shows("  t1 ")
        await screen.press("down", "down", "enter")
        assert screen.shows("You said: one")
        assert screen.talk.thread_id == "t1"
        await screen.press("ctrl+o", "enter")
        assert screen.talk.is_new
        await screen.press("ctrl+o", "escape")
        assert screen.talk.is_new


async def test_threads_are_listed_by_their_titles() -> None:
    """Where the state has one; one that is too long is cut, and what a terminal would obey is written out."""
    store = MemoryStore()
    titles = {"a": "Taxes 2026", "b": "no\x1b[2J\nmore", "c": "长" * 40, "d": None}
    for id, title in titles.items():
        await agent_of(schema=ThreadState, store=store).run({"title": title, "messages": [human(id)]}, thread_id=id)
    async with screen_of(agent_of(schema=ThreadState, store=store), "now") as screen:
        await screen.press("ctrl+o")
        assert screen.text.split("╯")[0] == snapshot("""\
╭──────────────────────────────────────────────────────────────────────────────╮
│ Threads                                                                      │
│ a new thread                                                                 │
│   d                                                finished    just now      │
│   长长长长长长长长长长长长长长长长长长长长长长长…  finished    just now      │
│   no\\x1b[2J more                                   finished    just now      │
│   Taxes 2026                                       finished    just now      │
╰──────────────────────────────────────────────────────────────────────────────\
""")
        await screen.press("down", "down", "down", "down", "enter")
        assert screen.talk.thread_id == "a"


async def test_a_thread_that_waits_is_gone_on_with_when_it_is_opened() -> None:
    """Its question comes up again."""
    store = MemoryStore()
    await agent_of(paying, store=store).run_until_suspend({"messages": []}, thread_id="t1")
    async with screen_of(agent_of(paying, store=store), "t1") as screen:
        await until(lambda: screen.talk.questions)
        await screen.look()
        assert screen.shows("May 'pay' be called?")


async def test_ctrl_g_goes_on_with_what_was_cut_short() -> None:
    """And says so where there is nothing to go on with."""
    store, node = MemoryStore(), Says(endless)
    async with screen_of(agent_of(node, store=store)) as screen:
        screen.prompt.text = "hi"
        await screen.press("enter")
        await until(lambda: len(screen.talk.transcript.blocks) == 2 or screen.talk.drain())
        await screen.press("ctrl+c")
        await until(lambda: not screen.talk.is_on)
        node.script = echo
        await screen.press("ctrl+g")
        await until(lambda: not screen.talk.is_on)
        await screen.look()
        assert screen.shows("You said: ")
        await screen.press("ctrl+g")
        await until(lambda: not screen.talk.is_on)
        await screen.look()
        assert screen.shows("There is nothing to go on with.")


async def test_the_panes_come_and_go() -> None:
    """Beside the conversation where there is room, else in its place; the prompt stays."""
    async with screen_of(agent_of()) as screen:
        await screen.say("hi")
        await screen.press("ctrl+t")
        assert screen.shows("✓ says (Says)")
        assert not screen.shows("You said")
        assert screen.shows("Say something")
        await screen.pilot.resize_terminal(120, 24)
        await screen.look()
        assert screen.shows("✓ says (Says)")
        assert screen.shows("You said")
        await screen.press("ctrl+t")
        assert not screen.shows("✓ says (Says)")


async def test_a_long_result_is_opened_with_enter() -> None:
    """A few lines are shown first; the arguments become JSON."""

    async def act(node: Says) -> None:
        node.say("", tool_calls=[CALL])
        node.write_state({"messages": [tool_result("c1", "\n".join(f"line {number}" for number in range(9)))]})

    async with screen_of(agent_of(act), size=(80, 40)) as screen:
        await screen.say("pay")
        assert screen.shows('✓ pay  amount=40, to="Ada"')
        assert screen.shows("│ … 3 more lines: Enter or a click opens it")
        screen.app.query_one(CallView).focus()
        await screen.press("enter")
        assert screen.shows("│ line 8")
        assert screen.shows('"to": "Ada"')


async def test_what_a_model_thinks_is_a_line_that_can_be_opened() -> None:
    """While it thinks the last words, then how much it was; of an attempt that failed nothing."""

    async def think(node: Says) -> None:
        for text in ("Well.\n\n", "It may be ", "that 6 * 7\x1b[2J ", "is 42."):
            node.context.emit(Token(text=text, kind="reasoning"))
        await node.gate.wait()
        node.stream("42")
        node.say("42")

    agent = agent_of(think)
    async with screen_of(agent) as screen:
        screen.prompt.text = "6 * 7?"
        await screen.press("enter")
        await until(lambda: screen.talk.transcript.blocks[1:])
        await screen.look()
        assert screen.shows("∴ thinking: Well. It may be that 6 * 7\\x1b[2J is 42.\n")
        agent.root.gate.set()
        await until(lambda: not screen.talk.is_on)
        await screen.look()
        assert screen.text.split("╭")[0] == snapshot("""\
 ▌ 6 * 7?
  ∴ thought, 41 characters
  42
""")
        screen.app.query_one(ThoughtView).focus()
        await screen.press("enter")
        assert screen.text.split("╭")[0] == snapshot("""\
 ▌ 6 * 7?
  ∴ Well.
  It may be that 6 * 7\\x1b[2J is 42.
  42
""")
        screen.talk.transcript.take(Token(text="no", kind="reasoning", path="says"))
        await screen.look()
        assert screen.shows("∴ thinking: no")
        screen.talk.transcript.take(Retried(reason="it broke off", wait=1.0, model="m", path="says"))
        await screen.look()
        assert not screen.shows("thinking: no")


async def test_the_prompt_has_lines_and_a_memory() -> None:
    """Ctrl-J begins a line; Up brings back what was sent."""
    async with screen_of(agent_of()) as screen:
        await screen.press(*"one", "ctrl+j", *"two", "enter")
        await until(lambda: not screen.talk.is_on)
        prompt = screen.prompt
        assert prompt.text == ""
        await screen.press("up")
        assert prompt.text == "one\ntwo"
        await screen.press("down")
        assert prompt.text == ""
        await screen.press("enter")
        assert len(screen.talk.agent.state.messages) == 2


async def test_the_keys_are_shown() -> None:
    """F1, and away again."""
    async with screen_of(agent_of()) as screen:
        await screen.press("f1")
        assert screen.shows("stop the turn; twice when nothing is going on: quit")
        await screen.press("f1")
        assert not screen.shows("stop the turn")


async def test_a_long_conversation_shows_its_end() -> None:
    """Opening it lays out the last blocks only."""
    store = MemoryStore()
    await agent_of(Says(say_much), store=store).run({"messages": []}, thread_id="t1")
    async with screen_of(agent_of(store=store), "t1") as screen:
        assert len(screen.app.query(BlockView)) == SHOWN
        assert screen.shows("said 499")


async def say_much(node: Says) -> None:
    """Have 500 things said."""
    node.write_state({"messages": [human(f"said {number}") for number in range(500)]})


async def test_a_reply_that_grows_costs_what_comes_in() -> None:
    """A text of 60 paragraphs is laid out in segments: each look touches the last ones."""
    pieces = [f"word{number} " + ("\n\n" if number % 20 == 19 else "") for number in range(1_200)]

    async def talk(node: Says) -> None:
        node.stream(*pieces)
        node.say("".join(pieces))

    async with screen_of(agent_of(talk)) as screen:
        await screen.say("hi")
        view = screen.app.query_one(ReplyView)
        assert len(view.children) > 3
        assert screen.shows("word1199")


class Hidden(BaseModel):
    """A state whose messages come with another field that must be given."""

    must: int
    messages: Annotated[list[Message], operator.add] = Field(default_factory=list)


async def test_a_state_that_wants_more_than_messages_says_so() -> None:
    """The error is shown; nothing falls over."""
    async with screen_of(agent_of(schema=Hidden)) as screen:
        await screen.say("hi")
        assert screen.shows("must")
