"""The tools that work in the sandbox of the thread."""

from __future__ import annotations

from collections.abc import Sequence

from jianmu.engine.context import NodeContext
from jianmu.errors import SetupError
from jianmu.thread.files import AREAS, VIRTUAL, Entry, text_of
from jianmu.thread.sandbox import EndedBy, Ran
from jianmu.thread.sandboxes import Sandboxes
from jianmu.tool.base import Tool
from jianmu.tool.toolbox import Toolbox
from jianmu.tool.types import ToolResult

MOST = 200
"""Lines that a list has."""
SHOWN = 40_000
"""Characters of a file that are shown at once."""
WORKSPACE = f"{VIRTUAL}/{AREAS[0]}"
_ENDED: dict[EndedBy, str] = {
    "time": "it ran longer than it may",
    "memory": "its processes had more memory than they may",
    "processes": "it had more processes than it may",
    "output": "it wrote more than it may; let it write to a file",
    "released": "the sandbox was released",
    "lost": "what watched it was killed",
}


def sandbox_tools(sandboxes: Sandboxes) -> Toolbox:
    """Return `bash, python, read_file, write_file, str_replace, ls, glob, grep`, which open the sandbox by need.

    `box.only("read_file", "ls")` has fewer; `with_options(requires_approval=True)` asks a person first.

    Raises:
        SetupError: these are no sandboxes.
    """
    if not isinstance(sandboxes, Sandboxes):  # pyright: ignore[reportUnnecessaryIsInstance]  # callers err
        raise SetupError(f"write sandbox_tools(local_sandboxes(folders)), not sandbox_tools({sandboxes!r})")
    made = _Tools(sandboxes)
    writing = (made.bash, made.python, made.write_file, made.str_replace)
    reading = (made.read_file, made.ls, made.glob, made.grep)
    tools = {one.name: one for one in (*map(Tool, writing), *(Tool(one, idempotent=True) for one in reading))}
    order = ("bash", "python", "read_file", "write_file", "str_replace", "ls", "glob", "grep")
    return Toolbox(*(tools[name] for name in order))


class _Tools:
    def __init__(self, sandboxes: Sandboxes) -> None:
        self.sandboxes, self._of = sandboxes, sandboxes.of

    async def bash(self, command: str, context: NodeContext, seconds: float | None = None) -> ToolResult:
        """Run a shell command in /mnt/user-data/workspace. Whatever it starts ends with it.

        Args:
            command: the command.
            context: of the node that calls.
            seconds: after how many it is ended.
        """
        return shown(await (await self._of(context)).bash(command, seconds=seconds))

    async def python(self, code: str, context: NodeContext, seconds: float | None = None) -> ToolResult:
        """Run a Python program in /mnt/user-data/workspace and return what it prints.

        Args:
            code: the program.
            context: of the node that calls.
            seconds: after how many it is ended.
        """
        return shown(await (await self._of(context)).python(code, seconds=seconds))

    async def read_file(self, path: str, context: NodeContext, start: int = 1, end: int | None = None) -> str:
        """Read a text file.

        Args:
            path: the file, /mnt/user-data/...
            context: of the node that calls.
            start: the first line, from 1.
            end: the last line; without it, to the end.
        """
        sandbox = await self._of(context)
        text = sandbox.mask(text_of(await sandbox.read_file(path), path))
        return excerpt(text, start, end)

    async def write_file(self, path: str, content: str, context: NodeContext, append: bool = False) -> str:
        """Write a text file; folders are made as needed.

        Args:
            path: the file, /mnt/user-data/...
            context: of the node that calls.
            content: the text.
            append: whether it goes to the end of the file, not in the place of it.
        """
        data = content.encode()
        await (await self._of(context)).write_file(path, data, append=append)
        return f"{'appended' if append else 'wrote'} {len(data)} bytes"

    async def str_replace(self, path: str, old: str, new: str, context: NodeContext, all: bool = False) -> str:
        """Replace a text in a file. It must be there exactly once, unless `all` is true.

        Args:
            path: the file, /mnt/user-data/...
            context: of the node that calls.
            old: the text as it stands there, to the space.
            new: the text that takes its place.
            all: whether every occurrence is replaced.
        """
        sandbox = await self._of(context)
        text = text_of(await sandbox.read_file(path), path)
        if old not in text:  # a real path in the file was shown as a virtual one
            old, new = sandbox.expand(old), sandbox.expand(new)
        count = await sandbox.str_replace(path, old, new, every=all)
        return "replaced once" if count == 1 else f"replaced {count} times"

    async def ls(self, context: NodeContext, path: str = VIRTUAL, depth: int = 2) -> str:
        """List what is in a folder.

        Args:
            context: of the node that calls.
            path: the folder.
            depth: how many folders deep.
        """
        return listed(await (await self._of(context)).ls(path, max(depth, 1)))

    async def glob(self, pattern: str, context: NodeContext, path: str = WORKSPACE) -> str:
        """Find files and folders by a pattern such as **/*.py.

        Args:
            pattern: the pattern, from the folder on.
            context: of the node that calls.
            path: the folder.
        """
        return listed(await (await self._of(context)).glob(pattern, path))

    async def grep(self, pattern: str, context: NodeContext, path: str = WORKSPACE, glob: str = "**") -> str:
        """Find lines of text files by a regular expression.

        Args:
            pattern: the regular expression, as Python has them.
            context: of the node that calls.
            path: a folder, or one file.
            glob: which files of the folder, such as **/*.py.
        """
        found = await (await self._of(context)).grep(pattern, path, glob, MOST)
        return _lines(found) or "nothing found"


def shown(ran: Ran) -> ToolResult:
    """Return what came of a program, for the model."""
    notes = [f"[exit code {ran.code}]"] if ran.code and ran.ended_by is None else []
    notes += [f"[ended: {_ENDED[ran.ended_by]}]"] if ran.ended_by else []
    text = "\n".join([*([ran.output.rstrip("\n")] if ran.output.strip() else []), *notes])
    return ToolResult(call_id="", content=text or "(no output)", is_error=ran.ended_by is not None)


def excerpt(text: str, start: int, end: int | None) -> str:
    """Return lines of a text, with a note where some are left out."""
    lines = text.splitlines(keepends=True)
    first, last = max(start, 1), len(lines) if end is None else min(end, len(lines))
    size, kept = 0, list[str]()
    for line in lines[first - 1 : last]:
        size += len(line)
        if size > SHOWN and kept:
            break
        kept.append(line[:SHOWN])
    found = "".join(kept)
    upto = first - 1 + len(kept)
    if upto < len(lines) or first > 1:
        found = f"{found.rstrip()}\n[lines {first} to {upto} of {len(lines)}]"
    return found or "(empty)"


def listed(found: Sequence[Entry]) -> str:
    """Return a list of files for the model."""
    marks = {"folder": "/", "link": " (a link)", "other": " (no plain file)"}
    return _lines([f"{one.path}{marks.get(one.kind, f' ({one.size} bytes)')}" for one in found]) or "nothing there"


def _lines(lines: Sequence[str]) -> str:
    more = [f"[there are more than {MOST}]"] if len(lines) > MOST else []
    return "\n".join([*lines[:MOST], *more])
