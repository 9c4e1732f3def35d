"""Which deaths are tried: each line that waits or calls the store, before, within and after, in all combinations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random
from typing import TypeVar

from tests.crash.conftest import COMBINATIONS, Crashes
from tests.crash.forge import Story
from tests.crash.points import Point
from tests.crash.program import Plan
from tests.crash.promises import broken
from tests.crash.shapes import SHAPES

SHARE = 6
"""Combinations of one store, of which each tries another part of the places."""

WAYS = ("inbox", "resume", "agent", "nowait", "outside")
T = TypeVar("T")
Place = tuple[str, int, str]
Passed = dict[Place, list[tuple[str, str, int]]]
"""For each place the (shape, way, count) in which it is passed, and how often."""


def way_for(shape: str, random: Random) -> str:
    """Return a way to answer the questions of a shape; who answers a live run may be quicker than a halt."""
    may_be_live = SHAPES[shape].ending == "answer" and not SHAPES[shape].is_halted
    return random.choice(WAYS if may_be_live else WAYS[:3])


def passed(crashes: Crashes, combination: str, shapes: Sequence[str]) -> Passed:
    """Return the places that runs pass which nobody kills."""
    random = Random(combination)
    plans = [
        crashes.plan(shape, combination, way=way_for(shape, random), is_counted=True, is_new=place == 0)
        for place, shape in enumerate(shapes)
    ]
    found: Passed = {}
    for story in crashes.run_all(plans):
        assert broken(story) == [], story.plan
        for file, line, when, count in story.all("passed")[0]["points"]:
            found.setdefault((file, line, when), []).append((story.plan.shape, story.plan.way, count))
    return found


def share(places: Sequence[T], combination: str) -> list[T]:
    """Return a sixth of them, so that the combinations of each store have all."""
    first = COMBINATIONS.index(combination)
    return [place for number, place in enumerate(places) if (number + first) % SHARE == 0]


def deaths(crashes: Crashes, combination: str, found: Passed, *, most: int | None = None) -> Iterator[Plan]:
    """Yield plans of which each dies at another place; without `most` a sixth of all, so that each store has all.

    A fourth of them dies again, at some other place, when it goes on.
    """
    random = Random(combination)
    places = sorted(found)
    if most is None:
        places = share(places, combination)
    for place in random.sample(places, min(len(places), most or len(places))):
        shape, way, count = random.choice(found[place])
        again = random.choice(sorted(found)) if random.random() < 0.25 else None
        points = [Point(*place, random.randint(1, count)), *([Point(*again)] if again else [])]
        is_new = "tables" in place[0] or "postgres" in place[0]
        yield crashes.plan(shape, combination, *points, way=way, is_new=is_new)


def told(stories: Sequence[Story]) -> dict[str, list[str]]:
    """Return what was broken, by plan and death."""
    found = {f"{story.plan} {[*map(str, story.plan.deaths)]}": broken(story) for story in stories}
    return {name: problems for name, problems in found.items() if problems}
