"""Delegates: subtrees that a model calls as tools, each on a state of its own.

1. What goes in is what the delegate's function makes of the call's arguments, and what is bound by `inputs`.
2. What comes out is the result, and what is bound by `outputs`. Nothing else passes.
3. A delegate's tree stands in the caller's: its questions, effects and position are kept under its path.
4. One tree does one call at a time; with `copies` it is built so often, and so many calls run side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, TypeAlias  # Any: snapshots, states and options are the users'

from py_trees.behaviour import Behaviour
from py_trees.common import Status
from pydantic import Field, JsonValue

from jianmu.engine.context import NodeContext
from jianmu.engine.control import Steps
from jianmu.engine.events import ToolCalled, ToolReturned
from jianmu.engine.passes import Pass
from jianmu.engine.questions import digest
from jianmu.engine.state import Clear, Replace, StateManager
from jianmu.errors import RunError, SetupError, StoreError
from jianmu.message import human
from jianmu.nodes.base import Branch
from jianmu.nodes.llm import Tools
from jianmu.nodes.subagent import Inputs, Outputs, SubAgent
from jianmu.nodes.tools import ToolExecutor, Work, with_edit
from jianmu.nodes.turn import CallOutcome, Turn
from jianmu.tool.base import Approval, Tool
from jianmu.tool.cut import cut
from jianmu.tool.toolbox import Toolbox
from jianmu.tool.types import ToolCall, ToolResult, content_of

Taking: TypeAlias = Callable[..., Mapping[str, Any]]
Giving: TypeAlias = str | Callable[[Any], Any]
Standing: TypeAlias = Literal["pending", "running", "completed", "failed", "cancelled", "timed_out"]
_GOES_UP = (SetupError, RunError, StoreError)


class Delegated(SubAgent):
    """The tree of a delegate, on its own state.

    SUCCESS, FAILURE: as the inner tree; FAILURE also when it raises, unless that is an error of the program, the
    runtime or the store.
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
            return Status.FAILURE


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


class PlainCalls(ToolExecutor):
    """Carry out the calls of plain tools, after all approvals; leave those of delegates, and the results, to others.

    Statuses and halting are those of a ToolExecutor.

    Attributes:
        left: the calls of delegates.
    """

    left: Sequence[Work] = ()

    @property
    def turn(self) -> Turn:
        """The calls, and what has become of them."""
        return self._turn

    async def _carry_out_all(self, turn: Turn, work: Sequence[Work]) -> None:
        self.left = [one for one in work if isinstance(one.tool, Delegate)]
        await super()._carry_out_all(turn, [one for one in work if not isinstance(one.tool, Delegate)])

    def _finish(self, turn: Turn) -> None:
        """Leave the results to the node above."""

    def memento(self) -> Any:  # Any: JSON
        """Return also what came of the calls, once they are done and the node above has not seen it."""
        kept: dict[str, Any] | None = super().memento()
        if self.status is not Status.RUNNING or not kept or not kept.get("result"):
            return kept
        return {**kept, "outcomes": _outcomes(self._turn), "left": [_written(work) for work in self.left]}

    def restore(self, value: Any) -> None:  # Any: JSON
        """Take it back."""
        super().restore(value)
        _recall(self._turn, value.get("outcomes", {}))
        self.left = [self.work_of(kept) for kept in value.get("left", ())]

    def work_of(self, kept: Any) -> Work:  # Any: JSON
        """Return the call of a delegate that was kept.

        Raises:
            RunError: there is no such delegate any more.
        """
        call = ToolCall.model_validate(kept["call"])
        tool = self.tools.get(call.name)
        if tool is None:
            path = self.context.path
            text = f"node '{path}' has no delegate '{call.name}' any more, and a call of it is not finished"
            raise RunError(text, path=path)
        return Work(kept["place"], call, tool, kept["is_edited"])


