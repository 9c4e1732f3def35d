"""The nodes that know their run: Node, AsyncNode, and NodeMixin for composites and decorators of your own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar  # Any: the schema, its values, what the user's functions take and give

from py_trees.behaviour import Behaviour
from py_trees.common import Status

from jianmu.engine.activity import RESULTS, Activity
from jianmu.engine.context import NodeContext
from jianmu.engine.events import Event
from jianmu.engine.passes import INVALID, RUNNING, Pass, holds, may_hold
from jianmu.engine.ports import Binding, Port, bindings, declare
from jianmu.engine.request import Request
from jianmu.engine.watching import changed_since, mark_loops
from jianmu.errors import SetupError


class NodeMixin:
    """Gives a behaviour of py_trees its run: `self.context`, state, ports, wake-ups and events.

    Use it for composites and decorators of your own: `class Vote(NodeMixin, Composite)`. Classes with
    it are event-driven: they are ticked when something happened; `polled = True` has them ticked
    every `poll_interval` as well.
    """

    event_driven: ClassVar[bool] = True
    declared_ports: ClassVar[Mapping[str, Port]] = {}
    port_bindings: Mapping[str, Binding] = {}
    _context: NodeContext | None = None

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.declared_ports = declare(cls)

    @property
    def context(self) -> NodeContext:
        """All that the node may touch of its run."""
        if self._context is None:
            name = getattr(self, "name", type(self).__name__)
            raise SetupError(
                f"node '{name}' is in no agent: run its tree with Agent(root), "
                "or test it alone with jianmu.testing.node_context"
            )
        return self._context

    def adopt(self, context: NodeContext) -> None:
        """Take the node's context; the binder calls it."""
        self._context = context

    def bind_ports(self, ports: Mapping[str, object]) -> None:
        """Bind the ports: a text names a field or `field.key`, other values and `Const(...)` are literals."""
        if isinstance(self, Behaviour):
            self.port_bindings = bindings(self, self.declared_ports, ports)

    def read_state(self, namespace: str | None = None) -> Any:
        """Return the newest snapshot, or a dict of that namespace's keys."""
        return self.context.read_state(namespace)

    def write_state(self, updates: Mapping[str, Any], namespace: str | None = None) -> None:
        """Write fields: those with a reducer are folded, others replaced; all or none."""
        self.context.write_state(updates, namespace)

    def merge_dict(self, field: str, updates: Mapping[str, Any] | None, namespace: str | None = None) -> None:
        """Write keys of a dict field and leave the others as they are."""
        self.context.merge_dict(field, updates, namespace)

    def transform_field(self, key: str, fn: Callable[[Any], Any], namespace: str | None = None) -> None:
        """Write `fn(current)`; nothing else can write the field in between."""
        self.context.transform_field(key, fn, namespace)

    def write_port(self, name: str, value: Any) -> None:
        """Write what an output is bound to."""
        self.context.write_port(name, value)

    async def ask(self, request: Request, *, key: str | None = None) -> Any:
        """Return the answer to a question; until it is in, the coroutine ends here and the run suspends."""
        return await self.context.ask(request, key=key)

    async def ask_all(self, requests: Sequence[Request], *, group: str | None = None) -> list[Any]:
        """Return the answers to questions that are asked at once; see `NodeContext.ask_all`."""
        return await self.context.ask_all(requests, group=group)

    async def once(self, key: str, fn: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """Return the result of `fn(*args)`, called once in this round whatever happens in between.

        Options are `result=Any`, `on_unknown="rerun" | "ask" | "fail"`, `effect=True` and
        `per="round" | "activation"`.
        """
        return await self.context.once(key, fn, *args, **options)

    def wake(self, after: float = 0) -> None:
        """Ask for a pass: at once, or in `after` seconds while the node is RUNNING."""
        self.context.wake(after)

    def emit(self, event: Event) -> None:
        """Hand an event to whoever streams the run."""
        self.context.emit(event)


class Node(NodeMixin, Behaviour):
    """A leaf that is done within a pass: override `update()`.

    SUCCESS, FAILURE or RUNNING as `update()` returns; RUNNING is looked at again when something
    happened. Keeps its place over a suspension only with `memento()` and `restore(value)`.

    Args:
        name: the node's name; by default its class's name.
        ports: what each port is bound to.
    """

    def __init__(self, name: str | None = None, **ports: object) -> None:
        super().__init__(name if name is not None else type(self).__name__)
        self.bind_ports(ports)

    def update(self) -> Status:
        """Do the node's work."""
        raise SetupError(f"{type(self).__name__} has no update(): override it and return a Status")


class AsyncNode(NodeMixin, Behaviour):
    """A leaf whose work takes time: override `async def update_async(self) -> Status`.

    SUCCESS or FAILURE when the coroutine has returned it; RUNNING while it is at work or waits for an
    answer. Halting cancels the coroutine, then `cleanup()` is awaited.

    Args:
        name: the node's name; by default its class's name.
        ports: what each port is bound to.
    """

    is_condition: ClassVar[bool] = False
    reads: ClassVar[tuple[str, ...]] = ()

    def __init__(self, name: str | None = None, **ports: object) -> None:
        super().__init__(name if name is not None else type(self).__name__)
        self.bind_ports(ports)

    async def update_async(self) -> Status:
        """Do the node's work and return SUCCESS or FAILURE."""
        raise SetupError(f"{type(self).__name__} has no update_async(): override it and return a Status")

    async def cleanup(self) -> None:
        """Put things in order after a halt; awaited, for at most `halt_timeout` seconds."""

    def update(self) -> Status:
        """Return the coroutine's result, or RUNNING."""
        activity = (self._context or self.context).activity
        if activity is None:
            return RUNNING
        return activity.poll() if activity.error is not None else activity.result or RUNNING

    def tick_direct(self, run: Pass) -> Status:
        """Tick the node: ask for a start, hold a result, or report it."""
        context = self._context or self.context
        activity = context.activity
        if activity is None:
            path = context.path
            raise SetupError(f"node '{path}' is asynchronous: run it with Agent(root)", path=path)
        if self.status is not RUNNING:
            if self.status is not INVALID and self.is_held():
                return self._hold(activity)
            run.enter(self)
            self._begin(context, activity, run.number)
        status = self.update()
        if status is RUNNING:
            self.status = status
            return status
        status = run.finish(self, status)
        activity.finished = run.number
        return status

    def tick(self) -> Iterator[Behaviour]:
        """Tick the node inside of a composite that jianmu does not know."""
        self.tick_direct(Pass.current())
        yield self

    def stop(self, new_status: Status) -> None:
        """Stop the node; with INVALID its coroutine is halted after the pass."""
        if new_status is INVALID:
            self.on_halt()
        self.terminate(new_status)  # what py_trees' stop does, apart from its log line
        self.status = new_status

    def on_halt(self) -> None:
        """Ask for the coroutine's halt and withdraw what the node has asked."""
        context = self._context
        activity = context.activity if context is not None else None
        if context is None or activity is None:
            return
        activity.halt()
        if activity.asked and not context.run.is_parking:
            context.run.interaction.withdraw_open(context.path)
        activity.asked.clear()

    def on_given_up(self, input: Mapping[str, Any]) -> None:
        """Put things in order where a run that was cut short is not gone on with, before the new run's input is in."""

    def is_held(self) -> bool:
        """Whether the node has finished and stands by its result: it is not entered again, only reported."""
        activity = self.context.activity
        return activity is not None and self.status in RESULTS and holds(self, activity.finished)

    def _begin(self, context: NodeContext, activity: Activity, number: int) -> None:
        """Ask for a start, in a new activation."""
        if not context.run.journal.is_empty:
            context.run.journal.new_activation(context.origin())
        mark_loops(self, number)
        activity.asked.clear()
        activity.started = context.manager.version
        activity.begin()

    def _hold(self, activity: Activity) -> Status:
        """Report the result held; a condition whose fields have changed is evaluated again in the background."""
        if not self.is_condition:
            return self.status
        if activity.result is not None or activity.error is not None:
            self.status = activity.poll()
            activity.result = None
        if not activity.is_busy and changed_since(self.context, self.reads, activity.started):
            activity.started = self.context.manager.version
            activity.begin()
        return self.status

    def memento(self) -> Any:
        """Return what the node has asked and a result that no pass has seen yet, or that it may have to hold one."""
        activity = self._context.activity if self._context is not None else None
        if activity is None or self.status is INVALID:
            return None
        if self.status is RUNNING:
            result = activity.result and activity.result.name
            return {"asked": sorted(activity.asked), "result": result} if activity.asked or result else None
        return {"held": activity.finished, "started": activity.started} if may_hold(self) else None

    def restore(self, value: Any) -> None:
        """Take back what the node has asked, or the result that it had."""
        activity = self.context.activity
        if activity is None:
            return
        activity.asked.update(value.get("asked", ()))
        activity.result = Status[value["result"]] if value.get("result") else None
        activity.finished, activity.started = value.get("held", -1), value.get("started", -1)
