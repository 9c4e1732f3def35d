"""Invert, ForceSuccess, ForceFailure: py_trees' decorators under the names that the field uses."""

from __future__ import annotations

from py_trees.decorators import FailureIsSuccess, Inverter, SuccessIsFailure


class Invert(Inverter):
    """Turn the child's result round.

    SUCCESS when the child has failed, FAILURE when it has succeeded.
    RUNNING while the child is.
    Halting halts the child.

    Args:
        name: the node's name.
        child: whose result is turned round.
    """


class ForceSuccess(FailureIsSuccess):
    """Let the child succeed in any case.

    SUCCESS when the child has finished, whether it succeeded or failed.
    RUNNING while the child is.
    Halting halts the child.

    Args:
        name: the node's name.
        child: whose result does not count.
    """


class ForceFailure(SuccessIsFailure):
    """Let the child fail in any case.

    FAILURE when the child has finished, whether it succeeded or failed.
    RUNNING while the child is.
    Halting halts the child.

    Args:
        name: the node's name.
        child: whose result does not count.
    """
