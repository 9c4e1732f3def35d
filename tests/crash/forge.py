"""Runs plans, one after the other, each life in a process of its own that is forked from this one.

It has imported all that a life needs, so that a life costs no start of an interpreter. What comes in is a plan, the
file of its notes, and the number of a life; what goes out is how that ended.
"""

from __future__ import annotations

import faulthandler
import os
import pickle
import signal
import sys
import threading
import time
import traceback
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from subprocess import PIPE, Popen
from tempfile import TemporaryDirectory

import psycopg  # noqa: F401  # a life needs it

from tests.crash.notes import Note, read
from tests.crash.points import ROOT, files
from tests.crash.program import Moment, Plan, live

SECONDS = 30
MOST = 6
"""Lives of one plan: no plan has more deaths, and after the last one the run has to end."""


def fork(plan: Plan, notes: str, number: int) -> int:
    """Have one life lived; return how it ended: 0, or minus the signal that killed it."""
    child = os.fork()
    if not child:
        _live(plan, notes, number)
    death = plan.death(number)
    if isinstance(death, Moment):
        time.sleep(death.seconds)
        os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _live(plan: Plan, notes: str, number: int) -> None:
    """Live in this process, which has no other purpose, and end it."""
    code = 1
    try:
        with Path(f"{notes}.{number}.txt").open("w") as log:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
        faulthandler.dump_traceback_later(SECONDS - 2)
        signal.alarm(SECONDS)
        live(plan, notes, number)
        code = 0
    except BaseException:  # told in the life's own file, whatever it is
        traceback.print_exc()
    finally:
        with suppress(OSError):
            sys.stderr.flush()
        os._exit(code)


def warm() -> None:
    """Have done already what each life would do at its first use of something."""
    files()
    for backend in ("asyncio", "trio"):
        with TemporaryDirectory() as folder:
            live(Plan("order", "memory", "", backend, "async"), f"{folder}/notes", 0)
    for thread in threading.enumerate():  # a process with threads is not to be forked
        if thread is not threading.main_thread():
            thread.join(SECONDS)


def main() -> None:
    """Serve plans until there are no more."""
    warm()
    with suppress(EOFError):
        while True:
            plan, notes, number = pickle.load(sys.stdin.buffer)
            pickle.dump(fork(plan, notes, number), sys.stdout.buffer)
            sys.stdout.buffer.flush()


@dataclass
class Story:
    """A plan and what became of it.

    Attributes:
        plan: the plan.
        path: the file of the notes.
        codes: how its lives ended: 0, or minus the signal.
    """

    plan: Plan
    path: Path
    codes: list[int] = field(default_factory=list)

    @property
    def notes(self) -> list[Note]:
        """What its lives have left behind."""
        return list(read(self.path))

    @property
    def kills(self) -> int:
        """How often it was killed."""
        return self.codes.count(-signal.SIGKILL)

    @property
    def errors(self) -> str:
        """What the last life has told of an error."""
        return Path(f"{self.path}.{len(self.codes) - 1}.txt").read_text()

    def all(self, what: str) -> list[Note]:
        """Return the notes of one kind."""
        return [note for note in self.notes if note["what"] == what]


class Forge:
    """A process that runs plans.

    Args:
        folder: where the notes go.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._count = 0

    @cached_property
    def _process(self) -> Popen[bytes]:
        command = [sys.executable, "-c", "from tests.crash.forge import main; main()"]
        environment = {**os.environ, "PYTHONWARNINGS": "ignore"}
        return Popen(command, cwd=ROOT, env=environment, stdin=PIPE, stdout=PIPE)

    def begin(self, plan: Plan) -> Story:
        """Return the story of a plan of which nothing was lived yet."""
        self._count += 1
        return Story(plan, self._folder / f"notes{self._count}")

    def live(self, story: Story) -> int:
        """Have the next life of a story lived; return how it ended."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        pickle.dump((story.plan, str(story.path), len(story.codes)), self._process.stdin)
        self._process.stdin.flush()
        story.codes.append(pickle.load(self._process.stdout))
        return story.codes[-1]

    def run(self, plan: Plan) -> Story:
        """Have a plan carried out, until a life ends by itself."""
        story = self.begin(plan)
        while len(story.codes) < MOST and self.live(story) == -signal.SIGKILL:
            pass
        return story

    def close(self) -> None:
        """End it, if it was ever wanted."""
        if "_process" in vars(self):
            with self._process as process:
                assert process.stdin is not None
                process.stdin.close()
                process.wait()
