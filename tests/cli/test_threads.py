"""Threads in a store, by commands that know nothing of their program."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.cli.command import Call, Terminal

DEAR = '{"amount": 400}'


def listed(out: str) -> list[dict[str, object]]:
    """Return the objects of JSON Lines."""
    return [json.loads(line) for line in out.splitlines()]


@pytest.fixture
def asked(call: Call, store: Path) -> str:
    """A thread `order-1` that waits for an approval; returns the question's id."""
    assert call("run", "shop:desk", "--thread", "order-1", "--input", DEAR, "--quiet")[0] == 3
    return str(listed(call("inbox", "--json")[1])[0]["id"])


def test_without_a_store_it_is_said_how_to_come_by_one(call: Call, store: Path) -> None:
    """Looking makes no file: exit code 2, and what to do."""
    lines = ["threads", "show t", "inbox", "answer x 1", "sweep", "drive shop:desk --once", "recover shop:desk t"]
    for line in lines:
        code, out, err = call(*line.split())
        assert (code, out) == (2, "")
        assert f"error: there is no store {store}: name one with --store" in err
    assert not store.parent.exists()


def test_threads_are_listed_with_how_they_stand(call: Call, asked: str) -> None:
    """One line a thread for people, one object a line for programs; a status picks."""
    call("run", "shop:broken", "--thread", "order-2")
    code, out, err = call("threads")
    assert (code, err) == (0, "")
    head, first, second = out.splitlines()
    assert head.split() == ["thread", "status", "due", "changed", "stands"]
    assert first.split(maxsplit=4) == ["order-1", "suspended", "just", "now", "waits at desk/by hand"]
    assert second.endswith("ValueError at main/boom: no money")
    found = listed(call("threads", "--json")[1])
    assert [(info["thread_id"], info["status"]) for info in found] == [
        ("order-1", "suspended"),
        ("order-2", "interrupted"),
    ]
    assert [info["thread_id"] for info in listed(call("threads", "--json", "--status", "interrupted")[1])] == [
        "order-2"
    ]
    assert call("threads", "--status", "crashed") == (0, "", "no threads\n")


def test_threads_are_listed_with_their_titles(call: Call, store: Path) -> None:
    """Where a state has one; no program is loaded for it, and a thread that cannot be read has none."""
    call("run", "shop:titled", "--thread", "a", "--input", '{"title": "Taxes 2026"}', "--quiet")
    call("run", "shop:desk", "--thread", "b", "--input", DEAR, "--quiet")
    head, first, second = call("threads")[1].splitlines()
    assert head.split() == ["thread", "title", "status", "due", "changed", "stands"]
    assert first.split() == ["a", "Taxes", "2026", "finished", "just", "now"]
    assert second.split()[:2] == ["b", "suspended"]
    with closing(sqlite3.connect(store)) as file, file:
        file.execute("UPDATE log SET body = '{\"title\"' WHERE thread = (SELECT pk FROM threads WHERE thread_id = 'a')")
        file.execute("UPDATE rows SET body = '{\"title\"' WHERE kind = 'base'")
    assert call("threads")[1].splitlines()[1].split() == ["a", "finished", "just", "now"]


def test_a_list_has_pages(call: Call, store: Path) -> None:
    """`--limit` cuts, the end of a page says how to go on, and `--json` without a limit gives all."""
    for number in range(5):
        call("run", "shop:stock", "--thread", f"t{number}", "--quiet")
    code, out, err = call("threads", "--limit", "2")
    assert (code, len(out.splitlines()), err) == (0, 3, "there are more: --after t1\n")
    code, out, err = call("threads", "--limit", "2", "--after", "t2")
    assert (len(out.splitlines()), err) == (3, "")
    assert len(listed(call("threads", "--json")[1])) == 5
    assert len(listed(call("threads", "--json", "--limit", "4")[1])) == 4


def test_a_thread_is_shown_with_all_that_a_person_has_to_know(call: Call, asked: str) -> None:
    """Status, open questions and how to answer them, position and state; `--at` shows an earlier number."""
    code, out, err = call("show", "order-1")
    assert (code, err) == (0, "")
    assert "status    suspended\n          waits at desk/by hand\n" in out
    assert f"  jianmu answer {asked} JSON\n    JSON is true or false\n" in out
    assert "  ▶ desk/by hand\n" in out
    assert "  amount = 400.0\n" in out
    before = json.loads(call("show", "order-1", "--at", "1", "--json")[1])
    assert (before["number"], before["status"], before["asked"]) == (1, "running", [])


