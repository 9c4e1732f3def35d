"""Sandboxes for tests: small limits, and a look at what is left of their programs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import anyio

from jianmu.thread.paths import ThreadFolders
from jianmu.thread.sandbox import SandboxLimits
from jianmu.thread.sandboxlocal import LocalSandbox

MB = 1024 * 1024
SMALL = {
    "seconds": 10.0, "memory": 200 * MB, "processes": 12, "output": 2000, "flood": 8 * MB, "file_size": 2 * MB,
    "grace": 0.1,
}  # fmt: skip


def small(**options: Any) -> SandboxLimits:
    """Return limits that hurt nobody."""
    return SandboxLimits(**{**SMALL, **options})


def box(root: Path, *, separate: bool = True, env: dict[str, str] | None = None, **limits: Any) -> LocalSandbox:
    """Return a sandbox of a thread whose folder is in `root`."""
    return LocalSandbox(ThreadFolders(root), "t1", limits=small(**limits), separate=separate, env=env)


def programs(root: Path) -> set[int]:
    """Return the processes of this machine that run in a sandbox below a folder, and their keepers."""
    found, sought = set[int](), bytes(root)
    for one in Path("/proc").iterdir():
        if one.name.isdigit() and int(one.name) != os.getpid():
            with suppress(OSError):
                is_program = b"WORKSPACE=" + sought in (one / "environ").read_bytes()
                is_keeper = b"sandboxkeeper.py\0" + sought in (one / "cmdline").read_bytes()
                found |= {int(one.name)} if is_program or is_keeper else set()
    return found


@contextmanager
def none_left(root: Path) -> Iterator[None]:
    """Check that no program below a folder, and no keeper, was left behind by what is done in the block."""
    yield
    assert programs(root) == set()


async def until(holds: Callable[[], object]) -> None:
    """Wait until something holds that nobody tells of."""
    with anyio.fail_after(15):
        while not holds():  # noqa: ASYNC110  # nobody tells of it
            await anyio.sleep(0.01)
