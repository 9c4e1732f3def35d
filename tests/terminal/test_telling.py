"""Errors, states and trees in the words of the chat."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import pytest
from py_trees.behaviours import Failure, Success
from py_trees.common import Status
from pydantic import BaseModel, ConfigDict

from jianmu.engine.state import Internal
from jianmu.errors import BadRequestError, InvalidAnswerError, ModelUnavailableError, RateLimitedError, ThreadBusyError
from jianmu.message import Usage, human
from jianmu.nodes import Selector, Sequence
from jianmu.terminal.panes import shown, state_lines, tree_lines
from jianmu.terminal.telling import failure, refusal, told
from jianmu.thread import ThreadPaths, ThreadState


def test_an_error_of_a_model_says_what_can_be_done() -> None:
    """Its text, what the provider said, how long to wait, and a hint."""
    error = RateLimitedError("too many requests", model="openai:x", retry_after=7.0, detail="slow down")
    assert told(error).splitlines() == [
        "RateLimitedError: model 'openai:x': too many requests",
        "slow down",
        "The provider says: in 7 s.",
        "Wait a while, then send it again.",
    ]
    assert told(BadRequestError("401")).endswith("Look at the name of the model and at its key.")
    assert told(ModelUnavailableError("gone")).splitlines()[1].startswith("Send it again")


def test_an_error_of_a_node_says_where() -> None:
    """The note that names the node's path is shown; nothing else of the traceback is."""
    error = ValueError("no\x1b[2J")
    error.add_note("raised by node 'a/b'")
    error.add_note("something else")
    assert told(error) == "ValueError: no\\x1b[2J\nraised by node 'a/b'"


def test_a_long_error_is_cut() -> None:
    """A text of a megabyte fills no screen."""
    assert len(told(ValueError("x" * 1_000_000))) < 700


def test_several_errors_are_told_one_by_one() -> None:
    """Of a group the first three."""
    group = ExceptionGroup("several", [ValueError(str(number)) for number in range(5)])
    assert told(group) == "ValueError: 0\nValueError: 1\nValueError: 2"


def test_a_busy_thread_is_told_without_calls_to_write() -> None:
    """A person who chats is not told what a program would do."""
    text = told(ThreadBusyError("thread 't' is held by process 1: answer its questions with answer(…)"))
    assert text.splitlines() == [
        "ThreadBusyError: thread 't' is held by process 1",
        "Another program is at work on this thread. Ctrl-R looks again, Ctrl-N begins a new one.",
    ]


def test_a_refused_answer_is_told_without_the_schema() -> None:
    """What is wrong is enough."""
    assert refusal(InvalidAnswerError("q", "at a: not so", '{"type": "object"}')) == "at a: not so"


def test_a_failure_names_the_leaf_that_knows_why() -> None:
    """The tip of the tree, or, where that has no reason, the last leaf that has one."""
    lost, last = Failure("lost"), Failure("last")
    root = Selector("root", memory=False, children=[lost, last])
    root.tick_once()
    lost.feedback_message, last.feedback_message = "the model is gone", ""
    assert failure(root) == "The turn failed at 'root/lost': the model is gone"
    last.feedback_message = "no idea"
    assert failure(root) == "The turn failed at 'root/last': no idea"


def test_a_large_tree_shows_what_is_at_work() -> None:
    """Beyond the most lines only running branches are open, and what is left out is marked."""
    quiet = Sequence("quiet", memory=True, children=[Success(f"s{number}") for number in range(300)])
    root = Sequence("root", memory=True, children=[quiet, Success("last")])
    root.status = Status.RUNNING
    assert tree_lines(root) == [
        ("▶ root (Sequence, memory)", Status.RUNNING),
        ("├─ · quiet (Sequence, memory)", Status.INVALID),
        ("└─ · last (Success)", Status.INVALID),
    ]
    quiet.status = Status.RUNNING
    assert len(tree_lines(root, 10)) == 11


class Fields(BaseModel):
    """A state with fields of all kinds."""

    model_config = ConfigDict(extra="allow")

    messages: list[object] = []
    text: str = ""
    many: list[int] = []
    by_name: dict[str, object] = {}
    usage: Usage = Usage()
    flag: bool | None = None
    is_new: bool = True
    count: int = 0
    own: Annotated[dict[str, int], Internal()] = {}


def test_each_field_is_one_line() -> None:
    """Long values are cut, long lists counted, messages too; extra fields follow."""
    state = Fields(
        messages=[human("hi")],
        text="a\nb" * 200,
        many=list(range(100_000)),
        by_name={"x": [1], "y\x1b": None},
        usage=Usage(input_tokens=3),
        more=1,
    )
    lines = dict(state_lines(state))
    assert lines["text"].startswith("a ba b")
    assert len(lines.pop("text")) == 120
    assert lines == {
        "messages": "1 message",
        "many": "[0, 1, 2, 3, … 100000 in all]",
        "by_name": r"{x: [1], y\x1b: null}",
        "usage": "Usage(input_tokens=3)",
        "is_new": "true",
        "more": "1",
    }


def test_fields_with_nothing_in_them_are_left_out() -> None:
    """So that what there is is in sight; a False where there was a True is something, what the tree counts is not."""
    state = Fields(is_new=False, own={"x": 1}, nothing="", none=None, by_name={})
    assert dict(state_lines(state)) == {"is_new": "false"}
    assert dict(state_lines(Fields(is_new=True, count=1, flag=False))) == {
        "flag": "false",
        "is_new": "true",
        "count": "1",
    }


def test_what_is_in_no_checkpoint_takes_one_short_line() -> None:
    """Where files are on this machine is nothing of the conversation."""
    where = Path("/home/somebody/somewhere/.jianmu/threads/chat-1")
    folders = ThreadPaths(workspace_path=where / "work", uploads_path=where / "up", outputs_path=where / "out")
    assert dict(state_lines(ThreadState(thread_data=folders, title="Taxes"))) == {
        "thread_data": "ThreadPaths(workspace_path=…",
        "title": "Taxes",
    }


@pytest.mark.parametrize(("value", "text"), [("", '""'), (None, "null"), (1.5, "1.5"), ([], "[]"), ({}, "{}")])
def test_small_values_are_shown_as_json(value: object, text: str) -> None:
    """An empty text can be told from nothing."""
    assert shown(value) == text
