"""`jianmu run` and `resume`, as processes with pipes."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from tests.cli.command import SECONDS, Call, begun, from_the_start, jianmu


def test_the_output_is_json_on_stdout_and_all_else_on_stderr() -> None:
    """A success: exit code 0, one JSON object on stdout, even where nodes print; progress on stderr."""
    done = from_the_start("run", "shop:desk", "--input", '{"amount": 40}')
    assert done.returncode == 0
    assert json.loads(done.stdout) == {
        "amount": 40.0,
        "receipt": "40.00 paid",
        "name": "",
        "colour": "",
        "is_sure": False,
    }
    assert done.stderr.splitlines() == [
        "✓ desk/by rule/small",
        "paying",
        "✓ desk/by rule/pay",
        "✓ desk/by rule",
        "✓ desk",
    ]


@pytest.mark.parametrize("given", ["-", "@{file}"])
def test_input_comes_from_stdin_or_a_file(given: str, tmp_path: Path) -> None:
    """`--input -` reads stdin, `--input @FILE` a file; a BOM does not matter; `--quiet` shows no progress."""
    file = tmp_path / "input.json"
    file.write_text('\ufeff{"amount": 7}', encoding="utf-8")
    done = jianmu("run", "shop:agent", "--quiet", "--input", given.format(file=file), given=file.read_text("utf-8"))
    assert (done.returncode, json.loads(done.stdout)["receipt"], done.stderr) == (0, "7.00 paid", "paying\n")


def test_without_a_terminal_a_question_suspends_and_another_process_answers(call: Call, tmp_path: Path) -> None:
    """Exit code 3 and a checkpoint; a wrong answer leaves it as it was, after a right one the run goes on."""
    file = tmp_path / "run.json"
    done = jianmu("run", "shop:desk", "--input", '{"amount": 400}', "--save", str(file))
    assert done.returncode == 3
    assert json.loads(done.stdout)["receipt"] is None
    assert f"go on: jianmu resume shop:desk {file} --answer JSON" in done.stderr
    before = file.read_bytes()

    done = jianmu("resume", "shop:desk", str(file), "--answer", '"sure"')
    assert (done.returncode, done.stdout, file.read_bytes()) == (2, "", before)
    assert "error: InvalidAnswerError" in done.stderr
    assert done.stderr.endswith("answer with true or false\n")

    assert call("resume", "shop:desk", str(file))[0] == 3

    done = jianmu("resume", "shop:desk", str(file), "--answer", "true")
    assert (done.returncode, json.loads(done.stdout)["receipt"]) == (0, "400.00 paid")

    error = f"error: {file}: this run is over (finished): there is nothing to go on with\n"
    assert call("resume", "shop:desk", str(file), "--answer", "true") == (2, "", error)


def test_one_of_several_questions_is_answered_by_its_id(call: Call, tmp_path: Path) -> None:
    """Without `--id` several open questions are an error that lists them; with it that one is answered."""
    file, next_file = tmp_path / "run.json", tmp_path / "next.json"
    call("run", "shop:questions", "--quiet", "--save", str(file))
    code, _, err = call("resume", "shop:questions", str(file), "--answer", '"Ada"')
    assert (code, "AmbiguousAnswerError" in err) == (2, True)
    ids = err.strip().rpartition("open are ")[2].split(", ")
    code, out, err = call(
        "resume", "shop:questions", str(file), "--id", ids[0], "--answer", '"Ada"', "--save", str(next_file), "--quiet"
    )
    assert (code, json.loads(out)["name"]) == (3, "Ada")
    assert len(ids) == 4
    assert "all/who" not in err
    assert json.loads(file.read_text())["status"] == json.loads(next_file.read_text())["status"] == "suspended"


def test_an_error_is_one_line_with_its_kind_and_its_node(call: Call) -> None:
    """A node's exception: exit code 1, one line, no traceback; `--debug` shows that too."""
    assert call("run", "shop:broken") == (1, "", "error: ValueError: no money (raised by node 'main/boom')\n")
    code, _, err = call("run", "shop:broken", "--debug")
    assert (code, "Traceback" in err) == (1, True)


def test_an_agents_own_human_is_asked(call: Call) -> None:
    """An agent that has a human asks that one: nothing is suspended."""
    code, out, _ = call("run", "shop:with_human", "--quiet")
    assert (code, json.loads(out)["amount"]) == (0, 7.0)


def test_an_answer_is_in_the_file_before_anything_follows_from_it(call: Call, tmp_path: Path) -> None:
    """`resume` killed in the middle of what follows: the answer was kept, and is not asked for again."""
    file = tmp_path / "run.json"
    call("run", "shop:asks_then_sleeps", "--quiet", "--save", str(file))
    process = begun("resume", "shop:asks_then_sleeps", str(file), "--answer", '"Ada"', folder=tmp_path)
    process.kill()
    process.communicate(timeout=SECONDS)
    records = json.loads(file.read_text())["questions"]["records"]
    assert [record["question"]["status"] for record in records] == ["answered"]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_halts_the_run_and_awaits_its_cleanups(number: signal.Signals, code: int, tmp_path: Path) -> None:
    """Ctrl-C and SIGTERM: cleanups ran, the position is saved, no traceback, nothing is alive afterwards."""
    file = tmp_path / "run.json"
    process = begun("run", "shop:sleepy", "--save", str(file), folder=tmp_path)
    os.killpg(process.pid, number)
    out, err = process.communicate(timeout=SECONDS)
    assert (process.returncode, out, err) == (code, "", "interrupted\n")
    assert (tmp_path / "cleaned").exists()
    assert json.loads(file.read_text())["status"] == "interrupted"
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)
