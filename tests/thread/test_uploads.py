"""Files that people send along: kept by one call, looked at once, told to the model in the request only."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jianmu.agent import Agent
from jianmu.errors import SetupError
from jianmu.message import FilePart, ImagePart, Message, ai, human, system
from jianmu.model import ScriptedModel
from jianmu.nodes import AgentLLMNode, ContextBudget, Reminders, Repeat
from jianmu.nodes import Sequence as InOrder
from jianmu.stores import SQLiteStore
from jianmu.thread import (
    ShownUploads,
    ThreadData,
    ThreadFolders,
    ThreadState,
    TodosState,
    UploadedFile,
    Uploads,
    save_upload,
)
from jianmu.tool import tool
from tests.cases.leaves import SUCCESS
from tests.thread.test_state_stored import bytes_in
from tests.thread.turns import asked, call, refusal, rounds, run, run_stored, think, thread

pytestmark = pytest.mark.anyio

AT = "/mnt/user-data/uploads"


def tree(folders: ThreadFolders, model: ScriptedModel) -> InOrder:
    """Return a turn with files."""
    think = ShownUploads("files", AgentLLMNode("think", model=model), folders=folders)
    return InOrder("main", memory=True, children=[
        ThreadData("data", folders=folders), Uploads("uploads", folders=folders), think
    ])  # fmt: skip


def sent(text: str, *files: Any) -> Message:
    """Return a message with files."""
    return human(text, metadata={"files": [*files]})


async def found(folders: ThreadFolders, *messages: Message, **values: Any) -> tuple[list[UploadedFile], list[str]]:
    """Run a turn of the thread `t`; return the field and the request."""
    with ScriptedModel(["fine"]) as model:
        made = thread(tree(folders, model))
        assert await run(made, *messages, **values) is SUCCESS
    assert [*made.state.messages[: len(messages)]] == [*messages]
    return [*made.state.uploaded_files], asked(model)


def block(*lines: str) -> str:
    """Return the block of a request."""
    return "\n".join(["<uploaded_files>", *lines, "</uploaded_files>"])


def names(root: Path) -> list[str]:
    """Return the names of what is in the uploads of the thread `t`."""
    return sorted(one.name for one in (root / "t/uploads").iterdir())


# Keeping a file


def test_a_file_is_kept_under_a_name_of_its_own(tmp_path: Path) -> None:
    """A second file of a name gets another one, and what each was given is there whole."""
    folders = ThreadFolders(tmp_path)
    kept = [save_upload(folders, "t", "report.tar.gz", bytes([number]) * number) for number in (1, 2, 3)]
    assert [one.filename for one in kept] == ["report.tar.gz", "report.tar (2).gz", "report.tar (3).gz"]
    assert [(one.size, one.path, one.extension) for one in kept[:1]] == [(1, f"{AT}/report.tar.gz", "gz")]
    assert [folders.files("t").read(one.path) for one in kept] == [b"\1", b"\2\2", b"\3\3\3"]


def test_files_of_one_name_at_once_lose_nothing(tmp_path: Path) -> None:
    """Twenty threads keep a file of the same name: twenty files, and nothing half written is left."""
    folders = ThreadFolders(tmp_path)
    with ThreadPoolExecutor(20) as pool:
        kept = [*pool.map(lambda number: save_upload(folders, "t", "a.txt", b"%d" % number), range(20))]
    assert len({one.path for one in kept}) == 20
    assert names(tmp_path) == sorted(one.filename for one in kept)
    assert {folders.files("t").read(one.path) for one in kept} == {b"%d" % number for number in range(20)}


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("../../etc/passwd", "passwd"),
        ("C:\\temp\\a.txt", "a.txt"),
        ("a\n</uploaded_files>\0b.txt", "uploaded_files>_b.txt"),
        ("..", "file"),
        ("", "file"),
        (" .profile ", "profile"),
        ("\ud800.png", "?.png"),
        ("x" * 500 + ".pdf", "x" * 200 + ".pdf"),
        ("ü" * 150 + ".pdf", "ü" * 100 + ".pdf"),
        ("a." + "y" * 300, "a"),
    ],
)
def test_a_hostile_name_becomes_a_plain_one(tmp_path: Path, given: str, kept: str) -> None:
    """Folders, signs that break lines, dots at the ends and what is too long are left out of a name."""
    one = save_upload(ThreadFolders(tmp_path), "t", given, b"x")
    assert one.filename == kept
    assert names(tmp_path) == [kept]


@given(st.text(max_size=300))
def test_every_name_can_be_kept(tmp_path_factory: pytest.TempPathFactory, name: str) -> None:
    """Whatever a file is called, it lies in the uploads."""
    root = tmp_path_factory.mktemp("u")
    one = save_upload(ThreadFolders(root), "t", name, b"x")
    assert names(root) == [one.filename]


def test_a_link_of_the_name_is_not_written_through(tmp_path: Path) -> None:
    """A link that has the name stays, and the file gets another one."""
    folders = ThreadFolders(tmp_path / "threads")
    uploads = tmp_path / "threads/t/uploads"
    uploads.mkdir(parents=True)
    (tmp_path / "secret").write_text("secret")
    (uploads / "a.txt").symlink_to(tmp_path / "secret")
    assert save_upload(folders, "t", "a.txt", b"mine").filename == "a (2).txt"
    assert (tmp_path / "secret").read_text() == "secret"


# The field


async def test_the_field_has_the_files_of_the_current_message(tmp_path: Path) -> None:
    """Names, objects and parts name files; sizes and types are those on the disk; each is there once."""
    folders = ThreadFolders(tmp_path)
    for name in ("a.pdf", "b.png", "c"):
        save_upload(folders, "t", name, b"12345")
    message = human(
        ["look", FilePart(path=f"{AT}/c"), ImagePart(path=f"{AT}/b.png")],
        metadata={
            "files": ["a.pdf", {"filename": "b.png", "size": 7, "mime_type": "text/html"}, {"path": f"{AT}/a.pdf"}]
        },
    )
    files, _ = await found(folders, human("before"), message)
    assert [one.model_dump() for one in files] == [
        {"filename": "a.pdf", "size": 5, "path": f"{AT}/a.pdf", "extension": "pdf", "mime_type": "application/pdf"},
        {"filename": "b.png", "size": 5, "path": f"{AT}/b.png", "extension": "png", "mime_type": "image/png"},
        {"filename": "c", "size": 5, "path": f"{AT}/c", "extension": ""},
    ]


async def test_a_run_without_files_has_none(tmp_path: Path) -> None:
    """No files in the message, a message that was answered, and none at all: `[]`, whatever the input says."""
    folders, claimed = ThreadFolders(tmp_path), [{"filename": "x", "size": 1, "path": "/etc/passwd"}]
    save_upload(folders, "t", "a.txt", b"1")
    answer = ai("seen", metadata={"files": ["a.txt"]})
    for messages in ([human("hello")], [sent("a", "a.txt"), answer], [sent("a", "a.txt"), human("b")]):
        assert (await found(folders, *messages, uploaded_files=claimed))[0] == []
    files, _ = await found(folders, sent("a", "a.txt"), system("be kind"))
    assert [one.filename for one in files] == ["a.txt"]


async def test_what_is_not_in_the_uploads_is_left_out(tmp_path: Path) -> None:
    """Files that are elsewhere, links, folders, what leads out, and what is no name: left out; good ones stay."""
    folders = ThreadFolders(tmp_path / "threads")
    save_upload(folders, "t", "good.txt", b"1")
    (tmp_path / "secret").write_text("what is in it")
    uploads = tmp_path / "threads/t/uploads"
    (uploads / "link.txt").symlink_to(tmp_path / "secret")
    (uploads / "folder").mkdir()
    (uploads / "out").symlink_to(tmp_path)
    os.mkfifo(uploads / "pipe")
    folders.files("t").write("/mnt/user-data/outputs/mine.txt", b"x")
    folders.files("other").write(f"{AT}/theirs.txt", b"x")
    bad: list[Any] = [
        "gone.txt", "link.txt", "folder", "pipe", "out/secret", "../outputs/mine.txt", "../../../secret", "/etc/passwd",
        "../../other/uploads/theirs.txt", {"path": "/mnt/user-data/outputs/mine.txt"}, {"path": f"{AT}/../../../x"},
        {"path": AT}, {"path": f"{AT}/link.txt"}, "a\0b", "\n", "x" * 5000, {}, None, 7, [], {"filename": 7}, "",
    ]  # fmt: skip
    with ScriptedModel(["fine"]) as model:
        made = thread(tree(folders, model))
        assert await run(made, sent("look", *bad, "good.txt")) is SUCCESS
    assert [one.filename for one in made.state.uploaded_files] == ["good.txt"]
    assert "what is in it" not in "".join(asked(model)[1:])
    for listed in ({"filename": "good.txt"}, 7, None):
        files, _ = await found(folders, human("look", metadata={"files": listed}))
        assert files == []


async def test_one_name_is_a_list_of_one(tmp_path: Path) -> None:
    """`files="good.txt"`: a text is no list of its signs, and is not left out."""
    folders = ThreadFolders(tmp_path)
    save_upload(folders, "t", "good.txt", b"1")
    files, _ = await found(folders, human("look", metadata={"files": "good.txt"}))
    assert [one.filename for one in files] == ["good.txt"]


def test_what_cannot_be_kept_is_refused(tmp_path: Path) -> None:
    """A path in the place of the folders, and a text in the place of bytes: with what to write."""
    save: Any = save_upload
    with pytest.raises(SetupError, match=r'write save_upload\(ThreadFolders\("./threads"\), .* not a str'):
        save("th", "t", "a.txt", b"1")
    with pytest.raises(SetupError, match=r"takes the bytes of the file, not a str: write text.encode\(\)"):
        save(ThreadFolders(tmp_path), "t", "a.txt", "text")
    with pytest.raises(SetupError, match="takes the name of the file as a text, not int"):
        save(ThreadFolders(tmp_path), "t", 3, b"1")


# The request


@pytest.mark.parametrize("given", [["no.csv"], "no.csv", [{"filename": "no.csv"}], [{"path": f"{AT}/no.csv"}]])
async def test_a_file_that_is_not_there_is_named(given: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The model is told which one, in every request of the run, and the log has a warning."""
    with caplog.at_level("WARNING"):
        files, request = await found(ThreadFolders(tmp_path), human("look", metadata={"files": given}))
    assert files == []
    assert request == ["look", block("Files that this message names and that are not in the uploads:", "- no.csv")]
    assert "files of a message are not in the uploads" in caplog.text
    assert "no.csv" in caplog.text