def test_subagents_that_do_nothing_are_shown_as_what_they_are(call: Call, store: Path) -> None:
    """The one at work as it is, the one that is done as idle, and the copy that was never used not at all."""
    assert call("run", "shop:helped", "--thread", "t", "--input", '{"messages": []}', "--quiet")[0] == 3
    act = "react/rounds/round/next/act"
    out = call("show", "t")[1]
    heads = [line for line in out.splitlines() if line.startswith("state of ")]
    assert heads == [f"state of {act}/asks:", f"state of {act}/looks (idle):"]
    inner = json.loads(call("show", "t", "--json")[1])["inner"]
    assert [*inner] == [f"{act}/asks", f"{act}/asks[2]", f"{act}/looks"]


def test_the_log_of_a_thread_is_told_number_by_number(call: Call, asked: str) -> None:
    """What each transaction was for, and what it wrote."""
    out = call("history", "order-1")[1]
    assert out.splitlines()[0].split() == ["number", "time", "for", "status", "bytes", "writes", "nodes"]
    steps = listed(call("history", "order-1", "--json")[1])
    assert [(step["number"], step["what"]) for step in steps] == [(1, "input"), (2, "end")]
    assert "amount" in steps[0]["fields"]  # pyright: ignore[reportOperatorIssue]  # JSON
    assert call("history", "order-1", "--limit", "1")[2] == "there are more: --after 1\n"


def test_a_fork_goes_on_beside_its_source(call: Call, asked: str) -> None:
    """`fork` writes the new id; answering the fork's question leaves the source's open."""
    assert call("fork", "order-1", "order-1b") == (0, "order-1b\n", "")
    made = call("fork", "order-1", "--json")[1]
    assert len(json.loads(made)["thread_id"]) == 32
    ids = {str(one["thread_id"]): str(one["id"]) for one in listed(call("inbox", "--json")[1])}
    assert len(ids) == 3
    assert call("answer", ids["order-1b"], "true")[0] == 0
    assert call("drive", "shop:desk", "--once")[1] == "order-1b: finished\n"
    assert asked in call("inbox")[1]


def test_a_fork_without_its_program_says_what_it_lacks(call: Call, store: Path) -> None:
    """The sandbox is the other thread's, and a later rename is not there; with the program the fork has its own."""
    box = '{"sandbox": {"sandbox_id": "s1"}, "title": "from a model"}'
    call("run", "shop:threaded", "--thread", "t", "--input", box, "--quiet")
    code, out, err = call("fork", "t", "plain")
    assert (code, out) == (0, "plain\n")
    assert err == "'plain' does not have a sandbox of its own: fork it with --agent module:name to give it that\n"
    call("run", "shop:threaded", "--thread", "t", "--input", '{"title": "Taxes", "title_by": "person"}', "--quiet")
    err = call("fork", "t", "early", "--at", "1")[2]
    assert err.startswith("'early' does not have a sandbox of its own and the name 'Taxes': fork it with --agent ")
    assert call("fork", "t", "own", "--at", "1", "--agent", "shop:threaded") == (0, "own\n", "")
    fields = {id: json.loads(call("show", id, "--json")[1])["fields"] for id in ("early", "own")}
    told = {id: (one["title"], one["title_by"], one["sandbox"]) for id, one in fields.items()}
    assert told == {"early": ("from a model", None, {"sandbox_id": "s1"}), "own": ("Taxes", "person", None)}
    code, out, err = call("fork", "no such", "--agent", "shop:threaded")
    assert (code, out, err) == (2, "", "error: UnknownThreadError: there is no thread 'no such' in the store\n")


def test_a_pruned_thread_goes_on_as_before(call: Call, asked: str) -> None:
    """`prune` says where the log begins now."""
    assert call("prune", "order-1") == (0, "the log of 'order-1' begins with number 2 now\n", "")
    assert listed(call("history", "order-1", "--json")[1]) == []
    code, out, _ = call("resume", "shop:desk", "--thread", "order-1", "--answer", "true", "--quiet")
    assert (code, json.loads(out)["receipt"]) == (0, "400.00 paid")


