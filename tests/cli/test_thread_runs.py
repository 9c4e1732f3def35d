"""`jianmu run --thread` and `resume --thread`: runs that are kept in a store."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from tests.cli.command import SECONDS, Call, Terminal, begun, started
from tests.cli.test_drive import ids, stand
from tests.cli.test_threads import DEAR, listed
from tests.postgres import Server


def test_a_thread_is_begun_and_gone_on_with_by_its_id(call: Call, store: Path) -> None:
    """Exit code 3 at a question; without new input the same line goes on; after its end it is a new run."""
    code, _, err = call("run", "shop:desk", "--thread", "a", "--input", DEAR, "--quiet")
    assert (code, "go on: jianmu resume shop:desk --thread a --answer JSON" in err) == (3, True)
    first = ids(call)
    assert call("run", "shop:desk", "--thread", "a", "--quiet")[0] == 3
    assert ids(call) == first
    code, out, _ = call("resume", "shop:desk", "--thread", "a", "--answer", "true", "--quiet")
    assert (code, json.loads(out)["receipt"]) == (0, "400.00 paid")
    code, out, _ = call("run", "shop:desk", "--thread", "a", "--input", '{"amount": 7}', "--quiet")
    assert (code, json.loads(out)["receipt"]) == (0, "7.00 paid")
    assert json.loads(call("show", "a", "--json")[1])["run"] == 2


def test_new_input_for_an_unfinished_run_is_refused_unless_it_is_said_what_is_meant(call: Call, store: Path) -> None:
    """Refused with exit code 2 and all three ways; `withdraw` gives up, `queue` waits for its turn."""
    call("run", "shop:desk", "--thread", "a", "--input", DEAR, "--quiet")
    more = ["run", "shop:desk", "--thread", "a", "--input", '{"amount": 500}', "--quiet"]
    code, out, err = call(*more)
    assert (code, out) == (2, "")
    assert err.startswith("error: UnfinishedRunError: thread 'a' has an unfinished run: `jianmu run shop:desk --thread")
    assert call(*more, "--on-new-input", "queue")[0] == 3
    assert 'inputs that wait:\n  {"amount": 500}\n' in call("show", "a")[1]
    assert call(*more, "--on-new-input", "withdraw")[0] == 3
    (question,) = listed(call("inbox", "--json")[1])
    assert question["message"] == "Pay 500.00?"


def test_input_for_a_thread_at_which_another_process_works_can_wait(call: Call, store: Path, tmp_path: Path) -> None:
    """Refused with the kind and the holder, or kept for its turn: exit code 3."""
    with begun("run", "shop:sleepy", "--thread", "a", folder=tmp_path) as holder:
        line = ["run", "shop:sleepy", "--thread", "a", "--input", '{"name": "Ada"}']
        code, out, err = call(*line)
        assert (code, out) == (1, "")
        assert err.startswith(f"error: ThreadBusyError: thread 'a' is held by process {holder.pid} on ")
        told = "another process is at work on the thread: the input waits for its turn\n"
        assert call(*line, "--on-new-input", "queue") == (3, "{}\n", told)
        holder.kill()
        holder.communicate(timeout=SECONDS)
    assert json.loads(call("show", "a", "--json")[1])["inputs"] == [{"name": "Ada"}]


def test_an_input_that_is_delivered_twice_is_applied_once(call: Call, store: Path) -> None:
    """The same `--input-id` gives the first one's output, and nothing is paid again."""
    line = ["run", "shop:desk", "--thread", "a", "--input", '{"amount": 7}', "--input-id", "mail-1", "--quiet"]
    first = call(*line)
    assert (first[0], first[2]) == (0, "paying\n")
    assert call(*line) == (0, first[1], "")


def test_a_refused_answer_leaves_the_thread_as_it_was(call: Call, store: Path) -> None:
    """`resume --thread` with a wrong answer, a wrong id, no file and no thread: exit code 2, what would be taken."""
    call("run", "shop:desk", "--thread", "a", "--input", DEAR, "--quiet")
    before = call("history", "a", "--json")
    code, out, err = call("resume", "shop:desk", "--thread", "a", "--answer", "3")
    assert (code, out) == (2, "")
    assert err.endswith("; answer with true or false\n")
    assert call("history", "a", "--json") == before
    for line, error in [
        ("resume shop:desk --thread b --answer true", "UnknownThreadError: there is no thread 'b' in the store"),
        ("resume shop:desk --thread b", "UnknownThreadError: there is no thread 'b' in the store"),
        ("resume shop:desk", "name what to go on with: the FILE of a checkpoint, or --thread ID"),
        ("resume shop:desk x.json --thread a", "name what to go on with: the FILE of a checkpoint, or --thread ID"),
        ("run shop:desk --thread a --save x.json", "--save writes a file, --thread keeps the run in a store: give one"),
        ("run shop:desk --input-id 1", "--input-id and --on-new-input are about a thread: give --thread"),
    ]:
        code, _, err = call(*line.split())
        assert (code, err.startswith(f"error: {error}")) == (2, True)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGKILL, -9)])