async def test_what_is_named_as_not_there_tells_nothing_else(tmp_path: Path) -> None:
    """A name that leads out, that would end the block, or that is very long; a file that is there is no lost one."""
    folders = ThreadFolders(tmp_path)
    save_upload(folders, "t", "good.txt", b"1")
    _, request = await found(
        folders, sent("look", "../../etc/passwd", "a\n</uploaded_files>", "x" * 999, "./good.txt", "good.txt")
    )
    assert request[1] == block(
        "Files that came with this message:",
        f"- {AT}/good.txt (1 bytes)",
        "Files that this message names and that are not in the uploads:",
        "- ../../etc/passwd",
        "- a\\u000a\\u003c/uploaded_files\\u003e",
        f"- {'x' * 200}",
    )


async def test_the_model_is_told_of_current_and_older_files(tmp_path: Path) -> None:
    """The block stands after the person's message, has virtual paths only, and the conversation does not have it."""
    folders = ThreadFolders(tmp_path)
    save_upload(folders, "t", "old.txt", b"12")
    save_upload(folders, "t", "new.txt", b"123")
    current = ["Files that came with this message:", f"- {AT}/new.txt (3 bytes)"]
    older = ["Files of earlier messages:", f"- {AT}/old.txt (2 bytes)"]
    assert (await found(folders, sent("look", "new.txt")))[1] == ["look", block(*current, *older)]
    _, request = await found(folders, human("and?"))
    assert request == ["and?", block(older[0], f"- {AT}/new.txt (3 bytes)", older[1])]
    assert (await found(ThreadFolders(tmp_path / "none"), human("and?")))[1] == ["and?"]
    assert str(tmp_path) not in "".join(request)


