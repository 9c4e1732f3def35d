"""Several questions at once, parts of a node's work with keys of their own, and what a run may use."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from py_trees.common import Status

from jianmu.agent import Agent
from jianmu.engine.clock import VirtualClock
from jianmu.engine.limits import Limits
from jianmu.engine.node import AsyncNode
from jianmu.engine.questions import Answer
from jianmu.engine.request import Request
from jianmu.errors import LimitExceeded, NotAnsweredError, SetupError
from jianmu.nodes import Catch, Retry, Sequence
from jianmu.stores import SQLiteStore
from tests.cases.leaves import FAILURE, RUNNING, SUCCESS, Do, World

pytestmark = pytest.mark.anyio
Work = Callable[[AsyncNode], Awaitable[Any]]
TWO = [Request("first?", key="a", answer=int, tool_call_id="c1"), Request("second?", key="b", url="https://x.test")]


class Works(AsyncNode):
    """Does what it is given, and keeps what came of it."""

    def __init__(self, work: Work) -> None:
        super().__init__("works")
        self.work = work
        self.entries = 0
        self.result: Any = None

    async def update_async(self) -> Status:
        """Work."""
        self.entries += 1
        self.result = await self.work(self)
        return SUCCESS


def agent_of(work: Work, **options: Any) -> tuple[Agent[World], Works]:
    """Return an agent whose tree is one node, and the node."""
    node = Works(work)
    return Agent(node, World, clock=VirtualClock(autojump=True), **options), node


async def asks_two(node: AsyncNode) -> list[Any]:
    """Ask two questions at once."""
    return await node.ask_all(TWO)


async def test_several_questions_are_asked_at_once_as_a_group() -> None:
    """All are open together, with one group; the node is entered again when the last one is answered."""
    agent, node = agent_of(asks_two)
    outcome = await agent.run_until_suspend()
    first, second = outcome.suspensions
    assert first.group == second.group != ""
    assert (first.tool_call_id, second.tool_call_id, second.url) == ("c1", None, "https://x.test")
    outcome = await agent.resume("yes", suspension_id=second.id)
    assert [one.id for one in outcome.suspensions] == [first.id]
    assert node.entries == 1
    outcome = await agent.resume(7, suspension_id=first.id)
    assert outcome.status is SUCCESS
    assert (node.entries, node.result) == (2, [7, "yes"])


async def test_a_group_has_the_name_that_is_given() -> None:
    """`group=` is shown as it is."""
    agent, _ = agent_of(lambda node: node.ask_all(TWO, group="g1"))
    outcome = await agent.run_until_suspend()
    assert {one.group for one in outcome.suspensions} == {"g1"}


async def test_what_is_not_answered_stands_in_its_place() -> None:
    """A declined question gives a NotAnsweredError in the list, and the others their answers."""
    agent, node = agent_of(asks_two)
    first, second = (await agent.run_until_suspend()).suspensions
    answers = [Answer(first.id, "no", action="decline"), Answer(second.id, "yes")]
    await agent.interaction.answer(*answers)
    assert (await agent.recover()).status is SUCCESS
    refused, answer = node.result
    assert isinstance(refused, NotAnsweredError)
    assert (refused.reason, answer) == ("declined: no", "yes")


async def test_no_question_is_none() -> None:
    """An empty list of requests is answered at once."""
    agent, node = agent_of(lambda node: node.ask_all([]))
    assert (await agent.run_until_suspend()).status is SUCCESS
    assert node.result == []


@pytest.mark.parametrize("requests", [[Request("?", key="a")] * 2, [Request("?")]], ids=["twice", "none"])
async def test_each_request_needs_a_key_of_its_own(requests: list[Request]) -> None:
    """Two requests with one key, or one without, are refused before anything is asked."""
    agent, _ = agent_of(lambda node: node.ask_all(requests))
    with pytest.raises(
        SetupError, match=r"node 'works': ask_all\(\) takes requests with a key each: Request\(\.\.\., "
    ):
        await agent.run_until_suspend()
    assert agent.interaction.pending == ()


async def test_a_group_survives_a_checkpoint() -> None:
    """Loaded in another process, half of it answered before, the answers go to their requests."""
    agent, _ = agent_of(asks_two)
    first, second = (await agent.run_until_suspend()).suspensions
    await agent.interaction.answer(Answer(second.id, "yes"))
    data = agent.dump_checkpoint()
    other, node = agent_of(asks_two)
    other.load_checkpoint(data)
    assert [one.id for one in other.interaction.pending] == [first.id]
    assert (await other.resume(7)).status is SUCCESS
    assert node.result == [7, "yes"]


async def test_a_group_survives_in_a_store(tmp_path: Path) -> None:
    """A second agent on the same store answers what the first has asked."""
    async with SQLiteStore(tmp_path / "s.db") as store:
        agent, _ = agent_of(asks_two, store=store)
        first, second = (await agent.run_until_suspend(thread_id="t")).suspensions
        other, node = agent_of(asks_two, store=store)
        await other.resume("yes", suspension_id=second.id, thread_id="t")
        assert (await other.resume(7, suspension_id=first.id)).status is SUCCESS
        assert node.result == [7, "yes"]


def asks_in_once(calls: list[str]) -> Work:
    """Return work that asks inside of an effect."""

    async def work(node: AsyncNode) -> Any:
        async def act() -> str:
            calls.append(node.context.idempotency_key)
            return await node.ask(Request("sure?"), key="sure")

        return await node.once("act", act, on_unknown="fail")

    return work


async def test_an_effect_that_asks_is_no_unknown_outcome() -> None:
    """It is called again after the answer, under the same idempotency key, whatever `on_unknown` says."""
    calls: list[str] = []
    agent, node = agent_of(asks_in_once(calls))
    assert (await agent.run_until_suspend()).status is RUNNING
    assert (await agent.resume("yes")).status is SUCCESS
    assert (node.result, len(calls), len({*calls})) == ("yes", 2, 1)


async def test_an_effect_that_asks_is_none_after_a_load_either() -> None:
    """The same with a checkpoint loaded in between."""
    calls: list[str] = []
    agent, _ = agent_of(asks_in_once(calls))
    await agent.run_until_suspend()
    other, node = agent_of(asks_in_once(calls))
    other.load_checkpoint(agent.dump_checkpoint())
    assert (await other.resume("yes")).status is SUCCESS
    assert (node.result, len(calls), len({*calls})) == ("yes", 2, 1)


async def test_an_effect_that_asks_is_none_in_a_store(tmp_path: Path) -> None:
    """The same with another agent on the same store."""
    calls: list[str] = []
    async with SQLiteStore(tmp_path / "s.db") as store:
        agent, _ = agent_of(asks_in_once(calls), store=store)
        await agent.run_until_suspend(thread_id="t")
        other, node = agent_of(asks_in_once(calls), store=store)
        assert (await other.resume("yes", thread_id="t")).status is SUCCESS
        assert (node.result, len(calls), len({*calls})) == ("yes", 2, 1)


async def test_parts_of_a_nodes_work_have_keys_of_their_own() -> None:
    """The same keys in two parts are two effects and two questions; the part's tool call is shown with its question."""
    called: list[int] = []

    async def note(number: int) -> int:
        called.append(number)
        return number

    async def work(node: AsyncNode) -> Any:
        parts = [node.context.within(f"c{number}", f"c{number}") for number in (1, 2)]
        notes = [await part.once("note", note, number) for number, part in enumerate(parts)]
        return notes, [await part.ask(Request("?", answer=int), key="ask") for part in parts]

    agent, node = agent_of(work)
    (first,) = (await agent.run_until_suspend()).suspensions
    (second,) = (await agent.resume(10)).suspensions
    assert (first.key, first.tool_call_id, second.key, second.tool_call_id) == ("c1/ask", "c1", "c2/ask", "c2")
    assert (await agent.resume(20)).status is SUCCESS
    assert (node.result, called) == (([0, 1], [10, 20]), [0, 1])


