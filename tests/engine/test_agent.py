"""The facade: its options, what a call takes and gives, and typed errors for whatever is wrong."""

from __future__ import annotations

import math
import traceback
from collections.abc import Callable
from typing import Annotated, Any

import anyio
import py_trees
import pytest
from anyio.lowlevel import checkpoint
from py_trees.common import ParallelPolicy
from py_trees.composites import Parallel, Sequence
from pydantic import BaseModel, ConfigDict

from jianmu.agent import Agent
from jianmu.engine.clock import VirtualClock
from jianmu.engine.limits import Limits
from jianmu.engine.state import Ephemeral, Internal, StateManager
from jianmu.errors import (
    AgentBusyError,
    InputError,
    InteractionError,
    JianmuError,
    LimitExceeded,
    SetupError,
    StateError,
    StateWriteError,
    UnfinishedRunError,
    UnknownFieldError,
    UnknownThreadError,
)
from jianmu.nodes import AskHuman, Timeout
from jianmu.stores.memory import MemoryStore
from tests.anystore import Stores
from tests.cases.leaves import (
    FAILURE,
    INVALID,
    RUNNING,
    SUCCESS,
    Diary,
    Do,
    DoAsync,
    Forever,
    Scripted,
    Sleep,
    World,
    cancelled,
    nothing_left,
    run,
)

pytestmark = pytest.mark.anyio


class Strict(BaseModel):
    """A state that takes nothing but its fields."""

    model_config = ConfigDict(extra="forbid")

    n: int = 0
    name: str = ""
    hidden: Annotated[int, Internal()] = 0
    rounds: Annotated[int, Ephemeral(scope="run")] = 0


class Needs(BaseModel):
    """A state whose field has to be given."""

    task: str


def leaf() -> Scripted:
    return Scripted("x", SUCCESS)


def _child() -> Any:
    return Sequence("s", memory=True, children=[leaf()]).children[0]


# What cannot be built


WRONG: dict[str, Callable[[], Any]] = {
    "a text": lambda: Agent("x"),
    "nothing": lambda: Agent(None),
    "a class": lambda: Agent(Scripted),
    "a function": lambda: Agent(leaf),
    "a list": lambda: Agent([leaf()]),
    "a node inside of a tree": lambda: Agent(_child()),
    "a schema that is none": lambda: Agent(leaf(), dict),
    "an instance for a schema": lambda: Agent(leaf(), Strict()),
    "a text for a schema": lambda: Agent(leaf(), "Strict"),
    "both": lambda: Agent(leaf(), Strict, state=StateManager(Strict)),
    "a state that is none": lambda: Agent(leaf(), state=Strict()),
    "a store that is none": lambda: Agent(leaf(), store="threads.db"),
    "a clock that is none": lambda: Agent(leaf(), clock=5),
    "limits that are none": lambda: Agent(leaf(), limits={"max_ticks": 5}),
    "a setup that is none": lambda: Agent(leaf(), setup=[1]),
    "visitors that are none": lambda: Agent(leaf(), visitors=[object()]),
    "one visitor": lambda: Agent(leaf(), visitors=py_trees.visitors.SnapshotVisitor()),
    "a human that is none": lambda: Agent(leaf(), human="ann"),
    "aliases that are none": lambda: Agent(leaf(), aliases=["a"]),
    "a version that is none": lambda: Agent(leaf(), version="1"),
    "an unknown policy": lambda: Agent(leaf(), on_new_input="ask"),
    "an unknown stall": lambda: Agent(leaf(), on_stall="fail"),
    "a negative poll_interval": lambda: Agent(leaf(), poll_interval=-1),
    "no poll_interval": lambda: Agent(leaf(), poll_interval=None),
    "a poll_interval that is no number": lambda: Agent(leaf(), poll_interval=math.nan),
    "a negative min_interval": lambda: Agent(leaf(), min_interval=-0.1),
    "a text for min_interval": lambda: Agent(leaf(), min_interval="1"),
    "a negative halt_timeout": lambda: Agent(leaf(), halt_timeout=-1),
    "an endless min_interval": lambda: Agent(leaf(), min_interval=math.inf),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_cannot_be_built_is_a_setup_error(what: str) -> None:
    """Whatever is wrong with an argument: a SetupError at construction, with a text that says what to write."""
    with pytest.raises(SetupError) as caught:
        WRONG[what]()
    assert len(str(caught.value)) > 20


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Agent("x"), r"Agent\(root\) takes a py_trees behaviour or BehaviourTree, not str"),
        (lambda: Agent(Scripted), r"not the class Scripted: write Scripted\(\.\.\.\)"),
        (lambda: Agent(_child()), r"'s/x' is a node inside of another tree: give Agent the root"),
        (lambda: Agent(leaf(), poll_interval=-1), r"poll_interval=-1: .*seconds"),
        (lambda: Agent(leaf(), on_stall="fail"), r"on_stall='fail': .*'wait' or 'raise'"),
        (lambda: Agent(Sequence("main", memory=3, children=[])), r"'main' has memory=3: write Sequence\("),
        (lambda: Agent(Parallel("p", "all", children=[])), r"'p' has policy='all': write Parallel\("),
        (
            lambda: Agent(py_trees.decorators.RunningIsFailure("r", Sleep("x", 1))),
            "'r' never lets 'r/x' start.*give it a Timeout",
        ),
    ],
)
def test_texts_of_setup_errors(make: Callable[[], Any], text: str) -> None:
    """What is wrong, where, and what to write."""
    with pytest.raises(SetupError, match=text):
        make()