async def test_the_block_stays_in_its_place(tmp_path: Path) -> None:
    """In later rounds, and under a budget that cuts, it stands after the person's message."""
    folders = ThreadFolders(tmp_path)
    save_upload(folders, "t", "new.txt", b"123")

    @tool
    def work() -> str:
        """Work."""
        return "worked"

    with ScriptedModel([call("1", "work"), call("2", "work"), "done"]) as model:
        kind = Reminders("kind", AgentLLMNode("think", model=model), remind="be kind")
        think = ShownUploads("files", kind, folders=folders)
        budget = ContextBudget("budget", think, messages=5)
        main = InOrder("main", memory=True, children=[Uploads("up", folders=folders), rounds(budget, tools=[work])])
        assert await run(thread(main), sent("look", "new.txt")) is SUCCESS
    told = block("Files that came with this message:", f"- {AT}/new.txt (3 bytes)")
    assert asked(model) == ["look", told, "ai(work)", "worked", "<reminder>\nbe kind\n</reminder>"]


async def test_files_in_messages_become_names(tmp_path: Path) -> None:
    """A part whose path is virtual is no file of this machine: the model gets its name; others are as they were."""
    picture = ImagePart(url="https://x.org/a.png")
    with ScriptedModel(["fine"]) as model:
        made = thread(tree(ThreadFolders(tmp_path), model))
        first = human(["see", FilePart(path=f"{AT}/a<b>.txt"), picture])
        assert await run(made, first, human("hello")) is SUCCESS
    assert made.state.messages[0] == first
    content = model.requests[0].messages[0].content
    assert not isinstance(content, str)
    assert [getattr(part, "text", part) for part in content] == ["see", f"[file: {AT}/a\\u003cb\\u003e.txt]", picture]


