"""What a transcript makes of events and messages."""

from __future__ import annotations

from py_trees.common import Status

from jianmu.engine.events import (
    Answered,
    Asked,
    Event,
    NodeFinished,
    NodeHalted,
    Retried,
    RunEnded,
    Stalled,
    Token,
    ToolCalled,
    ToolReturned,
)
from jianmu.engine.interaction import Suspension
from jianmu.engine.outcome import Outcome
from jianmu.message import ImagePart, Usage, ai, human, system, tool_result
from jianmu.terminal.blocks import Asking, Block, Call, Note, Reply, Said, Thought
from jianmu.terminal.transcript import Transcript
from jianmu.tool.types import ToolCall

CALL = ToolCall(id="c1", name="add", arguments={"a": 1})
ENDED = RunEnded(outcome=Outcome(status=Status.SUCCESS, output={}, thread_id="t"))


def shown(*news: Event, path: str = "think") -> Transcript:
    """Return a transcript that has taken events of a node."""
    transcript = Transcript()
    for event in news:
        transcript.take(event.model_copy(update={"path": path}))
    return transcript


def question(id: str, call: str | None = None, reason: str = "approval") -> Asked:
    """Return the event of a question."""
    return Asked(
        suspension=Suspension(
            id=id, thread_id="t", path="act", key="k", reason=reason, message="May I?", tool_call_id=call
        )
    )


def only(transcript: Transcript) -> Block:
    """Return the one block that there is."""
    (block,) = transcript.blocks
    return block


def test_pieces_become_one_reply() -> None:
    """The tokens of a node are one growing reply, and its block is the one that has changed."""
    transcript = shown(Token(text="Hel"), Token(text="lo"))
    assert only(transcript) == Reply(key=0, path="think", pieces=["Hel", "lo"])
    assert transcript.changes() == [only(transcript)]
    assert transcript.changes() == []


def test_a_reply_becomes_the_message_that_was_streamed() -> None:
    """When the message comes, the block stays, and no second one is made."""
    transcript = shown(Token(text="Hello "))
    transcript.sync([ai("Hello")])
    assert only(transcript) == Reply(key=0, path="think", pieces=["Hello "], state="done", is_message=True)


def test_a_message_that_was_not_streamed_has_a_block() -> None:
    """Beside what another node streams, a message is shown by itself."""
    transcript = shown(Token(text="something else"))
    transcript.sync([ai("Hello")])
    assert [block.text for block in transcript.blocks if isinstance(block, Reply)] == ["something else", "Hello"]


def test_what_was_broken_off_is_marked() -> None:
    """The reply of a node that is halted, or fails, or is on when the run ends, is stopped."""
    halted = shown(Token(text="Hel"), NodeHalted()).blocks[0]
    assert halted == Reply(key=0, path="think", pieces=["Hel"], state="stopped")
    failed = shown(Token(text="Hel"), NodeFinished(status=Status.FAILURE)).blocks[0]
    assert failed == halted
    ended = shown(Token(text="Hel"), ENDED).blocks[0]
    assert isinstance(ended, Reply)
    assert ended.state == "stopped"


def test_what_was_broken_off_is_no_later_message() -> None:
    """The same words in the next turn have a block of their own."""
    transcript = shown(Token(text="Hello"), NodeHalted(), ENDED)
    transcript.sync([ai("Hello")])
    assert [block.state for block in transcript.blocks if isinstance(block, Reply)] == ["stopped", "done"]


def test_the_text_of_a_node_that_keeps_no_conversation_stays() -> None:
    """A reply that never becomes a message is shown as done, and told from messages."""
    block = shown(Token(text="refund"), NodeFinished(status=Status.SUCCESS)).blocks[0]
    assert block == Reply(key=0, path="think", pieces=["refund"], state="done", is_message=False)


def test_what_a_model_thinks_is_a_block_before_its_reply() -> None:
    """It ends with the first word of the reply; each time a model thinks it is another one."""
    think = [Token(text=text, kind="reasoning") for text in ("h", "m")]
    thought, reply = shown(*think, Token(text="Hello")).blocks
    assert thought == Thought("think", ["h", "m"], "done", key=0)
    assert isinstance(reply, Reply)
    assert reply.text == "Hello"
    assert [one.state for one in shown(*think).blocks if isinstance(one, Thought)] == ["live"]
    ends = [NodeFinished(status=Status.SUCCESS), NodeHalted(), ENDED, Retried(reason="no", wait=1.0, model="m")]
    blocks = [shown(*think, end, *think).blocks for end in ends]
    assert [[one.state for one in some if isinstance(one, Thought)] for some in blocks] == [
        [state, "live"] for state in ("done", "stopped", "stopped", "void")
    ]


def test_another_attempt_takes_the_place_of_a_reply() -> None:
    """What a failed attempt has said is void; the next one has a block of its own, after the reason."""
    transcript = shown(Token(text="Hel"), Retried(reason="it broke off", wait=2.0, model="m"), Token(text="Hello"))
    void, note, reply = transcript.blocks
    assert isinstance(void, Reply)
    assert void.state == "void"
    assert note == Note("it broke off: tried again in 2 s, by m", "warning", key=1)
    assert isinstance(reply, Reply)
    assert reply.text == "Hello"


def test_the_same_model_is_not_named_twice() -> None:
    """Who is asked again is told where it is another one."""
    note = shown(Retried(reason="model 'm': it broke off", wait=0.2, model="m")).blocks[0]
    assert note == Note("model 'm': it broke off: tried again in 0 s", "warning", key=0)


