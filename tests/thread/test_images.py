"""Images that the model asks to see: looked at by content, shown in one request, and nowhere else."""

from __future__ import annotations

import hashlib
import os
import random
from base64 import b64encode
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from py_trees.behaviour import Behaviour

from jianmu.agent import Agent
from jianmu.engine.state import Clear, StateManager
from jianmu.errors import (
    BadReplyError,
    BadRequestError,
    ContextTooLongError,
    ModelError,
    ModelRefusedError,
    ModelUnavailableError,
    RateLimitedError,
    SetupError,
)
from jianmu.message import Message, ai, human
from jianmu.model import ModelRequest, ScriptedModel
from jianmu.model.translate import wire_messages
from jianmu.nodes import AgentLLMNode, ContextBudget, Repeat, Retry, ToolExecutor, action
from jianmu.nodes import Sequence as InOrder
from jianmu.prebuilt import ReActState, react
from jianmu.stores import SQLiteStore
from jianmu.thread import ForgetImages, PlanReminder, ShownImages, ThreadFolders, ThreadState, ViewedImage, view_image
from jianmu.thread.images import LARGEST, image_type
from jianmu.tool.types import ImageBytes
from tests.cases.leaves import FAILURE, SUCCESS
from tests.model.server import Answer, said, serving
from tests.thread.test_state_stored import bytes_in, largest_row
from tests.thread.turns import call, refusal, rounds, run, think, thread

pytestmark = pytest.mark.anyio

AT = "/mnt/user-data/workspace"
PNG = b"\x89PNG\r\n\x1a\n"
IMAGES = {"png": PNG, "jpeg": b"\xff\xd8\xff\xe0", "gif": b"GIF89a", "webp": b"RIFF\x10\0\0\0WEBPVP8 "}


class Scene:
    """A thread with files in its workspace.

    Args:
        root: where the folders of threads are.
        files: what is in them, by name.
    """

    def __init__(self, root: Path, **files: bytes) -> None:
        self.folders = ThreadFolders(root / "threads")
        self.workspace = root / "threads/t/workspace"
        for name, data in files.items():
            self.put(name, data)

    def put(self, name: str, data: bytes) -> None:
        """Write a file."""
        self.folders.files("t").write(f"{AT}/{name}", data)

    def refer(self, name: str) -> dict[str, ViewedImage]:
        """Return the reference to an image."""
        data = self.folders.files("t").read(f"{AT}/{name}")
        digest = hashlib.sha256(data).hexdigest()
        return {f"{AT}/{name}": ViewedImage(
            mime_type="image/png", size=len(data), actual_path=f"{AT}/{name}", digest=digest
        )}  # fmt: skip

    async def view(self, *paths: Any) -> tuple[list[tuple[str, bool]], dict[str, ViewedImage]]:
        """Carry out calls; return their results and the field."""
        made = thread(ToolExecutor("act", tools=[view_image(self.folders)]))
        wishes = [call(str(number), "view_image", path=path) for number, path in enumerate(paths)]
        assert await run(made, human("go"), ai(tool_calls=wishes)) is SUCCESS
        results = [(one.text, one.is_error) for one in made.state.messages if one.role == "tool"]
        return results, dict(made.state.viewed_images)

    def looking(self, model: ScriptedModel) -> InOrder:
        """Return a model node that is shown the images, and what forgets them."""
        think = ShownImages("images", AgentLLMNode("think", model=model), folders=self.folders)
        return InOrder("look", memory=True, children=[think, ForgetImages("forget")])


def images(request: ModelRequest) -> list[tuple[str | None, bytes]]:
    """Return the images of a request: paths and bytes."""
    parts = [part for message in request.messages if not isinstance(message.content, str) for part in message.content]
    return [(part.path, part.data) for part in parts if isinstance(part, ImageBytes)]


# view_image


@pytest.mark.parametrize("kind", IMAGES)
async def test_an_image_is_known_by_its_content(tmp_path: Path, kind: str) -> None:
    """Whatever its name says: type, size and digest are those of what is in it."""
    data = IMAGES[kind] + b"more"
    results, viewed = await Scene(tmp_path, **{"a.txt": data}).view(f"{AT}/./a.txt")
    digest = hashlib.sha256(data).hexdigest()
    assert viewed == {f"{AT}/a.txt": ViewedImage(
        mime_type=f"image/{kind}", size=len(data), actual_path=f"{AT}/a.txt", digest=digest
    )}  # fmt: skip
    assert results == [(f"You see {AT}/a.txt (image/{kind}, {len(data)} bytes) below.", False)]


