"""Ports used the wrong way round."""

from __future__ import annotations

import pytest
from py_trees.common import Status

from jianmu.agent import Agent
from jianmu.engine.node import Node
from jianmu.engine.ports import In
from jianmu.errors import SetupError
from tests.cases.leaves import SUCCESS, World


class Assigns(Node):
    """Assigns its own input."""

    question: In[str]

    def update(self) -> Status:
        """Assign."""
        self.question = "hidden"  # pyright: ignore[reportAttributeAccessIssue]  # the fault that is told
        return SUCCESS


def test_an_input_is_not_assigned() -> None:
    """It would hide what the port is bound to: a SetupError with the call to write."""
    with pytest.raises(SetupError, match=r'bind it, Assigns\("a", question=...\), or declare an Out'):
        Agent(Assigns("a", question="text"), World).run_sync()
