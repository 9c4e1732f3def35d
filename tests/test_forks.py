"""Programs that are forked are processes like those that an interpreter is started for."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.forks import Nursery, Process, Program, command, nursery
from tests.house import ROOT

HERE = Path(__file__).parent
PIPE = subprocess.PIPE


def look() -> int:
    """Tell all that a program is given."""
    files = sorted(file.name for file in Path("/dev/fd").iterdir())
    sys.stdout.write(f"{sys.argv[1:]} {Path.cwd()} {dict(os.environ)} {sys.path[:2]} {sys.stdin.read()}\n")
    sys.stderr.write(f"{os.getpgrp() == os.getsid(0) == os.getpid()} {files}\n")
    return 7


def hang() -> None:
    """Tell who is there, and stay."""
    os.write(1, f"{os.getpid()}\n".encode())
    signal.pause()


def born(name: str, *arguments: str, **environment: str) -> Process:
    """Have one of the functions above run."""
    program = Program(f"tests.test_forks:{name}", [*arguments], str(HERE), environment)
    return Process(nursery(), program, (PIPE, PIPE, PIPE))


def by_command(name: str, *arguments: str, **environment: str) -> subprocess.Popen[str]:
    """Have it run by a command."""
    line = [*command(f"tests.test_forks:{name}"), *arguments]
    return subprocess.Popen(line, cwd=HERE, env=environment, stdin=PIPE, stdout=PIPE, stderr=PIPE, text=True)


Born = Callable[..., Process | subprocess.Popen[str]]
both = pytest.mark.parametrize("born", [born, by_command])


@both
def test_a_program_has_what_it_is_given_and_nothing_else(born: Born) -> None:
    """Arguments, folder, environment, the path of imports and three files; it has a session; its result is its code."""
    environment = {"LC_ALL": "C.UTF-8", "PYTHONPATH": str(ROOT)}
    with born("look", "a", "b c", **environment) as process:
        out, err = process.communicate("given")
    assert out == f"['a', 'b c'] {HERE} {environment} {[str(HERE), str(ROOT)]} given\n"
    assert err == "True ['0', '1', '2', '3']\n"  # the last one is the list's own
    assert process.returncode == 7


@both
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_signal_ends_a_program(number: signal.Signals, born: Born) -> None:
    """How it ended is told."""
    with born("hang", PYTHONPATH=str(ROOT)) as process:
        assert process.stdout is not None
        os.kill(int(process.stdout.readline()), number)
        assert process.wait(30) == -number


@pytest.fixture
def deaf() -> Iterator[Nursery]:
    """A nursery of somebody who ignores Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        made = Nursery()
    finally:
        signal.signal(signal.SIGINT, before)
    yield made
    made.close()


def test_an_interrupt_is_one(deaf: Nursery) -> None:
    """A program hears of Ctrl-C as every other does, whoever has started it."""
    program = Program("tests.test_forks:hang", [], str(HERE), {"PYTHONPATH": str(ROOT)})
    with Process(deaf, program, (PIPE, PIPE, PIPE)) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == f"{process.pid}\n"
        assert process.poll() is None
        os.killpg(process.pid, signal.SIGINT)
        assert process.communicate()[1].endswith("KeyboardInterrupt\n")
        assert process.poll() == -signal.SIGINT


def test_a_program_ends_with_the_command_that_has_it_run() -> None:
    """Where the command is killed its program is."""
    with by_command("hang", PYTHONPATH=str(ROOT)) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.kill()
        assert process.stdout.readline() == ""  # nobody is there to write any more