async def test_two_at_once_are_both_there(tmp_path: Path) -> None:
    """Two calls of one reply: both images are referred to, each under its path."""
    _, viewed = await Scene(tmp_path, a=PNG, b=PNG).view("a", "b")
    assert sorted(viewed) == [f"{AT}/a", f"{AT}/b"]


async def test_what_is_no_image_of_the_thread_is_refused(tmp_path: Path) -> None:
    """A text, an empty file, a file that is too large, links, folders, what is elsewhere: an error, nothing written."""
    scene = Scene(tmp_path, text=b"<svg/>", empty=b"", near=b"RIFF1234WEBQ", large=b"")
    with (scene.workspace / "large").open("wb") as file:
        file.write(PNG)
        file.truncate(LARGEST + 1)
    (tmp_path / "secret.png").write_bytes(PNG)
    (scene.workspace / "link.png").symlink_to(tmp_path / "secret.png")
    (scene.workspace / "way").symlink_to(tmp_path)
    os.mkfifo(scene.workspace / "pipe.png")
    scene.folders.files("other").write(f"{AT}/theirs.png", PNG)
    none = "has no png, jpeg, gif or webp in it"
    wanted = {
        "text": f"'{AT}/text' {none}",
        "empty": f"'{AT}/empty' {none}",
        "near": f"'{AT}/near' {none}",
        "large": f"'{AT}/large' has {LARGEST + 1} bytes; at most {LARGEST} are read at once",
        "gone": f"there is no '{AT}/gone'",
        "link.png": f"'{AT}/link.png' is a link, and links are not followed",
        "way/secret.png": f"'{AT}/way/secret.png' leads through something that is no folder; links are not followed",
        "pipe.png": f"'{AT}/pipe.png' is no plain file",
        AT: f"'{AT}' is a folder",
        "../../../secret.png": "'../../../secret.png' has '..' in it: write the path from /mnt/user-data on",
    }
    for path, why in wanted.items():
        results, viewed = await scene.view(path)
        assert (results, viewed) == ([(f"'view_image' failed: ValueError: {why}", True)], {})
    for path in (str(tmp_path / "secret.png"), "/etc/passwd", "/mnt/user-data/../x", "a\0b", "x" * 5000, 7):
        ((_, is_error),), viewed = await scene.view(path)
        assert (is_error, viewed) == (True, {})


def test_the_largest_image_is_taken(tmp_path: Path) -> None:
    """20 MiB are read, to the byte."""
    scene = Scene(tmp_path)
    data = PNG + bytes(LARGEST - len(PNG))
    scene.put("a", data)
    ((told, is_error),), viewed = anyio.run(scene.view, "a")
    assert (is_error, [one.size for one in viewed.values()]) == (False, [LARGEST])
    assert str(LARGEST) in told


def test_no_other_bytes_are_an_image() -> None:
    """Beginnings that are cut, and other files, have no type."""
    for data in (b"", b"GIF88a", PNG[:7], b"RIFF", b"\xff\xd8", b"%PDF-1.7", b"\0" * 100):
        assert image_type(data) is None


# ShownImages


async def test_without_images_nothing_is_added(tmp_path: Path) -> None:
    """No images, no message; and the folder of the thread is not made."""
    with ScriptedModel(["fine"]) as model:
        assert await run(thread(Scene(tmp_path).looking(model)), human("hello")) is SUCCESS
    assert len(model.requests[0].messages) == 1
    assert not (tmp_path / "threads").exists()


async def test_the_bytes_are_in_the_request_only_and_once(tmp_path: Path) -> None:
    """In the request after the call the bytes are a message at the end; in the next one they are not."""
    scene = Scene(tmp_path, **{"a.png": PNG + b"a", "b.png": PNG + b"b"})
    script = [
        [call("1", "view_image", path="a.png"), call("2", "view_image", path="b.png")],
        call("3", "view_image", path="a.png"),
        "two",
    ]
    with ScriptedModel(script) as model:
        made = thread(rounds(scene.looking(model), tools=[view_image(scene.folders)]))
        assert await run(made, human("look")) is SUCCESS
    assert [sorted(images(one)) for one in model.requests] == [
        [], [(f"{AT}/a.png", PNG + b"a"), (f"{AT}/b.png", PNG + b"b")], [(f"{AT}/a.png", PNG + b"a")]
    ]  # fmt: skip
    last = model.requests[1].messages[-1]
    assert (last.role, last.text[:39]) == ("human", "The images that you have asked to see:\n")
    assert sorted(last.text.splitlines()[1:]) == [f"{AT}/a.png:", f"{AT}/b.png:"]
    assert made.state.viewed_images == {}
    assert all(isinstance(one.content, str) for one in made.state.messages)


