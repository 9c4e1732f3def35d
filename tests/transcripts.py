"""Sessions at a terminal, as the pages show them: the commands are run again."""

from __future__ import annotations

import atexit
import functools
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests import forks
from tests.house import ROOT

IDS = re.compile(r"\b[0-9a-f]{32}\b")
PROMPT = "$ "
KILLED = re.compile(r"^.*\bKilled\b.*$", re.MULTILINE)  # bash tells more of it than other shells do


def replay(session: str, folder: Path) -> str:
    """Run the commands of a session in a folder, and return it with what they print now; ids are masked."""
    lines: list[str] = []
    for command in (line.removeprefix(PROMPT) for line in session.splitlines() if line.startswith(PROMPT)):
        lines.append(PROMPT + command)
        lines += run(command, folder).splitlines()
    return KILLED.sub("Killed", IDS.sub("<id>", "\n".join(lines) + "\n"))


@functools.cache
def programs() -> Path:
    """Return a folder with `jianmu` and `python` as they are when all is imported; `python -…` is the usual one."""
    folder = Path(tempfile.mkdtemp(prefix="commands"))
    atexit.register(shutil.rmtree, folder)
    jianmu, python = (
        shlex.join(forks.command(main, *forks.JIANMU)) for main in ("jianmu.cli:main", "tests.forks:run_file")
    )
    usual = f'case "$1" in -*) exec {shlex.quote(forks.PYTHON)} "$@";; esac'
    for name, lines in (("jianmu", f'exec {jianmu} "$@"'), ("python", f'{usual}\nexec {python} "$@"')):
        (folder / name).write_text(f"#!/bin/sh\n{lines}\n")
        (folder / name).chmod(0o755)
    return folder


def run(command: str, folder: Path) -> str:
    """Run one command as in a terminal that takes no input; return what it prints on stdout and stderr."""
    search = os.pathsep.join([str(programs()), str(Path(forks.PYTHON).parent), os.environ["PATH"]])
    env = {**os.environ, "PATH": search, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", "COLUMNS": "100"}
    done = subprocess.run(
        f"{command}\n:",  # so that the shell stays, and tells when the command was killed
        shell=True,
        cwd=folder,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=60,
        encoding="utf-8",
        check=False,
    )
    return done.stdout
