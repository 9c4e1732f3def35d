"""Leases that are kept from a thread of their store."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from queue import Queue
from typing import Any

import pytest

from jianmu.engine import lease as leases
from jianmu.engine.checkpoint import Lease
from jianmu.engine.lease import Keeper

WAIT = 20.0


@dataclass(eq=False)
class Store:
    """Renews what it is told to, and tells which lease, in which thread."""

    renewals: Queue[tuple[int, threading.Thread]] = field(default_factory=Queue)
    answer: Callable[[Lease], bool] = lambda _: True

    def renew(self, lease: Lease, seconds: float) -> bool:
        self.renewals.put((lease.fence, threading.current_thread()))
        return self.answer(lease)

    def next(self) -> tuple[int, threading.Thread]:
        return self.renewals.get(timeout=WAIT)


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have renewals come one after the other."""
    monkeypatch.setattr(leases, "EVERY", 0.01)


def keep(store: Any, fence: int, lost: Callable[[], None] = lambda: None, max_block: float = 60.0) -> Keeper:
    return Keeper(store, Lease("t", fence, 0, 0), max_block, lost)


def test_one_thread_keeps_all_leases_of_a_store() -> None:
    """Each of them is renewed again and again, by the same thread; those of another store by another one."""
    one, other = Store(), Store()
    keepers = [keep(one, 1), keep(one, 2), keep(other, 3)]
    seen = [one.next() for _ in range(6)]
    assert {fence for fence, _ in seen} == {1, 2}
    assert len({thread for _, thread in seen}) == 1
    assert other.next()[1] is not seen[0][1]
    for keeper in keepers:
        keeper.stop()


def test_a_lease_that_was_given_back_is_not_renewed_and_the_thread_ends_with_the_last() -> None:
    """After `stop` there are no more renewals than the one that had begun; a new lease has a thread again."""
    store = Store()
    keeper = keep(store, 1)
    _, thread = store.next()
    keeper.stop()
    thread.join(WAIT)
    assert not thread.is_alive()
    keeper = keep(store, 2)
    while store.next()[0] != 2:
        pass
    keeper.stop()


def test_a_lost_lease_is_told_once_and_left_alone() -> None:
    """`lost` is called when the store says that the lease is another holder's; the others are kept."""
    store, told = Store(answer=lambda lease: lease.fence != 1), Queue[None]()
    keepers = [keep(store, 1, lambda: told.put(None)), keep(store, 2)]
    told.get(timeout=WAIT)
    assert [fence for fence in (store.next()[0] for _ in range(6)) if fence == 1] in ([], [1])
    assert told.empty()
    for keeper in keepers:
        keeper.stop()


def test_a_loop_that_stands_still_lets_its_lease_go() -> None:
    """Without a `beat` for `max_block` seconds nothing is renewed, and the thread ends; nobody is told."""
    store, told = Store(), Queue[None]()
    keeper = keep(store, 1, lambda: told.put(None), max_block=-1.0)
    threads = [thread for thread in threading.enumerate() if thread.name == "jianmu leases"]
    for thread in threads:
        thread.join(WAIT)
    assert store.renewals.empty()
    assert told.empty()
    keeper.stop()


def test_a_store_that_fails_is_asked_again() -> None:
    """An error of the store is no loss: the lease may be renewed before it has run out."""
    answers = iter([OSError("away"), OSError("away")])

    def answer(_: Lease) -> bool:
        error = next(answers, None)
        if error is not None:
            raise error
        return True

    store, told = Store(answer=answer), Queue[None]()
    keeper = keep(store, 1, lambda: told.put(None))
    assert [store.next()[0] for _ in range(4)] == [1, 1, 1, 1]
    assert told.empty()
    keeper.stop()


@pytest.mark.skipif(sys.platform == "win32", reason="there is no fork")
def test_a_forked_process_keeps_no_lease_of_its_parent() -> None:
    """The child renews its own leases only, and may stop those that it has got from its parent."""
    program = """
        import os, queue, sys, warnings
        from jianmu.engine import lease as leases
        from jianmu.engine.checkpoint import Lease

        class Store:
            seen = queue.Queue()
            def renew(self, lease, seconds):
                self.seen.put(lease.fence)
                return True

        warnings.simplefilter("ignore")
        leases.EVERY = 0.01
        store = Store()
        first = leases.Keeper(store, Lease("t", 1, 0, 0), 60, print)
        store.seen.get(timeout=20)
        if os.fork() == 0:
            store.seen = queue.Queue()
            first.stop()
            second = leases.Keeper(store, Lease("t", 2, 0, 0), 60, print)
            print({store.seen.get(timeout=20) for _ in range(5)}, flush=True)
            os._exit(0)
        os.wait()
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.split() == ["{2}"]
