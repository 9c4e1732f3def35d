"""A thread in memory: how it stands, dumped as JSON, and put in the place of another."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Generic, TypeVar  # Any: the user's schema, any node, parts of a record

from py_trees.behaviour import Behaviour
from py_trees.common import Status
from pydantic import BaseModel

from jianmu.engine.answers import JsonObject
from jianmu.engine.limits import Usage
from jianmu.engine.mementos import dump_position, load_position
from jianmu.engine.migrations import migrate
from jianmu.engine.node import AsyncNode
from jianmu.engine.phases import REST, Phase
from jianmu.engine.programs import AT_REST, check_program, unfit, waiting_in
from jianmu.engine.record import Record
from jianmu.engine.recording import inner_managers
from jianmu.engine.runner import ReactiveRunner
from jianmu.engine.runrecord import RunRecord, StateRecord
from jianmu.engine.spots import rename_position, renamed
from jianmu.engine.state import StateManager
from jianmu.engine.tree import descend, fingerprint, path_of
from jianmu.errors import AgentBusyError, SetupError, StateError

S = TypeVar("S", bound=BaseModel)
UNFINISHED = ("suspended", "interrupted", "idle")
Build = Callable[[Any], Behaviour]  # Any: the user's schema


class Thread(Generic[S]):
    """The current thread of an agent.

    Args:
        runner: the tree and the state.
        version: of the state's schema.
        aliases: old paths and what they are called now.
        build: makes the tree for a state, where the tree is edited at run time.
    """

    def __init__(
        self, runner: ReactiveRunner[S], version: int | None, aliases: Mapping[str, str] | None, build: Build | None
    ) -> None:
        self.runner = runner
        self.thread_id: str | None = None
        self.standing = "new"
        self.error: dict[str, str | None] | None = None
        self.is_at_work = False
        self.rebuilt: Callable[[Behaviour], None] = lambda _: None
        self._version = version
        self._aliases = aliases or {}
        self._build = build
        self._is_loaded = False
        self._waiting: list[str] = []

    @property
    def result(self) -> Status:
        """What the thread's last run has ended with; INVALID if it gave no result."""
        return {"finished": Status.SUCCESS, "failed": Status.FAILURE}.get(self.standing, Status.INVALID)

    def on_revived(self) -> None:
        """Called when the tree stands where it was kept."""

    def settle(self, standing: str, error: BaseException | None = None) -> None:
        """Note how the thread stands after a call."""
        self.standing, self.is_at_work = standing, False
        self.error = None
        if error is not None:
            path = next((path for path, raised in self.runner.failures.errors if raised is error), None)
            self.error = {"type": type(error).__name__, "text": str(error), "path": path}

    async def restore(self, record: RunRecord) -> bool:
        """Take over a record, whose state may be of an older version; whether it has to be written anew.

        Raises:
            SchemaVersionError, TreeMismatchError: it does not fit; nothing was changed.
            StateWriteError: a value does not fit today's schema; nothing was changed.
            AgentBusyError: a coroutine is alive.
        """
        fit = self.fit(record)
        root = self._other_tree(fit)
        if root is None:
            self._check(fit)
        await self.leave()
        if root is not None:
            self._rebuild(root)
            self._check(fit)
        self._put(fit)
        return fit is not record or bool(self._names(record))

    def fit(self, record: RunRecord) -> RunRecord:
        """Return a record as today's version of the schema would have saved it."""
        return migrate(self.runner.manager.schema.model, record, self._version)

    def put(self, record: RunRecord) -> None:
        """Take over a record, where no coroutine is alive; see `restore`."""
        self._check(record)
        self._put(record)

    def _put(self, record: RunRecord) -> None:
        """Take over a record that fits, or leave all as it is."""
        go_back = self._bookmark()
        try:
            self._take_over(record)
        except Exception as error:
            go_back()
            if isinstance(error, StateError):
                error.add_note(
                    f"thread '{record.thread_id}' was saved with another schema: give version= and a @migration"
                )
            raise

    def _other_tree(self, record: RunRecord) -> Behaviour | None:
        """Return the tree that has to be built for a record, or None if today's will do."""
        if self._build is None or record.state is None or not unfit(self.runner.root, record, self._names(record)):
            return None
        manager = StateManager(self.runner.manager.schema.model)
        manager.load_checkpoint(vars(record.state))
        root: Any = self._build(manager.get())  # Any: the user may return what he likes
        if not isinstance(root, Behaviour):
            raise SetupError(f"build= returned {type(root).__name__}: it returns the root of the tree for a state")
        return root

    def _rebuild(self, root: Behaviour) -> None:
        """Have another tree in the place of this one, which is at rest."""
        self.runner.binder.bind(root)
        self.runner.root = self.runner.tree.root = root
        self.rebuilt(root)

    def put_back(self) -> None:
        """Put the tree of a run that was cut short to where it stood, as a load does."""
        if self.standing == "interrupted" and self.runner.root.status is not Status.RUNNING:
            self._reload(self._inner_states())

    def revive(self) -> None:
        """Put a parked tree back to its position and have the coroutines of RUNNING nodes enter again.

        Those that wait for an answer go on waiting.
        """
        self.put_back()
        self.on_revived()
        if not self._is_loaded:
            return
        self._is_loaded = False
        pending = self.runner.context.interaction.all_open()
        for node in descend(self.runner.root):
            activity = node.context.activity if isinstance(node, AsyncNode) else None
            if activity is not None and node.status is Status.RUNNING:
                activity.resume([record.id for record in pending if record.question.path == activity.path])

    def dump(self) -> JsonObject:
        """Return what is needed to go on elsewhere, as JSON; in the midst of a call, as a kill now would leave it."""
        runner, context = self.runner, self.runner.context
        is_on = runner.phase not in REST
        is_cut = runner.parked is not None and runner.root.status is not Status.RUNNING
        record = RunRecord(
            schema_version=self._version,
            fingerprint=fingerprint(runner.root),
            thread_id=self.thread_id or "",
            run=context.run,
            status="interrupted" if is_on else self.standing,
            error=None if is_on else self.error,
            state=StateRecord.model_validate(runner.manager.dump_checkpoint()),
            inner=self._inner_states(),
            position=runner.parked if is_cut else dump_position(runner.root),
            journal=context.journal.dump(),
            usage=context.usage,
            asked=context.asked,
        )
        record.keep_read(context.interaction.current())
        return record.dump()

    def _inner_states(self) -> dict[str, StateRecord]:
        """Return the states of agents inside of this one, by path."""
        found = inner_managers(self.runner.root)
        return {path: StateRecord.model_validate(manager.dump_checkpoint()) for path, manager in found}

    def _check(self, record: RunRecord) -> None:
        """Refuse a record that does not fit the tree."""
        self._refuse_busy()
        check_program(self.runner.root, record, self._names(record))

    def _refuse_busy(self) -> None:
        if self.runner.tasks.is_busy:
            raise AgentBusyError("coroutines of this agent are alive: `await agent.reset()` first, or leave its block")

    def _bookmark(self) -> Callable[[], None]:
        """Return what puts everything back to how it is now."""
        runner, context = self.runner, self.runner.context
        told: dict[str, Any] = {"run": context.run, "usage": context.usage, "asked": context.asked}
        told |= {"position": dump_position(runner.root), "journal": context.journal.dump()}
        before = RunRecord(fingerprint="", thread_id=self.thread_id or "", status="suspended", **told)
        before.keep_read(context.interaction.current())
        held = (self.thread_id, self.standing, self.error)
        parked, phase = runner.parked, runner.phase
        states = [manager.bookmark() for _, manager in ((None, runner.manager), *inner_managers(runner.root))]

        def go_back() -> None:
            self._take_over(before, is_own=True)
            for put_back in states:
                put_back()
            self.thread_id, self.standing, self.error = held
            runner.parked, runner.phase = parked, phase
            self._is_loaded = runner.root.status is Status.RUNNING

        return go_back

    def _take_over(self, record: RunRecord, *, is_own: bool = False) -> None:
        """Make a record the current thread; a record of its `own` has paths of today and no states."""
        names: Mapping[str, str] = {} if is_own else self._names(record)

        rename = partial(renamed, aliases=names) if names else str
        context = self.runner.context
        self._lay_down()
        self.start_over(record.thread_id, record.state, [one.renamed(rename) for one in record.records])
        context.run = context.events.run = record.run
        context.usage = record.usage
        context.asked = {rename(path): most for path, most in record.asked.items()}
        context.journal.load(record.journal, rename)
        self.standing, self.error = record.status, record.error
        if record.status in UNFINISHED:
            self.runner.parked = rename_position(record.position, names)
            self._waiting = [rename(path) for path in waiting_in(record)]
        self._reload({rename(path): state for path, state in record.inner.items()})
        if record.status == "suspended":
            self.runner.phase = Phase.SUSPENDED

    def _reload(self, inner: Mapping[str, StateRecord]) -> None:
        """Put the tree to the position that was parked; agents inside of it get the states given."""
        runner = self.runner
        meet = runner.context.ticker.meet

        def adopt(node: Behaviour) -> None:
            meet(node)
            manager = getattr(node, "inner_state", None)
            state = inner.get(path_of(node)) if manager is not None else None
            if manager is not None and state is not None:
                manager.load_checkpoint(vars(state))

        load_position(runner.root, runner.parked, keeps=keeps_running, adopt=adopt, waiting=self._waiting)
        self._is_loaded = runner.parked is not None

    async def leave(self) -> None:
        """Take the tree off the current thread; what is suspended, or was loaded and not run, has nothing to halt."""
        if (self._is_loaded or self.runner.phase is Phase.SUSPENDED) and not self.runner.tasks.is_busy:
            self._lay_down()
        else:
            await self.runner.abandon(withdraw=False)

    def _lay_down(self) -> None:
        """Make all nodes INVALID; no callback is called."""
        runner = self.runner
        for activity in [node.context.activity for node in descend(runner.root) if isinstance(node, AsyncNode)]:
            if activity is not None:
                activity.forget()
        load_position(runner.root, None)
        runner.context.deadlines.clear()
        runner.phase = Phase.IDLE

    def start_over(self, thread_id: str, state: StateRecord | None = None, questions: Sequence[Record] = ()) -> None:
        """Make a new thread the current one, with what it has of state and questions."""
        runner, context = self.runner, self.runner.context
        if state is not None:
            runner.manager.load_checkpoint(vars(state))
        if self.thread_id is not None:
            if state is None:
                runner.manager.initialize()
            for _, manager in inner_managers(runner.root):
                manager.initialize()
        context.interaction.load([*questions])
        context.journal.clear()
        context.usage, context.asked = Usage(), {}
        context.run = context.events.run = 0
        context.events.thread_id = context.thread_id = self.thread_id = thread_id
        self.standing, self.error, runner.parked, self._waiting = "new", None, None, []
        self._is_loaded = False

    def _names(self, record: RunRecord) -> Mapping[str, str]:
        """Return the aliases that a record needs: none if it was saved with today's tree."""
        if not self._aliases or record.status in AT_REST:
            return {}
        return {} if record.fingerprint == fingerprint(self.runner.root) else self._aliases


def keeps_running(node: Any) -> bool:  # Any: any node
    """Whether a RUNNING node without a memento stays RUNNING when it is loaded: its work is entered again."""
    return isinstance(node, AsyncNode)
