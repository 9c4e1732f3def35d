"""Runs that are killed at lines that wait or call the store, and go on in another process."""

from __future__ import annotations

import pytest

from tests.crash.conftest import COMBINATIONS, SOME, Crashes, mostly_full
from tests.crash.points import files, lines
from tests.crash.shapes import SWEPT
from tests.crash.sweep import deaths, passed, told


def test_lines_that_wait_are_found_all_over_the_engine_and_the_stores() -> None:
    """What is awaited, and what calls a database, is looked for in all files that a run goes through."""
    assert {"jianmu/agent.py", "jianmu/engine/journal.py", "jianmu/stores/writing.py"} <= {*files()}
    assert sum(len(lines(file)) for file in files()) >= 250


@pytest.mark.parametrize("combination", mostly_full(COMBINATIONS, *SOME))
def test_killed_anywhere_nothing_is_lost_and_nothing_comes_twice(
    crashes: Crashes, combination: str, full: bool
) -> None:
    """Whatever line a run is killed at: it ends as without the kill, each effect and question comes once."""
    found = passed(crashes, combination, SWEPT if full else ("order",))
    plans = list(deaths(crashes, combination, found, most=None if full else 3))
    stories = crashes.run_all(plans)
    assert told(stories) == {}
    assert sum(story.kills > 0 for story in stories) >= 0.6 * len(plans)
