"""Calls of delegates beside those of plain tools: what carries out a reply that has both."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar  # Any: options are the users', and JSON

from py_trees.behaviour import Behaviour
from py_trees.common import Status
from pydantic import JsonValue

from jianmu.engine.control import Steps
from jianmu.engine.events import ToolCalled, ToolReturned
from jianmu.engine.node import AsyncNode
from jianmu.engine.passes import Pass
from jianmu.engine.questions import digest
from jianmu.errors import RunError
from jianmu.nodes.base import Branch
from jianmu.nodes.calldecorator import decorators_of, refined
from jianmu.nodes.delegates import Delegate, Delegated, Standing
from jianmu.nodes.llm import Tools, toolbox_of
from jianmu.nodes.tools import ToolExecutor, Work
from jianmu.nodes.turn import CallOutcome, Turn, with_edit
from jianmu.tool.toolbox import Toolbox
from jianmu.tool.types import ToolCall


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


class Refined(AsyncNode):
    """Have the call decorators above refine what came of the calls of delegates.

    SUCCESS when they have.
    RUNNING meanwhile.
    Halting leaves what came of the calls as it was.

    Attributes:
        turn: the calls, and what has become of them.
        places: those of the calls.
    """

    turn = Turn()
    places: Collection[int] = ()

    async def update_async(self) -> Status:
        """Refine one after the other; what was refined before is not refined again."""
        for place in sorted(self.places):
            await self._refine(self.turn, place)
        return Status.SUCCESS

    async def _refine(self, turn: Turn, place: int) -> None:
        call, outcome = turn.calls[place], turn.outcomes[place]

        async def act() -> CallOutcome:
            return await refined(decorators_of(self), call, outcome, self.context.within(turn.scope(call), call.id))

        act.__qualname__ = call.name
        how: dict[str, Any] = {"result": CallOutcome, "effect": False, "per": "activation"}
        turn.outcomes[place] = await self.context.once(call.id, act, **how)


class DelegateExecutor(Branch):
    """Carry out the calls of the model's last reply, those of delegates among them; see ToolExecutor.

    Calls of plain tools are carried out by the child `calls`, then those of delegates by the children after it, side by
    side; the last child, `refined`, lets the call decorators above refine what came of these, where there are any. Then
    all results are appended.
    SUCCESS when the results are in.
    RUNNING while a call is carried out, and while a question of one is open.
    Halting halts what is at work; those calls, and those that were not begun, get a result that says so.

    Args:
        name: the node's name.
        tools: a box, or tools, functions and boxes, with delegates among them.
        options: those of a ToolExecutor.
    """

    is_loop: ClassVar[bool] = True
    is_parallel: ClassVar[bool] = True

    def __init__(self, name: str, *, tools: Tools, **options: Any) -> None:
        self.name = name  # for what is refused
        box = toolbox_of(self, tools)
        self._calls = PlainCalls("calls", tools=box, **options)
        nodes = [node for one in delegates_in(box) for node in one.nodes]
        self._refined = Refined("refined")
        super().__init__(name, [self._calls, *nodes, self._refined])
        self._delegates = nodes
        self._forget()

    def on_load(self) -> None:
        """Have no calls."""
        super().on_load()
        self._forget()

    def _forget(self) -> None:
        self._turn: Turn | None = None
        self._waiting: list[Work] = []
        self._busy: dict[int, Work] = {}
        self._raw = set[int]()
        self._given: dict[int, Mapping[str, Any]] = {}

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
            turn = self._calls.turn
            self._waiting = [work for work in self._calls.left if self._fits(turn, work)]
            self._turn = turn
            for work in self._waiting:
                self._note(work, "pending")
        for place, node in enumerate(self._delegates):
            yield from self._drive(self._turn, place, node)
        if self._busy or self._waiting:
            return Status.RUNNING
        if self._raw and decorators_of(self):
            self._refined.turn, self._refined.places = self._turn, self._raw
            yield self._refined
            if self._refined.status is Status.RUNNING:
                return Status.RUNNING
        self._turn.append(self._calls.context)
        return Status.SUCCESS

    def _fits(self, turn: Turn, work: Work) -> bool:
        """Whether a call's arguments can be used; if not, that is its result, and it is no task that was given."""
        tool = work.tool
        assert isinstance(tool, Delegate)
        try:
            self._given[work.place] = tool.input_of(work.call)
        except ValueError as error:
            turn.fail(work.place, str(error))
            return False
        return True

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
        self._raw.add(work.place)
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
            if work.place not in self._given and not self._fits(turn, work):
                self._note(work, "failed", turn.outcomes[work.place])
                continue
            node.given = self._given.pop(work.place)
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
            "raw": sorted(self._raw),
            "waiting": [_written(work) for work in self._waiting],
            "busy": {str(place): _written(work) for place, work in self._busy.items()},
        }

    def restore(self, value: Any) -> None:  # Any: JSON
        """Take back what `memento` has returned."""
        turn = self._turn = Turn.read(value)
        _recall(turn, value["outcomes"])
        self._raw = set(value.get("raw", ()))
        self._refined.turn, self._refined.places = turn, self._raw
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