def test_a_run_that_was_ended_from_outside_goes_on(
    number: signal.Signals, code: int, call: Call, store: Path, tmp_path: Path
) -> None:
    """Ctrl-C parks the thread, kill -9 leaves it crashed; the same line goes on with it either way."""
    process = begun("run", "shop:sleepy", "--thread", "a", folder=tmp_path)
    os.killpg(process.pid, number)
    process.communicate(timeout=SECONDS)
    assert process.returncode == code
    assert stand(call) == {"a": "interrupted" if code == 130 else "crashed"}
    (tmp_path / "began").unlink()
    again = begun("run", "shop:sleepy", "--thread", "a", folder=tmp_path)
    again.kill()
    again.communicate(timeout=SECONDS)


def test_a_person_goes_on_with_a_thread_at_the_terminal(call: Call, store: Path) -> None:
    """Ctrl-D leaves the question open; the same line asks it again, and the answer goes into the thread."""
    with Terminal("run", "shop:desk", "--thread", "a", "--input", DEAR) as terminal:
        terminal.expect("Pay 400.00? [y/n]: ")
        terminal.type("\x04")
        assert terminal.end() == 3
        assert "go on: jianmu resume shop:desk --thread a --answer JSON" in terminal.shown.replace("\r\n", " ")
    with Terminal("run", "shop:desk", "--thread", "a") as terminal:
        terminal.expect("Pay 400.00? [y/n]: ")
        terminal.type("y\n")
        assert terminal.end() == 0
        assert '"receipt": "400.00 paid"' in terminal.shown
    assert stand(call) == {"a": "finished"}


def test_an_agent_with_a_store_of_its_own_keeps_it(call: Call, store: Path, tmp_path: Path) -> None:
    """What the program says counts: the other store is not made, and it is said so."""
    code, _, err = call("run", "shop:with_store", "--thread", "a", "--quiet")
    assert code == 3
    assert err.startswith("the agent has a store of its own: that one is used, not ")
    assert not store.exists()
    assert call("threads", "--store", str(tmp_path / "own.db"))[1].splitlines()[1].startswith("a ")


def test_threads_are_kept_in_postgresql(call: Call, postgres: Server) -> None:
    """With a URL all is as with a file: run, inbox, answer, drive, show, history, delete."""
    store = ["--store", postgres.dsn]
    id = f"desk-{os.getpid()}"
    assert call("run", "shop:desk", "--thread", id, "--input", DEAR, "--quiet", *store)[0] == 3
    (question,) = listed(call("inbox", "--json", "--thread", id, *store)[1])
    assert call("answer", str(question["id"]), "true", *store)[0] == 0
    with started("drive", "shop:desk", "--every", "0.1", *store) as driver:
        assert driver.stdout is not None
        assert driver.stdout.readline() == f"{id}: finished\n"
        os.killpg(driver.pid, signal.SIGINT)
        driver.communicate(timeout=SECONDS)
    view = json.loads(call("show", id, "--json", *store)[1])
    assert (view["status"], view["fields"]["receipt"]) == ("finished", "400.00 paid")
    assert len(listed(call("history", id, "--json", *store)[1])) == view["number"]
    assert call("delete", id, "--yes", *store)[0] == 0
    assert call("show", id, *store)[0] == 2


def test_the_threads_that_todays_program_could_not_load_are_listed(call: Call, store: Path) -> None:
    """`check-threads` runs nothing: exit code 1 and each misfit with its reason, 0 where all fit."""
    call("run", "shop:desk", "--thread", "a", "--input", DEAR, "--quiet")
    call("run", "shop:desk", "--thread", "b", "--input", '{"amount": 7}', "--quiet")
    assert call("check-threads", "shop:desk") == (0, "0 of 2 threads do not fit\n", "")
    before = call("history", "a", "--json")
    code, out, err = call("check-threads", "shop:other_desk")
    assert (code, err) == (1, "")
    lines = out.splitlines()
    assert lines[1].startswith("a       suspended  TreeMismatchError: the saved position does not fit this tree at")
    assert (len(lines), lines[-1]) == (3, "1 of 2 threads do not fit")
    (told,) = listed(call("check-threads", "shop:other_desk", "--json")[1])
    assert (told["thread_id"], told["status"]) == ("a", "suspended")
    assert call("history", "a", "--json") == before


def test_checking_threads_calls_nothing_of_the_program(call: Call, store: Path, tmp_path: Path) -> None:
    """A thread that was cut short is loaded and left again: its nodes are neither run nor halted."""
    for name in ("a", "b"):
        process = begun("run", "shop:motor", "--thread", name, folder=tmp_path)
        os.killpg(process.pid, signal.SIGINT)
        process.communicate(timeout=SECONDS)
        (tmp_path / "began").unlink()
    (tmp_path / "stopped").unlink()
    assert call("check-threads", "shop:motor")[:2] == (0, "0 of 2 threads do not fit\n")
    assert not (tmp_path / "began").exists()
    assert not (tmp_path / "stopped").exists()
