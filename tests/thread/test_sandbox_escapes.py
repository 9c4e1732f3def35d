"""What a program may try: it is refused or ended, and the machine is as it was."""

from __future__ import annotations

import resource
import tarfile
from io import BytesIO
from pathlib import Path

import anyio
import pytest

from jianmu.thread import sandboxwatch
from jianmu.thread.sandboxoutput import Output
from tests.thread.boxes import MB, box, none_left

pytestmark = [pytest.mark.anyio, pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="needs /proc")]


@pytest.fixture
def separate(anyio_backend: str) -> bool:
    """Whether programs have a PID namespace: on one backend they do, if this machine has them, on the other not."""
    return anyio_backend == "asyncio"


# Processes


async def test_too_many_processes_are_ended(tmp_path: Path, separate: bool) -> None:
    """Children that only wait."""
    with none_left(tmp_path), anyio.fail_after(10):
        ran = await box(tmp_path, separate=separate).bash("for i in $(seq 30); do sleep 20 & done; wait")
    assert ran.ended_by == "processes"


BOMB = """
import os, signal, time
for one in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
    signal.signal(one, signal.SIG_IGN)
for _ in range(7):  # 128 processes at most, so that it would hurt nobody if it got through
    if os.fork() == 0:
        os.setsid()
    time.sleep(0.02)
time.sleep(20)
"""


async def test_a_fork_bomb_is_ended(tmp_path: Path, separate: bool) -> None:
    """Each process makes others, has a session of its own and ignores signals."""
    with none_left(tmp_path), anyio.fail_after(10):
        ran = await box(tmp_path, separate=separate).python(BOMB)
    assert ran.ended_by == "processes"


async def test_killing_what_watches_ends_the_program(tmp_path: Path, separate: bool) -> None:
    """In a namespace of its own a program does not reach its keeper; else it is found by its mark when that is dead."""
    sandbox = box(tmp_path, separate=separate)
    with none_left(tmp_path), anyio.fail_after(10):
        ran = await sandbox.bash("setsid sleep 20 & kill -9 $PPID; echo here; exec sleep 0.3")
    if sandbox.is_separate:
        assert (ran.ended_by, ran.output) == (None, "here\n")
    else:
        assert ran.ended_by == "lost"


async def test_stopping_what_watches_helps_no_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A keeper that does nothing any more is not waited for: it is killed, and the program is found by its mark."""
    monkeypatch.setattr(sandboxwatch, "SLACK", 0.5)
    sandbox = box(tmp_path, separate=False)
    with none_left(tmp_path), anyio.fail_after(10):
        ran = await sandbox.bash("setsid sleep 20 & kill -STOP $PPID; sleep 20", seconds=0.5)
    assert ran.ended_by == "lost"


async def test_a_program_of_root_is_no_root(tmp_path: Path) -> None:
    """It has no capabilities and gets none by starting something else."""
    with none_left(tmp_path):
        ran = await box(tmp_path).bash("grep -E 'CapPrm|CapEff|NoNewPrivs' /proc/self/status")
    assert ran.output.split() == ["CapPrm:", "0" * 16, "CapEff:", "0" * 16, "NoNewPrivs:", "1"]


# The environment


async def test_secrets_are_not_inherited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither in its own environment nor in that of its parents; what is given is there."""
    monkeypatch.setenv("API_KEY", "hidden-secret")
    sandbox = box(tmp_path, env={"GIVEN": "given-value"})
    with none_left(tmp_path), anyio.fail_after(10):
        ran = await sandbox.bash("env; cat /proc/$PPID/environ | tr '\\0' '\\n'")
        assert "GIVEN=given-value" in ran.output
        assert "hidden-secret" not in ran.output
        if sandbox.is_separate:
            all_of_them = await sandbox.bash("grep -l hidden-secret /proc/[0-9]*/environ; ls -d /proc/[0-9]* | wc -l")
            assert "environ\n" not in all_of_them.output
            assert int(all_of_them.output.split()[-1]) < 8


async def test_descriptors_are_not_inherited(tmp_path: Path) -> None:
    """An open file of the program that runs jianmu is none of a program's; stdin is empty."""
    secret = tmp_path / "secret"
    secret.write_text("hidden")
    with secret.open() as file, none_left(tmp_path):
        ran = await box(tmp_path).bash(f"ls -l /proc/self/fd | grep -c secret; cat; cat <&{file.fileno()}")
    assert ran.output.startswith("0\n")
    assert "hidden" not in ran.output


