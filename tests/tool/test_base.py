"""Calls of a tool: whatever happens in it, the model gets a result."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import date
from typing import Annotated, Any

import anyio
import pytest
from pydantic import AfterValidator, BaseModel, JsonValue

from jianmu.agent import Agent
from jianmu.engine.clock import VirtualClock
from jianmu.engine.context import NodeContext
from jianmu.engine.node import AsyncNode
from jianmu.engine.request import Request
from jianmu.engine.suspend import Suspended
from jianmu.errors import LeaseLostError, RunError, SetupError
from jianmu.tool import ImagePart, TextPart, Tool, ToolCall, ToolResult, tool
from tests.cases.leaves import FAILURE, SUCCESS, assert_quiet

pytestmark = pytest.mark.anyio


async def call(made: Tool, arguments: dict[str, JsonValue] | None = None, **options: Any) -> ToolResult:
    """Call a tool, waiting at most ten seconds."""
    with anyio.fail_after(10):
        return await made.call(ToolCall(id="c1", name=made.name, arguments=arguments or {}), **options)


async def both(fn: Callable[..., Any], **options: Any) -> list[ToolResult]:
    """Return the results of a function as a sync and as an async tool."""

    async def later() -> Any:
        return fn()

    return [await call(Tool(fn, name="t", **options)), await call(Tool(later, name="t", **options))]


class Cat(BaseModel):
    """A cat."""

    name: str
    born: date


@dataclass
class Dog:
    """A dog."""

    name: str


CAT = ImagePart(path="cat.png")


@pytest.mark.parametrize(
    ("value", "content"),
    [
        ("as it is\n", "as it is\n"),
        ("", ""),
        (None, "null"),
        (3, "3"),
        (True, "true"),
        ({"ä": [1, None]}, '{"ä":[1,null]}'),
        (Cat(name="x", born=date(2030, 1, 1)), '{"name":"x","born":"2030-01-01"}'),
        ([Dog("y")], '[{"name":"y"}]'),
        (CAT, (CAT,)),
        (["A cat:", CAT], (TextPart(text="A cat:"), CAT)),
        ([], "[]"),
        (["a", "b"], '["a","b"]'),
        ([{"type": "text", "text": "x"}], '[{"type":"text","text":"x"}]'),
        ("half \ud83d", "half \ufffd"),
    ],
)
async def test_a_result_is_a_text_or_parts(value: Any, content: Any) -> None:
    """A text stays, parts stay by reference, everything else is shown as JSON; sync or async."""
    assert await both(lambda: value) == [ToolResult(call_id="c1", content=content)] * 2


@pytest.mark.parametrize(("value", "kind"), [(object(), "object"), (b"x", "bytes"), ({"x": {"y": object()}}, "dict")])
async def test_a_result_without_a_json_form(value: Any, kind: str) -> None:
    """The model learns that it was carried out, and the kind of value; nothing of the value."""
    for result in await both(lambda: value):
        assert result.is_error
        assert str(result.content).startswith(f"'t' was carried out, but its result cannot be shown: {kind}")


@pytest.mark.parametrize(
    ("content", "told"), [("half \ud83d", "half \ufffd"), ({"a": 1}, '{"a":1}'), (b"x", "'t' was carried out, but")]
)
async def test_a_result_that_the_tool_has_made_is_checked(content: Any, told: str) -> None:
    """Pydantic checks nothing in a copy: what is in it is repaired as in any result, or the model learns of it."""
    made = ToolResult(call_id="", content="fine").model_copy(update={"content": content})
    for result in await both(lambda: made):
        assert str(result.content).startswith(told)
        assert result.call_id == "c1"
        assert result.is_error is isinstance(content, bytes)


async def test_a_long_result_is_cut() -> None:
    """50 MB become what `max_result_chars` allows, with a note; None leaves all; texts among parts are counted."""
    size = 50 * 2**20
    for result in await both(lambda: "x" * size):
        assert result.content == "x" * 100_000 + f"\n[cut: these are the first 100000 of {size} characters]"
    assert (await both(lambda: "äbc", max_result_chars=2))[0].content == (
        "äb\n[cut: these are the first 2 of 3 characters]"
    )
    assert (await both(lambda: "x" * 200_000, max_result_chars=None))[0].content == "x" * 200_000
    parts = ["abc", CAT, "def", "ghi"]
    assert (await both(lambda: parts, max_result_chars=4))[0].content == (
        TextPart(text="abc"),
        CAT,
        TextPart(text="d"),
        TextPart(text="[cut: these are the first 4 of 9 characters]"),
    )


def fail(error: BaseException) -> Callable[[], Any]:
    """Return a function that raises."""

    def fn() -> Any:
        raise error

    return fn


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ValueError("no such city"), "'t' failed: ValueError: no such city"),
        (KeyError(), "'t' failed: KeyError"),
        (TimeoutError(), "'t' failed: TimeoutError"),
        (ExceptionGroup("two", [ExceptionGroup("one", [OSError("x")])]), "'t' failed: OSError: x"),
        (RuntimeError("y" * 5000), "'t' failed: RuntimeError: " + "y" * 1000),
    ],
)
async def test_what_a_tool_raises_is_a_result(error: Exception, told: str) -> None:
    """The result names the cause, shortly, without a traceback."""
    assert await both(fail(error)) == [ToolResult(call_id="c1", content=told, is_error=True)] * 2


@pytest.mark.parametrize("error", [LeaseLostError("x"), RunError("x"), SetupError("x"), Suspended()])
@pytest.mark.parametrize("seconds", [None, 5])
async def test_what_is_not_the_calls_fault_goes_up(error: BaseException, seconds: float | None) -> None:
    """A lost lease, a fault of the program, and a suspension are nothing that a model is told."""

    async def later() -> None:
        raise error

    with pytest.raises(type(error)):
        await call(Tool(later, name="t", timeout=seconds))
    if not isinstance(error, Suspended):
        with pytest.raises(type(error)):
            await call(Tool(fail(error), timeout=seconds))


async def test_wrong_arguments_are_a_result() -> None:
    """The function is not called, and the text says what is wrong."""

    @tool
    def never(n: int) -> None:
        raise AssertionError

    result = await call(never, {"n": "1"})
    assert result.is_error
    assert result.content == (
        "The arguments of 'never' do not fit, so it was not called:\n- n: Input should be a valid integer"
    )
    broken = await never.call(ToolCall.parse("c2", "never", "{"))
    assert (broken.call_id, broken.is_error) == ("c2", True)


async def test_arguments_arrive_as_the_types_say() -> None:
    """Models, dates and defaults arrive as such; `tool.fn` and calling the tool are the function itself."""

    @tool
    async def tell(cat: Cat, day: date = date(2030, 1, 2), *, n: int = 2) -> str:
        return f"{cat.name} {day - cat.born} {n}"

    result = await call(tell, {"cat": {"name": "x", "born": "2030-01-01"}})
    assert result.content == "x 1 day, 0:00:00 2"
    assert await tell(Cat(name="y", born=date(2030, 1, 1)), n=3) == "y 1 day, 0:00:00 3"
    assert tell.fn is not tell


async def test_a_validator_runs_once_in_a_call() -> None:
    """What a check does to the world it does once."""
    seen: list[int] = []

    @tool
    def take(n: Annotated[int, AfterValidator(lambda n: seen.append(n) or n)]) -> int:
        return n

    await call(take, {"n": 3})
    assert seen == [3]


async def test_a_sync_tool_runs_in_a_thread_and_may_return_what_is_awaited() -> None:
    """The loop goes on; what a plain function returns to be awaited is awaited on the loop."""
    main = threading.get_ident()

    async def inner() -> int:
        return threading.get_ident()

    def outer() -> Any:
        return inner()

    def plain() -> int:
        return threading.get_ident()

    assert (await call(Tool(plain))).content != str(main)
    assert (await call(Tool(outer))).content == str(main)


async def test_deps_without_a_context() -> None:
    """`deps` may be given to the call; a tool that takes a context is refused without one."""

    @tool
    def look(key: str, deps: dict[str, int]) -> int:
        return deps[key]

    @tool
    def where(context: NodeContext) -> str:
        return context.path

    assert (await call(look, {"key": "a"}, deps={"a": 7})).content == "7"
    with pytest.raises(SetupError, match="tool 'where' takes the context of a node: call it with context="):
        await call(where)


async def test_a_schema_from_elsewhere_gets_one_dict() -> None:
    """The function of a tool with `parameters=` gets all arguments as one dict, and what is injected."""

    async def proxy(given: dict[str, Any], deps: Any) -> Any:
        return [given, deps]

    made = Tool(proxy, name="t", parameters={"type": "object", "properties": {"deps": {"type": "integer"}}})
    assert (await call(made, {"deps": 1, "x": 2}, deps="d")).content == '[{"deps":1,"x":2},"d"]'


RULES: list[tuple[Any, bool]] = [
    (True, True),
    (False, False),
    (lambda a: a["amount"] > 5, True),
    (lambda a: a["amount"] > 9, False),
    (lambda a: a["currency"] != "EUR", False),
    (lambda a: "deps" in a, False),
    (lambda a: None, True),
    (lambda a: 0, True),
    (lambda a: "", True),
    (lambda a: a["missing"], True),
    (lambda: False, True),
]


@pytest.mark.parametrize(("rule", "asks"), RULES)
async def test_approval_fails_closed(rule: Any, asks: bool) -> None:
    """Only False, and only for arguments that fit, means that nobody is asked."""

    @tool(requires_approval=rule)
    def pay(amount: int, currency: str = "EUR", deps: Any = None) -> None: ...

    assert pay.needs_approval({"amount": 7}) is asks
    if rule is not False:
        assert pay.needs_approval({"amount": "7"}) is True


async def test_a_rule_for_approvals_is_no_async_function() -> None:
    """It would never say no: that is told when the tool is made."""

    async def rule(_: Any) -> bool:
        return False

    with pytest.raises(SetupError, match=r"requires_approval=.*: it takes a bool, or a plain function"):
        Tool(lambda: None, name="t", requires_approval=rule)


class Uses(AsyncNode):
    """Calls a tool and keeps the result."""

    def __init__(self, made: Tool, arguments: dict[str, JsonValue] | None = None) -> None:
        super().__init__("uses")
        self.made, self.arguments = made, arguments or {}
        self.results: list[ToolResult] = []

    async def update_async(self) -> Any:
        """Call it."""
        self.results.append(await call(self.made, self.arguments, context=self.context))
        return FAILURE if self.results[-1].is_error else SUCCESS


async def run(node: Uses, **options: Any) -> Agent[Any]:
    """Run a tree of one node on a clock that jumps."""
    agent = Agent(node, **{"clock": VirtualClock(autojump=True), **options})
    with anyio.fail_after(10):
        await agent.run()
    assert_quiet(agent)
    return agent


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_tool_gets_its_node_and_deps(is_async: bool) -> None:
    """`context` is the node's, `deps` the caller's, whether it runs on the loop or in a thread."""

    @tool
    def look(n: int, context: Any, deps: str) -> str:
        return f"{n} {context.path} {deps}"

    @tool
    async def look_later(n: int, deps: str, here: NodeContext) -> str:
        return f"{n} {here.path} {deps}"

    node = Uses(look_later if is_async else look, {"n": 1})
    await run(node, deps="d")
    assert node.results[0].content == "1 uses d"


async def test_t22_a_tool_that_never_ends_is_cut_off() -> None:
    """T22: an error result when the timeout is over on the agent's clock; its cleanup has run, nothing is alive."""
    cleaned: list[str] = []

    @tool(timeout=1)
    async def never() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            cleaned.append("clean")

    node = Uses(never)
    clock = VirtualClock(autojump=True)
    await run(node, clock=clock)
    assert clock.now() == 1
    assert cleaned == ["clean"]
    text = "'never' was cut off after 1 seconds; whether it took effect is not known."
    assert node.results == [ToolResult(call_id="c1", content=text, is_error=True)]


