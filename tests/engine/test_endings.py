"""Ends of runs: after each of them no task is alive, every cleanup has run, and the agent can run again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest
from py_trees.behaviour import Behaviour
from py_trees.common import ParallelPolicy, Status
from py_trees.composites import Sequence
from py_trees.visitors import VisitorBase

from jianmu.engine.events import CleanupFailed
from jianmu.engine.limits import Limits
from jianmu.errors import InvalidStatusError, LimitExceeded, StalledError, StateWriteError
from jianmu.nodes import Catch, Finally, Guard, Timeout
from tests.cases.leaves import FAILURE, INVALID, SUCCESS, Scripted, events_of, of_kind
from tests.engine.scene import AskTrigger, AsyncTrigger, Scene, Trigger, hops

pytestmark = pytest.mark.anyio


def raising(
    hook: str, base: type[Behaviour], *, when: Callable[..., bool] = lambda *_: True
) -> Callable[[Scene], Behaviour]:
    """Return what makes a trigger that raises in one hook."""
    inner = getattr(base, hook)

    def fires(self: Any, *args: Any, **options: Any) -> Any:
        if when(*args):
            self.scene.fire()
        return inner(self, *args, **options)

    async def fires_async(self: Any) -> Any:
        await hops(2)
        self.scene.fire()
        return await inner(self)

    is_async = hook in ("update_async", "cleanup")
    return type(f"Raises{hook}", (base,), {hook: fires_async if is_async else fires})


def _wrapped(base: type[Behaviour], hook: str) -> Callable[[Scene], Behaviour]:
    """Return a trigger that raises, deep in branches of jianmu that let it through."""
    trigger = raising(hook, base)
    return lambda scene: Catch(
        "c", Timeout("t", Sequence("s", memory=True, children=[trigger(scene)]), seconds=60), on=(KeyError,)
    )


def _guard(scene: Scene) -> Behaviour:
    return Guard("trigger", Trigger(scene), condition=lambda _: scene.fire() or True)


def _finally(scene: Scene) -> Behaviour:
    return Finally("trigger", Scripted("x", SUCCESS), lambda _: scene.fire())


def _bad_write(scene: Scene) -> Behaviour:
    class Writes(Trigger):
        def update(self) -> Status:
            if scene.is_armed:
                self.write_state({"n": "text"})
            return SUCCESS

    return Writes(scene)


def _bad_status(scene: Scene) -> Behaviour:
    class Wrong(Trigger):
        def update(self) -> Any:
            return "done" if scene.is_armed else SUCCESS

    return Wrong(scene)


def _bad_async_status(scene: Scene) -> Behaviour:
    class Wrong(AsyncTrigger):
        async def update_async(self) -> Any:
            return None if scene.is_armed else SUCCESS

    return Wrong(scene)


def _both_halted_and_raised(scene: Scene) -> Behaviour:
    class HaltsAndRaises(AsyncTrigger):
        async def update_async(self) -> Status:
            if scene.is_armed:
                scene.agent.runner.signal()
                raise ValueError("armed")
            return SUCCESS

    return HaltsAndRaises(scene)


IN_HOOKS: dict[str, Callable[[Scene], Behaviour]] = {
    "update": raising("update", Trigger),
    "initialise": raising("initialise", Trigger),
    "terminate on a result": raising("terminate", AsyncTrigger, when=lambda status: status is SUCCESS),
    "update_async": raising("update_async", AsyncTrigger),
    "initialise of an async node": raising("initialise", AsyncTrigger),
    "setup": raising("setup", Trigger),
    "request": raising("request", AskTrigger),
    "on_answer": raising("on_answer", AskTrigger),
    "a guard's condition": _guard,
    "a finally's cleanup in a tick": _finally,
    "deep below": _wrapped(AsyncTrigger, "update_async"),
    "update deep below": _wrapped(Trigger, "update"),
    "signalled and raised": _both_halted_and_raised,
}


@pytest.mark.parametrize("hook", IN_HOOKS)
async def test_an_exception_in_a_hook_ends_the_run(hook: str) -> None:
    """The original exception comes out, with a note that has the path; the rest is halted and cleaned up."""
    scene = Scene(IN_HOOKS[hook])
    scene.begin()
    with anyio.fail_after(5), pytest.raises(ValueError, match="armed") as caught:
        await scene.agent.run()
    assert any("trigger" in note or "all/c/t/s" in note for note in caught.value.__notes__)
    assert scene.agent.status is INVALID
    await scene.check_again()


@pytest.mark.parametrize("hook", ["update", "update_async", "request", "on_answer", "setup"])
@pytest.mark.parametrize(
    "error", [KeyboardInterrupt("armed"), SystemExit("armed"), ExceptionGroup("g", [ValueError("armed")])]
)
async def test_so_does_any_other_thing_that_is_raised(hook: str, error: BaseException) -> None:
    """Ctrl-C, an exit, a group: whatever a hook raises comes out as it is, and nothing is left alive."""
    scene = Scene(IN_HOOKS[hook])
    scene.error = error
    scene.begin()
    with anyio.fail_after(5), pytest.raises(type(error)) as caught:
        await scene.agent.run()
    assert caught.value is error
    await scene.check_again()


@pytest.mark.parametrize(
    ("make", "error"),
    [(_bad_write, StateWriteError), (_bad_status, InvalidStatusError), (_bad_async_status, InvalidStatusError)],
)
async def test_what_the_runtime_refuses_ends_the_run(
    make: Callable[[Scene], Behaviour], error: type[Exception]
) -> None:
    """A refused write and a wrong status are errors with the path, of their family."""
    scene = Scene(make)
    scene.begin()
    with anyio.fail_after(5), pytest.raises(error, match="all/trigger"):
        await scene.agent.run()
    await scene.check_again()


@pytest.mark.parametrize("where", ["pre", "post", "visitor"])
async def test_an_exception_of_a_handler_or_visitor_ends_the_run(where: str) -> None:
    """What stands around the tick is no node; its exception comes out all the same."""
    scene = Scene(AsyncTrigger)

    class Bad(VisitorBase):
        def run(self, behaviour: Behaviour) -> None:
            scene.fire()

    if where == "visitor":
        scene.agent.tree.visitors.append(Bad())
    elif where == "pre":
        scene.agent.tree.pre_tick_handlers.append(lambda _: scene.fire())
    else:
        scene.agent.tree.post_tick_handlers.append(lambda _: scene.fire())
    scene.begin()
    with anyio.fail_after(5), pytest.raises(ValueError, match="armed"):
        await scene.agent.run()
    await scene.check_again()


async def test_an_exception_in_open_closes_what_was_open() -> None:
    """Nothing was ticked; what had been opened before is closed; the error names open() and the node."""

    class Bad(Trigger):
        async def open(self) -> None:
            self.scene.fire()

    scene = Scene(Bad)
    scene.begin()
    with anyio.fail_after(5), pytest.raises(ValueError, match="armed") as caught:
        await scene.agent.run()
    assert scene.begun == 0
    assert caught.value.__notes__ == ["raised by open() of node 'all/trigger'"]
    await scene.check_again()


async def test_an_exception_in_close_keeps_nobody_from_theirs() -> None:
    """The others are closed; the exception comes out at the end."""

    class Bad(Trigger):
        async def close(self) -> None:
            self.scene.fire()

        def update(self) -> Status:
            self.scene.agent.halt()
            return SUCCESS

    scene = Scene(Bad)
    scene.begin()
    with anyio.fail_after(5), pytest.raises(ValueError, match="armed") as caught:
        await scene.agent.run()
    assert caught.value.__notes__ == ["raised by close() of node 'all/trigger'"]
    scene.check()


async def test_an_exception_of_the_human_ends_the_run() -> None:
    """The one who answers is part of the run."""
    scene = Scene(AskTrigger)

    async def fails(_question: object) -> bool:
        await hops(2)
        scene.fire()
        return True

    scene.agent.runner._humans._human = fails
    scene.begin()
    with anyio.fail_after(5), pytest.raises(ValueError, match="armed"):
        await scene.agent.run()
    await scene.check_again()


@pytest.mark.parametrize("hook", ["cleanup", "terminate"])
async def test_what_is_raised_in_a_halt_ends_no_run(hook: str) -> None:
    """It is reported once, with the path; the end is the one that there was."""
    halted = {"when": lambda status: status is INVALID} if hook == "terminate" else {}

    class Waits(AsyncTrigger):
        async def update_async(self) -> Status:
            if self.scene.is_armed:
                self.scene.agent.halt()
                await anyio.sleep_forever()
            return SUCCESS

    scene = Scene(raising(hook, Waits, **halted))
    events = events_of(scene.agent)
    scene.begin()
    with anyio.fail_after(5):
        assert await scene.agent.run() is INVALID
    assert [(event.path, event.reason) for event in of_kind(events, CleanupFailed)] == [
        ("all/trigger", "ValueError: armed")
    ]
    await scene.check_again()


@pytest.mark.parametrize("error", [KeyboardInterrupt("armed"), SystemExit("armed")])
@pytest.mark.parametrize("hook", ["cleanup", "terminate"])
async def test_ctrl_c_in_a_halt_comes_out_and_leaves_nothing(hook: str, error: BaseException) -> None:
    """Also there all others have their turn before it does."""
    halted = {"when": lambda status: status is INVALID} if hook == "terminate" else {}

    class Waits(AsyncTrigger):
        async def update_async(self) -> Status:
            if self.scene.is_armed:
                self.scene.agent.halt()
                await anyio.sleep_forever()
            return SUCCESS

    scene = Scene(raising(hook, Waits, **halted))
    scene.error = error
    scene.begin()
    with anyio.fail_after(5), pytest.raises(type(error)) as caught:
        await scene.agent.run()
    assert caught.value is error
    await scene.check_again()


async def test_a_listener_that_raises_ends_no_run() -> None:
    """It is logged and reaches nobody."""

    class Writes(AsyncTrigger):
        async def update_async(self) -> Status:
            self.write_state({"n": 1})
            self.scene.is_armed = False
            await hops(2)
            self.scene.agent.halt()
            return SUCCESS

    scene = Scene(Writes)

    def listen(_change: object) -> None:
        raise ValueError("listener")

    scene.agent.state_manager.subscribe(listen)
    scene.begin()
    with anyio.fail_after(5):
        assert await scene.agent.run() is INVALID
    assert scene.agent.state.n == 1
    scene.check()


@pytest.mark.parametrize("result", [SUCCESS, FAILURE])
async def test_a_result_halts_what_is_still_at_work(result: Status) -> None:
    """The root has its result while leaves are RUNNING: they are halted, their cleanup is awaited."""
    scene = Scene(lambda scene: _Once(scene, result))
    if result is SUCCESS:
        scene.agent.root.policy = ParallelPolicy.SuccessOnOne()
    scene.begin()
    with anyio.fail_after(5):
        assert await scene.agent.run() is result
    assert scene.begun == 2
    assert scene.agent.root.children[2].status is result
    assert [scene.agent.root.children[i].status for i in (0, 1, 3)] == [INVALID] * 3
    await scene.check_again()


class _Once(AsyncTrigger):
    """Returns a result after a few turns, SUCCESS when it is not armed."""

    def __init__(self, scene: Scene, result: Status) -> None:
        super().__init__(scene)
        self.result = result

    async def update_async(self) -> Status:
        """Return it."""
        await hops(3)
        return self.result if self.scene.is_armed else SUCCESS


@pytest.mark.parametrize("limits", [Limits(max_ticks=1), Limits(max_ticks=3), Limits(timeout=0.01)])
@pytest.mark.parametrize("call", ["run", "run_until_suspend"])
async def test_a_limit_ends_the_run(limits: Limits, call: str) -> None:
    """`run` raises LimitExceeded, `run_until_suspend` tells it in its outcome; all is cleaned up."""

    class Writes(Trigger):
        polled = True

    scene = Scene(Writes, poll_interval=0.001)
    name = "timeout" if limits.timeout else "max_ticks"
    scene.begin()
    with anyio.fail_after(5):
        if call == "run":
            with pytest.raises(LimitExceeded) as caught:
                await scene.agent.run(limits=limits)
            assert caught.value.limit == name
        else:
            outcome = await scene.agent.run_until_suspend(limits=limits)
            assert (outcome.limit, outcome.status, outcome.suspended) == (name, INVALID, False)
    await scene.check_again()


async def test_a_stall_that_raises_ends_the_run() -> None:
    """With nobody at work and `on_stall="raise"` the run fails and leaves nothing."""
    scene = Scene(Trigger, on_stall="raise")
    scene.agent.root.remove_child(scene.agent.root.children[0])
    scene.agent.root.remove_child(scene.agent.root.children[0])
    scene.begin()
    with anyio.fail_after(5), pytest.raises(StalledError, match="all/trigger, all/opens"):
        await scene.agent.run()
    await scene.check_again()