async def test_they_stay_in_a_request_that_is_cut(tmp_path: Path) -> None:
    """A budget above leaves them in."""
    scene = Scene(tmp_path, a=PNG)
    with ScriptedModel(["fine"]) as model:
        tree = ContextBudget("budget", scene.looking(model), messages=1)
        talk = [human("one"), ai("two"), human("three")]
        assert await run(thread(tree), *talk, viewed_images=scene.refer("a")) is SUCCESS
    assert images(model.requests[0]) == [(f"{AT}/a", PNG)]


async def test_a_file_that_is_no_longer_what_it_was_is_told(tmp_path: Path) -> None:
    """Changed, gone, become a link or no image: a text, once; no other bytes are sent."""
    scene = Scene(tmp_path, **{name: PNG + name.encode() for name in ("changed", "gone", "link", "good")})
    refs = {path: one for name in ("changed", "gone", "link", "good") for path, one in scene.refer(name).items()}
    refs[f"{AT}/text"] = ViewedImage(mime_type="image/png", size=3, actual_path=f"{AT}/text")
    refs["/etc/passwd"] = ViewedImage(mime_type="image/png", size=3, actual_path="/etc/passwd")
    scene.put("changed", PNG + b"CHANGED")
    scene.put("text", b"abc")
    (scene.workspace / "gone").unlink()
    (scene.workspace / "link").unlink()
    (tmp_path / "secret").write_bytes(PNG + b"link")
    (scene.workspace / "link").symlink_to(tmp_path / "secret")
    with ScriptedModel(["fine"]) as model:
        made = thread(scene.looking(model))
        assert await run(made, human("look"), viewed_images=refs) is SUCCESS
    assert images(model.requests[0]) == [(f"{AT}/good", PNG + b"good")]
    changed, lost = "not shown, since it has changed; view it again", "not shown, since it cannot be read any more"
    assert model.requests[0].messages[-1].text.splitlines()[1:] == [
        f"{AT}/changed: {changed}", f"{AT}/gone: {lost}", f"{AT}/link: {lost}", f"{AT}/good:", f"{AT}/text: {changed}",
        f"/etc/passwd: {lost}",
    ]  # fmt: skip
    assert made.state.viewed_images == {}


async def test_images_together_are_bounded(tmp_path: Path) -> None:
    """A request has at most 20 MiB of images; the model is told of the others."""
    scene = Scene(tmp_path)
    for name in "abc":
        scene.put(name, PNG + name.encode() + bytes(9 * 1024 * 1024))
    with ScriptedModel(["fine"]) as model:
        viewed = {path: one for name in "abc" for path, one in scene.refer(name).items()}
        assert await run(thread(scene.looking(model)), human("look"), viewed_images=viewed) is SUCCESS
    assert [path for path, _ in images(model.requests[0])] == [f"{AT}/a", f"{AT}/b"]
    assert (
        model.requests[0]
        .messages[-1]
        .text.endswith(f"{AT}/c: not shown, since there are too many at once; view it again")
    )


# ForgetImages


@pytest.mark.parametrize("family", [ModelUnavailableError, RateLimitedError, BadReplyError])
async def test_a_request_that_may_succeed_later_forgets_nothing(tmp_path: Path, family: type[ModelError]) -> None:
    """The model is not reached: the image is in the next run's request, and forgotten when that has succeeded."""
    scene = Scene(tmp_path, a=PNG)
    with ScriptedModel([family("down", model="m"), "fine"]) as model:
        made = thread(scene.looking(model))
        assert await run(made, human("look"), viewed_images=scene.refer("a")) is FAILURE
        assert dict(made.state.viewed_images) == scene.refer("a")
        assert await run(made, human("again")) is SUCCESS
    assert [len(images(one)) for one in model.requests] == [1, 1]
    assert made.state.viewed_images == {}


