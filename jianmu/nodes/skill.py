"""Skill: a folder of instructions that a model reads when it needs them.

1. The model is told names and descriptions; the body and the files come through the tool `read_skill`, when it asks.
2. Nothing outside of the folder is read: `..`, absolute paths and links that lead out are refused.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, cast  # Any: functions of the user's

from py_trees.behaviour import Behaviour
from py_trees.common import Status

from jianmu.engine.node import Node
from jianmu.errors import SetupError
from jianmu.nodes import frontmatter
from jianmu.nodes.base import around
from jianmu.tool.base import NAME, Tool
from jianmu.tool.toolbox import Toolbox

Given: TypeAlias = Toolbox | Iterable[Tool | Toolbox | Callable[..., Any]]

FILE = "SKILL.md"
TOOL = "read_skill"
MOST = 200
"""Names of files that the model is told of one skill."""
LONGEST = 1024
"""Characters of a description."""
_KNOWN = "_box_with_skills"
PROMPT = "You have skills: instructions for certain tasks. Before such a task, read its skill with the tool read_skill."


class Skill(Node):
    """Make a folder of instructions, and tools, available to the nodes that come after it.

    `SKILL.md` in the folder has a front matter with `name` and `description`, then the instructions. AgentLLMNode tells
    the model of each skill that stands before it, or before a node above it, among the same children, and offers the
    tool `read_skill` and the skill's own `tools`; a ToolExecutor in such a place carries them out.
    SUCCESS at once; whether it is ticked does not matter.

    Args:
        name: the node's name.
        folder: where `SKILL.md` is.
        tools: tools that belong to the skill.
        root: a folder that `folder` has to lie in.

    Raises:
        SetupError: the folder has no SKILL.md that can be read, or lies outside of `root`.
    """

    def __init__(
        self,
        name: str,
        folder: str | os.PathLike[str],
        *,
        tools: Given = (),
        root: str | os.PathLike[str] | None = None,
    ) -> None:
        super().__init__(name)
        call = f'{type(self).__name__}("{name}", "{os.fspath(folder)}")'
        self.folder = Path(folder).resolve()
        if root is not None and not self.folder.is_relative_to(Path(root).resolve()):
            raise SetupError(f"{call}: the folder lies outside of root='{os.fspath(root)}'")
        try:
            found, _ = frontmatter.split(self._inside(FILE).read_text("utf-8"))
            self.title, self.description = _checked(found)
        except (OSError, ValueError) as error:
            raise SetupError(f"{call}: {FILE} cannot be used: {_said(error)}") from error
        self.tools = tools if isinstance(tools, Toolbox) else Toolbox(*tools)

    async def open(self) -> None:
        """Open its tools."""
        await self.tools.open()

    async def close(self) -> None:
        """Close its tools."""
        await self.tools.close()

    def update(self) -> Status:
        """Succeed."""
        return Status.SUCCESS

    def read(self, file: str | None = None) -> str:
        """Return the instructions with the names of the files, or the text of one file.

        Raises:
            ValueError: there is no such file in the folder, or it is no text; the text says so, for the model.
        """
        try:
            if file is not None:
                return self._inside(file).read_text("utf-8")
            _, body = frontmatter.split(self._inside(FILE).read_text("utf-8"))
        except UnicodeDecodeError:
            raise ValueError(f"'{file}' is no text") from None
        except OSError:
            raise ValueError(f"the skill '{self.title}' has no file '{file or FILE}' that can be read") from None
        files = [*self._files()]
        told = [*files[:MOST], *([f"... and {len(files) - MOST} more"] if len(files) > MOST else [])]
        return "\n".join([body, "", "Files of this skill:", *(f"- {one}" for one in told)]) if told else body

    def _inside(self, file: str) -> Path:
        """Return where a file of the folder is."""
        if "\0" not in file and not Path(file).is_absolute() and ".." not in Path(file).parts:
            path = (self.folder / file).resolve()
            if path.is_relative_to(self.folder) and path.is_file():
                return path
        raise FileNotFoundError(file)

    def _files(self) -> Iterator[str]:
        """Yield the names of the other files."""
        for top, folders, names in os.walk(self.folder):
            folders[:] = sorted(one for one in folders if not one.startswith("."))
            for path in (Path(top, name) for name in sorted(names) if not name.startswith(".")):
                place = path.relative_to(self.folder).as_posix()
                if place != FILE and path.resolve().is_relative_to(self.folder):
                    yield place


def skills_for(node: Behaviour) -> list[Skill]:
    """Return the skills that stand before a node, or before one above it, among the same children; outermost first.

    Those outside of an agent used as a node are not for the nodes inside.
    """
    found: list[Skill] = []
    child = node
    for above in around(node):
        if above.children[0] is not child:
            before = above.children[: above.children.index(child)]
            found[:0] = [cast("Skill", one) for one in before if Skill in type(one).__mro__]
        child = above
    return found


def with_skills(node: Behaviour, tools: Toolbox, skills: Sequence[Skill] | None = None) -> Toolbox:
    """Return a node's tools and those of its skills: the same box as long as these are the same."""
    skills = skills_for(node) if skills is None else skills
    if not skills:
        return tools
    known: _Known | None = vars(node).get(_KNOWN)
    if known is None or known.tools is not tools or known.skills != skills:
        box = Toolbox(tools, _reader(skills), *(one.tools for one in skills))
        known = vars(node)[_KNOWN] = _Known(skills, tools, box)
    return known.box


class _Known(NamedTuple):
    """A box that was made for a node."""

    skills: Sequence[Skill]
    tools: Toolbox
    box: Toolbox


def told_of_skills(skills: Sequence[Skill], prompt: str) -> str:
    """Return a system prompt that tells of skills."""
    lines = [PROMPT, *(f"- {one.title}: {' '.join(one.description.split())}" for one in skills)] if skills else []
    return "\n\n".join(part for part in (prompt, "\n".join(lines)) if part) if lines else prompt


def _reader(skills: Sequence[Skill]) -> Tool:
    """Return the tool that reads these skills."""
    by_name: dict[str, Skill] = {}
    for one in skills:
        other = by_name.setdefault(one.title, one)
        if other.folder != one.folder:
            raise SetupError(f"two skills are named '{one.title}': in {other.folder} and in {one.folder}")

    def read_skill(skill: str, file: str | None = None) -> str:
        """Read the instructions of a skill, or one of its files.

        Args:
            skill: the skill's name.
            file: the file's name, as the instructions have it; without it the instructions are read.
        """
        if skill not in by_name:
            raise ValueError(f"there is no skill '{skill[:64]}'; there are: {', '.join(by_name)}")
        return by_name[skill].read(file)

    return Tool(read_skill, name=TOOL, idempotent=True)


def _checked(found: dict[str, str | None]) -> tuple[str, str]:
    """Return name and description of a front matter."""
    name, description = (found.get(key) for key in ("name", "description"))
    if name is None or NAME.fullmatch(name) is None:
        raise ValueError("its front matter needs a line name: of 1 to 64 letters, digits, _ or -")
    if description is None or not 0 < len(description.strip()) <= LONGEST:
        raise ValueError(f"its front matter needs a line description: of 1 to {LONGEST} characters")
    return name, description.strip()


def _said(error: Exception) -> str:
    return "there is no such file in the folder" if isinstance(error, OSError) else str(error)
