"""The examples: each runs on both backends and prints what the page about it says."""

from __future__ import annotations

import importlib.util
import sys
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import anyio
import pytest

from jianmu.model import ScriptedModel
from jianmu.testing import Turn
from tests.house import ROOT, Source, sources
from tests.pages import OUTPUT, blocks
from tests.transcripts import programs

PAGE = ROOT / "docs" / "examples.md"
EXAMPLES = [source.path for source in sources("examples")]
ASYNC = [path for path in EXAMPLES if "async def main()" in path.read_text()]
RUNS = [*((path, "asyncio") for path in EXAMPLES), *((path, "trio") for path in ASYNC)]  # a plain main has its own loop
# trio starts tasks that are ready together in random order, so the lines of what runs at once may change places
SIDE_BY_SIDE = ("03_async_nodes", "05_parallel_merge", "16_approval")


def shown() -> dict[str, str]:
    """Return what the page says that each example prints."""
    found = blocks(PAGE)
    return {block.source: after.code for block, after in pairwise(found) if block.source}


def load(path: Path) -> ModuleType:
    """Import a file whose name is no identifier."""
    spec = importlib.util.spec_from_file_location(f"example_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(("path", "backend"), RUNS, ids=lambda part: getattr(part, "stem", part))
def test_an_example_prints_what_the_page_says(
    path: Path, backend: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An example's output is the one on its page, on asyncio, and on trio where `main` is async."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setattr(sys, "executable", str(programs() / "python"))
    main = load(path).main
    if path in ASYNC:
        anyio.run(main, backend=backend)
    else:
        main()
    printed, expected = capfd.readouterr().out.rstrip("\n"), shown()[f"examples/{path.name}"].rstrip("\n")
    if backend == "trio" and path.stem in SIDE_BY_SIDE:
        assert sorted(printed.splitlines()) == sorted(expected.splitlines())
    else:
        assert printed == expected


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_an_example_shows_no_reasoning_as_text(backend: str, capfd: pytest.CaptureFixture[str]) -> None:
    """With a model that reasons, what it shows as the model's words are those of its answer."""
    example = load(ROOT / "examples" / "13_language_model.py")
    example.MODEL = ScriptedModel([Turn("459 m.", reasoning="let me think")])
    anyio.run(example.main, backend=backend)
    assert capfd.readouterr().out.splitlines()[:2] == ["  '459 '", "  'm.'"]


def test_the_page_shows_each_example_with_its_output() -> None:
    """No example is left out, and each is followed by an Output block."""
    found = blocks(PAGE)
    pairs = [(block.source, after.info) for block, after in pairwise(found) if block.source]
    assert pairs == [(f"examples/{path.name}", OUTPUT) for path in EXAMPLES]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_short(path: Path) -> None:
    """An example has one idea and fits on a screen or two."""
    assert Source(path).lines <= 80
