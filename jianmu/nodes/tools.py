"""ToolExecutor: carries out the calls of the model's last reply.

1. Each call of the reply gets one result, in the order of the calls, in one write, however it goes.
2. Nothing is begun before all that need it are approved, all that are questions are answered, and the run may still
   use so many calls; what the call decorators above refuse is refused before that.
3. A call is an effect under its id: what was carried out is not carried out again, here or in another process.
4. Siblings of a call that asks, or that ends the run, are finished first: their results are kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, NamedTuple  # Any: functions of the user's, and JSON

import anyio
from py_trees.common import Status

from jianmu.engine.context import NodeContext
from jianmu.engine.events import ToolCalled, ToolReturned
from jianmu.engine.journal import OnUnknown
from jianmu.engine.node import AsyncNode
from jianmu.engine.state.readonly import ReadOnlyDict
from jianmu.engine.suspend import Suspended, is_suspension
from jianmu.engine.tree import path_of
from jianmu.errors import OutcomeUnknownError, SetupError
from jianmu.nodes import conversation
from jianmu.nodes.approvals import ApprovalOptions, Approvals, Remember, is_approval
from jianmu.nodes.base import FINITE, Number, Option, Shape, call_of, whole
from jianmu.nodes.beside import beside
from jianmu.nodes.calldecorator import CallDecorator, decorators_of, refined, unshown
from jianmu.nodes.inside import is_from_inside
from jianmu.nodes.llm import Tools, toolbox_of
from jianmu.nodes.skill import with_skills
from jianmu.nodes.turn import CallOutcome, Turn, with_edit
from jianmu.nodes.verdicts import Step, Verdict, Wish, decide
from jianmu.tool.base import Tool
from jianmu.tool.cut import cut
from jianmu.tool.toolbox import Toolbox
from jianmu.tool.types import ToolCall, ToolResult, of_valid

_ABOVE_0: Shape = (lambda value: FINITE[0](value) and value > 0), "seconds above 0"


class Work(NamedTuple):
    """A call that is to be carried out.

    Attributes:
        place: its place in the reply.
        call: what is called.
        tool: what it calls.
        is_edited: whether its arguments are a person's.
    """

    place: int
    call: ToolCall
    tool: Tool
    is_edited: bool


class ToolExecutor(AsyncNode):
    """Carry out the tool calls of the model's last reply, side by side, and append their results to the conversation.

    Reads `messages`, the calls at its entry; writes the results to `messages`, one for each call, in their order.
    Calls that need approval are asked about first, as one group, and so are those that are questions: the answer is the
    result (see AskingTool). Whatever goes wrong with a call is its result.
    SUCCESS when the results are in; at once when there is nothing to call.
    RUNNING while a call is carried out, and while a question of a call is open.
    Halting cancels what is carried out; those calls, and those that were not begun, get a result that says so.
    So do calls that it was not entered for yet, when their run was cut short and is given up for new input.
    Two that may run at the same time on one conversation are refused.

    Args:
        name: the node's name.
        tools: a box, or tools, functions and boxes.
        limit: how many calls are carried out at a time; None: all.
        timeout: seconds for a call of a tool that has no timeout of its own. Both may follow the snapshot.
        on_unknown: what becomes of a call that was begun and of which nobody knows whether it took effect, where its
            tool is not idempotent: "fail" tells the model so, "ask" a person decides, "rerun" calls again.
        remember: what an approval that is to be remembered holds for: the same "call", arguments and all, or the
            "tool". It is kept in the field `approvals`, a dict, or in the namespace of that name.
        approval: `assignee` and `expires` of the questions.
    """

    can_be_late: ClassVar[bool] = True

    def __init__(
        self,
        name: str | None = None,
        *,
        tools: Tools,
        limit: Number | None = None,
        timeout: Number | None = None,
        on_unknown: OnUnknown = "fail",
        remember: Remember = "call",
        approval: ApprovalOptions | None = None,
    ) -> None:
        super().__init__(name)
        _check_word(self, "on_unknown", on_unknown, ("fail", "ask", "rerun"))
        _check_word(self, "remember", remember, ("call", "tool"))
        if not is_approval(approval):
            raise SetupError(f"{call_of(self, 'approval')} takes a dict of assignee and expires, not {approval!r}")
        self.tools = toolbox_of(self, tools)
        self._limit = None if limit is None else Option(self, "limit", limit, whole(1))
        self._timeout = None if timeout is None else Option(self, "timeout", timeout, _ABOVE_0)
        self._on_unknown: OnUnknown = on_unknown
        self._approvals = Approvals(remember, approval or {})
        self._turn = Turn()
        self._above: Sequence[CallDecorator] = ()
        self._opened = 0

    def on_bound(self) -> None:
        """Refuse a state without a conversation, and another executor that would carry out the same calls."""
        conversation.require(self.context.manager, self.context.path)
        if (other := next((one for one in beside(self) if isinstance(one, ToolExecutor)), None)) is not None:
            one, two = sorted((path_of(self), path_of(other)))
            raise SetupError(
                f"nodes '{one}' and '{two}' may run at the same time and would both carry out the calls of the last "
                f'reply: give each branch a conversation of its own, Agent(branch, Schema).as_node("{self.name}")',
                path=self.context.path,
            )

    async def open(self) -> None:
        """Open the box for as long as the tree is open."""
        await self.tools.open()
        self._opened += 1

    async def close(self) -> None:
        """Close the box."""
        self._opened -= 1
        await self.tools.close()

    def initialise(self) -> None:
        """Take the calls of the last reply."""
        reply = conversation.last_reply(conversation.messages_of(self.context))
        self._turn = Turn() if reply is None else Turn(reply.id, reply.tool_calls)
        above = decorators_of(self) if self._turn.calls else ()
        due = [self._turn.calls[place] for place in self._turn.due(self.context)] if above else ()
        for one in above if due else ():
            one.on_calls(due)

    def memento(self) -> Any:
        """Return the calls, beside what every coroutine keeps."""
        kept: dict[str, Any] | None = super().memento()
        return {**(kept or {}), **self._turn.kept()} if self.status is Status.RUNNING else kept

    def restore(self, value: Any) -> None:
        """Take the calls back."""
        super().restore(value)
        self._turn = Turn.read(value)

    def on_halt(self) -> None:
        """Give the calls their results, unless the run ends while the node waits for an answer: then it can go on."""
        if self.status is Status.RUNNING and self._context is not None and not self._goes_on_later():
            self._turn.close(self.context)
        super().on_halt()

    def on_given_up(self, input: Mapping[str, Any]) -> None:
        """Give the calls of the last reply their results, if the input has none: nobody will carry them out."""
        messages = conversation.messages_of(self.context)
        reply = next((one for one in reversed(messages) if one.role != "tool"), None)
        if reply is not None and reply.tool_calls:
            told = conversation.answered_in(input)
            Turn(reply.id, [call for call in reply.tool_calls if call.id not in told]).close(self.context)

    def _goes_on_later(self) -> bool:
        """Whether the run only ends for now, and the node is not at work or has asked something that is open."""
        context, activity = self.context, self.context.activity
        if not context.run.is_parking:
            return False
        if activity is None or activity.live is None or not activity.live.has_entered:
            return True
        return any(record.id in activity.asked for record in context.run.interaction.all_open())

    # The work

    async def update_async(self) -> Status:
        """Carry out what has no result yet; a node that was put in late opens its box for that."""
        if self._opened:
            return await self._work()
        async with self.tools:
            return await self._work()

    async def _work(self) -> Status:
        turn, self._above = self._turn, decorators_of(self)
        turn.enter()
        due, tools = turn.due(self.context), with_skills(self, self.tools)
        wishes = {place: wish for place in due if (wish := self._wish(turn, place, tools)) is not None}
        verdicts = await decide(self.context, wishes, self._first, turn.reply)
        work: list[Work] = []
        for place, verdict in verdicts.items():
            if verdict.call is None:
                turn.settle(place, verdict.outcome)
            else:
                work.append(Work(place, verdict.call, wishes[place].tool, verdict.is_edited))
        self._count(turn, {one.call.id for one in work} - turn.counted)
        await self._carry_out_all(turn, work)
        self._finish(turn)
        return Status.SUCCESS

    def _finish(self, turn: Turn) -> None:
        """Write the results, and what the thread has used."""
        turn.append(self.context)

    def _wish(self, turn: Turn, place: int, tools: Toolbox) -> Wish | None:
        """Return a call with its tool, or None where it has its result already: it was carried out, or cannot be."""
        call = turn.calls[place]
        if any(other.id == call.id for other in turn.calls[:place]):
            text = f"'{call.name}' was not called: another call of the same reply has its id, '{call.id[:64]}'."
        elif turn.recall(place, self.context):
            return None
        else:
            text, tool = self._refusal(turn, place), tools.get(call.name)
            if text is None and tool is not None:
                return Wish(call, tool, turn)
            text = text or turn.broken_off(place, self.context) or tools.missing(call.name)
        turn.fail(place, text)
        return None

    def _refusal(self, turn: Turn, place: int) -> str | None:
        """Return why a call is not to be carried out, or None; what was begun is not refused any more."""
        above, known = self._above, turn.judged.get(place)
        if above and known is None and turn.broken_off(place, self.context) is None:
            said = (one.refusal_of(turn.calls[place], again=place in turn.judged) for one in above)
            turn.judged[place] = known = next((text for text in said if text is not None), None)
        return known

    def _first(self, wish: Wish) -> Step:
        """Return what has to be asked about a call before it is begun, or the verdict that nothing has to be."""
        may_ask = wish.tool.requires_approval is not False and wish.tool.check(wish.call) is None
        if may_ask and self._approvals.is_due(self.context, wish):
            return self._approvals.first(self.context, wish)
        return Verdict(wish.call)

    def _count(self, turn: Turn, fresh: set[str]) -> None:
        """Count calls that are about to be begun, all or none."""
        if fresh:
            self.context.spend(tool_calls=len(fresh))
            turn.counted |= fresh

    async def _carry_out_all(self, turn: Turn, work: Sequence[Work]) -> None:
        """Carry calls out, as many at a time as may be; raise what ends the run, or a suspension, when all are done."""
        raised: dict[int, BaseException] = {}
        left = iter(work)
        count = min(len(work), len(work) if self._limit is None else self._limit())
        if count <= 1:
            await self._carry_out(turn, left, raised)
        else:
            async with anyio.create_task_group() as group:
                for _ in range(count):
                    group.start_soon(self._carry_out, turn, left, raised)
        errors = [raised[place] for place in sorted(raised)]
        for error in errors:
            if not is_suspension(error):
                raise error
        if errors:
            raise Suspended

    async def _carry_out(self, turn: Turn, left: Iterator[Work], raised: dict[int, BaseException]) -> None:
        """Carry out one call after the other of those that are left."""
        for work in left:
            try:
                turn.outcomes[work.place] = await self._outcome(turn, work)
            except Exception as error:  # noqa: BLE001  # raised by the caller, when the siblings are done
                raised[work.place] = error
            except BaseException as error:
                if not is_suspension(error):
                    raise
                raised[work.place] = error

    async def _outcome(self, turn: Turn, work: Work) -> CallOutcome:
        """Return what came of a call, now or before."""
        context, call, tool, above = self.context, work.call, work.tool, self._above
        if tool.timeout is None and self._timeout is not None:
            tool = tool.replace(timeout=self._timeout())
        whole = tool.replace(max_result_chars=None) if above else tool

        faults: list[Exception] = []

        async def act(*_: object) -> CallOutcome:  # what tells this call from others is given for the journal
            turn.begun.add(work.place)
            part = context.within(partial(turn.scope, call), call.id)
            if context.run.events.is_heard:
                context.emit(ToolCalled(call_id=call.id, name=call.name, arguments=call.arguments))
            result = await _called(whole, call, part)
            told = {"content": result.content, "is_error": result.is_error}
            outcome = of_valid(CallOutcome, told, told)
            try:
                outcome = await refined(above, call, outcome, part)
            except Exception as error:  # noqa: BLE001  # raised below: that the call was carried out is kept before
                faults.append(error)
                outcome = unshown(call, error)
            if context.run.events.is_heard:
                context.emit(ToolReturned(call_id=call.id, name=call.name, is_error=outcome.is_error))
            content = cut(outcome.content, tool.max_result_chars) if above else outcome.content
            content = with_edit(call, content) if work.is_edited else content
            return outcome if content is outcome.content else outcome.model_copy(update={"content": content})

        act.__qualname__ = call.name
        how: dict[str, Any] = {"result": CallOutcome, "effect": not tool.idempotent, "per": "activation"}
        how |= {"on_unknown": self._on_unknown, "is_fixed": type(call.arguments) is ReadOnlyDict}
        try:
            outcome = await context.once(call.id, act, call.arguments, call.raw, **how)
        except OutcomeUnknownError:
            text = f"'{call.name}' was begun before and broken off; whether it took effect is not known."
            outcome = turn.fail(work.place, text)
        for fault in faults:
            raise fault
        return outcome


async def _called(tool: Tool, call: ToolCall, context: NodeContext) -> ToolResult:
    """Return what came of a call; a cancellation that nobody outside of the tool has asked for is its error.

    A tool one part of which has asked, and others have failed while they were ended for that, has asked.
    """
    try:
        return await tool.call(call, context=context)
    except BaseExceptionGroup as group:
        asked, failed = group.split(is_suspension)
        if asked is None or not isinstance(failed, ExceptionGroup | None):
            raise
        raise Suspended from failed
    except anyio.get_cancelled_exc_class():
        if not is_from_inside():
            raise
    text = f"'{call.name}' failed: it was cancelled from inside; whether it took effect is not known."
    return ToolResult(call_id=call.id, content=text, is_error=True)


def _check_word(node: AsyncNode, option: str, given: object, words: tuple[str, ...]) -> None:
    if given not in words:
        raise SetupError(f"{call_of(node, option)} is one of {', '.join(words)}, not {given!r}")