async def test_a_tree_serves_one_agent_after_another() -> None:
    """A root that another agent had is taken over: the last one built has it."""
    root = Sequence("main", memory=True, children=[Do("x", lambda node: node.write_state({"n": 1}))])
    first = Agent(root, World)
    second = Agent(root, World)
    assert await run(second) is SUCCESS
    assert (first.state.n, second.state.n) == (0, 1)


# Calls


CALLS: dict[str, Callable[[Agent[Any]], Any]] = {
    "an unknown option": lambda agent: agent.run(thred_id="t"),
    "a thread_id that is none": lambda agent: agent.run(thread_id=5),
    "an empty thread_id": lambda agent: agent.run(thread_id=""),
    "a thread_id with NUL": lambda agent: agent.run(thread_id="a\0"),
    "limits that are none": lambda agent: agent.run(limits=5),
    "an unknown policy": lambda agent: agent.run(on_new_input="ask"),
    "an unknown option of step": lambda agent: agent.step(settled=True),
    "an unknown option of resume": lambda agent: agent.resume(True, id="x"),
    "nothing to answer": lambda agent: agent.resume(True),
    "an unknown question": lambda agent: agent.resume(True, suspension_id="q"),
    "an unknown thread to load": lambda agent: agent.load("nobody"),
    "an unknown thread to recover": lambda agent: agent.recover("nobody"),
    "an unknown field": lambda agent: agent.run({"nn": 1}),
    "a wrong type": lambda agent: agent.run({"n": "secret-text"}),
    "a hidden field": lambda agent: agent.run({"hidden": 1}),
    "a text for an input": lambda agent: agent.run("secret-text"),
    "a number for an input": lambda agent: agent.run(5),
    "a list for an input": lambda agent: agent.run([("n", 1)]),
    "a key that is no text": lambda agent: agent.run({5: 1}),
    "a step with a wrong type": lambda agent: agent.step({"n": "secret-text"}),
    "a step with a text": lambda agent: agent.step("secret-text"),
}


@pytest.mark.parametrize("what", CALLS)
async def test_what_a_call_cannot_take_is_a_typed_error(what: str) -> None:
    """A JianmuError without values; nothing was ticked or written; the agent is free."""
    node = leaf()
    agent = Agent(node, Strict)
    version = agent.state_manager.version
    before = agent.state.model_dump()
    with anyio.fail_after(2), pytest.raises(JianmuError) as caught:
        await CALLS[what](agent)
    assert "secret-text" not in "".join(traceback.format_exception(caught.value))
    assert node.ticks == 0
    assert agent.state.model_dump() == before
    assert agent.state_manager.version - version <= 1  # the view of the questions may have been set up
    assert await run(agent) is SUCCESS


