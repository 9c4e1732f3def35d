"""Branches that choose: Race, Switch, IfThenElse, Utility."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, ClassVar, cast  # Any: a snapshot's type is the user's

from py_trees.behaviour import Behaviour

from jianmu.engine.control import Steps
from jianmu.engine.passes import FAILURE, RUNNING, SUCCESS
from jianmu.errors import SetupError
from jianmu.nodes.base import ANYTHING, FINITE, TRUTH, Branch, Number, Option, call_of, checked, is_number


class Race(Branch):
    """Run all children beside each other; the first one that succeeds ends it.

    SUCCESS when a child has succeeded (of several in one pass the first in the list); the others are
    halted, and what comes next waits for their cleanups.
    FAILURE when all children have failed; one that has failed is not ticked again.
    RUNNING until then.
    Halting halts all children.
    """

    is_parallel: ClassVar[bool] = True
    keeps = ("_lost",)

    def initialise(self) -> None:
        """Begin with all children."""
        self._lost: list[int] = []

    def steps(self) -> Steps:
        """Tick each child that has not failed, until one succeeds."""
        for place, child in enumerate(self.children):
            if child.status is FAILURE and place in self._lost:
                continue
            yield child
            self.current_child = child
            if child.status is SUCCESS:
                self.feedback_message = f"'{child.name}' was first"
                return SUCCESS
            if child.status is FAILURE:
                self._lost.append(place)
        has_failed = all(child.status is FAILURE for child in self.children)
        return FAILURE if has_failed else RUNNING


class Choice(Branch):
    """What the others share: they tick one child, the one at the place `_chosen`."""

    keeps = ("_chosen",)
    _chosen: int | None = None

    def steps(self) -> Steps:
        """Tick the child chosen."""
        if self._chosen is None:
            self.current_child = None
            self.feedback_message = "nothing matches"
            return FAILURE
        child = self.current_child = self.children[self._chosen]
        self.feedback_message = f"chose '{child.name}'"
        yield child
        return child.status


class Switch(Choice):
    """Run the one of the `cases` that `on(snapshot)` names, else the `default`.

    The choice is made when the node is entered, and kept until it has finished.
    SUCCESS, FAILURE, RUNNING: as the case chosen.
    FAILURE when no case matches and there is no default.
    Halting halts the case chosen; the next entry chooses anew.
    """

    def __init__(
        self,
        name: str,
        on: Callable[[Any], Hashable],
        cases: Mapping[Any, Behaviour],
        *,
        default: Behaviour | None = None,
    ) -> None:
        if not isinstance(cast("object", cases), Mapping):
            raise SetupError(f'Switch("{name}", on, cases) takes the cases as a dict, {{value: node}}, not {cases!r}')
        super().__init__(name, [*cases.values(), *([] if default is None else [default])])
        self._on = Option(self, "on", on, ANYTHING, is_function=True)
        self._places: dict[Any, int] = {value: place for place, value in enumerate(cases)}
        self._otherwise = None if default is None else len(cases)

    def initialise(self) -> None:
        """Look the value up."""
        self._chosen = self._places.get(self._on(), self._otherwise)


class IfThenElse(Choice):
    """Run the node `then` if `condition(snapshot)` holds, else `otherwise`.

    The choice is made when the node is entered, and kept until it has finished.
    SUCCESS, FAILURE, RUNNING: as the node chosen.
    FAILURE when the condition does not hold and there is no other node.
    Halting halts the node chosen; the next entry chooses anew.
    """

    def __init__(
        self, name: str, condition: Callable[[Any], bool], then: Behaviour, otherwise: Behaviour | None = None
    ) -> None:
        super().__init__(name, [then] if otherwise is None else [then, otherwise])
        self._condition = Option(self, "condition", condition, TRUTH, is_function=True)

    def initialise(self) -> None:
        """Ask the condition."""
        self._chosen = 0 if self._condition() else 1 if len(self.children) > 1 else None


class Utility(Choice):
    """Run the child with the best score, and change over when another one becomes better.

    In every tick `scores(snapshot)` gives a number for each child, in their order; of equal ones the first counts.
    SUCCESS, FAILURE, RUNNING: as the child that is ticked.
    The current child is left, and halted, only for one whose score is higher, by `margin` at least;
    that one starts when the cleanup of the one before is done.
    Halting halts the current child; the next entry takes the best.
    """

    def __init__(
        self, name: str, children: Sequence[Behaviour], *, scores: Callable[[Any], Sequence[float]], margin: Number = 0
    ) -> None:
        super().__init__(name, children)
        self._scores = Option(self, "scores", scores, ANYTHING, is_function=True)
        self._margin = Option(self, "margin", margin, FINITE)

    def steps(self) -> Steps:
        """Tick the best child, having halted the one that it replaces."""
        wanted = self._are_scores, f"a list of {len(self.children)} numbers"
        scores = checked(self, call_of(self, "scores"), wanted, self._scores())
        best, now = max(range(len(scores)), key=scores.__getitem__), self._chosen
        if now is None or (scores[best] > scores[now] and scores[best] - scores[now] >= self._margin()):
            if now is not None:
                self.halt(self.children[now])
            self._chosen = best
        return (yield from super().steps())

    def _are_scores(self, given: Any) -> bool:
        """Whether there is a number, not NaN, for each child."""
        if not isinstance(given, list | tuple) or len(cast("list[Any]", given)) != len(self.children) or not given:
            return False
        return all(is_number(score) and score == score for score in cast("list[Any]", given))  # noqa: PLR0124  # NaN
