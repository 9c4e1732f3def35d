"""Why a tree has failed: one way for the chat, the command line and a node around an agent."""

from __future__ import annotations

from py_trees.behaviour import Behaviour
from py_trees.behaviours import Failure, Success

from jianmu.nodes import Invert, Selector, Sequence
from jianmu.nodes.reasons import failed_node, reason_in


def ticked(root: Behaviour) -> None:
    """Have a tree fail without a word."""
    root.tick_once()
    for node in root.iterate():
        node.feedback_message = ""


def test_the_highest_that_speaks_tells_why() -> None:
    """What a composite says of its children counts before what they say."""
    lost, last = Failure("lost"), Failure("last")
    root = Selector("root", memory=False, children=[lost, last])
    ticked(root)
    last.feedback_message = "no"
    assert (failed_node(root), reason_in(root)) == (last, "no")
    root.feedback_message = "nothing helped"
    assert (failed_node(root), reason_in(root)) == (root, "nothing helped")


def test_a_reason_that_was_handed_up_is_that_of_the_lowest() -> None:
    """A decorator says what its child says: the child is the one that failed."""
    why = Failure("why")
    root = Sequence("root", memory=True, children=[Invert("not", Invert("not not", why))])
    ticked(root)
    for node in root.iterate():
        node.feedback_message = "closed" if node is not root else ""
    assert failed_node(root) is why


def test_a_leaf_that_ended_a_loop_is_heard_where_nobody_else_speaks() -> None:
    """It stands in a branch that has not failed."""
    gone, ends = Failure("gone"), Success("ends")
    root = Sequence("root", memory=True, children=[Selector("or", memory=True, children=[gone, ends]), Failure("then")])
    ticked(root)
    gone.feedback_message, ends.feedback_message = "the model is gone", "all is well"
    assert (failed_node(root), reason_in(root)) == (gone, "the model is gone")


def test_where_nobody_says_why_it_is_the_tip() -> None:
    """It has no words either."""
    last = Failure("last")
    root = Selector("root", memory=False, children=[Failure("first"), last])
    ticked(root)
    assert (failed_node(root), reason_in(root)) == (last, "")