@pytest.mark.parametrize(
    ("what", "kind", "text"),
    [
        ("an unknown field", UnknownFieldError, "nn"),
        ("a wrong type", StateWriteError, "'n'.*int.*str|n.*str"),
        ("a hidden field", InputError, "hidden"),
        ("an unknown option", SetupError, "thred_id.*thread_id"),
        ("nothing to answer", InteractionError, "none is open"),
        ("an unknown thread to load", UnknownThreadError, "nobody"),
        ("an unknown thread to recover", UnknownThreadError, "nobody"),
    ],
)
async def test_texts_of_refused_calls(what: str, kind: type[JianmuError], text: str) -> None:
    """Of the right family, with the name that is wrong."""
    with pytest.raises(kind, match=text):
        await CALLS[what](Agent(leaf(), Strict))


@pytest.mark.parametrize("call", ["run_sync", "run_until_suspend_sync", "resume_sync", "step_sync"])
def test_the_sync_forms_refuse_the_same(call: str) -> None:
    """They too raise typed errors, and leave the agent free."""
    agent = Agent(leaf(), Strict)
    with pytest.raises(JianmuError):
        getattr(agent, call)({"nn": 1})
    assert agent.run_sync({"n": 3}) is SUCCESS
    assert agent.state.n == 3


# Input, output, scopes


async def test_restore_reset_input_come_in_this_order() -> None:
    """Run fields are reset before the input is applied; other fields stay from run to run; one update, by `input`."""
    agent = Agent(Do("x", lambda node: node.write_state({"rounds": node.read_state().rounds + 1})), Strict)
    changes = []
    agent.state_manager.subscribe(lambda change: changes.append((change.fields, change.writer)))
    await agent.run({"n": 1, "name": "a"})
    assert agent.state.rounds == 1
    await agent.run({"rounds": 5})
    assert (agent.state.rounds, agent.state.n, agent.state.name) == (6, 1, "a")
    await agent.run()
    assert agent.state.rounds == 1
    assert [writer for fields, writer in changes if set(fields) == {"n", "name"}] == ["input"]


async def test_output_leaves_out_what_is_hidden() -> None:
    """`agent.output` and the outcome have the fields that are not hidden."""
    agent = Agent(Do("x", lambda node: node.write_state({"n": 2, "hidden": 3})), Strict)
    outcome = await agent.run_until_suspend({"name": "a"})
    assert agent.output == outcome.output == {"n": 2, "name": "a", "rounds": 0}
    assert agent.state.hidden == 3


async def test_required_fields_may_come_with_the_input() -> None:
    """Until then the state is unset: output is empty, and a run without them fails where they are read."""
    agent = Agent(Do("x", lambda node: node.write_state({"task": node.read_state().task + "!"})), Needs)
    assert agent.output == {}
    with pytest.raises(StateError, match="task"):
        _ = agent.state
    with pytest.raises(StateError, match="task"):
        await agent.run()
    assert await run(agent, {"task": "go"}) is SUCCESS
    assert agent.output == {"task": "go!"}


async def test_an_agent_may_have_no_state() -> None:
    """Neither schema nor manager: the state is empty, and input is refused."""
    agent = Agent(leaf())
    assert await run(agent) is SUCCESS
    assert agent.output == {}
    with pytest.raises(UnknownFieldError):
        await agent.run({"n": 1})


async def test_an_agent_may_share_a_state() -> None:
    """`state=` is used as it is, with the values it has."""
    manager = StateManager(Strict)
    manager.initialize({"n": 4})
    agent = Agent(Do("x", lambda node: node.write_state({"n": node.read_state().n + 1})), state=manager)
    assert await run(agent) is SUCCESS
    assert agent.state_manager is manager
    assert manager.get().n == 5