async def test_an_image_that_no_provider_takes_is_not_sent_for_ever(tmp_path: Path) -> None:
    """The run ends with the provider's error; the thread can go on, also by `recover`, without that image."""
    scene = Scene(tmp_path, a=PNG + b"cut off")
    async with SQLiteStore(tmp_path / "t.db") as store:
        with ScriptedModel([BadRequestError("no image", model="m"), "fine", "and fine"]) as model:
            made = thread(rounds(scene.looking(model), tools=[view_image(scene.folders)]), store=store)
            with pytest.raises(BadRequestError):
                await run(made, human("look"), viewed_images=scene.refer("a"))
            assert (await store.show("t")).fields["viewed_images"] == {}
            assert (await made.recover("t")).status is SUCCESS
            assert await run(made, human("again")) is SUCCESS
    assert [len(images(one)) for one in model.requests] == [1, 0, 0]


@pytest.mark.parametrize("family", [ModelRefusedError, ContextTooLongError])
async def test_an_image_that_is_refused_is_not_sent_again(tmp_path: Path, family: type[ModelError]) -> None:
    """The node fails; the images of that request are in no later one: another attempt, or a later run."""
    scene = Scene(tmp_path, a=PNG + b"cut off")
    for tries in (1, 2):
        with ScriptedModel([family("no", model="m"), "fine"]) as model:
            think = Retry("tries", AgentLLMNode("think", model=model), attempts=tries)
            turn = InOrder("turn", memory=True, children=[think, ForgetImages("forget")])
            made = thread(ShownImages("images", turn, folders=scene.folders))
            assert await run(made, human("look"), viewed_images=scene.refer("a")) is (SUCCESS if tries > 1 else FAILURE)
            assert made.state.viewed_images == {}
            assert tries > 1 or await run(made, human("again")) is SUCCESS
        assert [len(images(one)) for one in model.requests] == [1, 0]


async def test_only_what_the_last_request_had_is_forgotten(tmp_path: Path) -> None:
    """A request that failed had another image, which somebody has cleared since: it counts for nothing."""
    scene = Scene(tmp_path, a=PNG, b=PNG)
    with ScriptedModel([ModelUnavailableError("down", model="m"), "fine"]) as model:
        made = thread(scene.looking(model))
        assert await run(made, human("look"), viewed_images=scene.refer("a")) is FAILURE
        made.state_manager.update({"viewed_images": Clear()})
        assert await run(made, human("again"), viewed_images=scene.refer("b")) is SUCCESS
    assert [images(one)[0][0] for one in model.requests] == [f"{AT}/a", f"{AT}/b"]
    assert made.state.viewed_images == {}


async def test_what_is_viewed_meanwhile_stays(tmp_path: Path) -> None:
    """Another image, and a new version of the same one, that come while the model is asked are kept for the next."""
    scene, made = Scene(tmp_path, a=PNG, b=PNG, c=PNG), list[Agent[Any]]()

    def meanwhile(_: ModelRequest) -> str:
        scene.put("a", PNG + b"new")
        made[0].state_manager.update({"viewed_images": {**scene.refer("a"), **scene.refer("b")}})
        return "fine"

    with ScriptedModel([meanwhile]) as model:
        made.append(thread(scene.looking(model)))
        viewed = {**scene.refer("a"), **scene.refer("c")}
        assert await run(made[0], human("look"), viewed_images=viewed) is SUCCESS
    assert dict(made[0].state.viewed_images) == {**scene.refer("a"), **scene.refer("b")}


