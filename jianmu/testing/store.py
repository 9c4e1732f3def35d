"""`check_store`: the promises of a store, each tried on a store of yours."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, cast  # Any: a check takes a store or a trial
from uuid import uuid4

import anyio

from jianmu.testing import store_ids, store_leases, store_log, store_mail, store_questions, store_races
from jianmu.testing.store_scene import PATIENCE, Factory, Size, Trial

Check = Callable[[Any], Awaitable[None]]


def _checks() -> dict[str, Check]:
    """Return the checks by their names: what is public in their files, in the order in which it is written."""
    files = (store_log, store_leases, store_mail, store_questions, store_ids, store_races)
    return {
        name: cast("Check", value)
        for file in files
        for name, value in vars(file).items()
        if inspect.iscoroutinefunction(value) and value.__module__ == file.__name__ and not name.startswith("_")
    }


STORE_CHECKS = _checks()
"""The checks of `check_store` by name; the docstring of each is its promise."""


async def check_store(factory: Factory, *, size: Size | None = None, only: Iterable[str] | None = None) -> None:
    """Fail unless a store keeps the promises of `Checkpointer`.

    Args:
        factory: called with a name, gives an async context manager that opens a store; the same name opens the same
            data again, also while another store has them open. Names are letters, digits and `_`, at most 60.
        size: called with a name while no store has it open, gives the bytes that are stored under it; without it the
            checks of growth are left out.
        only: names of checks, of `STORE_CHECKS`; by default all are made, each on a name of its own.

    Raises:
        AssertionError: a promise was broken; the text says which, and what was found.
    """
    for name in STORE_CHECKS if only is None else only:
        await _check(name, Trial(factory, f"{name[:51]}_{uuid4().hex[:8]}", size))


async def _check(name: str, trial: Trial) -> None:
    """Make one check; whatever goes wrong in it, its promise is broken."""
    check = STORE_CHECKS[name]
    try:
        with anyio.fail_after(PATIENCE):
            await _make(check, trial)
    except Exception as error:
        promise = (inspect.getdoc(check) or name).rstrip(".")
        problem = str(error) if type(error) is AssertionError else f"{type(error).__name__}: {error}"
        raise AssertionError(f"{promise}: {problem} [{name}]") from error


async def _make(check: Check, trial: Trial) -> None:
    if "trial" in inspect.signature(check).parameters:
        return await check(trial)
    async with trial.open() as store:
        return await check(store)
