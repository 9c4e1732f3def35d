"""The parts of the command line that need no process: forms, lines, pictures, files."""

from __future__ import annotations

import stat
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Any, Literal

import pytest
from py_trees.behaviours import Running, Success
from py_trees.common import Status
from py_trees.composites import Sequence
from pydantic import BaseModel, JsonValue, TypeAdapter

from jianmu.cli.faults import describe
from jianmu.cli.forms import form_of, hint
from jianmu.cli.load import write_text
from jianmu.cli.picture import picture
from jianmu.cli.telling import Note, Teller
from jianmu.engine.events import Event, NodeFinished, NodeHalted, NodeStarted, PassStarted, Stalled, ToolReturned
from jianmu.engine.interaction import Approval
from jianmu.errors import StalledError


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Size(BaseModel):
    width: int


@pytest.mark.parametrize(
    ("kind", "right", "wrong", "meaning"),
    [
        (bool, ["y", " N "], ["", "yes", "1"], [True, False]),
        (Approval, ["y", "n"], ["maybe"], [True, False]),
        (Literal["red", "blue"], ["1", "2", "blue"], ["0", "3", ""], ["red", "blue", "blue"]),
        (Colour, ["2"], ["green"], ["blue"]),
        (Colour | None, ["1", ""], ["9"], ["red", None]),
        (Literal[3, 1], ["a", "b", "1"], ["2"], [3, 1, 1]),
        (str, ["a b", '""'], ["", "  "], ["a b", ""]),
        (int, ["12", "-3"], ["1.5", "x", ""], [12, -3]),
        (float, ["1.5", "2"], ["nan", "1e999", "true", ""], [1.5, 2]),
        (str | None, ["x", ""], [], ["x", None]),
        (Size, ['{"width": 3}'], ["3x", "{", "NaN"], [{"width": 3}]),
        (list[str], ['["a"]'], ["a"], [["a"]]),
        (Any, ["null", "{}"], ["x"], [None, {}]),
    ],
)
def test_a_line_means_what_its_schema_wants(kind: Any, right: list[str], wrong: list[str], meaning: list[Any]) -> None:
    """Each kind of answer has its form: right lines give the answer, wrong ones are refused."""
    form = form_of(TypeAdapter(kind).json_schema())
    assert [form.parse(line) for line in right] == meaning
    for line in wrong:
        with pytest.raises(ValueError):  # noqa: PT011  # the form's only sign; its words are in `wanted`
            form.parse(line)


def test_numbers_that_are_options_get_letters() -> None:
    """A choice among numbers is labelled with letters, so that no line has two meanings."""
    form = form_of({"enum": [2, 1]})
    assert (form.options, form.prompt) == (("  a) 2", "  b) 1"), "[a-b]: ")


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({"type": "boolean"}, "true or false"),
        ({"enum": ["a", 1]}, '"a" or 1'),
        ({"type": "integer"}, "a whole number"),
        ({"type": "object"}, 'JSON that fits {"type": "object"}'),
    ],
)
def test_a_hint_says_which_json_answers(schema: dict[str, JsonValue], said: str) -> None:
    """Who answers by `--answer` is told what JSON to write."""
    assert hint(schema) == said


def test_a_node_that_says_the_same_again_is_told_once() -> None:
    """A condition that is asked in each pass gives one line; a node that took time gives one each time."""
    teller = Teller()

    def told(*events: Event) -> list[str]:
        return [line for event in events if (line := teller.line(event)) is not None]

    asked = [NodeStarted(path="ask"), NodeFinished(path="ask", status=Status.SUCCESS)]
    assert told(PassStarted(number=1), *asked) == ["✓ ask"]
    assert told(PassStarted(number=2), *asked, NodeStarted(path="slow"), NodeStarted(path="halted")) == []
    slow = NodeFinished(path="slow", status=Status.FAILURE, feedback="no\nway")
    assert told(PassStarted(number=3), slow, NodeHalted(path="halted")) == [r"✗ slow: no\nway", "· halted: halted"]
    assert told(NodeStarted(path="slow"), PassStarted(number=4), slow) == [r"✗ slow: no\nway"]
    assert teller.passes == 4


def test_other_events_are_told_in_words() -> None:
    """Stalls, tools and notes have their words; events of a user's own show their fields."""

    class Moved(Event):
        metres: int

    teller = Teller()
    events = [
        Stalled(paths=("a", "b")),
        ToolReturned(call_id="1", name="add"),
        Note(text="hi"),
        Moved(path="leg", metres=3),
    ]
    assert [teller.line(event) for event in events] == [
        "! stalled: nothing can wake a, b",
        "* : add has returned",
        "hi",
        "* leg Moved metres=3",
    ]


def test_a_tree_that_is_too_tall_is_folded_and_then_cut() -> None:
    """What is not at work gives way first; what is at work is always among the lines."""
    done = Sequence("done", memory=True, children=[Success(f"s{number}") for number in range(9)])
    busy = Sequence(
        "busy", memory=True, children=[Success("a"), Running("here"), *(Success(f"z{n}") for n in range(9))]
    )
    root = Sequence("root", memory=True, children=[done, busy])
    root.tick_once()
    assert len(picture(root)) == 23
    assert [line.plain for line in picture(root, 14)][1] == "├─ ✓ done (Sequence, memory) …"
    for rows in (13, 8, 5, 3):
        lines = [line.plain for line in picture(root, rows)]
        assert len(lines) == rows
        assert any("▶ here" in line for line in lines)


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    """A write that fails leaves what was there; another keeps the file's rights and leaves nothing beside it."""
    file = tmp_path / "run.json"
    file.write_text("old")
    file.chmod(0o640)
    with pytest.raises(UnicodeEncodeError):
        write_text(file, "\ud800")
    assert file.read_text() == "old"
    write_text(file, "new")
    assert (file.read_text(), stat.S_IMODE(file.stat().st_mode)) == ("new", 0o640)
    assert [each.name for each in tmp_path.iterdir()] == ["run.json"]


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (lambda: ValueError("a\n  b"), "ValueError: a b"),
        (KeyboardInterrupt, "KeyboardInterrupt"),
        (lambda: StalledError("stands still", path="main/x"), "StalledError: stands still (node 'main/x')"),
        (lambda: StalledError("'main/x' stands", path="main/x"), "StalledError: 'main/x' stands"),
    ],
)
def test_an_error_is_described_on_one_line(error: Callable[[], BaseException], said: str) -> None:
    """Its class, its text, and its node unless the text names it."""
    assert describe(error()) == said
