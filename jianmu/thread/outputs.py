"""OutputBudget: what a tool returns beyond a budget goes to a file, which the model reads when it needs it.

1. A file has the name of its call: the same one whenever the call is repeated, whatever the tool is called.
2. It is written whole or not at all. If it cannot be written, the result is cut all the same, and says so.
3. Lines are broken, and large results are parted, so that `read_file` reaches all of it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import ClassVar

import anyio.to_thread
from py_trees.behaviour import Behaviour

from jianmu.engine.context import NodeContext
from jianmu.engine.questions import digest
from jianmu.engine.tree import descend
from jianmu.errors import SetupError
from jianmu.nodes.base import Number, Option, call_of, whole
from jianmu.nodes.calldecorator import CallDecorator, names_of
from jianmu.nodes.skill import with_skills
from jianmu.nodes.tools import ToolExecutor
from jianmu.nodes.turn import CallOutcome
from jianmu.thread.files import AREAS, VIRTUAL, ThreadFiles
from jianmu.thread.part import Kinds, Part
from jianmu.thread.paths import ThreadFolders
from jianmu.tool.types import Content, TextPart, ToolCall

READER = "read_file"
FOLDER = f"{VIRTUAL}/{AREAS[2]}/.results"
"""Where the files are; no list of what was made for people has them."""
CHARS = 12_000
EXEMPT = ("read_skill", "tool_search")
WIDTH = 2_000
"""Characters of a line in a file."""
PIECE = 8 * 1024 * 1024
"""Bytes of one file."""
LAID_OUT = 2_000_000
"""Characters of JSON that is laid out in lines, which takes its time."""
LARGEST = 100_000_000
"""Characters of a result that are kept."""
_OTHER = re.compile(r"[^A-Za-z0-9_-]+")


class OutputBudget(Part, CallDecorator):
    """Keep the results of the tools below short: the whole is in a file of the thread, which the model can read.

    A result whose texts have more than `chars` characters, or more than its tool's own limit, is written to
    `/mnt/user-data/outputs/.results`; what stays of it is its beginning, its end, and between them how much is left out
    and where the whole is. Images and files in it stay as they are. Long lines are broken in the file, JSON is laid out
    in lines first, and what is too large for one file is in several.
    Reads and writes no field. A file that cannot be written ends no run: the result is cut, and says why.
    SUCCESS, FAILURE, RUNNING: as the child. Halting halts the child; a file that is being written is written.

    Args:
        name: the node's name.
        child: what carries out calls.
        folders: where the folders of threads are; what reads the files has to see the same.
        chars: how many characters of a result the model is shown, or a function of the snapshot.
        exempt: tools whose results stay as they are, beside the reader; by default those that show the model what it
            has asked to read.
        reader: the tool that reads the files.
    """

    wraps: ClassVar[Kinds] = (ToolExecutor,)

    def __init__(
        self,
        name: str,
        child: Behaviour,
        *,
        folders: ThreadFolders,
        chars: Number = CHARS,
        exempt: Iterable[str] = EXEMPT,
        reader: str = READER,
    ) -> None:
        super().__init__(name, child)
        if not isinstance(folders, ThreadFolders):  # pyright: ignore[reportUnnecessaryIsInstance]  # callers err
            raise SetupError(f'{call_of(self, "folders")} takes ThreadFolders("./threads"), not {folders!r}')
        self._folders, self._reader = folders, reader
        self._exempt = {*names_of(self, "exempt", exempt), reader}
        self._chars = Option(self, "chars", chars, whole(1))

    def on_bound(self) -> None:
        """Refuse a tree in which nothing could read the files."""
        super().on_bound()
        is_known = self._may_build_below()
        if not is_known and not any(self._reader in with_skills(one, one.tools).names for one in self._executors()):
            line = f'write tools=[..., sandbox_tools(sandboxes).only("{self._reader}")]'
            raise self._refused(f"needs the tool {self._reader} among those that are carried out below it: {line}")

    async def refine(self, call: ToolCall, outcome: CallOutcome, context: NodeContext) -> CallOutcome:
        """Return the outcome within the budget; the whole is in a file then."""
        text = _text_of(outcome.content)
        most = self._most(call)
        if call.name in self._exempt or len(text) <= most:
            return outcome
        files = self._folders.files(context.thread_id)
        path = f"{FOLDER}/{_OTHER.sub('_', call.name)[:40]}-{digest('result', context.idempotency_key)[:16]}"
        with context.clock.working():
            where = await anyio.to_thread.run_sync(_saved, files, path, text)
        note = f"[{{}} of {len(text)} characters are left out here; {where}]"
        return outcome.model_copy(update={"content": _shortened(outcome.content, text, most, note)})

    def _most(self, call: ToolCall) -> int:
        """Return how many characters of a result the model is shown."""
        tools = (with_skills(node, node.tools).get(call.name) for node in self._executors())
        limits = [one.max_result_chars for one in tools if one is not None and one.max_result_chars is not None]
        return min([self._chars(), *limits])

    def _executors(self) -> Iterator[ToolExecutor]:
        return (node for node in descend(self) if isinstance(node, ToolExecutor))


def _saved(files: ThreadFiles, path: str, text: str) -> str:
    """Write a text to files, and return what the model is told of them."""
    kept = _readable(text[:LARGEST].replace("\0", "\N{REPLACEMENT CHARACTER}")).encode("utf-8", "replace")
    pieces = [*_pieces(kept)]
    names = [f"{path}.txt"] if len(pieces) == 1 else [f"{path}.{number}.txt" for number in range(1, len(pieces) + 1)]
    try:
        for name, piece in zip(names, pieces, strict=True):
            files.write(name, piece)
    except ValueError as error:
        return f"they could not be saved: {error}"
    part = "all" if len(text) <= LARGEST else f"the first {LARGEST}"
    several = f" to {names[-1]}, {len(names)} files" if len(names) > 1 else ""
    return f"{part} are in {names[0]}{several}"


def _readable(text: str) -> str:
    """Return a text whose lines are not too long to be read."""
    if max(map(len, text.split("\n"))) <= WIDTH:
        return text
    if len(text) <= LAID_OUT and text.lstrip()[:1] in {"{", "["}:
        with suppress(ValueError, RecursionError):  # no JSON: it stays in its lines
            text = json.dumps(json.loads(text), indent=1, ensure_ascii=False)
    return "\n".join(
        line[start : start + WIDTH] for line in text.split("\n") for start in range(0, len(line) or 1, WIDTH)
    )


def _pieces(data: bytes) -> Iterator[bytes]:
    """Yield pieces that end at the end of a line."""
    start = 0
    while len(data) - start > PIECE:
        end = data.rfind(b"\n", start, start + PIECE) + 1
        yield data[start:end]
        start = end
    yield data[start:]


def _text_of(content: Content) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(part.text for part in content if isinstance(part, TextPart))


def _shortened(content: Content, text: str, most: int, note: str) -> Content:
    """Return a content with beginning and end of its text, and a note between them."""
    room = max(most - len(note) - len(str(len(text))) - 2, 0)
    head, tail = room - room // 3, room // 3
    told = note.replace("{}", str(len(text) - head - tail), 1)
    short = "\n".join([text[:head], told, text[len(text) - tail :]]).strip("\n")
    if isinstance(content, str):
        return short
    return (TextPart(text=short), *(part for part in content if not isinstance(part, TextPart)))
