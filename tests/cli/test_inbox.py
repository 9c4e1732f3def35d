"""The inbox: open questions of all threads, answered by their ids."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.command import HERE, Call, Terminal
from tests.cli.test_threads import DEAR, listed


@pytest.fixture
def ids(call: Call, store: Path) -> dict[str, str]:
    """Two threads, one that asks four questions, one that wants an approval; returns ids by path."""
    call("run", "shop:questions", "--thread", "t1", "--quiet")
    call("run", "shop:desk", "--thread", "t2", "--input", DEAR, "--quiet")
    return {str(one["path"]): str(one["id"]) for one in listed(call("inbox", "--json")[1])}


def test_open_questions_are_listed_the_oldest_first(call: Call, ids: dict[str, str]) -> None:
    """Two lines each: id, age and question, then thread, path and what else there is."""
    code, out, err = call("inbox")
    lines = out.splitlines()
    assert (code, err, len(lines)) == (0, "", 11)
    assert lines[1].split(maxsplit=3) == [ids["all/who"], "just", "now", "What is your name?"]
    assert lines[2].strip() == "t1: all/who"
    assert lines[-1].strip() == "t2: desk/by hand, approval"


@pytest.mark.parametrize(
    ("filters", "count"),
    [
        ("--reason approval", 1),
        ("--thread t1", 4),
        ("--assignee ada", 0),
        ("--older-than 1h", 0),
        ("--older-than 0", 5),
        ("--limit 2", 2),
    ],
)
def test_filters_pick_questions(filters: str, count: int, call: Call, ids: dict[str, str]) -> None:
    """By assignee, reason, thread and age; a page goes on after its cursor."""
    assert len(listed(call("inbox", "--json", *filters.split())[1])) == count
    first = listed(call("inbox", "--json", "--limit", "2")[1])
    rest = listed(call("inbox", "--json", "--after", str(first[-1]["cursor"]))[1])
    assert [one["id"] for one in [*first, *rest]] == list(ids.values())


def test_questions_are_counted(call: Call, ids: dict[str, str]) -> None:
    """By assignee, reason and age."""
    code, out, _ = call("inbox", "--counts")
    assert (code, out.splitlines()[0]) == (0, "5 open")
    assert ["reason", "approval", "1"] in [line.split() for line in out.splitlines()]
    counts = json.loads(call("inbox", "--counts", "--json")[1])
    assert counts["by_assignee"] == [{"assignee": None, "open": 5}]
    assert counts["by_reason"] == {"input": 4, "approval": 1}
    assert call("inbox", "--counts", "--thread", "t1")[0] == 2


def test_an_answer_is_kept_and_its_thread_is_due(call: Call, ids: dict[str, str]) -> None:
    """`answer` runs nothing; the run that goes on has it, and with `--key` the same answer is taken once."""
    for _ in range(2):
        code, out, err = call("answer", ids["all/much"], "-12.5", "--by", "ada", "--key", "k1")
        assert (code, out, err) == (0, "answered: all/much of thread 't1'\n", "")
    assert ids["all/much"] not in call("inbox")[1]
    assert call("threads", "--json", "--limit", "1")[1] != ""
    assert listed(call("threads", "--json")[1])[0]["wake_at"] is not None
    assert call("drive", "shop:questions", "--once")[1] == "t1: suspended, waits at all/who, all/colour, all/sure\n"
    assert json.loads(call("show", "t1", "--json")[1])["fields"]["amount"] == -12.5


def test_answers_that_are_refused_change_nothing(call: Call, ids: dict[str, str]) -> None:
    """Exit code 2, the kind of the refusal, and what would be taken."""
    for line, error in [
        (["answer", "nope", "1"], "UnknownSuspensionError: no question has the id 'nope': `jianmu inbox` lists those"),
        (["answer", ids["all/much"], "much"], "the answer is not JSON: Expecting value (line 1, column 1); answer"),
        (["answer", ids["all/much"], "true"], "InvalidAnswerError: "),
        (["answer", ids["all/colour"], '"blue"'], "InvalidAnswerError: "),
        (["answer", "nope", "much"], "UnknownSuspensionError: no question has the id 'nope'"),
        (["approve", ids["all/who"]], "InvalidAnswerError: "),
        (["claim", "nope", "--by", "ada"], "UnknownSuspensionError: no question has the id 'nope'"),
    ]:
        code, out, err = call(*line)
        assert (code, out) == (2, "")
        assert err.startswith(f"error: {error}")
    assert err.count("\n") == 1
    assert "answer with a number" in call("answer", ids["all/much"], "true")[2]
    assert len(listed(call("inbox", "--json")[1])) == 5


def test_the_second_answer_is_told_of_the_first(call: Call, ids: dict[str, str]) -> None:
    """Who answered, and when; that answer stands."""
    call("answer", ids["all/who"], '"Ada"', "--by", "ada")
    code, _, err = call("answer", ids["all/who"], '"Bob"')
    assert code == 2
    assert "was answered before by ada, just now; that answer stands" in err


def test_approvals_are_given_and_refused_with_all_that_belongs_to_them(call: Call, ids: dict[str, str]) -> None:
    """`approve --edited --remember` and `reject --reason` are short for the payload of an approval."""
    call("fork", "t2", "t3")
    other = next(str(one["id"]) for one in listed(call("inbox", "--json", "--thread", "t3")[1]))
    line = ["approve", ids["desk/by hand"], "--edited", '{"amount": 1}', "--remember", "--by", "ada", "--json"]
    told = json.loads(call(*line)[1])["answer"]
    assert (told["payload"]["editedArgs"], told["payload"]["remember"], told["by"]) == ({"amount": 1}, True, "ada")
    assert call("reject", other, "--reason", "too much") == (0, "rejected: desk/by hand of thread 't3'\n", "")
    assert call("approve", other, "--edited", "{")[0] == 2


def test_a_claim_keeps_others_from_answering(call: Call, ids: dict[str, str]) -> None:
    """Somebody else's answer, claim and release are refused until it is released, or for as long as was said."""
    id = ids["all/who"]
    code, out, _ = call("claim", id, "--by", "ada", "--for", "2h")
    assert (code, out.startswith("claimed by ada until 20"), out.endswith(": t1: all/who\n")) == (0, True, True)
    assert "t1: all/who, claimed by ada" in call("inbox")[1]
    for line in (["claim", id, "--by", "bob"], ["answer", id, '"B"', "--by", "bob"], ["release", id, "--by", "bob"]):
        code, _, err = call(*line)
        assert (code, err.startswith("error: ClaimedError: ")) == (2, True)
    assert call("release", id, "--by", "ada") == (0, "released\n", "")
    assert call("answer", id, '"B"', "--by", "bob")[0] == 0


def test_a_run_at_a_terminal_hears_of_an_answer_from_elsewhere(call: Call, store: Path) -> None:
    """What is asked at the terminal can be answered by another process: it is said, and the run goes on."""
    with Terminal("run", "shop:hurry", "--thread", "t", cwd=HERE) as terminal:
        terminal.expect("Sure? [y/n]: ")
        (question,) = listed(call("inbox", "--json")[1])
        assert call("answer", str(question["id"]), "true")[0] == 0
        assert terminal.end() == 0
        assert "? main/sure: answered meanwhile" in terminal.shown
        assert '"is_sure": true' in terminal.shown