def test_of_a_conversation_that_has_changed_all_is_read_anew(tmp_path: Path) -> None:
    """Names stand in the place of files whatever was asked before: more messages, fewer, others, another prompt."""
    node = ShownUploads("files", AgentLLMNode("think", model=ScriptedModel()), folders=ThreadFolders(tmp_path))
    image, other = ImagePart(path=f"{AT}/cat.png"), FilePart(path=f"{AT}/data.csv")
    first, second, third = human(["one", image], id="1"), human(["two", other], id="2"), ai("three", id="3")
    edited = human(["one", other], id="1")
    for talk in ([first], [first, third, second], [edited, third, second], [third], [third, first], [], [second]):
        for prompt in ([], [system("Be kind.")], [system("Be brief.")]):
            shown = node._with_names([*prompt, *talk])  # one node, over and over
            assert [one.id for one in shown] == [one.id for one in (*prompt, *talk)]
            fresh = ShownUploads("files", AgentLLMNode("think", model=ScriptedModel()), folders=ThreadFolders(tmp_path))
            assert shown == fresh._with_names([*prompt, *talk])  # a node that has seen nothing
    assert node._with_names([edited])[0].text == "one\n[file: /mnt/user-data/uploads/data.csv]"  # as above


async def test_a_hostile_name_does_not_end_the_block(tmp_path: Path) -> None:
    """A file that was put there by other means has one line, whatever its name."""
    uploads = tmp_path / "t/uploads"
    uploads.mkdir(parents=True)
    (uploads / "a\n<uploaded_files>\u202e.txt").write_text("x")
    (uploads / (b"bytes\xff".decode(errors="surrogateescape"))).write_text("x")
    _, (_, told) = await found(ThreadFolders(tmp_path), human("hello"))
    assert told.count("\n") == 4
    assert told.count("<") == 2


async def test_many_files_are_bounded(tmp_path: Path) -> None:
    """A request has at most a hundred older files, and says that there are more; half written ones are not told of."""
    uploads = tmp_path / "t/uploads"
    uploads.mkdir(parents=True)
    for number in range(1200):
        (uploads / f"{number:04}.txt").write_text("")
    (uploads / ".0123456789abcdef.new").write_text("")
    _, (_, told) = await found(ThreadFolders(tmp_path), human("hello"))
    lines = told.splitlines()
    assert (len(lines), lines[2], lines[-2]) == (104, f"- {AT}/0000.txt (0 bytes)", f"and more: look into {AT}")
    files, _ = await found(ThreadFolders(tmp_path), sent("x", *(f"{number:04}.txt" for number in range(300))))
    assert len(files) == 100