async def test_t05_an_image_of_1_mb_is_in_the_request_only(tmp_path: Path) -> None:
    """T05: viewed by the tool, 20 passes, cancelled in the model call: no row above 10 kB, no bytes of it stored.

    In another program the request has it again, and then it is forgotten. The provider is a real server.
    """
    data = PNG + random.Random(5).randbytes(1_000_000)
    scene = Scene(tmp_path, **{"a.png": data})

    def build(model: Any) -> Any:
        passes = Repeat("passes", note_pass("note"), times=20)
        steps = [ToolExecutor("act", tools=[view_image(scene.folders)]), passes, scene.looking(model)]
        return InOrder("main", memory=True, children=steps)

    async with serving(Answer(said("a ", "sea"), hold=1), Answer(said("a sea"))) as server:
        async with SQLiteStore(tmp_path / "t.db") as store:
            made: Agent[Any] = Agent(build(server.model()), ThreadState, store=store)
            given = {"messages": [human("look"), ai(tool_calls=[call("1", "view_image", path="a.png")])]}
            with anyio.fail_after(30):
                async with anyio.create_task_group() as group:
                    group.start_soon(partial(made.run, given, thread_id="t"))
                    await server.holding.wait()
                    group.cancel_scope.cancel()
            assert made.state.repeats == {"look": 20}
            assert [*(await store.show("t")).fields["viewed_images"]] == [f"{AT}/a.png"]
        async with SQLiteStore(tmp_path / "t.db") as store:
            made = Agent(build(server.model()), ThreadState, store=store)
            with anyio.fail_after(30):
                assert (await made.recover("t")).status is SUCCESS
            assert (await store.show("t")).fields["viewed_images"] == {}
    for sent in server.requests:
        (link,) = [one["image_url"]["url"] for one in sent["messages"][-1]["content"] if one["type"] == "image_url"]
        assert link == f"data:image/png;base64,{b64encode(data).decode()}"
    assert len(server.requests) == 2
    assert largest_row(tmp_path / "t.db") < 10_000
    kept = bytes_in(tmp_path)
    for place in (0, 500_000, len(data) - 30):
        piece = data[place : place + 30]
        assert piece not in kept
        assert all(b64encode(piece[skip:])[4:-4] not in kept for skip in (0, 1, 2))


@action
def note_pass(context: Any) -> dict[str, Any]:
    """Write something, so that there is a pass to store."""
    return {"repeats": {"look": 1}}


# The bytes in a message


def test_bytes_in_a_message_are_for_providers_only() -> None:
    """A provider gets the bytes; JSON, repr and a state's checkpoint have the reference alone."""
    message = human(["see", ImageBytes(path=f"{AT}/a.png", mime_type="image/png", data=PNG)], id="1")
    (request,) = wire_messages([message])
    (part,) = request.parts
    content: Any = part.content
    assert [getattr(one, "data", one) for one in content] == ["see", PNG]
    assert "PNG" not in message.model_dump_json() + repr(message)
    manager = StateManager(ThreadState)
    manager.update({"messages": message})
    stored = manager.dump_checkpoint()
    assert "PNG" not in str(stored)
    other = StateManager(ThreadState)
    other.load_checkpoint(stored)
    assert [type(one).__name__ for one in other.get().messages[0].content] == ["TextPart", "ImagePart"]
    with pytest.raises(ValueError, match="data"):
        Message.model_validate({"role": "human", "content": [{"type": "image", "path": "a", "data": "AAAA"}]})


# What trees are refused


def test_trees_in_another_order_are_refused(tmp_path: Path) -> None:
    """What forgets comes after the model and needs what shows; that needs a model below it."""
    folders = ThreadFolders(tmp_path)

    assert refusal(think(), ForgetImages("forget")) == (
        "node 'main/forget' (ForgetImages) needs a ShownImages in its tree: put ShownImages(...) around the model"
    )
    assert refusal(ForgetImages("forget"), ShownImages("images", think(), folders=folders)) == (
        "node 'main/forget' (ForgetImages) comes before 'main/images', whose work it uses: put it after that node"
    )
    assert refusal(ShownImages("images", ForgetImages("forget"), folders=folders)) == (
        "node 'main/images' (ShownImages) needs an AgentLLMNode below it: write "
        'ShownImages("images", AgentLLMNode(...), folders=...)'
    )
    assert "needs the field viewed_images" in refusal(
        ShownImages("images", think(), folders=folders), schema=ReActState
    )
    assert refusal(ShownImages("images", think(), folders=folders)) == (
        "node 'main/images' (ShownImages) needs a ForgetImages in its tree: put ForgetImages(...) after the model"
    )
    for build in (view_image, partial(ShownImages, "x", think())):
        with pytest.raises(SetupError, match=r'folders=ThreadFolders\("./threads"\)\), not folders=7'):
            build(folders=7)  # pyright: ignore[reportArgumentType]  # a user's mistake


