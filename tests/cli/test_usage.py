"""What the command line refuses, and how it says so; and the commands that only look."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.command import HERE, Call

FORM = "write it as module:name, like shop.desk:agent"
WANTED = "name an Agent, or a function without arguments that returns one"
COMMANDS = "run, resume, step, tree, demo, chat, threads, show"
UNKNOWN = "UnknownFieldError: Refund has no field 'amoun': did you mean 'amount'"


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("run", 'Command "run" parameter AGENT requires an argument.'),
        ("walk", f'Unknown command "walk". Available commands: {COMMANDS}, ...'),
        ("run shop:desk --fast", "Unknown option: --fast. Did you mean --store?"),
        ("run shop", f"'shop' names a module, not an agent: {FORM}; its agents are: agent"),
        ("run shop:", f"'shop:' names no agent: {FORM}"),
        ("run ./shop.py:desk", f"'./shop.py' is a path, not a module: {FORM}"),
        ("run shop:dosk", "module 'shop' has no 'dosk'; did you mean 'desk'?"),
        ("run shop:number", f"'shop:number' is int: {WANTED}"),
        ("run shop:Refund", f"'shop:Refund' is a function that returned Refund: {WANTED}"),
        ("run nowhere.at.all:x", f"there is no module 'nowhere' in {HERE} or among what is installed"),
        ('run shop:desk --input {"amount"', "--input is not JSON: Expecting ':' delimiter (line 1, column 10)"),
        ('run shop:desk --input {"amount":NaN}', "--input is not JSON: NaN is no JSON value"),
        ("run shop:desk --input [1]", "--input has to be a JSON object of fields, not a list"),
        ("run shop:desk --input @nowhere.json", "--input @nowhere.json: No such file or directory"),
        ('run shop:desk --input {"amoun":1}', f"{UNKNOWN}; writer 'input'"),
        ('step shop:desk --input {"x.y":1}', "InputError: the key 'x.y' has a dot: input gives fields, not namespaces"),
        ("run shop:desk --save /nowhere/run.json", "/nowhere/run.json: there is no folder /nowhere"),
        ("run shop:desk --save /", "/ is a folder: name a file"),
        ("resume shop:desk nowhere.json", "nowhere.json: No such file or directory"),
        ("resume shop:desk shop.py", "shop.py is not JSON: Extra data (line 1, column 3)"),
        ("step shop:desk --ticks 0", "--ticks 0: at least one"),
        ("tree shop:desk --format svg", 'Invalid value "svg" for --format. Choose from: "text", "mermaid", "dot".'),
        ("demo nowhere.jsonl", "nowhere.jsonl: No such file or directory"),
        ("demo .", ".: Is a directory"),
        ("demo shop.py --report shop.py", "shop.py: the report would take the place of the requests"),
    ],
)  # fmt: skip
def test_wrong_usage_is_refused_on_one_line(line: str, error: str, call: Call) -> None:
    """Exit code 2, nothing on stdout, what is wrong and what to write instead on stderr."""
    code, out, err = call(*line.split())
    assert (code, out) == (2, "")
    assert err.splitlines()[0] == f"error: {error}"
    assert "Traceback" not in err


def test_a_write_that_input_causes_is_wrong_usage(call: Call, tmp_path: Path) -> None:
    """Input of the wrong type: exit code 2, no value in the text, and no checkpoint of a run that never was."""
    file = tmp_path / "run.json"
    code, _, err = call("run", "shop:desk", "--input", '{"amount": "much"}', "--save", str(file))
    assert (code, file.exists()) == (2, False)
    assert "field 'amount' takes float and was given str" in err
    assert "much" not in err


@pytest.mark.parametrize("record", ["[1]", "{}", '{"format": 99}'])
def test_a_file_that_is_no_checkpoint_is_refused(record: str, call: Call, tmp_path: Path) -> None:
    """`resume` and `tree --statuses` take only what `--save` has written: exit code 2."""
    file = tmp_path / "run.json"
    file.write_text(record)
    for line in (["resume", "shop:desk", str(file)], ["tree", "shop:desk", "--statuses", str(file)]):
        code, out, err = call(*line)
        assert (code, out) == (2, "")
        assert err.startswith(f"error: {file}")


def test_a_checkpoint_of_another_tree_is_refused(call: Call, tmp_path: Path) -> None:
    """A checkpoint fits its own tree only: exit code 2, with a path that is not there."""
    file = tmp_path / "run.json"
    assert call("run", "shop:questions", "--quiet", "--save", str(file))[0] == 3
    for line in (["resume", "shop:desk", str(file)], ["tree", "shop:desk", "--statuses", str(file)]):
        code, _, err = call(*line)
        assert (code, "'all" in err) == (2, True)


def test_failures_limits_and_stalls_have_their_kind_on_stderr(call: Call) -> None:
    """Exit code 1: a failure and a stall name the node, a limit its name."""
    code, _, err = call("run", "shop:stalled")
    assert (code, err.splitlines()) == (
        1,
        [
            "! stalled: nothing can wake main/wait",
            "error: StalledError: nothing can wake the tree but a write from outside",
        ],
    )
    assert call("run", "shop:failing", "--quiet")[::2] == (1, "failure: the tree failed at 'main/refuse'\n")
    why = "failure: the tree failed at 'react/rounds/round/is lost/think': model 'm': the policy\n"
    assert call("run", "shop:refused", "--quiet")[::2] == (1, why)
    code, out, err = call("run", "shop:limited", "--quiet")
    assert (code, out) == (1, "")
    assert err.startswith("error: LimitExceeded: the run has used its 3 passes")


def test_a_stock_tree_can_be_run(call: Call) -> None:
    """A py_trees tree will do in the place of an agent."""
    assert call("run", "shop:stock") == (0, "{}\n", "✓ stock/fine: success\n✓ stock\n")


def test_steps_show_what_ran_and_what_changed(call: Call) -> None:
    """One line a tick: number, status, leaves, changed fields; it ends with the tree's result."""
    code, out, _ = call("step", "shop:desk", "--input", '{"amount": 40}')
    assert code == 0
    assert out.splitlines() == ['  1 ▶  ✓ small ▶ pay  | amount=40.0, receipt="40.00 paid"', "  2 ✓  ✓ pay"]


