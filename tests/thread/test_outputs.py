"""OutputBudget: large results go to files that the model can read, and their beginning and end stay."""

from __future__ import annotations

import errno
import json
import re
from pathlib import Path
from typing import Any

import pytest
from py_trees.behaviour import Behaviour

from jianmu import Agent, SetupError
from jianmu.message import ImagePart, TextPart, human
from jianmu.nodes import CallOutcome, Sequence
from jianmu.nodes.delegating import acting
from jianmu.prebuilt import ReActState, delegate, react
from jianmu.stores import SQLiteStore
from jianmu.testing import ScriptedModel
from jianmu.thread import OutputBudget, ThreadFolders, ThreadState, files, local_sandboxes, outputs, sandbox_tools
from jianmu.thread.outputs import FOLDER
from jianmu.tool import Tool, ToolCall
from tests.cases.leaves import SUCCESS, Do
from tests.nodes.toolkit import Scene, call

pytestmark = pytest.mark.anyio
MB = 1024 * 1024


def read_file(path: str) -> str:
    """Read."""
    return "x" * 5000


def giving(content: Any, name: str = "work", **options: Any) -> Tool:
    """Return a tool that returns something."""

    def give(label: str = "") -> Any:
        return content() if callable(content) else content

    return Tool(give, name=name, **options)


def scene(root: Path, *calls: ToolCall, tools: Any, chars: Any = 1000, exempt: Any = (), **options: Any) -> Scene:
    """Return a scene whose results are kept short."""

    def tree(node: Behaviour) -> Behaviour:
        return OutputBudget("budget", node, folders=ThreadFolders(root), chars=chars, exempt=exempt)

    def make(bench: Any) -> Any:
        return [*(tools(bench) if callable(tools) else tools), Tool(read_file)]

    return Scene(*(calls or [call("a")]), make=make, tree=tree, **options)


def kept(root: Path, thread: str = "t") -> dict[str, bytes]:
    """Return the files of a thread's results."""
    folder = ThreadFolders(root).folder(thread) / "outputs" / ".results"
    return {path.name: path.read_bytes() for path in folder.iterdir()} if folder.exists() else {}


NOTE = re.compile(
    r"\n?\[(\d+) of (\d+) characters are left out here; all are in (\S+?)(?: to (\S+), (\d+) files)?\]\n?"
)


async def test_a_large_result_goes_to_a_file(tmp_path: Path) -> None:
    """Its beginning and end stay, with the path between them; the file has all of it."""
    text = "\n".join(f"line {number}" for number in range(1000))
    made = scene(tmp_path, tools=[giving(text)])
    await made.run(thread_id="t")
    ((_, shown, is_error),) = made.told
    note = NOTE.search(shown)
    assert note is not None
    head, tail = shown[: note.start()], shown[note.end() :]
    assert (text.startswith(head), text.endswith(tail), is_error) == (True, True, False)
    assert len(head) > len(tail) > 100
    assert len(shown) <= 1000
    assert int(note[1]) == len(text) - len(head) - len(tail)
    assert int(note[2]) == len(text)
    ((name, data),) = kept(tmp_path).items()
    assert (note[3], data.decode()) == (f"{FOLDER}/{name}", text)
    assert str(tmp_path) not in shown


async def test_a_small_result_stays(tmp_path: Path) -> None:
    """Up to the budget nothing is changed, and no folder is made."""
    made = scene(tmp_path, tools=[giving("x" * 1000)])
    await made.run(thread_id="t")
    assert (made.told[0][1], kept(tmp_path)) == ("x" * 1000, {})
    assert not ThreadFolders(tmp_path).folder("t").exists()


async def test_a_tools_own_limit_counts_too(tmp_path: Path) -> None:
    """What it would cut off is in the file; what is shown has the note and is within the limit."""
    made = scene(tmp_path, tools=[giving("x" * 900, max_result_chars=500)])
    await made.run(thread_id="t")
    assert NOTE.search(made.told[0][1]) is not None
    assert len(made.told[0][1]) <= 500
    assert [len(data) for data in kept(tmp_path).values()] == [900]


