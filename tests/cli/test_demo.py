"""`jianmu demo`: the refund desk, with a person, with a script, and cut short."""

from __future__ import annotations

import json
import os
import re
import signal
from pathlib import Path

import pytest

from jianmu.cli.demo.reading import LONGEST, read_requests
from tests.cli.command import SECONDS, Terminal, jianmu, started

REQUEST = {"id": "A", "customer": "Ada", "amount": 10}


def requests(file: Path, *lines: object) -> Path:
    """Write a file of requests; texts are lines as they are."""
    file.write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines), "utf-8")
    return file


def counted(file: Path) -> dict[str, int]:
    """Return the counts of a report, which have to add up to its lines."""
    report = json.loads(file.read_text("utf-8"))
    assert sum(report["counts"].values()) == report["lines"]
    assert len(report["requests"]) + len(report["skipped"]) == report["lines"]
    return {name: count for name, count in report["counts"].items() if count}


def test_without_a_terminal_a_scripted_reviewer_answers(tmp_path: Path) -> None:
    """The 20 lines that come with it: the rule is printed, all lines are accounted for, exit code 0."""
    done = jianmu("demo", cwd=tmp_path)
    assert done.returncode == 0
    head, total, where = done.stdout.splitlines()
    assert head.endswith(
        "no terminal, so a scripted reviewer answers: y up to 200 if bought within 60 days, otherwise n"
    )
    assert total == "20 lines = 10 paid + 2 unpaid + 4 declined + 2 refused + 2 skipped"
    assert where == "report: refund-report.md"
    told = done.stderr.splitlines()
    assert told[0] == "! line 5 skipped: not JSON: Unterminated string starting at (column 81)"
    assert len(told) == 20
    report = (tmp_path / "refund-report.md").read_text("utf-8")
    assert "refunds.jsonl, finished: 20 lines" in report
    assert "| 6 | R-1006 | 王小明 | 128.40 EUR | paid | reviewer | above 50 |" in report
    assert "- line 13: amount: is missing" in report


def test_a_person_is_asked_for_y_or_n_while_payments_go_on(tmp_path: Path) -> None:
    """A plain line ends with `[y/n]: `, all else is asked again; what was approved is paid, the rest declined."""
    file = requests(
        tmp_path / "in.jsonl",
        {**REQUEST, "id": "small"},
        {**REQUEST, "id": "dear", "amount": 400, "reason": "broken"},
        {**REQUEST, "id": "old", "days": 90},
    )
    with Terminal("demo", str(file), "--report", "out.json", cwd=tmp_path) as terminal:
        shown = terminal.expect("Refund 400.00 EUR? [y/n]: ")
        assert "▶ refund desk (Sequence, memory)" in shown
        assert "0 of 3 settled, 1 decided" in shown
        assert "dear · Ada · 400.00 EUR · bought 0 days ago" in shown
        terminal.type("sure\n")
        terminal.expect("type y or n")
        terminal.expect("Refund 400.00 EUR? [y/n]: ")
        terminal.type("y\n")
        terminal.expect("Refund 10.00 EUR? [y/n]: ")
        terminal.type("n\n")
        terminal.expect("3 of 3 settled, 3 decided")
        assert terminal.end() == 0
        assert "3 lines = 2 paid + 1 declined" in terminal.shown
    assert counted(tmp_path / "out.json") == {"paid": 2, "declined": 1}


@pytest.mark.parametrize(("key", "code", "end"), [("\x03", 130, "interrupted"), ("\x04", 3, "left open")])
def test_what_was_decided_is_in_the_report_of_a_desk_that_was_left(
    key: str, code: int, end: str, tmp_path: Path
) -> None:
    """Ctrl-C and Ctrl-D at a question: the report has what was done and what is open, no process is left."""
    file = requests(tmp_path / "in.jsonl", REQUEST, {**REQUEST, "id": "B", "amount": 400}, {**REQUEST, "id": "C"}, "{")
    with Terminal("demo", str(file), "--report", "out.json", cwd=tmp_path) as terminal:
        terminal.expect("[y/n]: ")
        terminal.type("maybe\n")
        terminal.expect("[y/n]: ")
        terminal.type(key)
        assert terminal.end() == code
        assert f"({end}; start it again to go on)" in terminal.shown
        assert "Traceback" not in terminal.shown
        assert not terminal.has_children()
    counts = counted(tmp_path / "out.json")
    assert counts["skipped"] == 1
    assert counts["open"] in (2, 3)
    assert json.loads((tmp_path / "out.json").read_text())["end"] == end