def test_steps_are_json_lines_if_wanted(call: Call) -> None:
    """`--json`: one object a tick; `--ticks N` ticks N times; a question at the end is exit code 3."""
    code, out, err = call("step", "shop:desk", "--json", "--ticks", "2", "--input", '{"amount": 400}')
    first, second = map(json.loads, out.splitlines())
    assert (code, err) == (3, "waits: desk/by hand: Pay 400.00?\n")
    assert first["ran"][0] == {"path": "desk/by rule/small", "status": "FAILURE"}
    assert (first["changed"], first["writers"], first["waits"]) == (
        {"amount": 400.0},
        {"amount": "input"},
        ["desk/by hand"],
    )
    assert (second["tick"], second["status"], second["changed"]) == (2, "RUNNING", {})


def test_trees_are_drawn_with_the_statuses_of_a_checkpoint(call: Call, tmp_path: Path) -> None:
    """`tree` draws text, Mermaid and Graphviz, without running or setting up anything."""
    file = tmp_path / "run.json"
    call("run", "shop:desk", "--input", '{"amount": 400}', "--save", str(file))
    assert call("tree", "shop:desk")[1].startswith("· desk (Selector, memory)\n├─ · by rule (Sequence, memory)\n")
    code, out, err = call("tree", "shop:desk", "--statuses", str(file))
    assert (code, err) == (0, "")
    assert "▶ desk (Selector, memory)\n├─ ✗ by rule (Sequence, memory)\n│  ├─ ✗ small (is_small)\n" in out
    assert call("tree", "shop:desk", "--format", "mermaid")[1].startswith("flowchart TD\n")
    assert call("tree", "shop:desk", "--format", "dot")[1].startswith("digraph tree {\n")


def test_without_the_extra_the_command_prints_the_line_that_installs_it() -> None:
    """Where rich or cyclopts is missing: exit code 2 and the pip line; the library itself imports neither."""
    program = """
import sys
import jianmu
assert not {"cyclopts", "jsonschema", "rich.live"} & set(sys.modules)  # structlog imports some of rich
from importlib.machinery import PathFinder
find = PathFinder.find_spec
PathFinder.find_spec = lambda name, *more: None if name == "cyclopts" else find(name, *more)
from jianmu.cli import main
sys.exit(main(["--help"]))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stderr) == (
        2,
        "error: the command line needs the extra 'cli': pip install 'jianmu[cli]'\n",
    )
