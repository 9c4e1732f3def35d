"""Runs that are killed at any time."""

from __future__ import annotations

from random import Random

import pytest

from tests.crash.conftest import COMBINATIONS, Crashes
from tests.crash.program import Moment, Plan
from tests.crash.shapes import SWEPT
from tests.crash.sweep import told, way_for

ROUNDS = 20


@pytest.mark.full
@pytest.mark.parametrize("combination", COMBINATIONS)
def test_killed_at_any_time_nothing_is_lost_and_nothing_comes_twice(crashes: Crashes, combination: str) -> None:
    """Whenever a run is killed, also several times: it ends as without the kills."""
    random = Random(combination)
    stories = crashes.run_all([_plan(crashes, combination, random) for _ in range(ROUNDS)])
    assert told(stories) == {}
    assert sum(story.kills for story in stories) >= ROUNDS


def _plan(crashes: Crashes, combination: str, random: Random) -> Plan:
    moments = [Moment(random.choice((0.01, 0.03, 0.15)) * random.random()) for _ in range(random.randint(2, 5))]
    shape = random.choice(SWEPT)
    return crashes.plan(shape, combination, *moments, way=way_for(shape, random))