# Options


async def test_deps_of_a_call_win_for_that_call() -> None:
    """`deps=` of the agent is the default; a falsy value given to a call counts as given."""
    seen: list[Any] = []
    agent = Agent(Do("x", lambda node: seen.append(node.context.deps)), deps="agent's")
    await agent.run()
    await agent.run(deps="call's")
    await agent.run()
    await agent.run(deps=0)
    assert seen == ["agent's", "call's", "agent's", 0]


async def test_limits_of_a_call_win_for_that_call() -> None:
    """The agent's are the default; they count anew for each run."""

    class Polled(Scripted):
        polled = True

    agent = Agent(Polled("x", RUNNING), World, limits=Limits(max_ticks=3), clock=VirtualClock(autojump=True))
    for limits, ticks in ((None, 3), (Limits(max_ticks=5), 5), (None, 3)):
        with pytest.raises(LimitExceeded, match=f"its {ticks} passes"):
            await run(agent, limits=limits)
        assert agent.runner.context.usage.ticks == ticks


async def test_the_time_limit_does_not_count_while_people_are_waited_for() -> None:
    """An hour at a question costs none of the 5 seconds; the work before and after it does."""
    clock = VirtualClock(autojump=True)

    async def human(_question: object) -> str:
        await clock.sleep(3600)
        return "yes"

    def tree(seconds: float) -> Sequence:
        ask = AskHuman("ask", message="?", into="text")
        return Sequence("s", memory=True, children=[Sleep("a", 2), ask, Sleep("b", seconds)])

    assert await run(Agent(tree(2.5), World, clock=clock, human=human, limits=Limits(timeout=5))) is SUCCESS
    began = clock.now()
    with pytest.raises(LimitExceeded, match="timeout"):
        await run(Agent(tree(4), World, clock=clock, human=human, limits=Limits(timeout=5)))
    assert clock.now() == pytest.approx(began + 3605)


async def test_the_outcome_says_how_the_run_stands() -> None:
    """Finished, suspended, out of limits, halted: each is told, the model is frozen."""
    agent = Agent(
        Sequence("s", memory=True, children=[AskHuman("ask", message="go?", answer=bool, into="ready")]), World
    )
    outcome = await agent.run_until_suspend()
    assert (outcome.status, outcome.suspended, len(outcome.suspensions)) == (RUNNING, True, 1)
    assert outcome.thread_id == agent.thread_id
    with pytest.raises(ValueError, match="frozen"):
        outcome.status = SUCCESS
    outcome = await agent.resume(True)
    assert (outcome.status, outcome.suspended, outcome.suspensions, outcome.limit) == (SUCCESS, False, (), None)


async def test_threads_are_taken_in_turn() -> None:
    """`thread_id=None` is the current one, else a new one; another one starts with an empty state."""
    agent = Agent(Do("x", lambda node: node.write_state({"n": node.read_state().n + 1})), World, store=MemoryStore())
    assert agent.thread_id is None
    await agent.run()
    first = agent.thread_id
    assert first is not None
    await agent.run()
    assert (agent.thread_id, agent.state.n) == (first, 2)
    manager = agent.state_manager
    await agent.run(thread_id="other")
    assert (agent.thread_id, agent.state.n) == ("other", 1)
    await agent.run(thread_id=first)
    assert (agent.thread_id, agent.state.n) == (first, 3)
    assert agent.state_manager is manager


async def test_new_input_to_a_suspended_thread() -> None:
    """Refused with the question and what to call; with "withdraw" the run is given up and a new one starts."""
    agent = Agent(Sequence("s", memory=True, children=[AskHuman("ask", message="sure?", into="text")]), World)
    await agent.run_until_suspend({"n": 1})
    question = agent.interaction.suspension
    assert question is not None
    with pytest.raises(UnfinishedRunError, match=rf"{question.id}.*s/ask.*sure\?.*agent\.resume") as caught:
        await agent.run_until_suspend({"n": 2})
    assert caught.value.path == "s/ask"
    assert agent.state.n == 1
    outcome = await agent.run_until_suspend({"n": 2}, on_new_input="withdraw")
    assert agent.state.n == 2
    assert [pending.id for pending in outcome.suspensions] != [question.id]