class DelegateExecutor(Branch):
    """Carry out the calls of the model's last reply, those of delegates among them; see ToolExecutor.

    Calls of plain tools are carried out by the child `calls`, then those of delegates by the other children, side by
    side; then all results are appended.
    SUCCESS when the results are in.
    RUNNING while a call is carried out, and while a question of one is open.
    Halting halts what is at work; those calls, and those that were not begun, get a result that says so.

    Args:
        name: the node's name.
        tools: a box with delegates in it.
        options: those of a ToolExecutor.
    """

    is_loop: ClassVar[bool] = True
    is_parallel: ClassVar[bool] = True

    def __init__(self, name: str, *, tools: Toolbox, **options: Any) -> None:
        self._calls = PlainCalls("calls", tools=tools, **options)
        nodes = [node for one in delegates_in(tools) for node in one.nodes]
        super().__init__(name, [self._calls, *nodes])
        self._delegates = nodes
        self._forget()

    def _forget(self) -> None:
        self._turn: Turn | None = None
        self._waiting: list[Work] = []
        self._busy: dict[int, Work] = {}

    def initialise(self) -> None:
        """Begin with the calls of the last reply."""
        self._forget()

    def round_of(self, child: Behaviour) -> JsonValue:
        """Return what tells the calls of one delegate apart."""
        work = self._busy.get(next((place for place, node in enumerate(self._delegates) if node is child), -1))
        return None if work is None or self._turn is None else [digest("reply", self._turn.reply)[:8], work.call.id]

    def steps(self) -> Steps:
        """Carry out plain calls, then those of delegates, then append the results."""
        if self._turn is None:
            yield self._calls
            if self._calls.status is Status.RUNNING:
                return Status.RUNNING
            self._turn, self._waiting = self._calls.turn, [*self._calls.left]
            for work in self._waiting:
                self._note(work, "pending")
        for place, node in enumerate(self._delegates):
            yield from self._drive(self._turn, place, node)
        if self._busy or self._waiting:
            return Status.RUNNING
        self._turn.append(self._calls.context)
        return Status.SUCCESS

    def _drive(self, turn: Turn, place: int, node: Delegated) -> Steps:
        """Go on with the call that a tree is doing, or give it the next one."""
        work = self._busy.get(place) or self._take(turn, place, node)
        if work is None:
            return Status.SUCCESS
        yield node
        if node.status is Status.RUNNING:
            return Status.RUNNING
        tool = work.tool
        assert isinstance(tool, Delegate)
        outcome = tool.outcome(node)
        if work.is_edited:
            outcome = outcome.model_copy(update={"content": with_edit(work.call, outcome.content)})
        turn.outcomes[work.place] = outcome
        self._note(work, tool.standing(node, outcome), outcome)
        del self._busy[place]
        self._calls.context.emit(ToolReturned(call_id=work.call.id, name=tool.name, is_error=outcome.is_error))
        Pass.current().again = Pass.current().again or bool(self._waiting)
        return node.status

    def _take(self, turn: Turn, place: int, node: Delegated) -> Work | None:
        """Give a tree its next call; one whose arguments do not fit has its result at once."""
        for work in [*self._waiting]:
            tool = work.tool
            if not isinstance(tool, Delegate) or node not in tool.nodes:
                continue
            self._waiting.remove(work)
            try:
                node.given = tool.input_of(work.call)
            except ValueError as error:
                self._note(work, "failed", turn.fail(work.place, str(error)))
                continue
            self._busy[place] = work
            turn.begun.add(work.place)
            self._note(work, "running")
            call = work.call
            self._calls.context.emit(ToolCalled(call_id=call.id, name=call.name, arguments=call.arguments))
            return work
        return None

    def terminate(self, new_status: Status) -> None:
        """Give the calls their results, unless the run is only parked: then it can go on."""
        is_over = new_status is Status.INVALID and self.status is Status.RUNNING
        if is_over and self._turn is not None and not self.context.run.is_parking:
            self._turn.close(self._calls.context)
            for work in (*self._busy.values(), *self._waiting):
                self._note(work, "cancelled")

    def _note(self, work: Work, stands: Standing, outcome: CallOutcome | None = None) -> None:
        assert isinstance(work.tool, Delegate)
        work.tool.note(work.call, stands, self._calls.context, outcome)

    def memento(self) -> Any:  # Any: JSON
        """Return the calls of delegates and all results, once plain calls are done."""
        turn = self._turn
        if self.status is not Status.RUNNING or turn is None:
            return None
        return {
            **turn.kept(),
            "outcomes": _outcomes(turn),
            "waiting": [_written(work) for work in self._waiting],
            "busy": {str(place): _written(work) for place, work in self._busy.items()},
        }

    def restore(self, value: Any) -> None:  # Any: JSON
        """Take back what `memento` has returned."""
        turn = self._turn = Turn.read(value)
        _recall(turn, value["outcomes"])
        self._waiting = [self._calls.work_of(kept) for kept in value["waiting"]]
        self._busy = {int(place): self._calls.work_of(kept) for place, kept in value["busy"].items()}
        turn.begun.update(work.place for work in self._busy.values())


def _written(work: Work) -> JsonValue:
    return {"place": work.place, "call": work.call.model_dump(mode="json"), "is_edited": work.is_edited}


def _outcomes(turn: Turn) -> dict[str, JsonValue]:
    """Return what came of calls, as JSON, by their places."""
    return {str(place): outcome.model_dump(mode="json") for place, outcome in turn.outcomes.items()}


def _recall(turn: Turn, kept: Mapping[str, Any]) -> None:  # Any: JSON
    turn.outcomes = {int(place): CallOutcome.model_validate(outcome) for place, outcome in kept.items()}


def _model(nodes: Sequence[Delegated]) -> str:
    return nodes[0].inner_state.schema.model.__name__


def delegates_in(box: Toolbox) -> list[Delegate]:
    """Return the delegates of a box; a box whose tools change has none."""
    found: list[Delegate] = []
    for part in box.parts:
        if isinstance(part, Delegate):
            found.append(part)
        elif isinstance(part, Toolbox):
            found += delegates_in(part)
    return found


def acting(name: str, tools: Tools, **options: Any) -> tuple[Behaviour, Toolbox]:
    """Return what carries out the calls of tools, with or without delegates, and the box of all of them."""
    plain = ToolExecutor(name, tools=tools, **options)
    box = plain.tools
    return (DelegateExecutor(name, tools=box, **options) if delegates_in(box) else plain), box
