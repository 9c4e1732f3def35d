"""Why a tree has failed, in the words of its nodes."""

from __future__ import annotations

from py_trees.behaviour import Behaviour
from py_trees.common import Status

from jianmu.engine.tree import descend


def failed_node(root: Behaviour) -> Behaviour:
    """Return the node that says why a tree has failed; where none does, the tip of the tree.

    It is the highest that says something on the way to what failed, and the lowest of those that say the same; or else
    the last leaf that failed: it may stand where its failure ends a loop, and what fails then is another one, without a
    word.
    """
    found: Behaviour | None = root
    while found is not None and not found.feedback_message:
        found = next((child for child in reversed(found.children) if child.status is Status.FAILURE), None)
    if found is None:
        failed = [one for one in descend(root) if not one.children and one.status is Status.FAILURE]
        return next((leaf for leaf in reversed(failed) if leaf.feedback_message), root.tip() or root)
    while said := [child for child in found.children if child.feedback_message == found.feedback_message]:
        found = said[-1]
    return found


def reason_in(root: Behaviour) -> str:
    """Return why a tree has failed; "" if no node says so."""
    return failed_node(root).feedback_message
