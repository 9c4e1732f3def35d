"""The sandboxes of threads: opened when they are needed, one for each thread, and released at the end of the run."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from py_trees.common import Status

from jianmu.engine.context import NodeContext
from jianmu.engine.node import AsyncNode
from jianmu.engine.tree import path_of
from jianmu.errors import RunError, SetupError, StateWriteError
from jianmu.nodes.tools import ToolExecutor
from jianmu.thread.items import SandboxRef
from jianmu.thread.part import Part, nodes_around
from jianmu.thread.paths import ThreadFolders
from jianmu.thread.sandbox import Sandbox, SandboxLimits, as_shown
from jianmu.thread.sandboxlocal import LocalSandbox, check_root

FIELD = "sandbox"


class Sandboxes:
    """Opens the sandbox of a thread; whoever asks for that of the same thread gets the same one.

    Release it when the run ends: `Finally("run", tree, sandboxes.release)`.

    Args:
        make: returns the sandbox of a thread, by its id, without starting it.
    """

    def __init__(self, make: Callable[[str], Sandbox]) -> None:
        self._make = make
        self._held: dict[str, Sandbox] = {}

    async def of(self, context: NodeContext) -> Sandbox:
        """Return the sandbox of the thread that runs, started; the field `sandbox`, where there is one, has its id.

        Raises:
            RunError: the field has the id of another sandbox.
            OSError: it cannot be started; the error has virtual paths.
        """
        thread = context.thread_id
        sandbox = self._held.get(thread) or self._held.setdefault(thread, self._make(thread))
        self._note(context, sandbox)
        try:
            await sandbox.start()
        except OSError as error:
            raise as_shown(error, sandbox.mask) from None
        return sandbox

    async def release(self, context: NodeContext) -> None:
        """End what runs in the sandbox of the thread; the field keeps its id. The cleanup of a Finally."""
        sandbox = self._held.pop(context.thread_id, None)
        if sandbox is not None:
            await sandbox.release()

    def held(self) -> tuple[str, ...]:
        """Return the ids of the threads whose sandboxes were opened and not released."""
        return tuple(self._held)

    def _note(self, context: NodeContext, sandbox: Sandbox) -> None:
        """Write the id, if that is new."""
        if FIELD not in context.manager.schema.fields:
            return
        held: SandboxRef | None = context.manager.read(FIELD)
        if held is not None and held.sandbox_id == sandbox.id:
            return
        try:
            context.write_state({FIELD: SandboxRef(sandbox_id=sandbox.id)})
        except StateWriteError as error:
            hint = "a fork is made by fork_thread(agent, id), which leaves the sandbox of the other thread out"
            raise RunError(f"node '{context.path}' has another sandbox than its thread: {error}; {hint}") from error


def local_sandboxes(
    folders: ThreadFolders,
    *,
    limits: SandboxLimits | None = None,
    env: Mapping[str, str] | None = None,
    separate: bool = True,
) -> Sandboxes:
    """Return the sandboxes of threads on this machine; the options are those of `LocalSandbox`.

    Raises:
        SetupError: the path of the folders has signs that a shell reads.
    """
    check_root(folders)
    return Sandboxes(lambda thread: LocalSandbox(folders, thread, limits=limits, env=env, separate=separate))


class OpenSandbox(Part, AsyncNode):
    """Open the sandbox of the thread now; without this node the first tool that needs it does.

    It comes before what carries out the calls of the sandbox's tools.

    Reads and writes `sandbox`, where the schema has it.
    SUCCESS when it is started; RUNNING until then.
    Halting leaves it to the Finally above, which releases it.

    Args:
        name: the node's name.
        sandboxes: what opens it.
    """

    def __init__(self, name: str | None = None, *, sandboxes: Sandboxes) -> None:
        super().__init__(name)
        if not isinstance(sandboxes, Sandboxes):  # pyright: ignore[reportUnnecessaryIsInstance]  # callers err
            text = f'write OpenSandbox("{self.name}", sandboxes=local_sandboxes(folders)), not sandboxes={sandboxes!r}'
            raise SetupError(text)
        self.sandboxes = sandboxes

    def on_bound(self) -> None:
        """Refuse a tree in which all that could use the sandbox comes earlier, and has opened it."""
        super().on_bound()
        around = nodes_around(self)
        users = [place for place, node in enumerate(around) if isinstance(node, ToolExecutor) and _works_inside(node)]
        if users and users[-1] < around.index(self):
            path = path_of(around[users[0]])
            raise self._refused(f"comes after '{path}', whose tools have opened the sandbox: put it before that node")

    async def update_async(self) -> Status:
        """Open it."""
        await self.sandboxes.of(self.context)
        return Status.SUCCESS


def _works_inside(node: ToolExecutor) -> bool:
    """Whether tools of a node are those of a sandbox; see `sandbox_tools`."""
    owners = (getattr(tool.fn, "__self__", None) for tool in node.tools.tools)
    return any(isinstance(getattr(owner, "sandboxes", None), Sandboxes) for owner in owners)
