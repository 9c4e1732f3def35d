"""Race: the first success wins."""

from __future__ import annotations

import pytest
from py_trees.composites import Sequence

from jianmu.engine.ticker import tick
from jianmu.errors import SetupError
from jianmu.nodes import Race, Timeout
from tests.cases.leaves import FAILURE, RUNNING, SUCCESS, Forever, Scripted, Sleep
from tests.nodes.kit import Table

pytestmark = pytest.mark.anyio


async def test_the_first_success_ends_it_and_the_others_are_halted() -> None:
    """SUCCESS when a child has succeeded; the others are halted."""
    table = Table(lambda diary: Race("race", [Sleep("slow", 9, diary), Sleep("fast", 1, diary)]))
    assert await table.run() is SUCCESS
    assert table.clock.now() == pytest.approx(1)
    assert table.diary.at("cleanup", "slow") == [1.0]
    assert table.diary.count("end", "slow") == 0


async def test_what_comes_next_waits_for_the_losers() -> None:
    """The losers are awaited: the node after the Race starts when their cleanups are done."""
    table = Table(
        lambda diary: Sequence(
            "s",
            memory=True,
            children=[Race("r", [Sleep("a", 1, diary), Forever("b", diary, cleanup=0.5)]), Sleep("next", 1, diary)],
        )
    )
    assert await table.run() is SUCCESS
    assert table.diary.at("clean", "b") == [1.5]
    assert table.diary.at("start", "next") == [1.5]


async def test_starts_within_a_race_do_not_wait_for_each_other() -> None:
    """The children are beside each other: a cleanup in one holds back no start in another."""
    table = Table(
        lambda diary: Race(
            "race",
            [
                Sequence("a", memory=True, children=[Timeout("t", Forever("x", diary, cleanup=3), seconds=1)]),
                Sequence("b", memory=True, children=[Sleep("b1", 1, diary), Sleep("b2", 1, diary)]),
            ],
        )
    )
    assert await table.run() is SUCCESS
    assert table.diary.at("start", "b2") == [1.0]


async def test_all_failed_is_failure_and_none_is_ticked_again() -> None:
    """FAILURE when all children have failed; one that has failed is not ticked again."""
    table = Table(
        lambda diary: Race("race", [Scripted("a", FAILURE, diary=diary), Sleep("b", 2, diary, result=FAILURE)])
    )
    assert await table.run() is FAILURE
    assert table.diary.count("update", "a") == 1
    assert table.clock.now() == pytest.approx(2)


def test_of_two_successes_in_one_pass_the_first_in_the_list_counts() -> None:
    """Of several successes in one pass the first in the list wins, and the rest is not ticked."""
    first, second = Scripted("a", RUNNING, SUCCESS), Scripted("b", RUNNING, SUCCESS)
    race = Race("race", [first, second])
    assert tick(race) is RUNNING
    assert tick(race) is SUCCESS
    assert second.ticks == 1
    assert "a" in race.feedback_message


def test_the_next_entry_has_all_children_again() -> None:
    """A Race that is entered again begins with all its children."""
    race = Race("race", [Scripted("a", FAILURE, SUCCESS), Scripted("b", FAILURE)])
    assert [tick(race), tick(race)] == [FAILURE, SUCCESS]


def test_py_trees_can_tick_it() -> None:
    """Without an agent, under py_trees' own tick, it works the same."""
    race = Race("race", [Scripted("a", FAILURE), Scripted("b", RUNNING, SUCCESS)])
    race.tick_once()
    assert race.status is RUNNING
    race.tick_once()
    assert race.status is SUCCESS


def test_wrong_children_are_refused_with_the_call_to_write() -> None:
    """A node in the place of the list, something that is no node, and a node that stands elsewhere are refused."""
    child = Scripted("a", SUCCESS)
    with pytest.raises(SetupError, match=r'write Race\("race", \[\.\.\.\]\)'):
        Race("race", child)
    with pytest.raises(SetupError, match="takes a node of a tree, not 3"):
        Race("race", [3])
    Race("race", [child])
    with pytest.raises(SetupError, match="'a' stands below 'race' already"):
        Race("other", [child])
