"""Branches that choose: Race, Switch, IfThenElse, Utility."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, ClassVar, cast  # Any: a snapshot's type is the user's

from py_trees.behaviour import Behaviour
from py_trees.common import Status

from jianmu.engine.control import Steps
from jianmu.errors import SetupError
from jianmu.nodes.base import Branch
from jianmu.nodes.options import Amount, Number, plain, verdict, wrong_kind


class Race(Branch):
    """Run all children beside each other; the first one that succeeds ends it.

    SUCCESS when a child has succeeded (of several in one pass the first in the list); the others are
    halted, and what comes next waits for their cleanups.
    FAILURE when all children have failed; one that has failed is not ticked again.
    RUNNING until then.
    Halting halts all children.

    Args:
        name: the node's name.
        children: what races.
    """

    is_parallel: ClassVar[bool] = True

    def __init__(self, name: str, children: Sequence[Behaviour]) -> None:
        super().__init__(name, children)
        self._lost: set[Behaviour] = set()

    def initialise(self) -> None:
        """Begin with all children."""
        self._lost.clear()

    def steps(self) -> Steps:
        """Tick each child that has not failed, until one succeeds."""
        for child in [child for child in self.children if child not in self._lost]:
            yield child
            self.current_child = child
            if child.status is Status.SUCCESS:
                self.feedback_message = f"'{child.name}' was first"
                return Status.SUCCESS
            if child.status is Status.FAILURE:
                self._lost.add(child)
        return Status.FAILURE if self._lost.issuperset(self.children) else Status.RUNNING

    def memento(self) -> list[int] | None:
        """Return the places of the children that have failed."""
        is_on = self.status is Status.RUNNING
        return [place for place, child in enumerate(self.children) if child in self._lost] if is_on else None

    def restore(self, value: list[int]) -> None:
        """Take back the children that have failed."""
        self._lost = {self.children[place] for place in value}


class Choice(Branch):
    """What Switch and IfThenElse share: a child chosen once, when the node is entered."""

    keeps = ("_chosen",)

    def __init__(self, name: str, children: Sequence[Behaviour]) -> None:
        super().__init__(name, children)
        self._chosen: int | None = None

    def choose(self) -> int | None:
        """Return the place of the child to run, or None."""
        raise NotImplementedError

    def initialise(self) -> None:
        """Choose."""
        self._chosen = self.choose()

    def steps(self) -> Steps:
        """Tick the child chosen."""
        if self._chosen is None:
            self.current_child = None
            self.feedback_message = "nothing matches"
            return Status.FAILURE
        child = self.current_child = self.children[self._chosen]
        self.feedback_message = f"chose '{child.name}'"
        yield child
        return child.status


class Switch(Choice):
    """Run the case that a value of the state names.

    The choice is made when the node is entered, and kept until it has finished.
    SUCCESS, FAILURE, RUNNING: as the case chosen.
    FAILURE when no case matches and there is no default.
    Halting halts the case chosen; the next entry chooses anew.

    Args:
        name: the node's name.
        on: a function of the snapshot; its result is looked up among the cases.
        cases: the nodes by value.
        default: the node for all other values.
    """

    def __init__(
        self,
        name: str,
        on: Callable[[Any], Hashable],
        cases: Mapping[Any, Behaviour],
        *,
        default: Behaviour | None = None,
    ) -> None:
        call = f'Switch("{name}", on, cases)'
        plain(call.replace("cases", "{value: node}"), on)
        if not isinstance(cast("object", cases), Mapping):
            raise SetupError(f"{call} takes the cases as a dict, {{value: node}}, not {cases!r}")
        super().__init__(name, [*cases.values(), *([] if default is None else [default])])
        self._on = on
        self._places: dict[Any, int] = {value: place for place, value in enumerate(cases)}
        self._otherwise = None if default is None else len(cases)

    def choose(self) -> int | None:
        """Look the value up."""
        return self._places.get(self._on(self.read_state()), self._otherwise)


class IfThenElse(Choice):
    """Run one node if a condition holds, else another.

    The choice is made when the node is entered, and kept until it has finished.
    SUCCESS, FAILURE, RUNNING: as the node chosen.
    FAILURE when the condition does not hold and there is no other node.
    Halting halts the node chosen; the next entry chooses anew.

    Args:
        name: the node's name.
        condition: a function of the snapshot that returns a bool.
        then: run if it holds.
        otherwise: run if it does not.
    """

    def __init__(
        self, name: str, condition: Callable[[Any], bool], then: Behaviour, otherwise: Behaviour | None = None
    ) -> None:
        self._call = f'IfThenElse("{name}", condition, then)'
        plain(self._call, condition)
        super().__init__(name, [then] if otherwise is None else [then, otherwise])
        self._condition = condition

    def choose(self) -> int | None:
        """Ask the condition."""
        if verdict(self, self._call, self._condition(self.read_state())):
            return 0
        return 1 if len(self.children) > 1 else None


class Utility(Branch):
    """Run the child with the best score, and change over when another one becomes better.

    The scores are computed in every tick; of equal ones the first counts.
    SUCCESS, FAILURE, RUNNING: as the child that is ticked.
    The current child is left, and halted, only for one whose score is higher, by `margin` at least;
    that one starts when the cleanup of the one before is done.
    Halting halts the current child; the next entry takes the best.

    Args:
        name: the node's name.
        children: what to choose from.
        scores: a function of the snapshot that returns a number for each child, in their order.
        margin: how much better another child has to be, or a function of the snapshot.
    """

    keeps = ("_current",)

    def __init__(
        self,
        name: str,
        children: Sequence[Behaviour],
        *,
        scores: Callable[[Any], Sequence[float]],
        margin: Number = 0,
    ) -> None:
        super().__init__(name, children)
        self._call = f'Utility("{name}", children, scores=...)'
        plain(self._call, scores)
        self._scores = scores
        self._margin = Amount(f'Utility("{name}", children, margin=...)', margin, least=None)
        self._current: int | None = None

    def initialise(self) -> None:
        """Begin without a current child."""
        self._current = None

    def steps(self) -> Steps:
        """Tick the best child, having halted the one that it replaces."""
        best = self._best()
        if self._current is not None and self._current != best:
            self.halt(self.children[self._current])
        self._current = best
        child = self.current_child = self.children[best]
        self.feedback_message = f"chose '{child.name}'"
        yield child
        return child.status

    def _best(self) -> int:
        """Return the place of the child to tick."""
        scores = self._scored()
        best = max(range(len(scores)), key=scores.__getitem__)
        now = self._current
        if now is None or (scores[best] > scores[now] and scores[best] - scores[now] >= self._margin.of(self)):
            return best
        return now

    def _scored(self) -> list[float]:
        """Return the scores, if there is a number for each child."""
        given: Any = self._scores(self.read_state())  # Any: checked next
        scores = [float(score) for score in cast("list[Any]", given)] if isinstance(given, list | tuple) else []
        if not scores or len(scores) != len(self.children) or any(score != score for score in scores):  # noqa: PLR0124  # NaN
            raise wrong_kind(self, self._call, f"a list of {len(self.children)} numbers", cast("object", given))
        return scores