def test_of_several_models_only_those_count_that_are_shown_images(tmp_path: Path) -> None:
    """Others may come before and after; each that is shown images has what forgets them, and is shown them once."""
    folders = ThreadFolders(tmp_path)

    def shown(name: str, *children: Behaviour) -> Behaviour:
        return ShownImages(name, InOrder(f"{name} turn", memory=True, children=[*children]), folders=folders)

    def main(*children: Behaviour) -> Behaviour:
        return InOrder("main", memory=True, children=[*children])

    Agent(
        main(
            AgentLLMNode("a", model=ScriptedModel()),
            shown("one", AgentLLMNode("b", model=ScriptedModel()), ForgetImages("forget")),
            AgentLLMNode("c", model=ScriptedModel()),
        ),
        ThreadState,
    )
    Agent(
        main(
            shown("one", AgentLLMNode("a", model=ScriptedModel())),
            ForgetImages("forget"),
            AgentLLMNode("b", model=ScriptedModel()),
        ),
        ThreadState,
    )
    pairs = [
        shown(name, AgentLLMNode(f"{name} thinks", model=ScriptedModel()), ForgetImages(f"{name} forgets"))
        for name in ("one", "two")
    ]
    Agent(main(*pairs), ThreadState)
    assert refusal(
        shown(
            "one",
            AgentLLMNode("a", model=ScriptedModel()),
            ForgetImages("forget"),
            AgentLLMNode("b", model=ScriptedModel()),
        )
    ) == (
        "node 'main/one/one turn/forget' (ForgetImages) comes before 'main/one/one turn/b', whose work it uses: "
        "put it after that node"
    )
    assert refusal(
        shown("one", AgentLLMNode("a", model=ScriptedModel()), ForgetImages("forget")),
        shown("two", AgentLLMNode("b", model=ScriptedModel())),
    ) == ("node 'main/two' (ShownImages) needs a ForgetImages in its tree: put ForgetImages(...) after the model")
    assert refusal(shown("one", shown("two", AgentLLMNode("a", model=ScriptedModel()), ForgetImages("forget")))) == (
        "node 'main/one/one turn/two' (ShownImages) stands below 'main/one', and each image would be shown twice: "
        "leave one out"
    )


async def test_images_of_another_model_are_not_forgotten(tmp_path: Path) -> None:
    """Of two models that are shown images, each forgets those of its own requests."""
    folders = ThreadFolders(tmp_path)
    sources = [ShownImages(name, AgentLLMNode(name, model=ScriptedModel()), folders=folders) for name in ("one", "two")]
    forget = ForgetImages("forget")
    turn = InOrder("turn", memory=True, children=[sources[0], forget])
    made = Agent(InOrder("main", memory=True, children=[turn, sources[1], ForgetImages("other")]), ThreadState)
    image = ViewedImage(mime_type="image/png", size=1, actual_path="/mnt/user-data/outputs/a.png", digest=None)
    async with made:
        made.state_manager.update({"viewed_images": {image.actual_path: image}})
        sources[1].shown = dict(made.state.viewed_images)  # its request has failed, and is to be made again
        forget.update()
        assert [*made.state.viewed_images] == [image.actual_path]
        sources[0].shown = dict(made.state.viewed_images)
        forget.update()
        assert [*made.state.viewed_images] == []


def test_a_model_that_would_be_told_that_it_sees_an_image_and_would_not_is_refused(tmp_path: Path) -> None:
    """Nothing above the model that has `view_image` shows images: not beside it, and not around another one either."""
    folders = ThreadFolders(tmp_path)

    def looking(name: str) -> Behaviour:
        return react(name, model=ScriptedModel(), tools=[view_image(folders)])

    def shown(child: Behaviour) -> Behaviour:
        both = InOrder("both", memory=True, children=[child, ForgetImages("forget")])
        return ShownImages("images", both, folders=folders)

    Agent(shown(looking("one")), ThreadState)
    other = AgentLLMNode("other", model=ScriptedModel())
    for tree in (
        PlanReminder("plan", looking("one")),
        InOrder("main", memory=True, children=[looking("one"), shown(other)]),
    ):
        with pytest.raises(SetupError) as caught:
            Agent(tree, ThreadState)
        assert str(caught.value).endswith(
            "/think' offers view_image, and nothing above it shows the model the image: "
            'write ShownImages("images", Sequence("turn", memory=True, children=[think, ForgetImages("forget")]), '
            "folders=folders), or thread_agent(..., vision=True)"
        )
        line = str(caught.value).split(": write ")[1].split(", or ")[0]
        think = AgentLLMNode("think", model=ScriptedModel(), tools=[view_image(folders)])
        known = {"ShownImages": ShownImages, "Sequence": InOrder, "ForgetImages": ForgetImages}
        Agent(eval(line, {**known, "think": think, "folders": folders}), ThreadState)