async def test_images_stay_and_errors_are_kept_short(tmp_path: Path) -> None:
    """Texts of parts are one text; an error that is long stays an error."""

    def fails() -> None:
        raise ValueError("x" * 900)

    parts = [TextPart(text="a" * 700), ImagePart(path="cat.png"), TextPart(text="b" * 700)]
    made = scene(tmp_path, call("a"), call("b", "fails"), tools=[giving(parts), giving(fails, "fails")], chars=500)
    await made.run(thread_id="t")
    first, second = made.results
    text, image = first.content
    assert (image, len(text.text) <= 500) == (parts[1], True)
    assert (second.is_error, len(second.text) <= 500) == (True, True)
    assert "a" * 700 + "\n" + "b" * 700 in {data.decode() for data in kept(tmp_path).values()}


async def test_the_budget_may_follow_the_state_and_tools_may_be_exempt(tmp_path: Path) -> None:
    """A function of the snapshot is asked for each result; the reader is always exempt."""
    calls = [call("a"), call("b", "other"), ToolCall(id="c", name="read_file", arguments={"path": "x"})]
    made = scene(
        tmp_path, *calls, tools=[giving("x" * 900), giving("y" * 900, "other")], exempt=["other"],
        chars=lambda state: 300 * len(state.messages),
    )  # fmt: skip
    await made.run(thread_id="t")
    assert [len(text) for _, text, _ in made.told] == [len(made.told[0][1]), 900, 5000]
    assert len(made.told[0][1]) <= 600


async def test_fifty_megabytes_are_all_within_reach(tmp_path: Path) -> None:
    """They are in several files, each of which can be read at once, in lines that can be shown."""
    made = scene(tmp_path, tools=[giving("0123456789" * 5 * MB)])
    await made.run(thread_id="t")
    note = NOTE.search(made.told[0][1])
    assert note is not None
    assert (int(note[2]), int(note[5])) == (50 * MB, 7)
    stem = note[3].removesuffix(".1.txt")
    assert note[4] == f"{stem}.7.txt"
    its = ThreadFolders(tmp_path).files("t")
    pieces = [its.read(f"{stem}.{number}.txt").decode() for number in range(1, 8)]
    assert "".join(pieces).replace("\n", "") == "0123456789" * 5 * MB
    assert max(len(line) for piece in pieces for line in piece.splitlines()) == outputs.WIDTH


async def test_what_is_too_large_for_any_file_is_cut_there_too(tmp_path: Path, monkeypatch: Any) -> None:
    """The note says how much of it the file has."""
    monkeypatch.setattr(outputs, "LARGEST", 5000)
    made = scene(tmp_path, tools=[giving("x" * 9000)])
    await made.run(thread_id="t")
    assert "the first 5000 are in /mnt/user-data/outputs/.results/work-" in made.told[0][1]


async def test_what_is_no_text_is_one_in_the_file(tmp_path: Path) -> None:
    """A file with a NUL could not be read back: another sign stands for it; half characters too."""
    made = scene(tmp_path, tools=[giving("a\0b\ud800c" * 900)])
    await made.run(thread_id="t")
    ((name, data),) = kept(tmp_path).items()
    assert files.text_of(data, name).replace("\n", "") == "a\ufffdb\ufffdc" * 900


async def test_json_is_laid_out_in_lines(tmp_path: Path) -> None:
    """A list in one long line can be read from line to line; what only looks like JSON is broken as it is."""
    value = [{"name": f"n{number}", "text": "é" * 9} for number in range(200)]
    like = "[" + "x" * 5000
    made = scene(tmp_path, call("a"), call("b", "like"), tools=[giving(lambda: value), giving(like, "like")])
    await made.run(thread_id="t")
    by_tool = {name.partition("-")[0]: data.decode() for name, data in kept(tmp_path).items()}
    assert json.loads(by_tool["work"]) == value
    assert max(map(len, by_tool["work"].splitlines())) < 60
    assert by_tool["like"].replace("\n", "") == like


