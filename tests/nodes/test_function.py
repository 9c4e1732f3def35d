"""@action, @condition, @async_action, @async_condition."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
from py_trees.common import Status
from py_trees.composites import Sequence
from pydantic import BaseModel

from jianmu.agent import Agent
from jianmu.engine.clock import VirtualClock
from jianmu.engine.node import AsyncNode, Node
from jianmu.engine.ports import Const, In, Out
from jianmu.errors import InvalidStatusError, RunError, SetupError
from jianmu.nodes import action, async_action, async_condition, condition
from tests.cases.leaves import FAILURE, SUCCESS, Sleep, run
from tests.nodes.kit import Desk, Table

pytestmark = pytest.mark.anyio


@action
def pay(context: Any, amount: In[int], currency: In[str] = "EUR") -> dict[str, Any]:
    """Pay an amount."""
    return {"log": [f"{context.path} {amount} {currency}"]}


@async_action
async def pay_later(context: Any, amount: In[int], currency: In[str] = "EUR") -> dict[str, Any]:
    """Pay an amount after a second."""
    await context.clock.sleep(1)
    return {"log": [f"{context.path} {amount} {currency}"]}


@condition
def is_fine(state: Desk) -> bool:
    """Whether all is fine."""
    return state.ok


@async_condition
async def is_fine_later(state: Desk) -> bool:
    """Whether all is fine, after some thought."""
    return state.ok


@pytest.mark.parametrize("make", [pay, pay_later])
async def test_an_action_gets_its_context_and_inputs(make: Any) -> None:
    """The function gets the context, then its inputs: a field, a literal, a default; its dict is written: SUCCESS."""
    agent = Agent(
        Sequence(
            "s",
            memory=True,
            children=[
                make("one", amount="amount"),
                make("two", amount=3, currency=Const("USD")),
                make(amount="outs.x"),
            ],
        ),
        Desk,
        clock=VirtualClock(autojump=True),
    )
    assert await run(agent, {"outs": {"x": 7}}) is SUCCESS
    assert agent.state.log == ["s/one 5 EUR", "s/two 3 USD", f"s/{make.fn.__name__} 7 EUR"]


def test_the_name_makes_nodes_and_keeps_the_function() -> None:
    """`pay` is a class of nodes with the function's name and text; `pay.fn` is the function."""
    assert issubclass(pay, Node)
    assert issubclass(pay_later, AsyncNode)
    assert (pay.__name__, pay.__doc__, pay.__module__) == ("pay", "Pay an amount.", __name__)
    assert is_fine.fn(Desk(ok=False)) is False
    assert pay("x", amount=1).name == "x"


RESULTS: list[tuple[Any, Status]] = [
    (None, SUCCESS),
    (True, SUCCESS),
    (False, FAILURE),
    (SUCCESS, SUCCESS),
    (FAILURE, FAILURE),
    ({}, SUCCESS),
    ({"n": 4}, SUCCESS),
]


@pytest.mark.parametrize(("result", "expected"), RESULTS, ids=repr)
@pytest.mark.parametrize("is_async", [False, True])
async def test_what_an_action_may_return(result: Any, expected: Status, is_async: bool) -> None:
    """A Status, None (SUCCESS), a bool, or a dict of updates (SUCCESS)."""
    agent = Agent(returning(result, is_async)("a"), Desk)
    assert await run(agent) is expected
    assert agent.state.n == (4 if result == {"n": 4} else 0)


def returning(result: Any, is_async: bool) -> Any:
    """A class of actions that return this."""

    def now(_context: Any) -> Any:
        return result

    async def later(_context: Any) -> Any:
        return result

    return async_action(later) if is_async else action(now)


@pytest.mark.parametrize("result", ["secret", 1, 0, [], object])
@pytest.mark.parametrize("is_async", [False, True])
async def test_anything_else_is_an_error_with_the_path(result: Any, is_async: bool) -> None:
    """What an action may not return is an error that names the node and holds no value."""
    with pytest.raises(InvalidStatusError, match=r"node 'a' returned .*: an action returns a Status") as caught:
        await run(Agent(returning(result, is_async)("a"), Desk))
    assert "secret" not in str(caught.value)


async def test_an_action_that_is_running_is_called_again() -> None:
    """RUNNING from a plain action: it is called again when something has happened."""

    @action
    def wait(context: Any) -> Status:
        return SUCCESS if context.read_state().n else Status.RUNNING

    table = Table(lambda diary: wait("w"))
    assert await table.run_with(table.writing(1, n=1)) is SUCCESS


@pytest.mark.parametrize("make", [is_fine, is_fine_later])
@pytest.mark.parametrize("ok", [True, False])
async def test_a_condition_judges_the_snapshot(make: Any, ok: bool) -> None:
    """SUCCESS when the function returns True, FAILURE when False."""
    assert await run(Agent(make(), Desk), {"ok": ok}) is (SUCCESS if ok else FAILURE)


async def test_a_condition_may_have_inputs() -> None:
    """Further parameters of a condition are inputs."""

    @condition
    def is_more(state: Desk, than: In[int]) -> bool:
        return state.amount > than

    assert await run(Agent(is_more("m", than=4), Desk)) is SUCCESS
    assert await run(Agent(is_more("m", than="amount"), Desk)) is FAILURE