# Memory, output, files


async def test_too_much_memory_is_refused(tmp_path: Path) -> None:
    """The program gets a MemoryError, as on a small machine."""
    with none_left(tmp_path), anyio.fail_after(10):
        ran = await box(tmp_path, memory=80 * MB).python("x = bytearray(150_000_000)")
    assert (ran.code, ran.output.splitlines()[-1]) == (1, "MemoryError")


HUNGRY = """
import os, time
for _ in range(3):
    os.fork()
x = bytearray(os.urandom(1)) * 12_000_000
time.sleep(20)
"""


async def test_memory_of_several_processes_counts_together(tmp_path: Path, separate: bool) -> None:
    """Each stays below the limit, all together do not."""
    with none_left(tmp_path), anyio.fail_after(10):
        ran = await box(tmp_path, memory=60 * MB, separate=separate).python(HUNGRY)
    assert ran.ended_by == "memory"


async def test_a_flood_of_output_is_ended(tmp_path: Path) -> None:
    """1 GB to stdout: what is kept is little, and the memory of the program that runs jianmu hardly grows."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with none_left(tmp_path), anyio.fail_after(10):
        ran = await box(tmp_path).bash("head -c 1073741824 /dev/zero | tr '\\0' x")
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert (ran.ended_by, len(ran.output) < 2200) == ("output", True)
    assert grown < 40 * 1024


def test_an_output_keeps_no_more_than_it_may() -> None:
    """1 GB in pieces: a little is kept, and the sizes are right."""
    output, piece = Output(2000), b"x" * MB
    for _ in range(1024):
        output.add(piece)
        assert sum(map(len, output._tail)) <= MB + 1000
    assert f"[cut: {1024 * MB - 2000} of {1024 * MB} bytes are left out here]" in output.text()


async def test_a_file_grows_only_so_far(tmp_path: Path) -> None:
    """1 GB to a file: the write fails at the limit."""
    with none_left(tmp_path), anyio.fail_after(10):
        ran = await box(tmp_path).bash("head -c 1073741824 /dev/zero > big")
    assert ran.code != 0
    assert (tmp_path / "t1/workspace/big").stat().st_size == 2 * MB


# Links and archives


async def test_a_link_made_by_a_program_leads_no_tool_out(tmp_path: Path) -> None:
    """A link to a file, to a folder, and the workspace itself made a link."""
    (tmp_path / "secret").write_text("hidden")
    sandbox = box(tmp_path)
    await sandbox.bash(f"ln -s {tmp_path} out; ln -s {tmp_path}/secret file; mkfifo pipe")
    for path in ("out/secret", "file", "pipe"):
        with pytest.raises(ValueError, match=r"link|no plain file"):
            await sandbox.read_file(path)
        with pytest.raises(ValueError, match=r"link|no plain file"):
            await sandbox.write_file(path, b"bad")
    assert await sandbox.grep("hidden", "/mnt/user-data", "**", 10) == []
    await sandbox.bash(f"cd ..; rm -r workspace; ln -s {tmp_path} workspace")
    with pytest.raises(ValueError, match="links are not followed"):
        await sandbox.read_file("secret")
    assert (tmp_path / "secret").read_text() == "hidden"


def hostile_tar(outside: Path) -> bytes:
    """Return an archive that has a link to the outside and a file below it."""
    made = BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        link = tarfile.TarInfo("out")
        link.type, link.linkname = tarfile.SYMTYPE, str(outside)
        tar.addfile(link)
        for name in ("out/bad", "../bad"):
            member = tarfile.TarInfo(name)
            member.size = 3
            tar.addfile(member, BytesIO(b"bad"))
    return made.getvalue()


async def test_an_archive_that_a_program_unpacks_leads_no_tool_out(tmp_path: Path) -> None:
    """Whatever tar makes of its links: the tools do not follow them."""
    sandbox = box(tmp_path)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/secret").write_text("hidden")
    await sandbox.write_file("/mnt/user-data/uploads/a.tar", hostile_tar(tmp_path / "outside"))
    with none_left(tmp_path):
        await sandbox.bash("tar xf /mnt/user-data/uploads/a.tar")
    with pytest.raises(ValueError, match="links are not followed"):
        await sandbox.read_file("out/secret")
    assert not (tmp_path / "bad").exists()
