"""The timeline of `viewed_images`: a reference when it is viewed, bytes in one request, nothing left afterwards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from jianmu.errors import ModelUnavailableError
from jianmu.message import human
from jianmu.stores import SQLiteStore
from jianmu.testing import ScriptedModel, Turn
from jianmu.tool.types import ImageBytes
from tests.cases.leaves import SUCCESS
from tests.thread.boxes import none_left, until
from tests.thread.timeline import World, call, said

pytestmark = [pytest.mark.anyio, pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="needs /proc")]
IMAGE = "/mnt/user-data/workspace/a.png"
MAKE = "import random; open('a.png', 'wb').write(b'\\x89PNG\\r\\n\\x1a\\n' + random.Random(5).randbytes(1_000_000))"


def images(request: Any) -> list[str]:
    """Return the images whose bytes a request has."""
    return [part.path for one in request.messages if not isinstance(one.content, str) for part in one.content
            if isinstance(part, ImageBytes)]  # fmt: skip


async def test_an_image_is_in_one_request_and_forgotten_when_that_has_succeeded(tmp_path: Path) -> None:
    """Made by a real program, viewed, seen once; the field is empty then, and so it is in the next program."""
    world = World(tmp_path)
    script = [call("1", "python", code=MAKE), call("2", "view_image", path=IMAGE), call("3", "ls"), "a picture"]
    first = await world.program(script, said(), vision=True)
    assert [images(one) for one in first.model.requests] == [[], [], [IMAGE], []]
    assert first.writes("viewed_images") == [("act", "viewed_images"), ("images", "viewed_images")]
    second = await world.program(["well"], said(), vision=True)
    assert (images(second.model.requests[0]), dict(second.state.viewed_images)) == ([], {})


async def test_a_large_image_leaves_nothing_in_any_checkpoint(tmp_path: Path) -> None:
    """1 MB viewed, 20 passes, cancelled in the model call, gone on with in another program: no row above 10 kB."""
    world = World(tmp_path)
    rounds = [call(f"c{number}", "ls") for number in range(10)]
    options: dict[str, Any] = {"vision": True, "repeatable": ["ls"]}
    async with SQLiteStore(world.path) as store:
        script = [call("1", "python", code=MAKE), *rounds, call("2", "view_image", path=IMAGE), Turn("never", delay=60)]
        model = ScriptedModel(script)
        made = world.agent(model, store=store, **options)
        with none_left(tmp_path):
            async with anyio.create_task_group() as group:
                group.start_soon(lambda: made.run({"messages": [human("go")]}, thread_id="t"))
                await until(lambda: len(model.requests) == 13)
                group.cancel_scope.cancel()
        assert images(model.requests[-1]) == [IMAGE]
        assert made.runner.context.passes > 20
    assert max(map(len, world.rows())) < 10_000
    async with SQLiteStore(world.path) as store:
        model = ScriptedModel(["a picture", "fine"])
        made = world.agent(model, store=store, **options)
        assert (await made.recover("t")).status is SUCCESS
        assert images(model.requests[0]) == [IMAGE]
        assert dict(made.state.viewed_images) == {}
    assert max(map(len, world.rows())) < 10_000


async def test_an_image_of_a_request_that_failed_is_shown_again(tmp_path: Path) -> None:
    """The document clears it before the model has seen it; here it is forgotten when a request has succeeded."""
    world = World(tmp_path)
    lost = ModelUnavailableError("gone", model="m")
    script = [call("1", "python", code=MAKE), call("2", "view_image", path=IMAGE), lost]
    await world.program(script, said(), vision=True)
    second = await world.program(["a picture"], said("try again"), vision=True)
    assert images(second.model.requests[0]) == [IMAGE]
    assert dict(second.state.viewed_images) == {}
