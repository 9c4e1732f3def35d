"""What goes wrong in a run: whose exception it is, which one is raised, and what is only reported."""

from __future__ import annotations

from py_trees.behaviour import Behaviour

from jianmu.engine.activity import Tasks
from jianmu.engine.context import RunContext
from jianmu.engine.events import CleanupFailed
from jianmu.engine.tree import ancestors, descend, path_of

Failure = tuple[Behaviour, BaseException]


class Failures:
    """Collects a run's exceptions.

    Attributes:
        errors: (path, exception) of the nodes' exceptions of the last run, the one raised first.
    """

    def __init__(self, context: RunContext) -> None:
        self._context = context
        self.errors: list[tuple[str, BaseException]] = []
        self.culprit: Behaviour | None = None

    def report(self, node: Behaviour, error: BaseException) -> None:
        """Report an exception that ends no run: one raised while a node was halted."""
        path = path_of(node)
        self._context.log_at(path).error("cleanup failed", exc_info=error)
        self._context.events.emit(CleanupFailed(reason=f"{type(error).__name__}: {error}"), path)

    def report_late(self, path: str) -> None:
        """Report a halted node that takes its time to clean up."""
        reason = f"not cleaned up {self._context.halt_timeout:g} s after the halt"
        self._context.log_at(path).warning("cleanup is late", reason=reason)
        self._context.events.emit(CleanupFailed(reason=reason), path)

    def untold(self, tasks: Tasks) -> BaseException | None:
        """Return an exception of a coroutine that no node above is going to catch."""
        errors = ((each.node, each.error) for each in tasks.failed)
        return next((error for node, error in errors if error is not None and not is_caught(node, error)), None)

    def gather(self, error: BaseException, tasks: Tasks) -> BaseException:
        """Return the exception to raise, with its node's path and the others of this pass as notes.

        The first in tree order is raised.
        """
        found = self._found(error, tasks)
        if not found:
            self.errors = []
            return error
        self.culprit, first = found[0]
        self.errors = [(path_of(node), raised) for node, raised in found]
        notes = [f"raised by node '{path_of(self.culprit)}'"]
        notes += [f"in the same pass node '{path}' raised {type(raised).__name__}" for path, raised in self.errors[1:]]
        for note in notes:
            if note not in getattr(first, "__notes__", ()):
                first.add_note(note)
        return first

    def of(self, node: Behaviour, error: BaseException) -> BaseException:
        """Return an exception that a coroutine raised between two steps, with its node's path."""
        self.errors = [(path_of(node), error)]
        error.add_note(f"raised by node '{path_of(node)}'")
        return error

    def lost(self, tasks: Tasks) -> BaseException | None:
        """Return the first exception whose node was halted before it could be told; what is caught above is logged."""
        lost, tasks.lost = tasks.lost, []
        for node, error in lost:
            if not is_caught(node, error):
                self._context.ticker.blame(error, node)
                return error
            self._context.log_at(path_of(node)).info("caught after the halt", error=type(error).__name__)
        return None

    def report_untold(self, tasks: Tasks) -> None:
        """Report what coroutines raised whose nodes were halted by the end of the run, unless it is raised anyway."""
        lost, tasks.lost = tasks.lost, []
        for node, error in lost:
            if not any(error is told for _, told in self.errors):
                self.report(node, error)

    def _found(self, error: BaseException, tasks: Tasks) -> list[Failure]:
        """Return the nodes' exceptions of this pass, in tree order."""
        culprit = self._context.ticker.culprit_of(error)
        found: list[Failure] = [] if culprit is None else [(culprit, error)]
        found += [(other.node, other.error) for other in tasks.failed if other.error is not None]
        if len(found) < 2:
            return found
        order = {id(node): number for number, node in enumerate(descend(_top(found[0][0])))}
        return sorted(found, key=lambda failure: order.get(id(failure[0]), len(order)))


def _top(node: Behaviour) -> Behaviour:
    return next(reversed([node, *ancestors(node)]))


def is_caught(node: Behaviour, error: BaseException) -> bool:
    """Whether a node above catches such an exception."""
    asks = (getattr(above, "catches", None) for above in ancestors(node))
    return any(catches is not None and catches(error) for catches in asks)
