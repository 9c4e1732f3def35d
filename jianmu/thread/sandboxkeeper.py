"""The keeper of a program: a process that starts it, watches it, and ends all that it has started.

`LocalSandbox` runs this file as a script; it imports nothing of jianmu. It gets an order, one line of JSON, on stdin,
and says on stderr, a line of JSON each, which group of processes it has started and what became of it.

1. Everything is ended when the program has ended, when a limit is passed, and when stdin is closed, which happens as
   well when the process dies that started the keeper.
2. What the program starts and lets go of becomes a child of the keeper: no second fork and no new session hides it.
3. Where the kernel lets it, the program has a PID namespace: it sees and reaches no process but its own, the keeper
   least of all, and the kernel ends all of them with the first. As root it has no capabilities.
4. stdout belongs to the program: the keeper writes nothing there.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import select
import signal
import time
from contextlib import suppress

TYPE_CHECKING = False  # as typing has it: the keeper is started for each program, and imports little
if TYPE_CHECKING:
    from typing import Any  # Any: JSON

LOOK = 0.05  # seconds between two looks at the processes
ENDING = 3.0  # seconds after which processes that cannot be killed are left
DEAF = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # the keeper ends when everything has
KILL_OVER = {"processes", "memory"}  # limits after which nobody is asked to end
_NEWNS, _NEWIPC, _NEWUSER, _NEWPID = 0x20000, 0x8000000, 0x10000000, 0x20000000
_PRIVATE, _SAFE = 0x4000 | 0x40000, 0x2 | 0x4 | 0x8  # MS_REC | MS_PRIVATE; no suid, devices, programs
_DEATHSIG, _DUMPABLE, _CAPBSET_DROP, _SUBREAPER, _NO_NEW_PRIVS, _AMBIENT = 1, 4, 24, 36, 38, 47
_LIBC = ctypes.CDLL(None, use_errno=True)


def call(name: str, *args: Any) -> None:
    """Call a function of the C library.

    Raises:
        OSError: it failed, or this system does not have it.
    """
    function = getattr(_LIBC, name, None)
    values = [ctypes.c_ulong(one) if isinstance(one, int) else one for one in args]
    if function is None or function(*values) < 0:
        raise OSError(ctypes.get_errno(), f"{name} failed")


def control(option: int, value: int = 0) -> None:
    """Set an option of this process, where the system has it."""
    with suppress(OSError):
        call("prctl", option, value, 0, 0, 0)


# Namespaces


def enter_namespaces() -> None:
    """Give the children of this process a PID namespace; who is not root gets it in a user namespace."""
    user, group = os.geteuid(), os.getegid()
    call("unshare", _NEWPID if user == 0 else _NEWUSER | _NEWPID)
    if user:
        for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
            with open(f"/proc/self/{name}", "w") as file:  # noqa: PTH123  # pathlib takes as long as all other imports
                file.write(text)


def show_own_processes() -> None:
    """Give this process, the first of its PID namespace, a /proc of that namespace, and memory that is not shared."""
    call("unshare", _NEWNS | _NEWIPC)
    call("mount", b"none", b"/", None, _PRIVATE, None)
    call("mount", b"proc", b"/proc", b"proc", _SAFE, None)


def can_separate() -> bool:
    """Return whether the kernel lets us have all that; tried in a process of its own, since half of it is worse."""
    probe = os.fork()
    if probe == 0:
        with suppress(OSError):
            enter_namespaces()
            first = os.fork()
            if first == 0:
                os._exit(not _is_possible(show_own_processes))
            os._exit(os.waitstatus_to_exitcode(os.waitpid(first, 0)[1]) != 0)
        os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(probe, 0)[1]) == 0


def _is_possible(act: Any) -> bool:
    with suppress(OSError):
        act()
        return True
    return False


# The program


def start(order: dict[str, Any], *, separate: bool) -> tuple[int, str]:
    """Start the program; return the process to wait for, and what is wrong where it could not be started."""
    told, tells = os.pipe()
    first = os.fork()
    if first == 0:
        os.close(told)
        os.setsid()
        control(_DEATHSIG, signal.SIGKILL)
        if separate:
            _be_first(order, tells)
        _become(order, tells, in_namespace=False)
    os.close(tells)
    problem = b""
    while piece := os.read(told, 4096):
        problem += piece
    os.close(told)
    return first, problem.decode("utf-8", "replace")


def _be_first(order: dict[str, Any], tells: int) -> None:
    """Be the first process of the namespace: start the program, and end with it; the kernel ends all others then."""
    _told(tells, show_own_processes)
    program = os.fork()
    if program == 0:
        os.setsid()
        _become(order, tells, in_namespace=True)
    for stream in (0, 1, 2, tells):
        os.close(stream)
    while True:
        pid, status = os.wait()
        if pid == program:
            os._exit(_exit_code(status))


def _become(order: dict[str, Any], tells: int, *, in_namespace: bool) -> None:
    """Become the program."""

    def become() -> None:
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.dup2(1, 2)
        os.chdir(order["cwd"])
        os.umask(0o077)
        limit(order, in_namespace=in_namespace)
        for one in (signal.SIGPIPE, signal.SIGXFSZ, *DEAF):  # what the keeper ignores a program does not
            signal.signal(one, signal.SIG_DFL)
        os.execvpe(order["program"][0], order["program"], order["env"])  # noqa: S606  # no shell is wanted

    _told(tells, become)


def _told(tells: int, act: Any) -> None:
    """Do something, or tell what is wrong and end."""
    try:
        act()
    except Exception as error:  # noqa: BLE001  # whatever it is, nobody else would hear of it
        os.write(tells, f"{type(error).__name__}: {error}".encode("utf-8", "replace")[:2000])
        os._exit(127)


def limit(order: dict[str, Any], *, in_namespace: bool) -> None:
    """Set the limits that the kernel keeps for each process, and give up what a program does not need."""
    limits = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_CPU: int(order["seconds"]) + 5,
        resource.RLIMIT_DATA: order["memory"],
        resource.RLIMIT_FSIZE: order["file_size"],
    }
    if in_namespace and os.geteuid() != 0 and _kernel() >= (5, 14):  # from then on counted by namespace
        limits[resource.RLIMIT_NPROC] = 4 * order["processes"]
    for kind, most in limits.items():
        hard = resource.getrlimit(kind)[1]
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        with suppress(OSError, ValueError):
            resource.setrlimit(kind, (most, most))
    for capability in range(64):
        control(_CAPBSET_DROP, capability)
    control(_AMBIENT, 4)  # PR_CAP_AMBIENT_CLEAR_ALL
    control(_NO_NEW_PRIVS, 1)


def _kernel() -> tuple[int, ...]:
    return tuple(int(part) for part in os.uname().release.split("-")[0].split(".")[:2] if part.isdigit())


def _exit_code(status: int) -> int:
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


# The processes


def parents() -> dict[int, int]:
    """Return the parent of each process; {} where there is no /proc."""
    found: dict[int, int] = {}
    for name in os.listdir("/proc") if os.path.isdir("/proc/self") else ():  # noqa: PTH112, PTH208  # as above
        if name.isdigit():
            with suppress(OSError, ValueError, IndexError), open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123  # as above
                found[int(name)] = int(file.read().rpartition(b")")[2].split()[1])
    return found


def descendants() -> list[int]:
    """Return what this process has started, and what that has started."""
    children: dict[int, list[int]] = {}
    for pid, parent in parents().items():
        children.setdefault(parent, []).append(pid)
    found, left = list[int](), [os.getpid()]
    while left:
        below = children.get(left.pop(), [])
        found += below
        left += below
    return found


def memory_of(pids: list[int]) -> int:
    """Return the bytes of memory that processes have in use; what they share counts for each."""
    pages = 0
    for pid in pids:
        with suppress(OSError, ValueError, IndexError), open(f"/proc/{pid}/statm", "rb") as file:  # noqa: PTH123  # as above
            pages += int(file.read().split()[1])
    return pages * resource.getpagesize()


def share_of(pids: list[int]) -> int:
    """Return the same where what is shared counts once; this takes longer."""
    return sum(_share(pid) or memory_of([pid]) for pid in pids)  # a process can keep others from looking closer


def _share(pid: int) -> int:
    with suppress(OSError, ValueError, IndexError), open(f"/proc/{pid}/smaps_rollup", "rb") as file:  # noqa: PTH123  # called often
        return sum(1024 * int(line.split()[1]) for line in file if line.startswith(b"Pss:"))
    return 0


class Keeper:
    """Watches one program.

    Args:
        order: what to run, and the limits.
    """

    def __init__(self, order: dict[str, Any]) -> None:
        self.order = order
        self.code: int | None = None
        self.is_separate = bool(order["separate"]) and can_separate()
        self._first = 0
        self._woken, waker = os.pipe()
        os.set_blocking(waker, False)
        os.set_blocking(self._woken, False)
        signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, _wake)

    def run(self) -> dict[str, Any]:
        """Run the program to its end; return what became of it."""
        control(_SUBREAPER, 1)
        if self.is_separate:
            enter_namespaces()
        control(_DUMPABLE, 0)  # no program of the same user looks into the keeper or writes to what it has open
        self._first, problem = start(self.order, separate=self.is_separate)
        say({"group": self._first, "is_separate": self.is_separate})
        ended_by = None if problem else self._watched()
        left = self._end(is_asked=ended_by not in {None, *KILL_OVER})
        return {"code": self.code, "ended_by": ended_by, "problem": problem or None, "left": left}

    def _watched(self) -> str | None:
        """Wait until the program has ended, and return None, or until it has to be."""
        due, wait = time.monotonic() + self.order["seconds"], LOOK
        while True:
            left = due - time.monotonic()
            if left <= 0:
                return "time"
            ready, _, _ = select.select([0, self._woken], [], [], min(wait, left))
            if 0 in ready and not os.read(0, 4096):
                return "asked"
            self._reap()
            if self.code is not None:
                return None
            begun = time.monotonic()
            if over := self._passed():
                return over
            wait = max(LOOK, 10 * (time.monotonic() - begun))

    def _passed(self) -> str | None:
        """Return the limit that is passed, if one is."""
        pids = descendants()
        if len(pids) - self.is_separate > self.order["processes"]:
            return "processes"
        most = self.order["memory"]
        return "memory" if memory_of(pids) > most and share_of(pids) > most else None

    def _reap(self) -> None:
        """Take leave of children that have ended."""
        with suppress(BlockingIOError):
            os.read(self._woken, 4096)
        with suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                if pid == self._first:
                    self.code = _exit_code(status)

    def _end(self, *, is_asked: bool) -> int:
        """End everything; return how many processes are left, which is 0 unless the kernel cannot end them."""
        if is_asked:
            send(self._pids(), signal.SIGTERM)
            self._gone(self.order["grace"])
        due = time.monotonic() + ENDING
        while (pids := self._pids()) and time.monotonic() < due:
            if self.code is None:
                send([self._first], signal.SIGKILL)
            send(pids, signal.SIGSTOP)  # what is stopped starts no others
            send(self._pids(), signal.SIGKILL)
            self._gone(LOOK)
        return len(self._pids())

    def _pids(self) -> list[int]:
        """Return what is to be ended; without a /proc, the program alone."""
        self._reap()
        return descendants() if os.path.isdir("/proc/self") else [self._first] if self.code is None else []  # noqa: PTH112  # as above

    def _gone(self, seconds: float) -> None:
        """Wait until everything has ended, so many seconds at most."""
        due = time.monotonic() + seconds
        while self._pids() and (left := due - time.monotonic()) > 0:
            select.select([self._woken], [], [], min(left, 0.01))


def _wake(number: int, frame: object) -> None:
    """Do nothing: that a child has ended is written to the pipe for wake-ups."""


def send(pids: list[int], number: int) -> None:
    """Send a signal to processes; where there is no /proc, to the group of each."""
    for pid in pids:
        with suppress(OSError):
            os.kill(pid, number)
    if not os.path.isdir("/proc/self"):  # noqa: PTH112  # as above
        for pid in pids:
            with suppress(OSError):
                os.killpg(pid, number)


def say(words: dict[str, Any]) -> None:
    """Tell who started the keeper."""
    with suppress(OSError):
        os.write(2, json.dumps(words).encode() + b"\n")


def main() -> None:
    """Read the order and keep the program."""
    for one in DEAF:
        signal.signal(one, signal.SIG_IGN)
    text = b""
    while not text.endswith(b"\n"):
        piece = os.read(0, 65536)
        if not piece:
            return
        text += piece
    say(Keeper(json.loads(text)).run())


if __name__ == "__main__":
    main()
