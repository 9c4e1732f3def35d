"""One pass over a tree, beside py_trees' own."""

from __future__ import annotations

from collections.abc import Callable

from py_trees.behaviour import Behaviour
from py_trees.common import Status
from py_trees.composites import Sequence
from py_trees.trees import BehaviourTree

from bench.measure import Effort, Pair, block, in_turns
from jianmu.engine.ticker import tick

TOO_DEEP_TO_RECURSE = 5_000


class Plain(Behaviour):
    """SUCCESS at once; overrides `update` alone."""

    def update(self) -> Status:
        """Succeed."""
        return Status.SUCCESS


class Whole(Plain):
    """SUCCESS at once; overrides all three callbacks."""

    def initialise(self) -> None:
        """Do nothing."""

    def terminate(self, new_status: Status) -> None:
        """Do nothing."""


class Waiting(Behaviour):
    """RUNNING for ever."""

    def update(self) -> Status:
        """Go on."""
        return Status.RUNNING


def compare(build: Callable[[], Behaviour], effort: Effort, ours: int, peer: int) -> Pair:
    """Tick two trees of one form, each with one of the tickers, `ours` and `peer` times a round."""
    root, tree = build(), BehaviourTree(build())
    tick(root)
    tree.tick()
    if [node.status for node in root.iterate()] != [node.status for node in tree.root.iterate()]:
        raise RuntimeError("the two tickers do not do the same")
    return in_turns(
        lambda: block(lambda: tick(root), effort.times(ours)),
        lambda: block(tree.tick, effort.times(peer)),
        effort.rounds,
    )


def flat(leaf: type[Behaviour]) -> Behaviour:
    """Build a reactive Sequence of 1,000 leaves."""
    return Sequence("flat", memory=False, children=[leaf(f"leaf{index}") for index in range(1_000)])


def flat_update(effort: Effort) -> Pair:
    """Tick 1,000 leaves that override `update` alone."""
    return compare(lambda: flat(Plain), effort, ours=10, peer=1)


def flat_callbacks(effort: Effort) -> Pair:
    """Tick 1,000 leaves that override all three callbacks."""
    return compare(lambda: flat(Whole), effort, ours=10, peer=1)


def parked(effort: Effort) -> Pair:
    """Tick a memory Sequence whose child 1,000 is RUNNING."""

    def build() -> Behaviour:
        done: list[Behaviour] = [Plain(f"leaf{index}") for index in range(999)]
        return Sequence("parked", memory=True, children=[*done, Waiting("last")])

    return compare(build, effort, ours=2_000, peer=10)


def chain(levels: int) -> Behaviour:
    """Build nested memory Sequences over a RUNNING leaf."""
    node: Behaviour = Waiting("leaf")
    for level in range(levels):
        node = Sequence(f"level{level}", memory=True, children=[node])
    return node


def nested(effort: Effort) -> Pair:
    """Tick 200 nested memory Sequences; 5,000 must work too."""
    if tick(chain(TOO_DEEP_TO_RECURSE)) is not Status.RUNNING:
        raise RuntimeError("5,000 nested Sequences do not work")
    return compare(lambda: chain(200), effort, ours=40, peer=3)