@pytest.mark.parametrize("is_async", [False, True])
async def test_a_condition_returns_a_bool(is_async: bool) -> None:
    """Anything but a bool, a Status included, is an error with the path."""

    def now(_state: Any) -> Any:
        return SUCCESS

    async def later(_state: Any) -> Any:
        return None

    node = async_condition(later)("c") if is_async else condition(now)("c")
    with pytest.raises(RunError, match=r"node 'c': .* has to return a bool"):
        await run(Agent(node, Desk))


@pytest.mark.parametrize(("field", "expected"), [("ok", FAILURE), ("n", SUCCESS)])
async def test_an_async_condition_watches_what_it_reads(field: str, expected: Status) -> None:
    """`reads` says which fields make it look again behind an action that is at work."""
    looks: list[bool] = []

    @async_condition(reads=("ok",))
    async def is_ok(state: Desk) -> bool:
        looks.append(state.ok)
        return state.ok

    table = Table(lambda diary: Sequence("s", memory=False, children=[is_ok("c"), Sleep("a", 5, diary)]))
    assert await table.run_with(table.writing(1, **{field: False if field == "ok" else 3})) is expected
    assert looks == ([True, False] if field == "ok" else [True])


class Pay:
    """An object that is called like an async function."""

    async def __call__(self, context: Any, amount: In[int]) -> bool:
        context.write_state({"n": amount})
        return False


async def test_n12_an_object_with_an_async_call_is_awaited() -> None:
    """`async_action` made from an object with `async def __call__`: awaited; its result is used."""
    make = async_action(Pay())
    agent = Agent(make("p", amount="amount"), Desk)
    assert await run(agent) is FAILURE
    assert agent.state.n == 5
    assert make.__name__ == "Pay"


async def test_a_partial_is_a_function() -> None:
    """`functools.partial` of a plain and of an async function work."""

    def add(context: Any, amount: In[int], more: In[int]) -> None:
        context.write_state({"n": amount + more})

    async def add_later(context: Any, amount: In[int], more: In[int]) -> None:
        add(context, amount, more)

    for make in (action(functools.partial(add, more=2)), async_action(functools.partial(add_later, more=2))):
        agent = Agent(make("p", amount="amount"), Desk)
        assert await run(agent) is SUCCESS
        assert agent.state.n == 7
        assert make.__name__.startswith("add")


async def _async_fn(_context: Any) -> None: ...
def _plain_fn(_context: Any) -> None: ...


@pytest.mark.parametrize(
    ("decorate", "fn", "text"),
    [
        (action, _async_fn, "_async_fn is an async function: write @async_action, not @action"),
        (condition, _async_fn, "write @async_condition, not @condition"),
        (async_action, _plain_fn, "_plain_fn is a plain function: write @action, not @async_action"),
        (async_condition, _plain_fn, "write @condition, not @async_condition"),
        (async_condition(reads=("n",)), _plain_fn, "write @condition, not @async_condition"),
        (action, Pay(), "Pay is an async function: write @async_action"),
        (action, lambda: None, r"takes nothing: write def <lambda>\(context\)"),
        (condition, lambda: True, r"takes nothing: write def <lambda>\(state\)"),
        (
            action,
            lambda context, amount: None,
            r"parameter 'amount' of <lambda> is no input: write def <lambda>\(context, amount",
        ),
        (action, lambda context, *rest: None, "parameter 'rest' of <lambda> is no input"),
        (action, 3, "makes nodes of functions, not of 3"),
    ],
)
def test_wrong_functions_are_refused_with_the_line_to_write(decorate: Callable[..., Any], fn: Any, text: str) -> None:
    """A plain function in the place of an async one, the reverse, and parameters that are no inputs: SetupError."""
    with pytest.raises(SetupError, match=text):
        decorate(fn)


def test_the_context_comes_first() -> None:
    """A function whose first parameter is an input has forgotten its context, or the state."""

    def give(amount: In[int]) -> None: ...

    with pytest.raises(
        SetupError, match=r"give takes its inputs after the first parameter: write def give\(context, amount"
    ):
        action(give)
    with pytest.raises(SetupError, match=r"write def give\(state, amount"):
        condition(give)


def test_an_output_is_no_parameter() -> None:
    """A function returns what it writes; an `Out` among its parameters is refused."""

    def give(context: Any, result: Out[int]) -> None: ...

    with pytest.raises(SetupError, match="parameter 'result' of give is no input"):
        action(give)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: pay("p"), r'has no value for port \'amount\': bind it, pay\("p", amount="<field>"\)'),
        (lambda: pay("p", amount="name"), "the port takes int, but 'name' is str"),
        (lambda: pay("p", amount="amuont"), "did you mean 'amount'"),
        (lambda: pay("p", amont=3), "has no port 'amont': did you mean 'amount'"),
    ],
)
def test_n05_wrong_bindings_are_refused_before_the_first_tick(make: Callable[[], Any], text: str) -> None:
    """A binding left out, of a wrong type, with a typo: SetupError with what to write."""
    with pytest.raises(SetupError, match=text):
        Agent(make(), Desk).step_sync()


def test_a_plain_annotation_is_an_input() -> None:
    """`amount: float` is short for `amount: In[float]`, so that type checkers see a float."""

    @action
    def double(context: Any, amount: float) -> dict[str, float]:
        return {"total": amount * 2}

    class Sums(BaseModel):
        amount: float = 4.0
        total: float = 0.0
        name: str = ""

    agent = Agent(double("double", amount="amount"), Sums)
    agent.run_sync()
    assert agent.state.total == 8.0
    with pytest.raises(SetupError, match="takes float, but 'name' is str"):
        Agent(double("double", amount="name"), Sums)
