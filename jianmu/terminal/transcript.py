"""The transcript of a chat: events and messages in, blocks out. It knows no screen.

1. The conversation in the state is the truth; events show what is on its way there.
2. Events are taken first, then the messages: so the text that was streamed is there when its message comes.
3. A block is never moved. When the conversation has changed other than by growing, all blocks are made anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from py_trees.common import Status

from jianmu.engine.events import (
    Answered,
    Asked,
    CleanupFailed,
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
from jianmu.message import Message
from jianmu.terminal.blocks import Asking, Block, Call, Note, NoteKind, Reply, ReplyState, Said, Thought, safe

TOOL = "ask_clarification"
"""A tool whose call is a question, as `jianmu.thread.Clarify` is called where it has no other name."""
LEFT = "not answered"
"""How a question has ended whose turn has ended before it was answered."""
B = TypeVar("B", bound=Block)


class Transcript:
    """The blocks of one conversation.

    Attributes:
        blocks: all of them, the oldest first.
        generation: a number that grows when the blocks are made anew.
        spent: tokens that the replies of the conversation have cost, where their models say so.
    """

    def __init__(self) -> None:
        self.generation = 0
        self._begin()

    def _begin(self) -> None:
        self.blocks: list[Block] = []
        self.spent = 0
        self._changed: dict[int, Block] = {}
        self._ids: list[str] = []
        self._live: dict[str, Reply] = {}
        self._thoughts: dict[str, Thought] = {}
        self._loose: list[Reply] = []
        self._calls: dict[str, Call] = {}
        self._asked: dict[str, Asking | Call] = {}

    def changes(self) -> list[Block]:
        """Return the blocks that are new or have changed since the last call."""
        changed, self._changed = self._changed, {}
        return [*changed.values()]

    def note(self, text: str, kind: NoteKind = "info") -> None:
        """Have the chat itself say something."""
        self._add(Note(safe(text), kind))

    def clear(self) -> None:
        """Begin with nothing."""
        self.generation += 1
        self._begin()

    # Events

    def take(self, event: Event) -> None:
        """Show an event."""
        match event:
            case Token(text=text, path=path, kind="text"):
                self._grow(path or "", text)
            case Token(text=text, path=path, kind="reasoning"):
                self._think(path or "", text)
            case Retried():
                self._start_again(event)
            case NodeFinished(path=path) | NodeHalted(path=path):
                self._close(path or "", is_done=getattr(event, "status", None) is Status.SUCCESS)
            case ToolCalled():
                self._call(event.call_id, event.name, event.arguments)
            case ToolReturned():
                self._returned(event)
            case Asked(suspension=question):
                self.ask(question)
            case Answered():
                self._answered(event)
            case Stalled(paths=paths):
                self.note(f"Nothing can go on: {', '.join(paths)} wait for a write from outside.", "warning")
            case CleanupFailed(path=path, reason=reason):
                self.note(f"The cleanup of '{path}' failed: {reason}", "warning")
            case RunEnded():
                self._end()
            case _:
                pass

    def _think(self, path: str, text: str) -> None:
        thought = self._thoughts.get(path)
        if thought is None:
            thought = self._thoughts[path] = self._add(Thought(path))
        thought.pieces.append(safe(text))
        self._mark(thought)

    def _end_thought(self, path: str, state: ReplyState) -> None:
        thought = self._thoughts.pop(path, None)
        if thought is not None:
            thought.state = state
            self._mark(thought)

    def _grow(self, path: str, text: str) -> None:
        self._end_thought(path, "done")
        reply = self._live.get(path)
        if reply is None:
            reply = self._live[path] = Reply(path=path)
            self._loose.append(reply)
            self._add(reply)
        reply.pieces.append(safe(text))
        self._mark(reply)

    def _start_again(self, event: Retried) -> None:
        self._end_thought(event.path or "", "void")
        reply = self._live.pop(event.path or "", None)
        if reply is not None:
            reply.state = "void"
            self._loose.remove(reply)
            self._mark(reply)
        who = f", by {event.model}" if event.model not in event.reason else ""
        self.note(f"{event.reason}: tried again in {event.wait:.0f} s{who}", "warning")

    def _close(self, path: str, *, is_done: bool) -> None:
        self._end_thought(path, "done" if is_done else "stopped")
        reply = self._live.pop(path, None)
        if reply is not None and reply.state == "live":
            reply.state = "done" if is_done else "stopped"
            self._mark(reply)

    def _call(self, id: str, name: str, arguments: dict[str, object]) -> None:
        call = self._known(id, name)
        call.arguments, call.state = arguments, "running"  # pyright: ignore[reportAttributeAccessIssue]  # JSON it is
        self._mark(call)

    def _returned(self, event: ToolReturned) -> None:
        call = self._known(event.call_id, event.name)
        call.state = "failed" if event.is_error else "done"
        self._mark(call)

    def ask(self, question: Suspension) -> None:
        """Show a question, unless it is shown; one whose turn had ended waits again."""
        if question.id in self._asked:
            self._ask_again(self._asked[question.id])
            return
        call = self._calls.get(question.tool_call_id or "")
        if call is not None and question.reason in ("approval", "clarification"):
            call.state, call.is_question = "asks", question.reason == "clarification"
            self._asked[question.id] = call
            self._mark(call)
        else:
            self._asked[question.id] = self._add(Asking(question.id, safe(question.message), path=question.path))

    def _ask_again(self, found: Asking | Call) -> None:
        if isinstance(found, Asking) and found.end == LEFT:
            found.end = ""
            self._mark(found)
        elif isinstance(found, Call) and found.state == "stopped":
            found.state = "asks"
            self._mark(found)

    def leave(self) -> None:
        """Have no question wait: the turn that asked has ended."""
        for found in self._asked.values():
            if isinstance(found, Asking) and not found.end:
                found.end = LEFT
                self._mark(found)
            elif isinstance(found, Call) and found.state == "asks":
                found.state = "stopped"
                self._mark(found)

    def say_answer(self, id: str, answer: str) -> None:
        """Show what was answered to a question."""
        found = self._asked.get(id)
        if isinstance(found, Asking):
            found.answer = safe(answer)
            self._mark(found)

    def _answered(self, event: Answered) -> None:
        found = self._asked.get(event.id)
        if isinstance(found, Asking):
            by = f" by {event.by}" if event.by and event.status == "answered" else ""
            late = ", too late" if event.status == "answered" and not event.used else ""
            found.end = f"{event.status}{by}{late}"
            self._mark(found)
        elif found is not None and found.state == "asks":
            found.state = "wanted"
            self._mark(found)

    def _end(self) -> None:
        """Let nothing look as if it were going on."""
        for path in {*self._live, *self._thoughts}:
            self._close(path, is_done=False)
        for call in self._calls.values():
            if call.state in ("wanted", "asks", "running"):
                call.state = "stopped"
                self._mark(call)
        self._loose.clear()

    # Messages

    def sync(self, messages: Sequence[Message], *, is_whole: bool = False) -> None:
        """Show the conversation as it is.

        Args:
            messages: all of it.
            is_whole: whether to compare all of it, and not only its ends.
        """
        if not self._is_longer(messages, is_whole):
            self.clear()
        for message in messages[len(self._ids) :]:
            self._ids.append(message.id)
            self._show(message)

    def _is_longer(self, messages: Sequence[Message], is_whole: bool) -> bool:
        """Whether the conversation is what was shown, and maybe more."""
        known = len(self._ids)
        if len(messages) < known:
            return False
        places = range(known) if is_whole else ({0, known - 1} if known else ())
        return all(messages[place].id == self._ids[place] for place in places)

    def _show(self, message: Message) -> None:
        if message.role == "human":
            self._add(Said(_text(message)))
        elif message.role == "ai":
            self._reply(message)
        elif message.role == "tool":
            call = self._known(message.tool_call_id or "", message.name or "?")
            call.state, call.result = "failed" if message.is_error else "done", _text(message)
            self._mark(call)

    def _reply(self, message: Message) -> None:
        if message.usage is not None:
            self.spent += message.usage.tokens
        text = _text(message)
        if text.strip():
            reply = self._streamed(text) or self._add(Reply(pieces=[text]))
            reply.state, reply.is_message = "done", True
            self._mark(reply)
        for call in message.tool_calls:
            known = self._known(call.id, call.name)
            known.name = safe(call.name)
            if known.arguments is None:
                known.arguments = call.arguments if call.raw is None else call.raw
            self._mark(known)

    def _streamed(self, text: str) -> Reply | None:
        """Return the reply that was streamed and is this message now, if there is one."""
        wanted = text.strip()
        for reply in self._loose:
            if reply.text.strip() == wanted:
                self._loose.remove(reply)
                self._live = {path: other for path, other in self._live.items() if other is not reply}
                return reply
        return None

    # Blocks

    def _known(self, id: str, name: str) -> Call:
        """Return the block of a call, a new one if it has none."""
        call = self._calls.get(id)
        if call is None:
            call = self._calls[id] = self._add(Call(id, safe(name), is_question=name == TOOL))
        return call

    def _add(self, block: B) -> B:
        block.key = len(self.blocks)
        self.blocks.append(block)
        self._mark(block)
        return block

    def _mark(self, block: Block) -> None:
        self._changed[block.key] = block


def _text(message: Message) -> str:
    """Return what a message says; images and files by where they are."""
    if isinstance(message.content, str):
        return safe(message.content)
    return safe("\n".join(_part(part) for part in message.content))


def _part(part: object) -> str:
    text = getattr(part, "text", None)
    return text if isinstance(text, str) else f"[{getattr(part, 'path', None) or getattr(part, 'url', None)}]"