async def test_a_tool_in_time_is_not_cut_off() -> None:
    """A result before the timeout is the result; a thread under a clock turned by hand has all the time it needs."""

    @tool(timeout=3)
    async def soon(context: Any) -> str:
        await context.clock.sleep(2)
        return "in time"

    gate = threading.Event()

    @tool(timeout=3)
    def thread() -> str:
        threading.Timer(0.05, gate.set).start()
        return str(gate.wait(9))

    for made, content, seconds in ((soon, "in time", 2), (thread, "True", 0)):
        node, clock = Uses(made), VirtualClock(autojump=True)
        await run(node, clock=clock)
        assert (node.results[0].content, clock.now()) == (content, seconds)


async def test_a_thread_that_ends_after_its_timeout_has_a_result() -> None:
    """What was done is told, though late: a model that hears of a timeout would do it again."""
    gate = threading.Event()

    @tool(timeout=0.01)
    def late() -> str:
        gate.wait(9)
        return "done"

    async with anyio.create_task_group() as group:
        results: list[ToolResult] = []

        async def use() -> None:
            results.append(await call(late))

        group.start_soon(use)
        await anyio.to_thread.run_sync(gate.wait, 0.1)
        gate.set()
    assert results == [ToolResult(call_id="c1", content="done")]


async def test_a_thread_that_hangs_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is waited for a while, then the model gets its error result."""
    monkeypatch.setattr("jianmu.tool.base._HALT_TIMEOUT", 0.01)
    gate = threading.Event()

    @tool(timeout=0.01)
    def hangs() -> None:
        gate.wait(9)

    try:
        result = await call(hangs)
    finally:
        gate.set()
    assert result.is_error
    assert "was cut off after 0.01 seconds" in str(result.content)


@pytest.mark.parametrize("seconds", [None, 60])
async def test_a_cancelled_call_leaves_nothing(seconds: float | None) -> None:
    """Cancelled while it waits, a tool unwinds and the cancellation goes on: no result, no task."""
    trace: list[str] = []
    began = anyio.Event()

    @tool(timeout=seconds)
    async def waits() -> None:
        try:
            began.set()
            await anyio.sleep_forever()
        finally:
            trace.append("unwound")

    async with anyio.create_task_group() as group:

        async def use() -> None:
            await call(waits)
            trace.append("returned")

        group.start_soon(use)
        with anyio.fail_after(10):
            await began.wait()
        group.cancel_scope.cancel()
    assert trace == ["unwound"]


@pytest.mark.parametrize("seconds", [None, 60])
async def test_a_tool_may_ask_a_person(seconds: float | None) -> None:
    """A question suspends the run through the tool, with a timeout too; after the answer the call returns."""

    @tool(timeout=seconds)
    async def sure(context: NodeContext) -> str:
        return "yes" if await context.ask(Request("Sure?", answer=bool)) else "no"

    node = Uses(sure)
    agent = Agent(node, clock=VirtualClock())
    with anyio.fail_after(10):
        outcome = await agent.run_until_suspend()
        assert outcome.suspended
        assert node.results == []
        await agent.resume(True)
    assert [result.content for result in node.results] == ["yes"]


async def test_what_a_tool_prints_is_no_part_of_its_result(capsys: pytest.CaptureFixture[str]) -> None:
    """It goes where prints go."""
    results = await both(lambda: print("noise"))  # noqa: T201  # what a careless tool does
    assert [result.content for result in results] == ["null", "null"]
    assert capsys.readouterr().out == "noise\n" * 2


async def test_a_function_that_is_awaitable_by_type_only() -> None:
    """The return annotation decides nothing; the value does."""

    @tool
    def plain() -> Awaitable[int]:
        return 3  # type: ignore[return-value]  # the annotation is wrong on purpose

    assert (await call(plain)).content == "3"