async def test_resources_of_a_run() -> None:
    """setup(**setup), open, then the ticks, then close and shutdown, for each run outside of a block."""
    diary = Diary()

    class Opens(Scripted):
        def setup(self, **options: Any) -> None:
            diary.note(f"setup {options}", self.name)

        def shutdown(self) -> None:
            diary.note("shutdown", self.name)

        async def open(self) -> None:
            diary.note("open", self.name)

        async def close(self) -> None:
            diary.note("close", self.name)

        def update(self) -> Any:
            diary.note("tick", self.name)
            return SUCCESS

    agent = Agent(Opens("x", SUCCESS), World, setup={"port": 1})
    for _ in range(2):
        diary.lines.clear()
        assert await run(agent) is SUCCESS
        assert diary.order() == ["setup {'port': 1} x", "open x", "tick x", "close x", "shutdown x"]


async def test_a_subtree_put_in_at_run_time_is_bound_and_set_up() -> None:
    """Before its first tick: it has state, path and setup; what cannot be bound ends the run with its path."""
    diary = Diary()

    class Late(Scripted):
        def setup(self, **_: Any) -> None:
            diary.note("setup", self.name)

    root = Sequence("main", memory=True, children=[])

    def grow(_node: Do) -> None:
        new = Sequence(
            "new", memory=True, children=[Late("late", SUCCESS), Do("write", lambda node: node.write_state({"n": 7}))]
        )
        root.add_child(new)

    root.add_child(Do("grow", grow))
    agent = Agent(root, World)
    assert await run(agent) is SUCCESS
    assert diary.order() == ["setup late"]
    assert agent.state.n == 7
    clocked = Sequence("main", memory=True, children=[])
    clocked.add_child(Do("grow", lambda _: clocked.add_child(py_trees.timers.Timer("stock", 1)) and None))
    with pytest.raises(SetupError, match="main/stock"):
        await run(Agent(clocked, World, clock=VirtualClock()))


