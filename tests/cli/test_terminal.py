"""The command in a real terminal: questions, the live tree, Ctrl-C, Ctrl-D."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.command import Terminal, from_the_start


def test_every_kind_of_question_is_asked_again_until_the_answer_fits(tmp_path: Path) -> None:
    """Y or n, a numbered choice, a line, a number: what is no answer is asked again with what is wanted."""
    with Terminal("run", "shop:questions") as terminal:
        dialogue = [
            ("What is your name?", "> ", "", 'type a text ("" for an empty one)', "Zoë 王"),
            ("2) green", "[1-2]: ", "3", "type one of 1-2", "2"),
            ("Are you sure? ", "[y/n]: ", "yes", "type y or n", "Y"),
            ("How much?", "number: ", "1e", "type a number", "12.5"),
        ]
        for question, prompt, wrong, wanted, right in dialogue:
            terminal.expect(question)
            terminal.expect(prompt)
            terminal.type(wrong + "\n")
            terminal.expect(wanted)
            terminal.expect(prompt)
            terminal.type(right + "\n")
        assert terminal.end() == 0
        output = json.loads(terminal.shown[terminal.shown.rindex("{") :])
    assert output == {"amount": 12.5, "receipt": None, "name": "Zoë 王", "colour": "green", "is_sure": True}


def test_the_tree_is_shown_and_stands_still_while_a_question_waits() -> None:
    """The live tree is there before the question and with its result at the end, and moves no more in between."""
    with Terminal("run", "shop:desk", "--input", '{"amount": 400}') as terminal:
        before = terminal.expect("Pay 400.00? [y/n]: ")
        assert "▶ by hand (Approve)" in before
        assert terminal.is_still()
        terminal.type("n\n")
        terminal.expect("✗ desk (Selector, memory)")
        assert terminal.end() == 1
        assert "failure: the tree failed at 'desk/by hand'" in terminal.shown


@pytest.mark.parametrize("more", [{"TERM": "dumb"}, {"NO_COLOR": "1"}])
def test_colours_and_motion_are_left_out_where_they_are_not_wanted(more: dict[str, str]) -> None:
    """A dumb terminal gets plain lines, NO_COLOR a tree without colours; both ask."""
    with Terminal("run", "shop:desk", "--input", '{"amount": 400}', **more) as terminal:
        terminal.expect("Pay 400.00? [y/n]: ")
        terminal.type("y\n")
        assert terminal.end() == 0
        assert ("✓ desk/by hand/pay" in terminal.shown) == ("TERM" in more)
        assert b"\x1b[3" not in terminal.raw
        assert (b"\x1b" in terminal.raw) == ("NO_COLOR" in more)


def test_ctrl_c_at_a_question_ends_the_run() -> None:
    """Exit code 130, no traceback, no process left, and the cursor is visible again."""
    with Terminal("run", "shop:desk", "--input", '{"amount": 400}') as terminal:
        terminal.expect("[y/n]: ")
        terminal.type("\x03")
        assert terminal.end() == 130
        assert "interrupted" in terminal.shown
        assert "Traceback" not in terminal.shown
        assert terminal.raw.rindex(b"\x1b[?25h") > terminal.raw.rindex(b"\x1b[?25l")
        assert not terminal.has_children()


def test_ctrl_d_leaves_a_question_open_for_another_time(tmp_path: Path) -> None:
    """Ctrl-D: exit code 3 and a checkpoint, from which the same question is asked and answered."""
    file = tmp_path / "run.json"
    with Terminal("run", "shop:desk", "--input", '{"amount": 400}', "--save", str(file)) as terminal:
        terminal.expect("[y/n]: ")
        terminal.type("\x04")
        assert terminal.end() == 3
        assert f"go on: jianmu resume shop:desk {file} --answer JSON" in terminal.shown.replace("\r\n", " ")
    with Terminal("resume", "shop:desk", str(file)) as terminal:
        terminal.expect("Pay 400.00? [y/n]: ")
        terminal.type("y\n")
        assert terminal.end() == 0
        assert '"receipt": "400.00 paid"' in terminal.shown


def test_answers_that_were_typed_ahead_are_taken_in_turn() -> None:
    """Lines that are there before they are asked for answer one question each."""
    with Terminal("run", "shop:questions", "--quiet") as terminal:
        terminal.expect("> ")
        terminal.type("Ada\n1\nn\n2\n")
        assert terminal.end() == 0
        output = json.loads(terminal.shown[terminal.shown.rindex("{") :])
    assert output == {"amount": 2.0, "receipt": None, "name": "Ada", "colour": "red", "is_sure": False}


@pytest.mark.parametrize("term", ["xterm", "dumb"])
def test_a_question_that_is_over_takes_its_half_typed_answer_along(term: str) -> None:
    """Where a question ends by itself it is said so, and what was typed for it answers no other question."""
    with Terminal("run", "shop:hurry", TERM=term) as terminal:
        terminal.expect("Quick, your name?")
        terminal.expect("> ")
        terminal.type("y")
        terminal.expect("Sure? [y/n]: ")
        terminal.type("\n")
        terminal.expect("type y or n")
        terminal.expect("Sure? [y/n]: ")
        terminal.type("n\n")
        assert terminal.end() == 0
        assert "? main/race/who: withdrawn meanwhile" in terminal.shown
        assert '"is_sure": false' in terminal.shown


def test_a_terminal_that_knows_only_ascii_gets_escapes() -> None:
    """An encoding that lacks the marks ends no run."""
    done = from_the_start("tree", "shop:desk", PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("\\xb7 desk (Selector")
