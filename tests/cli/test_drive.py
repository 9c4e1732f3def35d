"""What keeps threads going: drive, recover, sweep, settle, and what becomes of them when somebody ends it."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from tests.cli.command import SECONDS, Call, begun, jianmu, started
from tests.cli.test_threads import DEAR, listed


def ids(call: Call) -> list[str]:
    """Return the ids of the open questions."""
    return [str(one["id"]) for one in listed(call("inbox", "--json")[1])]


def stand(call: Call) -> dict[str, str]:
    """Return how each thread stands."""
    return {str(info["thread_id"]): str(info["status"]) for info in listed(call("threads", "--json")[1])}


@pytest.fixture
def sleeper(call: Call, store: Path) -> str:
    """A thread whose question was answered, and which sleeps when it is driven."""
    call("run", "shop:asks_then_sleeps", "--thread", "sleeper", "--quiet")
    call("answer", ids(call)[0], '"Ada"')
    return "sleeper"


def test_what_is_due_is_driven_once(call: Call, store: Path) -> None:
    """`--once` drives each answered thread as far as it goes, tells how it stands, and leaves the others alone."""
    for name in ("a", "b", "c"):
        call("run", "shop:desk", "--thread", name, "--input", DEAR, "--quiet")
    first, second, _ = ids(call)
    call("answer", first, "true")
    call("answer", second, "false")
    code, out, err = call("drive", "shop:desk", "--once")
    assert (code, out, err) == (0, "a: finished\nb: failed\n", "paying\n")
    assert call("drive", "shop:desk", "--once") == (0, "", "")
    assert stand(call) == {"a": "finished", "b": "failed", "c": "suspended"}


def test_a_thread_that_fails_keeps_no_other_from_being_driven(call: Call, store: Path) -> None:
    """Its error is told on one line with its id; with `--once` the exit code is 1."""
    for target, name in (("asks_then_breaks", "a"), ("asks_then_breaks", "b"), ("desk", "c")):
        call("run", f"shop:{target}", "--thread", name, "--input", DEAR, "--quiet")
    *named, last = ids(call)
    for id in named:
        call("answer", id, '"Ada"')
    call("approve", last)
    code, out, err = call("drive", "shop:asks_then_breaks", "--once", "--json")
    assert code == 1
    told = {one["thread_id"]: one["problem"] for one in listed(out)}
    assert told["a"] == told["b"] == "ValueError: no money (raised by node 'main/boom')"
    assert str(told["c"]).startswith("TreeMismatchError: ")
    assert err.splitlines()[0] == "error: thread 'a': ValueError: no money (raised by node 'main/boom')"
    assert call("drive", "shop:desk", "--once") == (0, "c: finished\n", "paying\n")


def test_a_driver_hears_of_what_others_do(call: Call, store: Path) -> None:
    """A driver that has nothing to do goes on with a thread as soon as its question is answered elsewhere."""
    with started("drive", "shop:desk", "--every", "0.1s") as driver:
        assert driver.stderr is not None
        assert driver.stdout is not None
        assert driver.stderr.readline() == "driving what is due; Ctrl-C ends it\n"
        call("run", "shop:desk", "--thread", "a", "--input", DEAR, "--quiet")
        call("answer", ids(call)[0], "true")
        assert driver.stdout.readline() == "a: finished\n"
        os.killpg(driver.pid, signal.SIGINT)
        assert driver.communicate(timeout=SECONDS) == ("", "paying\ninterrupted\n")
        assert driver.returncode == 130


def test_a_thread_that_cannot_be_driven_is_told_once_and_left_for_a_while(call: Call, store: Path) -> None:
    """One that does not fit the program stays due: the driver looks at the others, and says it no second time."""
    call("run", "shop:asks_then_breaks", "--thread", "a", "--quiet")
    call("answer", ids(call)[0], '"Ada"')
    with started("drive", "shop:desk", "--every", "0.05") as driver:
        assert driver.stderr is not None
        assert driver.stdout is not None
        driver.stderr.readline()
        assert driver.stderr.readline().startswith("error: thread 'a': TreeMismatchError: ")
        for name in ("b", "c", "d"):
            call("run", "shop:desk", "--thread", name, "--input", DEAR, "--quiet")
            call("answer", ids(call)[0], "true")
            assert driver.stdout.readline() == f"{name}: finished\n"
        os.killpg(driver.pid, signal.SIGINT)
        assert driver.communicate(timeout=SECONDS) == ("", "paying\n" * 3 + "interrupted\n")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_who_ends_a_driver_leaves_the_thread_at_hand_to_the_next(
    number: signal.Signals, code: int, call: Call, sleeper: str, tmp_path: Path
) -> None:
    """Ctrl-C and SIGTERM: the thread is parked after its cleanups, is due, and the next driver goes on with it."""
    driver = begun("drive", "shop:asks_then_sleeps", folder=tmp_path)
    os.killpg(driver.pid, number)
    out, err = driver.communicate(timeout=SECONDS)
    assert (driver.returncode, out, err.splitlines()[-1]) == (code, "", "interrupted")
    assert (tmp_path / "cleaned").exists()
    assert stand(call) == {"sleeper": "interrupted"}
    (tmp_path / "began").unlink()
    again = begun("drive", "shop:asks_then_sleeps", folder=tmp_path)
    again.kill()
    again.communicate(timeout=SECONDS)


def test_a_thread_whose_driver_was_killed_is_driven_by_the_next(call: Call, sleeper: str, tmp_path: Path) -> None:
    """kill -9: the thread counts as crashed, says who held it, and is due at once on the same host."""
    driver = begun("drive", "shop:asks_then_sleeps", folder=tmp_path)
    while stand(call) != {"sleeper": "running"}:
        pass  # its first pass is saved behind the run
    driver.kill()
    driver.communicate(timeout=SECONDS)
    assert stand(call) == {"sleeper": "crashed"}
    assert f"was held by process {driver.pid} on " in call("threads")[1]
    (tmp_path / "began").unlink()
    again = begun("drive", "shop:asks_then_sleeps", "--once", folder=tmp_path)
    again.kill()
    again.communicate(timeout=SECONDS)


def test_drivers_do_not_disturb_each_other(call: Call, store: Path) -> None:
    """Three drivers at once: each thread is driven once, by one of them, and nobody tells an error."""
    names = [f"t{number}" for number in range(12)]
    for name in names:
        call("run", "shop:desk", "--thread", name, "--input", DEAR, "--quiet")
    for id in ids(call):
        call("answer", id, "true")
    with (
        started("drive", "shop:desk", "--once") as one,
        started("drive", "shop:desk", "--once") as two,
        started("drive", "shop:desk", "--once") as three,
    ):
        told = [driver.communicate(timeout=SECONDS) for driver in (one, two, three)]
        assert [driver.returncode for driver in (one, two, three)] == [0, 0, 0]
    assert sorted("".join(out for out, _ in told).splitlines()) == sorted(f"{name}: finished" for name in names)
    assert "".join(err for _, err in told) == "paying\n" * 12


def test_a_held_thread_is_passed_over_and_recover_says_who_holds_it(call: Call, sleeper: str, tmp_path: Path) -> None:
    """While one process is at work on a thread, a driver leaves it alone, and `recover` and `delete` are refused."""
    with begun("recover", "shop:asks_then_sleeps", sleeper, folder=tmp_path) as holder:
        assert call("drive", "shop:asks_then_sleeps", "--once") == (0, "", "")
        assert f"held by process {holder.pid} on " in call("threads")[1]
        for line in (["recover", "shop:asks_then_sleeps", sleeper], ["delete", sleeper, "--yes"]):
            code, out, err = call(*line)
            assert (code, out) == (1, "")
            assert err.startswith(f"error: ThreadBusyError: thread 'sleeper' is held by process {holder.pid} on ")
        holder.kill()
        holder.communicate(timeout=SECONDS)


def test_recover_goes_on_as_far_as_it_can_and_asks_nobody(call: Call, store: Path) -> None:
    """The next question is exit code 3, the end that of the run; a finished thread runs no more."""
    call("run", "shop:desk", "--thread", "a", "--input", DEAR, "--quiet")
    code, out, err = call("recover", "shop:desk", "a", "--quiet")
    assert (code, json.loads(out)["receipt"]) == (3, None)
    assert "go on: jianmu resume shop:desk --thread a --answer JSON" in err
    call("answer", ids(call)[0], "true")
    for told in ("paying\n", ""):
        code, out, err = call("recover", "shop:desk", "a", "--quiet", "--wait")
        assert (code, json.loads(out)["receipt"], err) == (0, "400.00 paid", told)
    assert call("recover", "shop:desk", "b")[::2] == (
        2,
        "error: UnknownThreadError: there is no thread 'b' in the store\n",
    )


def test_deadlines_are_carried_out_without_the_program(call: Call, store: Path) -> None:
    """`sweep` escalates and ends questions, says so, and the thread is due then, with the default as its answer."""
    call("run", "shop:patient", "--thread", "a", "--quiet")
    seen: list[str] = []
    while "expired" not in seen:
        for one in listed(call("sweep", "--json")[1]):
            assert one["assignee"] == "bob"
            seen.append(str(one["status"]))
    assert call("sweep") == (0, "", "no deadline has passed\n")
    assert call("drive", "shop:patient", "--once")[1] == "a: finished\n"
    assert json.loads(call("show", "a", "--json")[1])["fields"]["name"] == "nobody"


@pytest.mark.parametrize(("said", "charges"), [(["--happened", "--result", '"3 charged"'], 1), (["--not-happened"], 2)])
def test_an_effect_of_unknown_outcome_is_settled_by_a_person(
    said: list[str], charges: int, call: Call, store: Path, tmp_path: Path
) -> None:
    """Killed in the middle of a charge: `show` names it, `settle` says what became of it, and the run goes on."""
    (tmp_path / "lost").touch()
    assert jianmu("run", "shop:charging", "--thread", "a", SHOP=str(tmp_path)).returncode == 9
    (tmp_path / "lost").unlink()
    code, _, err = call("recover", "shop:charging", "a", "--quiet")
    assert (code, err.startswith("error: OutcomeUnknownError: once('charge')")) == (1, True)
    assert "effects of unknown outcome:\n  main/charge: Charge.charge (key charge)" in call("show", "a")[1]
    (entry,) = json.loads(call("show", "a", "--json")[1])["unknown"]
    assert call("settle", "a", "nope", "--happened")[0] == 1
    assert call("settle", "a", entry["key"], *said)[0] == 0
    assert call("drive", "shop:charging", "--once")[1] == "a: finished\n"
    assert (tmp_path / "charges").read_text() == "3\n" * charges