async def test_an_effect_of_an_activation_is_recorded_until_the_next() -> None:
    """`recorded` gives the entry of the activation that is on, and no past one."""
    seen: list[Any] = []

    async def act() -> int:
        return 1

    async def work(node: AsyncNode) -> Any:
        context = node.context
        seen.append(context.run.journal.recorded(context.origin(), "act", per="activation"))
        await node.once("act", act, per="activation")
        entry = context.run.journal.recorded(context.origin(), "act", per="activation")
        seen.append(entry is not None and entry.state)

    node, tries = Works(work), iter([FAILURE, SUCCESS])
    body = Sequence("body", memory=False, children=[node, Do("ends", lambda _: next(tries))])
    await Agent(Retry("again", body, attempts=2), World, clock=VirtualClock(autojump=True)).run()
    assert seen == [None, "done"] * 2


async def spends(node: AsyncNode) -> None:
    """Use three calls, then two."""
    node.context.spend(tool_calls=3)
    node.context.spend(tool_calls=2)


async def test_what_a_node_may_not_use_ends_the_run() -> None:
    """The outcome names the limit, what was refused is not counted, and the run goes on with a higher one."""
    agent, node = agent_of(spends)
    outcome = await agent.run_until_suspend(limits=Limits(tool_calls=4))
    assert (outcome.limit, outcome.status) == ("tool_calls", Status.INVALID)
    assert agent._context.usage.tool_calls == 3
    outcome = await agent.recover(limits=Limits(tool_calls=8))
    assert (outcome.status, agent._context.usage.tool_calls, node.entries) == (SUCCESS, 8, 2)


async def test_a_limit_is_raised_by_run_with_its_name() -> None:
    """`run()` raises LimitExceeded, with the node's path and what to call."""
    agent, _ = agent_of(spends)
    with pytest.raises(LimitExceeded, match=r"used its 4 tool calls: go on with agent\.recover\(limits=") as caught:
        await agent.run(limits=Limits(tool_calls=4))
    assert (caught.value.limit, caught.value.path) == ("tool_calls", "works")


async def test_no_catch_takes_a_limit() -> None:
    """`Catch(on=Exception)` lets it through."""
    agent = Agent(Catch("catch", Works(spends), on=Exception), World, clock=VirtualClock(autojump=True))
    assert (await agent.run_until_suspend(limits=Limits(tool_calls=4))).limit == "tool_calls"


async def test_a_part_of_the_work_asks_under_keys_of_its_own() -> None:
    """Two parts whose questions have one key have two questions, and each gets its answer."""
    request = Request("sure?", key="sure", answer=int)

    async def work(node: AsyncNode) -> list[Any]:
        first = await node.context.within("a").ask_all([request])
        return first + await node.context.within("b").ask_all([request])

    agent, node = agent_of(work)
    await agent.run_until_suspend()
    await agent.resume(1)
    await agent.resume(2)
    assert node.result == [1, 2]
