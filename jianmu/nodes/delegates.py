"""Delegates: subtrees that a model calls as tools, each on a state of its own.

1. What goes in is what the delegate's function makes of the call's arguments, and what is bound by `inputs`.
2. What comes out is the result, and what is bound by `outputs`. Nothing else passes.
3. A delegate's tree stands in the caller's: its questions, effects and position are kept under its path.
4. One tree does one call at a time; with `copies` it is built so often, and so many calls run side by side.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, TypeAlias  # Any: snapshots, states and options are the users'

from py_trees.behaviour import Behaviour
from py_trees.common import Status
from pydantic import Field

from jianmu.engine.context import NodeContext
from jianmu.engine.control import Steps
from jianmu.engine.state import Clear, Replace, StateManager
from jianmu.errors import RunError, SetupError, StoreError
from jianmu.message import human
from jianmu.nodes.base import check_child
from jianmu.nodes.subagent import Inputs, Outputs, SubAgent
from jianmu.nodes.turn import CallOutcome
from jianmu.tool.base import Approval, Tool
from jianmu.tool.cut import cut
from jianmu.tool.types import ToolCall, ToolResult, content_of

Taking: TypeAlias = Callable[..., Mapping[str, Any]]
Giving: TypeAlias = str | Callable[[Any], Any]
Standing: TypeAlias = Literal["pending", "running", "completed", "failed", "cancelled", "timed_out"]
_GOES_UP = (SetupError, RunError, StoreError)


class Delegated(SubAgent):
    """The tree of a delegate, on its own state.

    SUCCESS, FAILURE: as the inner tree; FAILURE also when it raises, unless that is an error of the program, the
    runtime or the store. The outputs are written in each case.
    RUNNING while the inner tree is.
    Halting halts the inner tree.

    Args:
        name: the node's name.
        root: the inner tree.
        manager: its state.
        is_fresh: whether each call begins with the defaults of the state.
        inputs: outer fields by inner ones.
        outputs: inner fields by outer ones.
    """

    def __init__(
        self,
        name: str,
        root: Behaviour,
        manager: StateManager[Any],
        *,
        is_fresh: bool,
        inputs: Inputs = None,
        outputs: Outputs = None,
    ) -> None:
        super().__init__(name, root, manager, inputs=inputs, outputs=outputs)
        self._is_fresh = is_fresh
        self.given: Mapping[str, Any] = {}
        self.error = ""

    def initialise(self) -> None:
        """Begin a call with what was given for it."""
        super().initialise()
        schema, self.error = self.inner_state.schema, ""
        cleared = {name: Clear() for name in schema.fields if name not in schema.required} if self._is_fresh else {}
        given = {name: Replace(value) if self._is_fresh else value for name, value in self.given.items()}
        self.inner_state.update({**cleared, **given}, _writer=self.context.path)

    def catches(self, error: BaseException) -> bool:
        """Whether an exception of the inner tree is the result of its call."""
        return isinstance(error, Exception) and not isinstance(error, _GOES_UP)

    def steps(self) -> Steps:
        """Run the inner tree, and take what it raises."""
        try:
            return (yield from super().steps())
        except Exception as error:
            if not self.catches(error):
                raise
            self.halt(self.decorated)
            self.error = f"{type(error).__name__}: {error}"
            self._write_what_is_left()
            return Status.FAILURE

    def _write_what_is_left(self) -> None:
        """Write the outputs of a tree that has raised, or whose outputs could not be written."""
        try:
            self._write_outputs()
        except Exception as error:
            if not self.catches(error):
                raise
            self.context.log.warning("the outputs of a delegate could not be written", error=str(error))


class Delegate(Tool):
    """A subtree as a tool; `delegate` and `Agent.as_tool` make one.

    Args:
        name: what the model calls it by.
        nodes: the trees that do its calls.
        arguments: returns what goes into the inner state; its signature and docstring are shown to the model.
        result: the field of the inner state that is the result, or a function of its snapshot.
        description: what the model is told.
        requires_approval: as with every tool.

    Attributes:
        nodes: as given.
        result: as given.
    """

    def __init__(
        self,
        name: str,
        nodes: Sequence[Delegated],
        *,
        arguments: Taking | None = None,
        result: Giving = "final_answer",
        description: str | None = None,
        requires_approval: Approval = False,
    ) -> None:
        where, schema = f"delegate '{name}'", nodes[0].inner_state.schema
        if arguments is None and "messages" not in schema.types:
            text = f"takes no messages: say what goes in, arguments=<a function that returns fields of {_model(nodes)}>"
            raise SetupError(f"{where} {text}")
        if isinstance(result, str) and result not in schema.types:
            raise SetupError(f"{where}: result='{result}' is no field of {_model(nodes)}")
        super().__init__(arguments or do_task, name=name, description=description, requires_approval=requires_approval)
        if self.is_async:
            raise SetupError(f"{where}: arguments= is called inside the pass: write `def`, not `async def`")
        self.nodes, self.result = tuple(nodes), result

    def input_of(self, call: ToolCall) -> Mapping[str, Any]:
        """Return what goes into the inner state for a call.

        Raises:
            ValueError: the arguments do not fit; the text is for the model.
        """
        values = self._read(call)
        try:
            return self.fn(**values)
        except _GOES_UP:
            raise
        except Exception as error:  # noqa: BLE001  # as with every tool: what it raises is its result
            problem = f"'{self.name}' failed: {type(error).__name__}: {error}"
        raise ValueError(problem)

    async def call(self, call: ToolCall, *, context: NodeContext | None = None, deps: Any = None) -> ToolResult:
        """Refuse to be called as a plain tool."""
        raise SetupError(f"tool '{self.name}' is a delegate: call it from a DelegateExecutor, not a ToolExecutor")

    def outcome(self, node: Delegated) -> CallOutcome:
        """Return what came of a call that a tree has done."""
        if node.status is not Status.SUCCESS:
            reason = node.error or node.feedback_message or "its tree failed"
            return CallOutcome(content=f"'{self.name}' failed: {reason}", is_error=True)
        state, result = node.inner_state, self.result
        value = result(state.get()) if callable(result) else state.read(result)
        try:
            return CallOutcome(content=cut(content_of("" if value is None else value), self.max_result_chars))
        except ValueError as error:
            problem = f"'{self.name}' was carried out, but its result cannot be shown: {error}."
        return CallOutcome(content=problem, is_error=True)

    def standing(self, node: Delegated, outcome: CallOutcome) -> Standing:
        """Return how a call stands that a tree has done."""
        return "failed" if outcome.is_error else "completed"

    def note(self, call: ToolCall, stands: Standing, context: NodeContext, outcome: CallOutcome | None = None) -> None:
        """Be told how a call stands, and what came of it; who keeps a ledger overrides it."""


def do_task(
    task: Annotated[str, Field(description="What is to be done, and all that has to be known for it.")],
) -> dict[str, Any]:
    """Have a task done by somebody who knows nothing of this conversation."""
    return {"messages": [human(task)]}


def built(kind: str, name: str, build: Callable[[], Behaviour]) -> Behaviour:
    """Return the tree that the function of a `delegate` or `task` builds.

    Raises:
        SetupError: it is no function, needs arguments, or returns no tree.
    """
    if isinstance(build, Behaviour) or not callable(build):
        line = f'{kind}("{name}", lambda: react("{name}", model=model))'
        raise SetupError(f"{kind}(name, build) takes a function that builds the tree, not {build!r}: write {line}")
    if given := _arguments(build):
        called = getattr(build, "__name__", "")
        called = called if called.isidentifier() else "build"
        line = f'{kind}("{name}", lambda: {called}({", ".join(given)}))'
        raise SetupError(f"{kind}(name, build) calls build() without arguments, which {called} needs: write {line}")
    root = build()
    check_child(f"what build() of {kind} '{name}' returns", root)
    return root


def _arguments(build: Callable[..., Any]) -> list[str]:
    """Return the arguments that a function cannot be called without, as they are written."""
    try:
        known = inspect.signature(build).parameters.values()
    except (TypeError, ValueError):  # it does not say what it takes
        return []
    needed = [
        one for one in known if one.default is one.empty and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
    ]
    return [f"{one.name}={one.name}" if one.kind is one.KEYWORD_ONLY else one.name for one in needed]


def _model(nodes: Sequence[Delegated]) -> str:
    return nodes[0].inner_state.schema.model.__name__
