"""What the branches of this folder share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, cast  # Any: JSON

from py_trees.behaviour import Behaviour
from py_trees.common import Status
from py_trees.composites import Composite
from py_trees.decorators import Decorator

from jianmu.engine.control import Control
from jianmu.engine.node import NodeMixin
from jianmu.errors import SetupError
from jianmu.nodes.options import check_child


class Keeping(Control, NodeMixin):
    """A branch that knows its run and keeps some attributes, which are JSON, while it is RUNNING."""

    keeps: ClassVar[tuple[str, ...]] = ()

    def memento(self) -> Any:  # Any: JSON
        """Return what is kept."""
        is_on = cast("Behaviour", self).status is Status.RUNNING
        return [getattr(self, name) for name in self.keeps] if is_on and self.keeps else None

    def restore(self, value: Any) -> None:  # Any: JSON
        """Take back what was kept."""
        vars(self).update(zip(self.keeps, value, strict=True))


class Branch(Keeping, Composite):
    """A composite of jianmu: it ticks its children by `steps()`."""

    def __init__(self, name: str, children: Sequence[Behaviour]) -> None:
        call = f'{type(self).__name__}("{name}", children)'
        if isinstance(children, Behaviour):
            raise SetupError(f'{call} takes a list of nodes: write {type(self).__name__}("{name}", [...])')
        for child in children:
            check_child(call, child)
        super().__init__(name, children)


class Wrapper(Keeping, Decorator):
    """A decorator of jianmu: it ticks its child by `steps()`."""

    def __init__(self, name: str, child: Behaviour) -> None:
        check_child(f'{type(self).__name__}("{name}", child)', child)
        super().__init__(name, child)

    def update(self) -> Status:
        """Return the child's status, and say what it says."""
        self.feedback_message = self.decorated.feedback_message
        return self.decorated.status
