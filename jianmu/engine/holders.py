"""Who holds a lease: a process, told by its host, its number and when it was started."""

from __future__ import annotations

import json
import os
import socket
import sys
from functools import cache, lru_cache
from pathlib import Path

PROC = Path("/proc")


def this_process(token: str) -> str:
    """Return the text of a holder in this process; `token` tells it from others of the process."""
    return _told(os.getpid(), token)


@lru_cache(maxsize=256)
def _told(pid: int, token: str) -> str:
    return json.dumps({"host": _host(), "pid": pid, "started": _own_start(pid), "token": token})


def is_held(holder: str | None, lease_until: float | None, now: float) -> bool:
    """Whether a lease holds: it lasts longer than `now`, and its holder is not known to be gone."""
    return lease_until is not None and lease_until > now and not is_gone(holder)


def is_gone(holder: str | None) -> bool:
    """Whether a holder is a process of this host that is not there any more; False where that is not known."""
    try:
        told = json.loads(holder or "")
        host, pid, started = told["host"], told["pid"], told["started"]
    except (ValueError, TypeError, LookupError, RecursionError):
        return False
    if host != _host() or type(pid) is not int or pid < 1:
        return False
    if not _has_proc():
        return not _is_alive(pid)
    found = _own_start(pid) if pid == os.getpid() else _started(pid)
    return found is None or found != started


@cache
def _host() -> str:
    """Return a name for where process numbers mean what they mean here: host, boot, and namespace of processes."""
    parts = [socket.gethostname()]
    if _has_proc():
        parts += [(PROC / "sys/kernel/random/boot_id").read_text().strip(), str((PROC / "self/ns/pid").readlink())]
    return " ".join(parts)


@cache
def _has_proc() -> bool:
    return sys.platform == "linux" and (PROC / "self/stat").exists()


@cache
def _own_start(pid: int) -> str | None:
    """Return when this process was started; a forked one has another number."""
    return _started(pid)


def _started(pid: int) -> str | None:
    """Return when a process was started, in clock ticks since the boot; None if it is not there, or has ended."""
    try:
        # the name before it may have spaces and brackets of its own
        state, *fields = (PROC / f"{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except (OSError, ValueError):
        return None
    return None if state in {"Z", "X"} else fields[18]


def _is_alive(pid: int) -> bool:
    if sys.platform == "win32":  # there, signal 0 is a key stroke
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True
