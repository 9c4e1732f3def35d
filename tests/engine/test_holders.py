"""Who holds a lease: when a process counts as gone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from jianmu.engine import holders
from jianmu.engine.holders import is_gone, is_held, this_process

PROGRAM = """
import sys
from jianmu.engine.holders import this_process
print(this_process("there"), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def other() -> Iterator[subprocess.Popen[str]]:
    """Another process, which has told who it is."""
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdin=pipe, stdout=pipe, text=True) as process:
        yield process
        process.kill()


def told(process: subprocess.Popen[str]) -> str:
    """Return the text of a process."""
    assert process.stdout is not None
    return process.stdout.readline()


def changed(**fields: Any) -> str:
    """Return the text of this process with something changed."""
    return json.dumps(json.loads(this_process("here")) | fields)


def test_a_process_is_gone_when_it_has_ended(other: subprocess.Popen[str]) -> None:
    """As long as it lives, and while it is stopped, it is there; it is gone once it was killed, waited for or not."""
    text = told(other)
    assert not is_gone(text)
    other.send_signal(signal.SIGSTOP)
    assert not is_gone(text)
    other.kill()
    os.waitid(os.P_PID, other.pid, os.WEXITED | os.WNOWAIT)
    assert is_gone(text)
    other.wait()
    assert is_gone(text)


def test_this_process_is_there() -> None:
    """The text names this process and the token, and holds until it ends."""
    text = this_process("a token")
    assert (json.loads(text)["pid"], json.loads(text)["token"]) == (os.getpid(), "a token")
    assert not is_gone(text)
    assert this_process("another") != text


def test_a_number_that_was_given_again_is_another_process() -> None:
    """A process with the same number that was started at another time is not the holder."""
    assert is_gone(changed(started="1"))
    assert is_gone(changed(started=None))
    assert is_gone(changed(pid=2**22 + 1, started=None))


def test_processes_elsewhere_are_not_known_to_be_gone() -> None:
    """Of another host, another boot of this one, or another space of numbers nothing is known."""
    host = json.loads(this_process(""))["host"]
    for elsewhere in ("elsewhere", host + "x", host.split()[0], "", None, 3):
        assert not is_gone(changed(host=elsewhere, pid=2**22 - 1))


@pytest.mark.parametrize("pid", [0, -1, 1.5, True, "1", None, [], 2**80], ids=repr)
def test_a_number_that_is_no_process_harms_nobody(pid: object) -> None:
    """Whatever stands where the number should be, nothing is sent anywhere and nothing is raised."""
    assert is_gone(changed(pid=pid)) is (pid == 2**80)


@pytest.mark.parametrize("text", [None, "", "{", "[]", "3", "{}", '{"host": 1}', "[" * 100_000], ids=repr)
def test_a_text_that_tells_nothing_is_not_known_to_be_gone(text: str | None) -> None:
    """A holder in another form holds until its lease runs out."""
    assert not is_gone(text)


def test_without_proc_the_number_decides(other: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the system does not tell when a process was started, it is there as long as its number is."""
    monkeypatch.setattr(holders, "_has_proc", lambda: False)
    text = json.dumps(json.loads(told(other)) | {"started": None})
    assert not is_gone(text)
    other.kill()
    other.wait()
    assert is_gone(text)
    assert not is_gone(changed(pid=1, started=None))
    assert not is_gone(changed(pid=2**80))


def test_a_lease_holds_until_its_end_or_its_holders() -> None:
    """Held is what lasts longer than now, by a holder that is not known to be gone."""
    here, gone = this_process(""), changed(started="1")
    found = [is_held(*each) for each in ((here, 2.0, 1.0), (here, 1.0, 1.0), (here, None, 1.0), (gone, 2.0, 1.0))]
    assert found == [True, False, False, False]
