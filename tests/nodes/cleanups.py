"""Cleanups for the tests of Finally: one that takes no time, one that takes half a second."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.cases.leaves import Diary

Cleanup = Callable[[Any], Any]


def sync_cleanup(diary: Diary) -> Cleanup:
    """A cleanup that takes no time."""

    def cleanup(context: Any) -> None:
        context.write_state({"log": ["cleaned"]})
        diary.note("cleaned", context.path)

    return cleanup


def async_cleanup(diary: Diary) -> Cleanup:
    """A cleanup that takes half a second."""

    async def cleanup(context: Any) -> None:
        diary.note("cleaning", context.path)
        await context.clock.sleep(0.5)
        sync_cleanup(diary)(context)

    return cleanup


KINDS = pytest.mark.parametrize(("make", "takes"), [(sync_cleanup, 0.0), (async_cleanup, 0.5)], ids=["sync", "async"])
