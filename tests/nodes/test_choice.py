"""Switch, IfThenElse, Utility."""

from __future__ import annotations

import pytest

from jianmu.errors import RunError, SetupError
from jianmu.nodes import IfThenElse, Switch, Utility
from tests.cases.leaves import FAILURE, RUNNING, SUCCESS, Scripted, Sleep
from tests.nodes.kit import Table

pytestmark = pytest.mark.anyio


async def test_a_switch_runs_the_case_that_matches() -> None:
    """SUCCESS, FAILURE: as the case chosen; the others are not ticked."""
    table = Table(
        lambda diary: Switch(
            "switch",
            lambda s: s.name,
            {"a": Scripted("a", SUCCESS, diary=diary), "b": Sleep("b", 1, diary, result=FAILURE)},
        ),
        {"name": "b"},
    )
    assert await table.run() is FAILURE
    assert table.clock.now() == pytest.approx(1)
    assert table.diary.count("update", "a") == 0


@pytest.mark.parametrize(("default", "expected"), [(False, FAILURE), (True, SUCCESS)])
async def test_a_switch_without_a_match_takes_the_default_or_fails(default: bool, expected: object) -> None:
    """No match: the default, and FAILURE without one."""
    table = Table(
        lambda diary: Switch(
            "switch",
            lambda s: s.name,
            {"a": Scripted("a", SUCCESS)},
            default=Scripted("d", SUCCESS) if default else None,
        ),
        {"name": "z"},
    )
    assert await table.run() is expected


async def test_the_choice_of_a_switch_is_made_once() -> None:
    """The choice is kept until the case has finished, whatever the state does; the next entry chooses anew."""
    table = Table(
        lambda diary: Switch("switch", lambda s: s.name, {"a": Sleep("a", 2, diary), "b": Sleep("b", 2, diary)}),
        {"name": "a"},
    )
    assert await table.run_with(table.writing(1, name="b")) is SUCCESS
    assert table.diary.order() == ["start a", "end a"]
    assert await table.agent.run() is SUCCESS
    assert table.diary.order()[2:] == ["start b", "end b"]


@pytest.mark.parametrize(
    ("ok", "otherwise", "expected"), [(True, True, "then"), (False, True, "else"), (False, False, "")]
)
async def test_if_then_else(ok: bool, otherwise: bool, expected: str) -> None:
    """One node if the condition holds, else the other; FAILURE where there is none."""
    table = Table(
        lambda diary: IfThenElse(
            "if", lambda s: s.ok, Sleep("then", 1, diary), Sleep("else", 1, diary) if otherwise else None
        ),
        {"ok": ok},
    )
    assert await table.run() is (SUCCESS if expected else FAILURE)
    assert table.diary.order("start") == ([f"start {expected}"] if expected else [])


async def test_the_choice_of_if_then_else_is_made_once() -> None:
    """The choice is made at activation: a condition that turns changes nothing."""
    table = Table(lambda diary: IfThenElse("if", lambda s: s.ok, Sleep("then", 2, diary), Sleep("else", 2, diary)))
    assert await table.run_with(table.writing(1, ok=False)) is SUCCESS
    assert table.diary.order() == ["start then", "end then"]


async def test_a_condition_that_returns_no_bool_is_an_error_with_the_path() -> None:
    """A condition returns a bool; anything else is an error that names the node."""
    table = Table(lambda diary: IfThenElse("if", lambda s: s.n, Sleep("then", 2, diary)))
    with pytest.raises(RunError, match=r"node 'if': .* has to return a bool, not int"):
        await table.agent.run()


async def test_utility_takes_the_best_and_changes_for_one_better_by_the_margin() -> None:
    """Ticks the best, leaves it only for one better by `margin`, and halts what it leaves; that is cleaned up first."""
    table = Table(
        lambda diary: Utility(
            "u",
            [Sleep("a", 10, diary, cleanup=0.5), Sleep("b", 1, diary)],
            scores=lambda s: s.scores,
            margin=2,
        ),
        {"scores": [1.0, 0.0]},
    )
    assert await table.run_with(table.writing(1, scores=[1.0, 2.9]), table.writing(2, scores=[1.0, 3.0])) is SUCCESS
    assert table.diary.order("start", "clean", "end") == ["start a", "clean a", "start b", "end b"]
    assert table.diary.at("cleanup", "a") == [2.0]
    assert table.diary.at("start", "b") == [2.5]


async def test_utility_takes_the_first_of_equal_ones_and_keeps_it() -> None:
    """Of equal scores the first counts, and an equal score is not better."""
    table = Table(
        lambda diary: Utility("u", [Sleep("a", 2, diary), Sleep("b", 2, diary)], scores=lambda s: s.scores),
        {"scores": [1.0, 1.0]},
    )
    assert await table.run_with(table.writing(1, scores=[3.0, 3.0])) is SUCCESS
    assert table.diary.order() == ["start a", "end a"]


async def test_utility_returns_what_its_child_returns() -> None:
    """FAILURE of the best child is FAILURE; nobody else is tried."""
    table = Table(
        lambda diary: Utility(
            "u", [Sleep("a", 1, diary, result=FAILURE), Sleep("b", 1, diary)], scores=lambda s: [1, 0]
        )
    )
    assert await table.run() is FAILURE
    assert table.diary.count("start", "b") == 0


@pytest.mark.parametrize("scores", [[1.0], [], [1.0, float("nan")], None, "ab"])
async def test_scores_that_do_not_fit_are_an_error_with_the_path(scores: object) -> None:
    """One number for each child; anything else is an error that names the node."""
    table = Table(lambda diary: Utility("u", [Sleep("a", 1), Sleep("b", 1)], scores=lambda s: scores))
    with pytest.raises(RunError, match=r"node 'u': .* has to return a list of 2 numbers"):
        await table.agent.run()


async def _late(_state: object) -> bool:
    return True


def test_wrong_options_are_refused_at_once() -> None:
    """What is called inside a pass must be a plain function; the cases are a dict; a margin is a number."""
    with pytest.raises(SetupError, match="write `def`, not `async def`"):
        IfThenElse("if", _late, Scripted("a", SUCCESS))
    with pytest.raises(SetupError, match="takes a function, not 'name'"):
        Switch("s", "name", {})
    with pytest.raises(SetupError, match=r"takes the cases as a dict"):
        Switch("s", lambda s: 1, [Scripted("a", RUNNING)])
    with pytest.raises(SetupError, match=r"margin=\.\.\.\) takes a finite number"):
        Utility("u", [], scores=lambda s: [], margin="1")
