"""What the options of a ready assistant may be, and what becomes of those that stand for something."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias  # Any: whatever a caller gives

from jianmu.engine.arguments import OPTIONS, Shape, check
from jianmu.errors import SetupError
from jianmu.nodes import Skill
from jianmu.thread.paths import ThreadFolders
from jianmu.thread.sandboxes import Sandboxes, local_sandboxes
from jianmu.tool.toolbox import Toolbox

Place: TypeAlias = str | os.PathLike[str]
"""A path of this machine."""
Folders: TypeAlias = ThreadFolders | Place | None
FOLDERS = ".jianmu/threads"


def _is(*kinds: type) -> Callable[[Any], bool]:
    def fits(value: Any) -> bool:
        return isinstance(value, kinds)

    return fits


def _is_tools(value: Any) -> bool:  # Any: see above
    return value is None or isinstance(value, Toolbox) or (isinstance(value, Iterable) and not isinstance(value, str))


_SWITCH: Shape = (_is(bool), "True or False")
_LINE = "local_sandboxes(ThreadFolders(...), limits=SandboxLimits(seconds=120))"
SHAPES: dict[str, Shape] = {
    "tools": (_is_tools, "a Toolbox, or a list of tools: tools=[search]"),
    "deferred": (_is_tools, "a Toolbox, or a list of tools: deferred=[search]"),
    "plan": _SWITCH,
    "eager": _SWITCH,
    "skills": (lambda value: not _is(str, os.PathLike)(value), 'a list of folders: skills=["./skills/writing"]'),
    "sandbox": (_is(bool, Sandboxes), f"True, False, or sandboxes of your own: sandbox={_LINE}"),
    "folders": (_is(str, os.PathLike, ThreadFolders, type(None)), 'a folder or None: folders="./threads"'),
    "title": (lambda value: not _is(int, float)(value) or _is(bool)(value), 'True, False or a model: title="openai:x"'),
}
"""What each option takes that is not checked by the part that it is for."""


def check_options(given: Mapping[str, Any], agent: Mapping[str, Any]) -> None:
    """Refuse options that cannot be, and those that there are not.

    Args:
        given: the options of the assistant's parts.
        agent: what is left for the Agent.

    Raises:
        SetupError: with what to write.
    """
    check(SHAPES, {name: value for name, value in given.items() if name in SHAPES})
    anything: Shape = ((lambda _: True), "anything")
    check({**dict.fromkeys((*given, "deps"), anything), **OPTIONS}, agent)
    needs = (("eager=True", given["eager"] is True and given["sandbox"] is False, "sandbox=True"),
             ("eager=True", given["eager"] is True and given["folders"] is None, 'folders="./threads"'),
             ("sandbox=Sandboxes(...)", isinstance(given["sandbox"], Sandboxes) and given["folders"] is None,
              'folders="./threads"'))  # fmt: skip
    for option, is_alone, other in needs:
        if is_alone:
            raise SetupError(f"thread_agent({option}) needs what it works in: give {other} as well")


def folders_of(given: Folders) -> ThreadFolders | None:
    """Return where the folders of threads are."""
    return given if given is None or isinstance(given, ThreadFolders) else ThreadFolders(given)


def sandboxes_of(given: bool | Sandboxes, folders: ThreadFolders | None) -> Sandboxes | None:
    """Return where programs run, or None: nowhere."""
    if folders is None or given is False:
        return None
    return local_sandboxes(folders) if given is True else given


def skill_of(given: Place | Skill) -> Skill:
    """Return a skill; its node is named after its folder."""
    return given if isinstance(given, Skill) else Skill(Path(given).name or "skill", given)
