"""All that a node may touch of its run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any  # Any: the schema, the values of its fields, and what the user's functions take and give

from py_trees.behaviour import Behaviour
from structlog.typing import FilteringBoundLogger

from jianmu.engine.activity import Activity, Live
from jianmu.engine.answers import json_text
from jianmu.engine.clock import Clock
from jianmu.engine.controller import InteractionController
from jianmu.engine.events import Event, Events
from jianmu.engine.journal import ACTING, Entry, Journal, OnceScope
from jianmu.engine.limits import Limits, Usage, spend
from jianmu.engine.log import log
from jianmu.engine.ports import MISSING, Binding, Port
from jianmu.engine.questions import Origin, Rounds
from jianmu.engine.record import Record
from jianmu.engine.request import Request
from jianmu.engine.shapes import refuse_other
from jianmu.engine.state import StateManager
from jianmu.engine.suspend import Suspended
from jianmu.engine.ticker import Ticker
from jianmu.engine.tree import ancestors, rounds_of
from jianmu.errors import NotAnsweredError, RunError, SetupError


class RunContext:
    """What all nodes of one agent share: its clock, questions, journal and events, and the run's number.

    Args:
        clock: the agent's clock.
        manager: the agent's state.
        deps: whatever the caller gives to the nodes.
    """

    def __init__(self, clock: Clock, manager: StateManager[Any], deps: Any = None) -> None:
        self.clock = clock
        self.deps = deps
        self.events = Events(clock)
        self.ticker = Ticker()
        self.interaction = InteractionController(clock, manager)
        self.journal = Journal()
        self.limits = Limits()
        self.usage = Usage()
        self.thread_id = ""
        self.run = 0
        self.passes = 0
        self.in_use: str | None = None
        self.is_parking = False
        self.halt_timeout = 5.0
        self.signal: Callable[[], None] = lambda: None
        self.stir: Callable[[], None] = lambda: None
        self.sync: Callable[[], Awaitable[None]] = _at_once
        self.deadlines: dict[Behaviour, float] = {}
        self.asked: dict[str, int] = {}

    def close_round(self, rounds: Rounds) -> None:
        """Forget what was done and asked in a round that is over; what is asked there again has other ids."""
        self.journal.close_round(rounds)
        loop, most = rounds[-1][0], self.interaction.close_round(rounds)
        if most > self.asked.get(loop, 0):
            self.asked = {**self.asked, loop: most}

    def log_at(self, path: str | None) -> FilteringBoundLogger:
        """Return a logger whose lines have thread, run, pass and path."""
        return log.bind(**{"thread": self.thread_id, "run": self.run, "pass": self.passes, "path": path})


async def _at_once() -> None:
    """Do nothing: without a store what is in memory is all there is."""


class NodeContext:
    """One node's view of its run; every node has it as `self.context`.

    Attributes:
        path: the node's path.
        asked_here: the questions that the node has asked in this process.
        is_read_only: whether the node is only looked at.
        tool_call_id: the tool call that questions are about.
        effect: the effect that a part of the work is; what it writes may be written again.
        wrote: what a part of the work has written that must not be written again.
        no_questions: why a part of the work may not ask, or None.
    """

    __slots__ = ("_bindings", "_ports", "activity", "asked_here", "effect", "is_read_only", "manager", "no_questions",
                 "node", "path", "run", "scoped", "tool_call_id", "wrote")  # fmt: skip

    def __init__(self, run: RunContext, manager: StateManager[Any], node: Behaviour, path: str) -> None:
        self.run, self.manager, self.node, self.path = run, manager, node, path
        self.activity: Activity | None = None
        self.asked_here: set[str] = set()
        self.is_read_only = False
        self.scoped: Callable[[], str] | None = None
        self.tool_call_id: str | None = None
        self.effect: Entry | None = None
        self.wrote: str | None = None
        self.no_questions: str | None = None
        self._ports: Mapping[str, Port] = getattr(node, "declared_ports", {})
        self._bindings: Mapping[str, Binding] = getattr(node, "port_bindings", {})

    @property
    def scope(self) -> str:
        """What stands before the keys of questions and effects; see `within`."""
        return "" if self.scoped is None else self.scoped()

    @property
    def deps(self) -> Any:
        """What the caller gave as `deps`."""
        return self.run.deps

    @property
    def clock(self) -> Clock:
        """The agent's clock."""
        return self.run.clock

    @property
    def thread_id(self) -> str:
        """The id of the thread that runs."""
        return self.run.thread_id

    @property
    def log(self) -> FilteringBoundLogger:
        """A logger whose lines have thread, run, pass and path."""
        return self.run.log_at(self.path)

    @property
    def idempotency_key(self) -> str:
        """A key that is the same for every attempt of this work in its round; inside `once`, that call's own."""
        acting = ACTING.get()
        return self.origin().identity("effect", "") if acting is None else acting.sealed().idempotency_key

    def origin(self) -> Origin:
        """Return who asks: thread, run, path and the rounds of the loops around the node."""
        live = self.activity.live if self.activity is not None else None
        if live is None or live.is_halted:
            return Origin(self.run.thread_id, self.run.run, self.path, rounds_of(self.node))
        if live.origin is None:
            live.origin = Origin(self.run.thread_id, self.run.run, self.path, rounds_of(self.node))
        return live.origin

    @property
    def asked_before(self) -> int:
        """The most questions that one identity had in rounds of the loops around the node which were entered before."""
        return max((getattr(above, "asked_before", 0) for above in ancestors(self.node)), default=0)

    # State

    def read_state(self, namespace: str | None = None) -> Any:
        """Return the newest snapshot, or a dict of that namespace's keys."""
        return self.manager.get() if namespace is None else self.manager.read_namespace(namespace)

    def write_state(self, updates: Mapping[str, Any], namespace: str | None = None) -> None:
        """Write fields: those with a reducer are folded, others replaced; all or none."""
        self._note_write(updates if namespace is None else ())
        self.manager.update(updates, namespace=namespace, _writer=self.path)

    def merge_dict(self, field: str, updates: Mapping[str, Any] | None, namespace: str | None = None) -> None:
        """Write keys of a dict field and leave the others as they are."""
        self._note_write(())
        self.manager.merge_dict(field, updates, namespace=namespace, _writer=self.path)

    def transform_field(self, key: str, fn: Callable[[Any], Any], namespace: str | None = None) -> None:
        """Write `fn(current)`; nothing else can write the field in between."""
        self._note_write((key,) if namespace is None else ())
        self.manager.transform_field(key, fn, namespace=namespace, _writer=self.path)

    def _note_write(self, fields: Mapping[str, Any] | tuple[str, ...]) -> None:
        """Remember a write that must not be repeated; refuse one of a condition."""
        if self.is_read_only:
            raise RunError(f"node '{self.path}' may not write while it is only looked at", path=self.path)
        activity = self.activity
        if activity is None or activity.live is None:
            return
        self._refuse_condition("write state")
        holder = self if self.scoped else activity.live
        if holder.wrote is None and ACTING.get() is self.effect:
            holder.wrote = next(filter(self.manager.schema.folded.__contains__, fields), None)

    # Ports

    def read_port(self, name: str) -> Any:
        """Return the value that a port is bound to."""
        binding = self._bindings.get(name)
        if binding is None:
            return self._ports[name].default
        if binding.field is None:
            return binding.literal
        value: Any = self.manager.read(binding.field)
        return value if binding.key is None else dict[str, Any](value or {}).get(binding.key)

    def write_port(self, name: str, value: Any) -> None:
        """Write the field, or the key of a dict field, that an output is bound to."""
        port = self._ports.get(name)
        if port is None or not port.is_output:
            raise SetupError(f"node '{self.path}' has no output '{name}': declare {name}: Out[...]", path=self.path)
        binding = self._bindings.get(name)
        if binding is None or binding.field is None:
            if port.default is MISSING:
                raise SetupError(f"node '{self.path}' has no field for output '{name}': bind it", path=self.path)
            return
        if binding.key is None:
            self.write_state({binding.field: value})
        else:
            self.merge_dict(binding.field, {binding.key: value})

    # Asking and effects

    async def ask(self, request: Request, *, key: str | None = None) -> Any:
        """Return the answer to a question; until it is in, the coroutine ends here and the run suspends.

        After the answer the node is entered from its top, and this call returns the answer, at each
        entry of the round.

        Raises:
            NotAnsweredError: declined, cancelled, expired or withdrawn.
            TreeMismatchError: the question was asked before a load, by a program that asked for something else.
        """
        (answer,) = self._answers((request,), (key or request.key or self.node.name,), None)
        if isinstance(answer, NotAnsweredError):
            raise answer
        return answer

    async def ask_all(self, requests: Sequence[Request], *, group: str | None = None) -> list[Any]:
        """Return the answers to questions that are asked at once, in their order, when all of them have ended.

        A `NotAnsweredError` stands in the place of each that was declined, cancelled, withdrawn or has expired. Until
        then it is as with `ask`; each request needs a `key` of its own.

        Args:
            requests: what to ask; none is no question.
            group: shown with each question; by default an id that stands for these keys.

        Raises:
            SetupError: two requests have one key, or one has none.
        """
        keys = [request.key or "" for request in requests]
        if len({*keys}) < len(keys) or "" in keys:
            raise SetupError(f"node '{self.path}': ask_all() takes requests with a key each: Request(..., key=...)")
        return self._answers(requests, keys, group or self.origin().identity("group", json_text(keys)))

    def _answers(self, requests: Sequence[Request], keys: Sequence[str], group: str | None) -> list[Any]:
        """Return the answers, or end the coroutine if one is not in."""
        activity, live = self._asking()
        pairs = [
            (self._asked(activity, one, self.scope + key, group), one) for one, key in zip(requests, keys, strict=True)
        ]
        if any(record.status == "open" for record, _ in pairs):
            live.has_asked = True
            raise Suspended
        return [self._delivered(record.id, request) for record, request in pairs]

    def _asked(self, activity: Activity, request: Request, key: str, group: str | None) -> Record:
        """Return the question as it stands; it is asked unless it was."""
        interaction, origin = self.run.interaction, self.origin()
        record = interaction.latest(origin, key)
        if record is None or (record.refusal is not None and record.consumed_at and record.id not in activity.asked):
            about = request.tool_call_id or self.tool_call_id
            state = self.manager.get()
            shown: dict[str, Any] = {"tool_call_id": about, "group": group, "url": request.url}
            record = interaction.ask(origin, request, state, key=key, asked_before=self.asked_before, **shown)
            self.asked_here.add(record.id)
        if record.id not in self.asked_here:
            refuse_other(record.question, request, self.path)
        activity.asked.add(record.id)
        return record

    def _delivered(self, id: str, request: Request) -> Any:
        try:
            return self.run.interaction.deliver(id, request)
        except NotAnsweredError as refused:
            return refused

    async def once(self, key: str, fn: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """Return the result of `fn(*args)`, called once in this round whatever happens in between."""
        self._refuse_condition("use once")
        live = self.activity.live if self.activity is not None else None
        used: set[str] = live.journal if live is not None else set()
        scope = OnceScope(self.origin(), used, self.run.halt_timeout, self.ask, self.run.sync)
        return await self.run.journal.once(scope, self.scope + key, fn, *args, **options)

    def within(self, scope: str | Callable[[], str], tool_call_id: str | None = None) -> NodeContext:
        """Return the same context for a part of the node's work, whose keys have `scope` before them.

        Args:
            scope: tells the keys of this part from those of others; a function is called when there is a key.
            tool_call_id: shown with the questions that are asked there.
        """
        part = self.copied()
        part.scoped = lambda: f"{self.scope}{scope if isinstance(scope, str) else scope()}/"
        part.tool_call_id, part.effect, part.wrote = tool_call_id or self.tool_call_id, ACTING.get(), None
        return part

    def copied(self) -> NodeContext:
        """Return the same context, to be changed."""
        made = NodeContext(self.run, self.manager, self.node, self.path)
        made.activity, made.asked_here, made.is_read_only = self.activity, self.asked_here, self.is_read_only
        made.scoped, made.tool_call_id, made.effect = self.scoped, self.tool_call_id, self.effect
        made.wrote, made.no_questions = self.wrote, self.no_questions
        return made

    def spend(self, **amounts: float | None) -> None:
        """Count what the node is about to use: `requests=1`, `tool_calls=3`, `tokens=None` if not known yet.

        Raises:
            LimitExceeded: the run may not use so much; nothing was counted. It ends the run.
        """
        spend(self.run.limits, self.run.usage, amounts, self.path)

    def _asking(self) -> tuple[Activity, Live]:
        """Return the live entry that asks; refuse what could not be asked."""
        activity = self.activity
        if activity is None or activity.live is None or activity.live.is_halted:
            text = f"node '{self.path}' asks outside of its coroutine: ask in update_async(), or use an InteractiveNode"
            raise RunError(text, path=self.path)
        self._refuse_condition("ask")
        if self.no_questions is not None:
            raise RunError(self.no_questions, path=self.path)
        field = self.wrote if self.scoped else activity.live.wrote
        if field is not None:
            text = (
                f"node '{self.path}' has written '{field}', which has a reducer, before it asks: after the answer it "
                f'would be written again. Put it into once: await self.once("{field}", write, effect=False)'
            )
            raise RunError(text, path=self.path)
        return activity, activity.live

    def _refuse_condition(self, what: str) -> None:
        if getattr(self.node, "is_condition", False):
            text = f"condition '{self.path}' may not {what}: conditions only read, since they are evaluated again"
            raise RunError(text, path=self.path)

    # The run

    def wake(self, after: float = 0) -> None:
        """Ask for a pass: at once, or in `after` seconds while the node is RUNNING; safe from other threads."""
        if after <= 0:
            self.run.signal()
            return
        due = self.run.clock.now() + after
        self.run.deadlines[self.node] = min(due, self.run.deadlines.get(self.node, due))
        self.run.stir()

    def forget_wake(self) -> None:
        """Take back a `wake(after=…)` that has not come yet."""
        self.run.deadlines.pop(self.node, None)

    def emit(self, event: Event) -> None:
        """Hand an event to whoever streams the run; number, time and path are filled in."""
        self.run.events.emit(event, self.path)