def test_ctrl_c_in_the_middle_of_payments_keeps_all_accounts(tmp_path: Path) -> None:
    """Without a terminal: exit code 130, and of a payment that was begun it is said that nobody knows."""
    file = requests(tmp_path / "in.jsonl", *({**REQUEST, "id": f"A{number}"} for number in range(50)))
    process = started("demo", str(file), "--report", "out.json", cwd=tmp_path)
    assert process.stderr is not None
    assert process.stderr.readline().startswith("✓ A0 ")
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=SECONDS)
    assert process.returncode == 130
    assert "Traceback" not in err
    counts = counted(tmp_path / "out.json")
    assert counts["paid"] >= 1
    assert counts["paid"] + counts["open"] == 50
    assert re.search(r"50 lines = \d+ paid \+ \d+ open \(interrupted; start it again to go on\)", out)
    notes = {each["note"] for each in json.loads((tmp_path / "out.json").read_text())["requests"]}
    assert notes <= {
        "up to 50",
        "approved; the payment was begun, its outcome is not known",
        "approved, not paid",
        "not decided",
    }


def paid(folder: Path) -> list[str]:
    """Return what the payment service has paid, in order; its ledger outlives every kill."""
    ledger = folder / ".jianmu" / "payments.jsonl"
    return [json.loads(line)["paid"] for line in ledger.read_text("utf-8").splitlines()]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_desk_that_was_ended_at_a_question_goes_on_there(number: signal.Signals, tmp_path: Path) -> None:
    """Killed or Ctrl-C at each question and started again: nothing is paid or asked twice, the report is complete."""
    dear = [{**REQUEST, "id": f"dear-{number}", "amount": 100 + number} for number in range(3)]
    file = requests(tmp_path / "in.jsonl", {**REQUEST, "id": "small"}, *dear, "{")
    asked: list[str] = []
    for each in dear:
        with Terminal("demo", str(file), "--report", "out.json", cwd=tmp_path) as terminal:
            if asked:
                terminal.expect("going on where it was left: ")
            asked.append(terminal.expect("[y/n]: "))
            assert f"Refund {each['amount']}.00 EUR?" in asked[-1]
            terminal.type("y\n")
            terminal.expect("Refund" if each is not dear[-1] else "report: out.json")
            if each is dear[-1]:
                assert terminal.end() == 0
                continue
            os.killpg(terminal.process.pid, number)
            assert terminal.end() == (-9 if number is signal.SIGKILL else 130)
    assert counted(tmp_path / "out.json") == {"paid": 4, "skipped": 1}
    assert sorted(paid(tmp_path)) == ["dear-0", "dear-1", "dear-2", "small"]


def test_a_desk_that_was_killed_at_work_pays_nothing_twice(tmp_path: Path) -> None:
    """Killed again and again while it pays, without a terminal: in the end all is paid once and the report is whole."""
    file = requests(tmp_path / "in.jsonl", *({**REQUEST, "id": f"A{number:02}"} for number in range(12)))
    for kills in range(4):
        with started("demo", str(file), "--report", "out.json", cwd=tmp_path) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            process.stdout.readline()
            if kills:
                assert process.stdout.readline().startswith("going on where it was left: ")
            for _ in range(2):
                assert process.stderr.readline().startswith("✓ A")
            os.killpg(process.pid, signal.SIGKILL)
    done = jianmu("demo", str(file), "--report", "out.json", cwd=tmp_path)
    assert (done.returncode, done.stdout.splitlines()[-2]) == (0, "12 lines = 12 paid")
    assert counted(tmp_path / "out.json") == {"paid": 12}
    assert paid(tmp_path) == [f"A{number:02}" for number in range(12)]


def test_a_desk_that_has_finished_begins_anew(tmp_path: Path) -> None:
    """It is said so, and all is done again from the file as it is now."""
    file = requests(tmp_path / "in.jsonl", REQUEST)
    assert "anew" not in jianmu("demo", str(file), cwd=tmp_path).stdout
    requests(file, REQUEST, {**REQUEST, "id": "B", "amount": -1})
    done = jianmu("demo", str(file), cwd=tmp_path)
    assert done.returncode == 0
    assert done.stdout.splitlines()[1:3] == [
        "the run before has finished: this one begins anew",
        "2 lines = 1 paid + 1 refused",
    ]