async def test_errors_are_those_of_the_last_run() -> None:
    """(path, exception), the one raised first; empty after a run that went well."""
    agent = Agent(Do("x", lambda node: 1 // node.read_state().n and None), World)
    with pytest.raises(ZeroDivisionError) as caught:
        await agent.run()
    assert agent.errors == [("x", caught.value)]
    assert await run(agent, {"n": 1}) is SUCCESS
    assert agent.errors == []


async def test_a_run_leaves_the_statuses_of_its_result() -> None:
    """With a result what was RUNNING is halted and all else keeps its status; cancelled, all are INVALID."""
    clock = VirtualClock(autojump=True)
    root = Parallel(
        "p",
        ParallelPolicy.SuccessOnOne(),
        children=[Scripted("done", RUNNING), Forever("endless"), Sleep("quick", 1)],
    )
    agent = Agent(root, World, clock=clock)
    assert await run(agent) is SUCCESS
    assert [node.status for node in (root, *root.children)] == [SUCCESS, INVALID, INVALID, SUCCESS]
    root.policy = ParallelPolicy.SuccessOnAll()
    await cancelled(agent, clock, 5)
    assert [node.status for node in (root, *root.children)] == [INVALID] * 4


async def test_halting_says_so_in_the_result() -> None:
    """`halt(reason)` from a task: INVALID; `run_until_suspend` gives an outcome."""
    agent = Agent(Forever("x"), World)

    async def halt() -> None:
        await checkpoint()
        await anyio.sleep(0.001)
        agent.halt("enough")

    with anyio.fail_after(2), nothing_left(agent):
        async with anyio.create_task_group() as group:
            group.start_soon(halt)
            outcome = await agent.run_until_suspend()
    assert (outcome.status, outcome.suspended, outcome.limit) == (INVALID, False, None)


async def test_an_agent_that_is_a_node_is_not_called_itself() -> None:
    """A SetupError names the node that it is, and the agent that is to be called."""
    inner = Agent(leaf(), World)
    outer = Agent(Sequence("main", memory=True, children=[inner.as_node("inner")]), World)
    assert await run(outer) is SUCCESS
    with pytest.raises(SetupError, match="main/inner"):
        await inner.run()


async def test_a_call_from_inside_of_a_node_is_refused() -> None:
    """A node that runs its own agent would wait for itself: AgentBusyError, at once."""

    async def call(_node: DoAsync) -> None:
        with pytest.raises(AgentBusyError):
            await agent.run()

    agent = Agent(DoAsync("x", call), World)
    assert await run(agent) is SUCCESS


async def test_an_agent_inside_of_a_coroutine_of_another() -> None:
    """Agents nest as plain awaits as well: a node may run another agent."""
    inner = Agent(Timeout("t", Sleep("x", 0.001), seconds=5), World)

    async def call(_node: DoAsync) -> Any:
        return await inner.run()

    outer = Agent(DoAsync("x", call), World)
    with nothing_left(outer):
        assert await run(outer) is SUCCESS


@pytest.mark.parametrize("status", [SUCCESS, FAILURE])
async def test_status_is_that_of_the_root(status: Any) -> None:
    """Also after the run."""
    agent = Agent(Scripted("x", status), World)
    assert agent.status is INVALID
    assert await run(agent) is status
    assert agent.status is status
    assert agent.root.name == "x"
    assert agent.tree.root is agent.root


async def test_a_human_that_is_not_async_ends_the_run_with_the_line_to_write() -> None:
    """What it returns is no answer; the run does not hang."""
    agent = Agent(AskHuman("ask", message="?", into="text"), World, human=lambda _question: "yes")
    with nothing_left(agent), pytest.raises(SetupError, match="returned str: write `async def human"):
        await run(agent)


@pytest.mark.parametrize("is_stored", [False, True])
async def test_a_refused_input_starts_nothing(any_store: Stores, is_stored: bool) -> None:
    """State, run fields, thread and the stored rows are as before; so with run, run_until_suspend and step."""
    leaf = Do("x", lambda node: node.write_state({"rounds": 3}))
    agent = Agent(leaf, Strict, store=any_store() if is_stored else None)
    assert await run(agent, {"n": 1}, thread_id="t") is SUCCESS
    kept = any_store.rows("t")
    assert bool(kept) is is_stored
    before = agent.state.model_dump()
    for call in (agent.run, agent.run_until_suspend, agent.step):
        with pytest.raises(StateWriteError, match="name"):
            await call({"n": 2, "name": 5})
        assert agent.state.model_dump() == before
        assert any_store.rows("t") == kept
        assert agent.dump_checkpoint()["status"] == "finished"
    assert await run(agent, {"n": 2}) is SUCCESS


async def test_a_step_with_refused_input_leaves_the_tree_as_it_is() -> None:
    """Coroutines go on, statuses stay, no tick is made; the step after it goes on where the tree was."""
    clock = VirtualClock(autojump=True)
    leaf = Sleep("x", 1, Diary(clock))
    agent = Agent(leaf, World, clock=clock)
    with nothing_left(agent), anyio.fail_after(5):
        async with agent:
            await agent.step()
            with pytest.raises(StateWriteError):
                await agent.step({"n": "text"})
            assert leaf.status is RUNNING
            await agent.step(settle=True)
            await agent.step()
            assert agent.status is SUCCESS
    assert leaf.diary.order() == ["start x", "end x"]


def test_an_error_of_a_call_without_a_loop_is_the_nodes_alone() -> None:
    """What the node has raised comes out of run_sync() without another error beside it."""

    def fail(_: Do) -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no") as caught:
        Agent(Do("do", fail)).run_sync()
    assert (caught.value.__context__, caught.value.__cause__) == (None, None)
