"""Why a tree has failed, in the words of its nodes."""

from __future__ import annotations

from py_trees.behaviour import Behaviour
from py_trees.common import Status

from jianmu.engine.tree import descend


def reason_in(root: Behaviour) -> str:
    """Return what the highest node says that made a tree fail, or else the last leaf that failed; "" if none does.

    A leaf that failed may stand where its failure ends a loop, and what fails then is another one, without a word.
    """
    node: Behaviour | None = root
    while node is not None:
        if node.feedback_message:
            return node.feedback_message
        node = next((child for child in reversed(node.children) if child.status is Status.FAILURE), None)
    failed = [one for one in descend(root) if not one.children and one.status is Status.FAILURE]
    return next((leaf.feedback_message for leaf in reversed(failed) if leaf.feedback_message), "")