def test_a_desk_at_which_somebody_works_is_not_opened_twice(tmp_path: Path) -> None:
    """A second demo on the same file says so without a tree, and writes no report over the other's."""
    file = requests(tmp_path / "in.jsonl", {**REQUEST, "amount": 400})
    with Terminal("demo", str(file), cwd=tmp_path) as terminal:
        terminal.expect("[y/n]: ")
        done = jianmu("demo", str(file), cwd=tmp_path)
        assert done.returncode == 2
        assert done.stderr == ("error: the demo is open in another terminal: go on there, or name another file here\n")
        assert "going on" not in done.stdout
        assert not (tmp_path / "refund-report.md").exists()
        terminal.type("y\n")
        assert terminal.end() == 0


def test_an_empty_file_is_no_error(tmp_path: Path) -> None:
    """Nothing to do: exit code 0 and a report that says so."""
    done = jianmu("demo", str(requests(tmp_path / "in.jsonl")), cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "0 lines, nothing to do" in done.stdout


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b"\xff\xfe", "not UTF-8"),
        (b"[1]", "not a JSON object"),
        (b"{", "not JSON: Expecting property name enclosed in double quotes (column 2)"),
        (b"[" * 90_000, "not JSON: a number or a nesting that is out of all bounds"),
        (b'{"amount": %s}' % (b"9" * 5000), "not JSON: a number or a nesting that is out of all bounds"),
        (b'{"amount": 1e99999999999999999999}', "not JSON: a number or a nesting that is out of all bounds"),
        (b'{"amount": NaN}', "not JSON: a number or a nesting that is out of all bounds"),
        (b'{"id": "%s"}' % (b"x" * 1_000_000), f"longer than {LONGEST:,} bytes"),
        (b'{"customer": "c", "amount": 1}', "id: is missing"),
        (b'{"id": "", "customer": "c", "amount": 1}', "id: string should have at least 1 character"),
        (b'{"id": "a", "customer": "c", "amount": "1"}', "amount: has to be a number"),
        (b'{"id": "a", "customer": "c", "amount": true}', "amount: has to be a number"),
        (b'{"id": "a", "customer": "\\ud800", "amount": 1}', "customer: is no valid Unicode"),
        (b'{"id": "a", "customer": "c", "amount": 1, "days": 1.5}', "days: has to be a whole number"),
    ],
)
def test_a_malformed_line_is_skipped_with_its_number(line: bytes, problem: str, tmp_path: Path) -> None:
    """Whatever stands in one line, the others are read; blank lines, a BOM and CRLF do not matter."""
    file = tmp_path / "in.jsonl"
    good = json.dumps(REQUEST).encode()
    file.write_bytes(b"\xef\xbb\xbf" + good + b"\r\n\n  \n" + line + b"\n" + good)
    found = read_requests(file)
    assert (found.lines, [(each.line, each.problem) for each in found.skipped]) == (3, [(4, problem)])
    assert [(each.line, each.same_as) for each in found.requests] == [(1, None), (5, 1)]


def test_doubtful_records_are_refused_and_shown_safely(tmp_path: Path) -> None:
    """Negative amounts, duplicate ids, control characters, Markdown: refused or paid, and obeyed by no terminal."""
    file = requests(
        tmp_path / "in.jsonl",
        {**REQUEST, "id": "\x1b[31mred", "customer": "a | b\n# c"},
        {**REQUEST, "id": "B", "amount": -3},
        {**REQUEST, "id": "B"},
        {**REQUEST, "id": "C", "amount": 1e300},
        {**REQUEST, "id": "D", "amount": 1.005},
        {**REQUEST, "id": "E", "currency": "ZZZ"},
        {**REQUEST, "id": "F", "days": -1},
        {**REQUEST, "id": "G", "account": "closed"},
    )
    done = jianmu("demo", str(file), cwd=tmp_path)
    assert done.stdout.splitlines()[1] == "8 lines = 1 paid + 1 unpaid + 6 refused"
    assert "\x1b" not in done.stderr
    assert [line.partition("refused: ")[2] for line in done.stderr.splitlines() if "refused" in line] == [
        "amount is not positive",
        "same id as line 2",
        "amount is above 1,000,000",
        "amount has fractions of a cent",
        "currency is none of EUR, GBP, USD",
        "bought in the future",
    ]
    report = (tmp_path / "refund-report.md").read_text("utf-8")
    assert r"| 1 | \\x1b\[31mred | a \| b \# c | 10.00 EUR | paid |" in report
