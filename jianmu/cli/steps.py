"""`jianmu step`: one tick a line."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from functools import partial
from typing import Any  # Any: JSON, agents of every schema

from py_trees.behaviour import Behaviour
from py_trees.common import Status
from py_trees.visitors import VisitorBase
from pydantic_core import to_jsonable_python
from rich.cells import cell_len, set_cell_size

from jianmu.agent import Agent
from jianmu.cli.faults import Exit, UsageError
from jianmu.cli.load import load_agent, read_input
from jianmu.cli.loop import in_loop
from jianmu.draw.outline import MARKS, one_line
from jianmu.engine.state import StateChange
from jianmu.engine.tree import path_of

AnyAgent = Agent[Any]
MOST = 100
LONGEST = 60


@dataclass
class Watch(VisitorBase):
    """Notes what one tick visits and changes."""

    ran: list[Behaviour] = field(default_factory=list[Behaviour])
    changed: dict[str, str | None] = field(default_factory=dict[str, str | None])

    def __post_init__(self) -> None:
        """Begin as a visitor of the nodes that are ticked."""
        super().__init__(full=False)

    def run(self, behaviour: Behaviour) -> None:
        """Note a node; of composites the children tell more."""
        self.ran.append(behaviour)

    def note(self, change: StateChange) -> None:
        """Note the fields whose value differs, with their writer."""
        self.changed.update(dict.fromkeys(change.changed, change.writer))

    def clear(self) -> None:
        """Begin a tick."""
        self.ran.clear()
        self.changed.clear()


def step_agent(target: str, given: str | None, ticks: int | None, *, is_json: bool) -> Exit:
    """Tick an agent's tree and show each tick on a line."""
    if ticks is not None and ticks < 1:
        raise UsageError(f"--ticks {ticks}: at least one")
    fields = read_input(given)
    stdout = sys.stdout
    with redirect_stdout(sys.stderr):
        agent = load_agent(target)
        return in_loop(partial(_step, agent, fields, ticks, is_json=is_json, stdout=stdout))


async def _step(
    agent: AnyAgent, fields: Mapping[str, Any] | None, ticks: int | None, *, is_json: bool, stdout: Any
) -> Exit:
    watch = Watch()
    agent.tree.visitors.append(watch)
    agent.state_manager.subscribe(watch.note)
    show = _as_json if is_json else partial(_as_text, width=_width(stdout))
    async with agent:
        for number in range(1, (ticks or MOST) + 1):
            watch.clear()
            await agent.step(fields, settle=True)
            fields = None
            print(show(agent, number, watch), file=stdout, flush=True)
            if ticks is None and _is_over(agent):
                break
    return _code(agent)


def _is_over(agent: AnyAgent) -> bool:
    return agent.status is not Status.RUNNING or bool(agent.interaction.pending)


def _code(agent: AnyAgent) -> Exit:
    """Return the exit code, having told what waits."""
    for question in agent.interaction.pending:
        print(one_line(f"waits: {question.path}: {' '.join(question.message.split())}"), file=sys.stderr)
    if agent.interaction.pending:
        return Exit.SUSPENDED
    return Exit.FAILURE if agent.status is Status.FAILURE else Exit.SUCCESS


def _width(stdout: Any) -> int | None:
    """Return the columns of the terminal, or None where lines have no end."""
    return shutil.get_terminal_size().columns if stdout.isatty() else None


def _values(agent: AnyAgent, watch: Watch) -> dict[str, Any]:
    """Return the fields that changed, as JSON; the runtime's own left out."""
    names = [name for name in watch.changed if not name.startswith(("interaction.", "journal."))]
    values = {name: agent.state_manager.read(name) for name in names}
    return to_jsonable_python(values, fallback=str, inf_nan_mode="null")


def _as_json(agent: AnyAgent, number: int, watch: Watch) -> str:
    """Return a tick as a JSON object."""
    changed = _values(agent, watch)
    return json.dumps(
        {
            "tick": number,
            "status": agent.status.name,
            "ran": [{"path": path_of(node), "status": node.status.name} for node in watch.ran],
            "changed": changed,
            "writers": {name: watch.changed[name] for name in changed},
            "waits": [question.path for question in agent.interaction.pending],
        }
    )


def _as_text(agent: AnyAgent, number: int, watch: Watch, width: int | None) -> str:
    """Return a tick as a line: its number, the tree's mark, the leaves that ran, and what changed."""
    leaves = " ".join(f"{MARKS[node.status]} {node.name}" for node in watch.ran if not node.children)
    changed = ", ".join(f"{name}={_short(value)}" for name, value in _values(agent, watch).items())
    line = one_line(f"{number:>3} {MARKS[agent.status]}  {leaves}{f'  | {changed}' if changed else ''}")
    return line if width is None or cell_len(line) <= width else f"{set_cell_size(line, width - 1)}…"


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