async def test_a_file_that_cannot_be_written_ends_nothing(tmp_path: Path, monkeypatch: Any) -> None:
    """The result is cut and says so: a link in the place of the folder, and a disk that is full."""
    outside = tmp_path / "outside"
    outside.mkdir()
    area = ThreadFolders(tmp_path / "threads").folder("t") / "outputs"
    area.mkdir(parents=True)
    (area / ".results").symlink_to(outside)
    made = scene(tmp_path / "threads", tools=[giving("x" * 9000)])
    assert (await made.run(thread_id="t")).status is SUCCESS
    assert "they could not be saved: '/mnt/user-data/outputs/.results/work-" in made.told[0][1]
    assert "links are not followed" in made.told[0][1]
    assert (len(made.told[0][1]) <= 1000, [*outside.iterdir()]) == (True, [])

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files, "_put", full)
    made = scene(tmp_path / "full", tools=[giving("x" * 9000)])
    assert (await made.run(thread_id="t")).status is SUCCESS
    assert "cannot be written: there is no space left" in made.told[0][1]
    assert kept(tmp_path / "full") == {}


async def test_each_call_has_its_file(tmp_path: Path) -> None:
    """Calls of one reply, and of several with the same ids, do not write over each other; threads neither."""
    turns = [[call("a"), call("b")], [call("a")], "fine"]
    with ScriptedModel([*turns, *turns]) as model:
        tools = [giving(lambda: "x" * 2000), Tool(read_file)]
        tree = OutputBudget("budget", react(model=model, tools=tools), folders=ThreadFolders(tmp_path), chars=1000)
        agent = Agent(tree, ThreadState)
        for thread in ("one", "two"):
            assert await agent.run({"messages": [human("go")]}, thread_id=thread) is SUCCESS
    assert [len(kept(tmp_path, thread)) for thread in ("one", "two")] == [3, 3]


@pytest.mark.parametrize("kind", ["same", "store"])
async def test_a_restart_makes_no_second_file(kind: str, tmp_path: Path) -> None:
    """While a sibling asks, the run goes on in another process: the same text, the same file, untouched."""
    async with SQLiteStore(tmp_path / "s.db") as store:
        given: dict[str, Any] = {"tools": lambda bench: [giving("x" * 9000), bench.asking()], "store": store}
        one, two = (scene(tmp_path, call("a"), call("c", "asks"), **given) for _ in "12")
        await one.run(thread_id="t")
        before = {path: path.stat() for path in (ThreadFolders(tmp_path).folder("t") / "outputs/.results").iterdir()}
        two = one if kind == "same" else two
        assert (await two.agent.resume("yes", thread_id="t")).status is SUCCESS
    ((path, stat),) = before.items()
    assert path.name in two.told[0][1]
    assert (path.stat().st_ino, path.stat().st_mtime_ns, len(kept(tmp_path))) == (stat.st_ino, stat.st_mtime_ns, 1)


async def test_a_call_that_is_made_again_has_the_same_file(tmp_path: Path) -> None:
    """A process that ended after the file was written, and before that was saved: the next one writes over it."""
    counted: list[int] = []

    def again() -> str:
        counted.append(1)
        return f"{len(counted)}" * 9000

    tools = [giving(again), giving("paid", "pay", requires_approval=True)]
    before, one, two = (scene(tmp_path, call("a"), call("p", "pay"), tools=tools) for _ in "123")
    await before.run(thread_id="t")
    for made in (one, two):
        made.agent.load_checkpoint(before.agent.dump_checkpoint())
        assert (await made.agent.resume(True, thread_id="t")).status is SUCCESS
    assert [data[:1] for data in kept(tmp_path).values()] == [b"2"]