def test_a_call_goes_from_wanted_to_its_result() -> None:
    """One block follows a call through the message, the call and the result."""
    transcript = Transcript()
    messages = [human("1+1?"), ai("", tool_calls=[CALL])]
    transcript.sync(messages)
    call = transcript.blocks[1]
    assert isinstance(call, Call)
    assert (call.name, call.arguments, call.state) == ("add", {"a": 1}, "wanted")
    transcript.take(ToolCalled(call_id="c1", name="add", arguments={"a": 2}))
    assert (call.arguments, call.state) == ({"a": 2}, "running")
    transcript.take(ToolReturned(call_id="c1", name="add", is_error=True))
    assert call.state == "failed"
    transcript.sync([*messages, tool_result("c1", "no", is_error=True)])
    assert (call.state, call.result, len(transcript.blocks)) == ("failed", "no", 2)


def test_a_call_without_a_result_is_stopped_when_the_run_ends() -> None:
    """Nothing looks as if it were going on."""
    block = shown(ToolCalled(call_id="c1", name="add", arguments={}), ENDED).blocks[0]
    assert isinstance(block, Call)
    assert block.state == "stopped"


def test_an_approval_is_shown_at_its_call() -> None:
    """The question about a known call has no block of its own."""
    transcript = Transcript()
    transcript.sync([ai("", tool_calls=[CALL])])
    transcript.take(question("q1", "c1"))
    call = only(transcript)
    assert isinstance(call, Call)
    assert call.state == "asks"
    transcript.take(Answered(id="q1", status="answered"))
    assert call.state == "wanted"


def test_a_question_of_a_model_is_shown_at_its_call() -> None:
    """Whatever the tool is called; where it has its usual name, that can be told without the question."""
    transcript = Transcript()
    transcript.sync([ai("", tool_calls=[CALL])])
    transcript.take(question("q1", "c1", "clarification"))
    call = only(transcript)
    assert isinstance(call, Call)
    assert (call.state, call.is_question) == ("asks", True)
    transcript.sync([ai("", tool_calls=[ToolCall(id="c2", name="ask_clarification", arguments={})])], is_whole=True)
    call = only(transcript)
    assert isinstance(call, Call)
    assert call.is_question


def test_a_question_is_shown_with_its_end() -> None:
    """A question is shown once, with who answered what."""
    transcript = shown(question("q1", reason="input"), question("q1", reason="input"))
    transcript.take(Answered(id="q1", status="answered", by="ada"))
    transcript.say_answer("q1", "yes")
    assert only(transcript) == Asking("q1", "May I?", path="act", end="answered by ada", answer="yes", key=0)
    transcript.take(Answered(id="unknown", status="expired"))


def test_an_answer_that_came_too_late_says_so() -> None:
    """What nobody used is told."""
    transcript = shown(question("q1", reason="input"), Answered(id="q1", status="answered", used=False))
    block = only(transcript)
    assert isinstance(block, Asking)
    assert block.end == "answered, too late"


def test_a_stall_is_told() -> None:
    """Nodes that wait for nothing are named."""
    block = only(shown(Stalled(paths=("a/b", "a/c"))))
    assert isinstance(block, Note)
    assert block.text == "Nothing can go on: a/b, a/c wait for a write from outside."


def test_a_conversation_that_grows_is_not_made_anew() -> None:
    """Only what is new gets blocks; system prompts get none."""
    transcript = Transcript()
    first = [system("be brief"), human("hi")]
    transcript.sync(first)
    transcript.sync([*first, ai("hello", usage=Usage(input_tokens=3, output_tokens=2))])
    assert transcript.generation == 0
    assert [type(block) for block in transcript.blocks] == [Said, Reply]
    assert transcript.spent == 5


def test_a_conversation_that_was_changed_is_made_anew() -> None:
    """A removed message, another one in its place, or a shorter conversation: all blocks are made again."""
    one, two, three = human("one"), human("two"), human("three")
    for changed in ([one], [two, one], [one, three, two]):
        transcript = Transcript()
        transcript.sync([one, two])
        transcript.sync(changed)
        assert transcript.generation == 1
        assert [block.text for block in transcript.blocks if isinstance(block, Said)] == [one.text for one in changed]


def test_a_change_in_the_middle_is_seen_when_all_is_compared() -> None:
    """At the end of a turn the whole conversation is compared."""
    one, two, three = human("one"), human("two"), human("three")
    transcript = Transcript()
    transcript.sync([one, two, three])
    transcript.sync([one, human("new"), three], is_whole=True)
    assert [block.text for block in transcript.blocks if isinstance(block, Said)] == ["one", "new", "three"]


def test_what_steers_a_terminal_is_written_out() -> None:
    """Escapes of people, models and tools are shown, not obeyed; images are named."""
    transcript = shown(Token(text="a\x1b[31mb"), question("q", reason="input"))
    transcript.sync(
        [human(["\x07", ImagePart(path="cat.png")]), ai("", tool_calls=[CALL]), tool_result("c1", "\x9b2J")]
    )
    reply, _, block, call = transcript.blocks
    assert isinstance(reply, Reply)
    assert reply.text == r"a\x1b[31mb"
    assert block == Said("\\x07\n[cat.png]", key=2)
    assert isinstance(call, Call)
    assert call.result == r"\x9b2J"


def test_signs_of_several_parts_stay_whole() -> None:
    """Families of emoji, tabs and line ends are no commands."""
    transcript = shown(Token(text="👩\u200d🔬\tx\r\ny"))
    reply = only(transcript)
    assert isinstance(reply, Reply)
    assert reply.text == "👩\u200d🔬    x\ny"