def test_a_thread_is_deleted_by_who_is_sure(call: Call, asked: str) -> None:
    """Without a terminal `--yes` is wanted; afterwards nothing of the thread is there."""
    code, _, err = call("delete", "order-1")
    assert (code, err) == (2, "error: delete 'order-1': there is no terminal to ask at: give --yes\n")
    assert call("delete", "order-1", "--yes") == (0, "'order-1' was deleted\n", "")
    for line in ("delete order-1 --yes", "show order-1", "history order-1", "prune order-1", "fork order-1"):
        code, out, err = call(*line.split())
        assert (code, out) == (2, "")
        assert err == "error: UnknownThreadError: there is no thread 'order-1' in the store\n"
    assert call("inbox") == (0, "", "no open questions\n")


def test_at_a_terminal_it_is_asked_before_a_thread_is_deleted(call: Call, asked: str) -> None:
    """Only `y` deletes; all else, Ctrl-D too, keeps the thread: exit code 1."""
    for typed, code in (("n\n", 1), ("\x04", 1), ("y\n", 0)):
        with Terminal("delete", "order-1") as terminal:
            terminal.expect("delete thread 'order-1' (suspended)? [y/n]: ")
            terminal.type(typed)
            assert terminal.end() == code
    assert call("show", "order-1")[0] == 2


def test_a_list_fits_the_terminal(call: Call, store: Path) -> None:
    """Long ids are folded, long texts are cut, and what a terminal would obey is written out."""
    call("run", "shop:broken", "--thread", "\x1b[31m" + "x" * 60)
    with Terminal("threads") as terminal:
        assert terminal.end() == 0
        lines = terminal.shown.splitlines()
    assert max(map(len, lines)) <= 80
    assert r"\x1b[31m" in lines[1]
    assert lines[1].endswith("…")
    assert "x" * 20 in lines[2]


@pytest.mark.parametrize(
    ("line", "code", "error"),
    [
        ("show order-1 --at 0", 2, "--at 0: the numbers of a log begin with 1"),
        ("show order-1 --at 9", 1, "StoreError: the log of 'order-1' has the numbers 1 to 2, not 9"),
        ("prune order-1 --at 9", 1, "StoreError: the log of 'order-1' has the numbers 1 to 2, not 9"),
        ("fork order-1 order-1", 1, "StoreError: there is a thread 'order-1' already: give the fork another id"),
        ("threads --limit 0", 2, "--limit 0: at least one"),
        ("threads --store .", 2, "--store . is a folder: name a file"),
        ("threads --store mysql://x", 2, "--store takes a path, or postgresql://user@host/name"),
        ("settle order-1 pay", 2, 'Command "settle" parameter --happened flag required.'),
        ("settle order-1 pay --happened --result x", 2, "--result is not JSON: Expecting value (line 1, column 1)"),
    ],
)
def test_what_cannot_be_done_is_said_on_one_line(line: str, code: int, error: str, call: Call, asked: str) -> None:
    """The kind of the error, and exit code 2 where the command line itself is wrong."""
    found, out, err = call(*line.split())
    assert (found, out, err.splitlines()[0]) == (code, "", f"error: {error}")


def test_a_thread_without_a_name_is_refused(call: Call, store: Path) -> None:
    """An id that no store takes: exit code 2, and no store is made."""
    code, _, err = call("run", "shop:stock", "--thread", "")
    assert (code, store.exists()) == (2, False)
    assert err.startswith("error: a thread's id is a text of 1 to 512 characters")


def test_a_store_that_is_none_or_newer_is_left_as_it_is(call: Call, tmp_path: Path) -> None:
    """Another file, and a store of a newer jianmu: exit code 1, the kind of the error, not one byte changed."""
    file = tmp_path / "notes.txt"
    file.write_text("no store at all\n" * 100)
    code, out, err = call("threads", "--store", str(file))
    assert (code, out) == (1, "")
    assert err.startswith("error: CorruptRecordError: the store")
    assert file.read_text() == "no store at all\n" * 100


def test_a_password_is_shown_nowhere(call: Call) -> None:
    """A server that is not there, a URL that cannot be read: the error has nothing of the URL."""
    for url in ("postgresql://u:sesame@127.0.0.1:1/x", "postgresql://u:ses@me@host/x"):
        code, out, err = call("threads", "--store", url)
        assert code in (1, 2)
        assert "error: StoreError" in err
        assert "ses" not in out + err.replace("addresses", "")