@pytest.mark.parametrize("name", ["../../../etc/passwd", "a/b", "", "x" * 500, "nul\0", "名字", ".", "-rf"])
async def test_whatever_a_tool_is_called_its_file_has_a_plain_name(name: str, tmp_path: Path) -> None:
    """Nothing of a name leads out of the folder, or makes a name that is too long."""
    made = scene(tmp_path, tools=[giving("x")])
    await made.run(thread_id="t")
    node = made.agent.tree.root
    outcome = await node.refine(
        ToolCall(id="a", name=name), CallOutcome(content="x" * 9000), node.context.within("a", "a")
    )
    ((file, _),) = kept(tmp_path).items()
    assert re.fullmatch(r"[\w-]{0,40}-[0-9a-f]{16}\.txt", file, re.ASCII)
    assert f"{FOLDER}/{file}" in outcome.content


async def test_results_of_delegates_are_kept_short(tmp_path: Path) -> None:
    """As those of plain tools."""
    look = delegate("look", lambda: Do("work", lambda node: node.write_state({"final_answer": "y" * 9000})),
                    state_schema=ReActState)  # fmt: skip

    def tree(_: Any) -> Behaviour:
        return OutputBudget("budget", acting("act", [look, Tool(read_file)])[0], folders=ThreadFolders(tmp_path))

    made = Scene(ToolCall(id="d", name="look", arguments={"task": "x"}), tree=tree)
    vars(made.agent.tree.root)["_chars"] = lambda: 1000
    await made.run(thread_id="t")
    assert NOTE.search(made.told[0][1]) is not None
    ((_, data),) = kept(tmp_path).items()
    assert data.replace(b"\n", b"") == b"y" * 9000


async def test_the_model_reads_back_what_was_left_out(tmp_path: Path) -> None:
    """With the tools of the sandbox: the path of the note is a path that `read_file` takes."""
    folders = ThreadFolders(tmp_path)
    text = "\n".join(f"line {number}" for number in range(1, 1001))

    def read(request: Any) -> ToolCall:
        note = NOTE.search(request.messages[-1].text)
        assert note is not None
        return ToolCall(id="r", name="read_file", arguments={"path": note[3], "start": 500, "end": 501})

    with ScriptedModel([call("a"), read, "fine"]) as model:
        box = sandbox_tools(local_sandboxes(folders)).only("read_file")
        tree = OutputBudget("budget", react(model=model, tools=[giving(text), box]), folders=folders, chars=1000)
        agent = Agent(tree, ThreadState)
        assert await agent.run({"messages": [human("go")]}, thread_id="t") is SUCCESS
    assert agent.state.messages[-2].text == "line 500\nline 501\n[lines 500 to 501 of 1000]"


def test_trees_that_keep_nothing_short_are_refused(tmp_path: Path) -> None:
    """Without what carries out calls, without a reader, without folders, with an odd budget."""
    folders = ThreadFolders(tmp_path)

    def refused(child: Behaviour) -> str:
        tree = Sequence("main", memory=True, children=[OutputBudget("budget", child, folders=folders)])
        with pytest.raises(SetupError) as caught:
            Agent(tree, ThreadState).run_sync()
        return str(caught.value)

    def leaf() -> Behaviour:
        return Do("leaf", lambda _: SUCCESS)

    assert refused(leaf()) == (
        "node 'main/budget' (OutputBudget) needs a ToolExecutor below it: write "
        'OutputBudget("budget", ToolExecutor(...), folders=...)'
    )
    assert refused(acting("act", [giving("x")])[0]) == (
        "node 'main/budget' (OutputBudget) needs the tool read_file among those that are carried out below it: "
        'write tools=[..., sandbox_tools(sandboxes).only("read_file")]'
    )
    with pytest.raises(SetupError, match=r'folders=...\) takes ThreadFolders\("./threads"\), not'):
        OutputBudget("budget", leaf(), folders=str(tmp_path))  # pyright: ignore[reportArgumentType]  # it is refused
    with pytest.raises(SetupError, match=r"chars=...\) takes a whole number from 1 up"):
        OutputBudget("budget", leaf(), folders=folders, chars=0)
    with pytest.raises(SetupError, match=r"exempt=...\) takes a list of names, not 'bash'"):
        OutputBudget("budget", leaf(), folders=folders, exempt="bash")
