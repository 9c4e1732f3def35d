"""The options of a ready assistant: what they mean, and what they may be."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Literal, TypeAlias, TypedDict, cast  # Any: whatever a caller gives

from py_trees.behaviour import Behaviour
from py_trees.visitors import VisitorBase

from jianmu.engine.arguments import OPTIONS, Shape, check
from jianmu.engine.checkpoint import Checkpointer
from jianmu.engine.clock import Clock
from jianmu.engine.humans import Human
from jianmu.engine.limits import Limits
from jianmu.errors import SetupError
from jianmu.model.base import ChatModel, Settings
from jianmu.nodes import Skill
from jianmu.nodes.base import Number, is_async, is_number, whole
from jianmu.nodes.llm import Tools
from jianmu.nodes.output import Output
from jianmu.nodes.replies import Prompt
from jianmu.prebuilt.react import ActOptions
from jianmu.thread.folds import MAX_DELEGATIONS
from jianmu.thread.paths import ThreadFolders
from jianmu.thread.sandboxes import Sandboxes
from jianmu.thread.tasklimit import COUNT
from jianmu.tool.toolbox import Toolbox

Place: TypeAlias = str | os.PathLike[str]
"""A path of this machine."""


class AgentOptions(TypedDict, total=False):
    """The options of an Agent, apart from its tree and its state; see there."""

    deps: Any
    store: Checkpointer | None
    clock: Clock | None
    limits: Limits | None
    setup: Mapping[str, Any] | None
    visitors: Iterable[VisitorBase]
    human: Human | None
    aliases: Mapping[str, str] | None
    version: int | None
    build: Callable[[Any], Behaviour] | None
    poll_answers: float
    max_block: float
    durability: Literal["sync", "async", "exit"]
    on_new_input: Literal["refuse", "queue", "withdraw"]
    on_stall: Literal["wait", "raise"]
    poll_interval: float
    min_interval: float
    halt_timeout: float


class ThreadOptions(AgentOptions, total=False):
    """The options of a ready assistant; those of an Agent as well.

    Attributes:
        system: the system prompt, or a function of the snapshot that returns it. Where files are is told after it, if
            there are tools of a sandbox that read or write them; of tools of your own, say so here.
        settings: how the model is to answer.
        output: the type that its answer has to have; it is in `structured_response` then.
        max_rounds: how many replies a run may have, 50 by default; None: as many as it takes.
        act: options of the node that carries out the calls.
        skills: folders of instructions, or `Skill(...)` nodes.
        deferred: further tools, of which the model knows the names only until it searches for them.
        plan: whether it keeps a plan, and is sent back when it ends before that is done; it does by default.
        clarify: whether it can ask the person, which suspends the run; it can by default.
        title: whether threads get titles, from their first text; or the model that makes them. They do by default.
        folders: where the folders of threads are, ".jianmu/threads" by default; None: no files, and no sandbox.
        sandbox: whether programs run, on this machine, as by default; or the `Sandboxes` in which they do.
        eager: whether the sandbox is opened at the start of each run, and not when a tool needs it.
        uploads: whether it is told of the files that people send, as by default; see `save_upload`.
        present: whether it can show files to people, as by default.
        compact: whether requests have what is old of a conversation in short, said by its own model, as by default; or
            the model that does so.
        context_tokens: from how many tokens of conversation on, 60,000 by default.
        vision: whether it can look at images, which takes a model that can; it does not by default.
        output_chars: how many characters of a result it is shown, 12,000 by default; the whole is in a file that it
            can read. None: a result is cut where its tool says.
        loop_guard: whether it is kept from making the same call over and over, as by default.
        repeatable: names of tools that it may call the same way again, such as one that looks how far a job is.
        tasks_at_once: how many tasks it may give at a time, 3 by default, where `tools` has `task(...)`.
        tasks_per_run: how many tasks a run may give, 20 by default.
    """

    system: Prompt
    settings: Settings | None
    output: Any
    max_rounds: Number | None
    act: ActOptions | None
    skills: Sequence[Place | Skill]
    deferred: Tools
    plan: bool
    clarify: bool
    title: bool | ChatModel | str
    folders: ThreadFolders | Place | None
    sandbox: bool | Sandboxes
    eager: bool
    uploads: bool
    present: bool
    compact: bool | ChatModel | str
    context_tokens: Number
    vision: bool
    output_chars: Number | None
    loop_guard: bool
    repeatable: Sequence[str]
    tasks_at_once: Number
    tasks_per_run: Number


def _is(*kinds: type) -> Callable[[Any], bool]:
    def fits(value: Any) -> bool:
        return isinstance(value, kinds)

    return fits


def _is_tools(value: Any) -> bool:  # Any: see above
    return value is None or isinstance(value, Toolbox) or (isinstance(value, Iterable) and not isinstance(value, str))


def _is_listed(*kinds: type) -> Callable[[Any], bool]:
    def fits(value: Any) -> bool:  # Any: see above
        is_list = isinstance(value, Sequence | AbstractSet) and not isinstance(value, str | bytes)
        return is_list and all(isinstance(one, kinds) for one in cast("Iterable[object]", value))

    return fits


def _is_act(value: Any) -> bool:  # Any: see above
    return value is None or (isinstance(value, Mapping) and {*value} <= ActOptions.__annotations__.keys())


def _number(shape: Shape, line: str, *, or_none: bool = False) -> Shape:
    """Return the shape of a number that may follow the snapshot."""

    def fits(value: Any) -> bool:  # Any: see above
        return (value is None and or_none) or (not is_async(value) if callable(value) else shape[0](value))

    return fits, f"{shape[1]}{', None' if or_none else ''}, or a function of the snapshot: {line}"


def _is_switch_or_model(value: Any) -> bool:  # Any: see above
    return isinstance(value, (bool, str)) or callable(getattr(value, "stream", None))


def _is_output(value: Any) -> bool:  # Any: see above
    try:
        Output(str if value is None else value, "output=...")
    except SetupError:
        return False
    return True


LEAST = 200
"""Characters in which a result can say where the rest of it is."""
_CHARS: Shape = (lambda value: is_number(value, int) and value >= LEAST), f"a whole number from {LEAST} up"
_AT_ONCE: Shape = (lambda value: COUNT[0](value) and value > 0), f"a whole number from 1 to {MAX_DELEGATIONS}"
_SWITCH: Shape = (_is(bool), "True or False")
_LINE = "local_sandboxes(ThreadFolders(...), limits=SandboxLimits(seconds=120))"
_SHAPES: dict[str, Shape] = {
    "tools": (_is_tools, "a Toolbox, or a list of tools: tools=[search]"),
    "deferred": (_is_tools, "a Toolbox, or a list of tools: deferred=[search]"),
    **dict.fromkeys(("plan", "clarify", "eager", "uploads", "present", "vision", "loop_guard"), _SWITCH),
    "skills": (_is_listed(str, os.PathLike, Skill), 'a list of folders: skills=["./skills/writing"]'),
    "repeatable": (_is_listed(str), 'a list of names: repeatable=["status"]'),
    "act": (_is_act, f'a dict of {", ".join(ActOptions.__annotations__)}: act={{"limit": 2}}'),
    "max_rounds": _number(whole(1), "max_rounds=20", or_none=True),
    "context_tokens": _number(whole(1), "context_tokens=100_000"),
    "output": (_is_output, "a type of answer, that can be sent as JSON: output=Report"),
    "output_chars": _number(_CHARS, "output_chars=8_000", or_none=True),
    "tasks_at_once": _number(_AT_ONCE, "tasks_at_once=3"),
    "tasks_per_run": _number(COUNT, "tasks_per_run=20"),
    "sandbox": (_is(bool, Sandboxes), f"True, False, or sandboxes of your own: sandbox={_LINE}"),
    "folders": (_is(str, os.PathLike, ThreadFolders, type(None)), 'a folder or None: folders="./threads"'),
    "title": (_is_switch_or_model, 'True, False or a model: title="openai:x"'),
    "compact": (_is_switch_or_model, 'True, False or a model: compact="openai:x"'),
}
"""What each option takes that is not checked by its part, or whose part may be switched off."""


def check_options(given: Mapping[str, Any]) -> None:
    """Refuse options that cannot be, and those that there are not.

    Raises:
        SetupError: with what to write.
    """
    anything: Shape = ((lambda _: True), "anything")
    check({**dict.fromkeys(ThreadOptions.__annotations__, anything), **OPTIONS, **_SHAPES}, given)
    folders, sandbox = given.get("folders", ""), given.get("sandbox", True)
    here = 'give folders="./threads"'
    alone = (
        (given.get("eager") and sandbox is False, "eager=True) has no sandbox to open: give sandbox=True"),
        (given.get("eager") and folders is None, f"eager=True) has no sandbox to open: {here}"),
        (isinstance(sandbox, Sandboxes) and folders is None, f"sandbox=Sandboxes(...)) works in no folders: {here}"),
        (given.get("vision") and folders is None, f"vision=True) has no images to look at: {here}"),
    )
    for is_alone, what in alone:
        if is_alone:
            raise SetupError(f"thread_agent({what} as well")