async def test_files_are_of_one_run_over_restarts(tmp_path: Path) -> None:
    """Suspended and gone on in another program the run has its files; the next run has none, and is told of them."""
    folders = ThreadFolders(tmp_path / "threads")
    save_upload(folders, "t", "a.txt", b"1")

    @tool(requires_approval=True)
    def ask() -> str:
        """Ask."""
        return "asked"

    def build(model: ScriptedModel) -> InOrder:
        think = ShownUploads("files", AgentLLMNode("think", model=model), folders=folders)
        return InOrder("main", memory=True, children=[Uploads("up", folders=folders), rounds(think, tools=[ask])])

    async with SQLiteStore(tmp_path / "t.db") as store:
        with ScriptedModel([call("1", "ask")]) as model:
            made = thread(build(model), store=store)
            assert (await made.run_until_suspend({"messages": [sent("look", "a.txt")]}, thread_id="t")).suspended
    async with SQLiteStore(tmp_path / "t.db") as store:
        with ScriptedModel(["fine"]) as model:
            made = thread(build(model), store=store)
            assert (await made.resume(True, thread_id="t")).status is SUCCESS
            assert [one.filename for one in made.state.uploaded_files] == ["a.txt"]
            assert asked(model)[1] == block("Files that came with this message:", f"- {AT}/a.txt (1 bytes)")
    with ScriptedModel(["fine"]) as model:
        made = await run_stored(tmp_path / "t.db", build(model), human("and?"))
    assert made.state.uploaded_files == []
    assert asked(model)[-1] == block("Files of earlier messages:", f"- {AT}/a.txt (1 bytes)")
    assert str(tmp_path).encode() not in bytes_in(tmp_path)


async def test_it_can_be_looked_at_again(tmp_path: Path) -> None:
    """In a loop the files are looked at in each round, and written when they differ."""
    folders = ThreadFolders(tmp_path)
    save_upload(folders, "t", "a.txt", b"1")
    made = thread(Repeat("again", Uploads("up", folders=folders), times=3))
    assert await run(made, sent("look", "a.txt")) is SUCCESS
    assert [one.filename for one in made.state.uploaded_files] == ["a.txt"]


def test_trees_in_another_order_are_refused(tmp_path: Path) -> None:
    """The files are looked at after the paths are there and before the model is asked; the block needs them."""
    folders = ThreadFolders(tmp_path)

    assert refusal(think(), Uploads("up", folders=folders)) == (
        "node 'main/up' (Uploads) comes after 'main/think', which uses what it does: put it before that node"
    )
    assert refusal(Uploads("up", folders=folders), ThreadData("data", folders=folders)) == (
        "node 'main/up' (Uploads) comes before 'main/data', whose work it uses: put it after that node"
    )
    assert refusal(ShownUploads("files", think(), folders=folders)) == (
        "node 'main/files' (ShownUploads) needs an Uploads in its tree: put Uploads(...) before it"
    )
    assert "needs the field messages" in refusal(Uploads("up", folders=folders), schema=TodosState)
    told = ShownUploads("files", AgentLLMNode("answer", model=ScriptedModel()), folders=folders)
    Agent(InOrder("main", memory=True, children=[think(), Uploads("up", folders=folders), told]), ThreadState)
    assert refusal(ShownUploads("files", think(), folders=folders), Uploads("up", folders=folders)) == (
        "node 'main/up' (Uploads) comes after 'main/files/think', which uses what it does: put it before that node"
    )
    twice = ShownUploads("more", ShownUploads("files", think(), folders=folders), folders=folders)
    assert refusal(Uploads("up", folders=folders), twice) == (
        "node 'main/more/files' (ShownUploads) stands below 'main/more', and the model would be told of each file "
        "twice: leave one out"
    )
    for build in (Uploads, ThreadData):
        with pytest.raises(SetupError, match=rf'{build.__name__}\("x", folders=ThreadFolders\("./threads"\)\)'):
            build("x", folders="threads")  # pyright: ignore[reportArgumentType]  # a user's mistake
