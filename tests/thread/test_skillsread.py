"""RememberSkills: what was read is noted without its text, and told of when it has rolled out of the request."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from py_trees.behaviour import Behaviour

from jianmu.errors import SetupError
from jianmu.message import human
from jianmu.nodes import (
    AgentLLMNode,
    ContextBudget,
    ForceFailure,
    HasFinalAnswer,
    Invert,
    LoopUntilSuccess,
    Selector,
    Skill,
    ToolExecutor,
)
from jianmu.nodes import Sequence as InOrder
from jianmu.prebuilt import ReActState
from jianmu.testing import ScriptedModel
from jianmu.thread import RememberSkills
from tests.cases.leaves import SUCCESS
from tests.thread.turns import asked, call, run, run_stored, thread

pytestmark = pytest.mark.anyio
TEXT = "---\nname: {0}\ndescription: How {0}\n  are written.\n---\nBegin with a greeting."


def skill(root: Path, name: str) -> Skill:
    """Return a skill with another file."""
    folder = root / name
    folder.mkdir(exist_ok=True)
    (folder / "SKILL.md").write_text(TEXT.format(name))
    (folder / "more.md").write_text("more")
    return Skill(name, folder)


def tree(model: ScriptedModel, *skills: Skill, most: int | None = None) -> Behaviour:
    """Return a turn in which a model can read skills; the request has `most` messages."""
    think: Behaviour = AgentLLMNode("think", model=model)
    think = think if most is None else ContextBudget("budget", think, messages=most)
    steps: list[Behaviour] = [
        Invert("is lost", think),
        HasFinalAnswer("is done"),
        ForceFailure("next", ToolExecutor("act", tools=[])),
    ]
    loop = LoopUntilSuccess("rounds", Selector("round", memory=True, children=steps), max_iterations=9)
    return InOrder("turn", memory=True, children=[*skills, RememberSkills("skills", loop)])


async def test_what_was_read_is_noted_without_its_text(tmp_path: Path) -> None:
    """Name, description on one line, and a path that is none of this machine; the one read last is at the end."""
    reads = [call("1", "read_skill", skill="letters"), call("2", "read_skill", skill="notes"),
             call("3", "read_skill", skill="letters"), "done"]  # fmt: skip
    made = thread(tree(ScriptedModel(reads), skill(tmp_path, "letters"), skill(tmp_path, "notes")))
    assert await run(made, human("write")) is SUCCESS
    noted = made.state.skill_context
    assert [(one.name, one.path, one.description) for one in noted] == [
        ("notes", "skills/notes/SKILL.md", "How notes are written."),
        ("letters", "skills/letters/SKILL.md", "How letters are written."),
    ]
    assert noted[-1].loaded_at > 0
    assert "greeting" not in str(noted)


@pytest.mark.parametrize("arguments", [{"skill": "none"}, {"skill": "letters", "file": "more.md"}, {"skill": ["x"]}])
async def test_what_gives_no_instructions_is_not_noted(arguments: dict[str, Any], tmp_path: Path) -> None:
    """A skill that is not there, a file of one, and a call that does not fit."""
    script = [call("1", "read_skill", **arguments), "done"]
    made = thread(tree(ScriptedModel(script), skill(tmp_path, "letters")))
    await run(made, human("write"))
    assert made.state.skill_context == []


async def test_a_skill_that_could_not_be_read_is_not_noted(tmp_path: Path) -> None:
    """Its file has gone since the tree was built."""
    made = thread(tree(ScriptedModel([call("1", "read_skill", skill="letters"), "done"]), skill(tmp_path, "letters")))
    (tmp_path / "letters" / "SKILL.md").unlink()
    await run(made, human("write"))
    assert made.state.skill_context == []


async def test_the_model_is_told_when_the_text_has_rolled_out(tmp_path: Path) -> None:
    """Also in another program; while the instructions are in the request nothing is added, and never to the state."""
    path = tmp_path / "t.db"
    with ScriptedModel([call("1", "read_skill", skill="letters"), "done"]) as model:
        await run_stored(path, tree(model, skill(tmp_path, "letters")), human("write"))
    assert not any("not in this conversation" in text for text in asked(model))
    with ScriptedModel(["fine"]) as model:
        made = await run_stored(path, tree(model, skill(tmp_path, "letters"), most=1), human("go on"))
    assert "are not in this conversation any more: letters. Read one again with read_skill" in asked(model)[-1]
    assert not any("not in this conversation" in one.text for one in made.state.messages)


async def test_skills_that_are_gone_are_told_of_no_more(tmp_path: Path) -> None:
    """In a program without that skill nobody could read it again."""
    path = tmp_path / "t.db"
    with ScriptedModel([call("1", "read_skill", skill="letters"), "done"]) as model:
        await run_stored(path, tree(model, skill(tmp_path, "letters")), human("write"))
    with ScriptedModel(["fine"]) as model:
        await run_stored(path, tree(model, skill(tmp_path, "notes"), most=1), human("go on"))
    assert not any("not in this conversation" in text for text in asked(model))


async def test_a_schema_without_the_field_is_refused(tmp_path: Path) -> None:
    """With the part of a state to derive from."""
    with pytest.raises(SetupError, match=r"needs the field skill_context, which ReActState lacks: class ReAct"):
        thread(tree(ScriptedModel([]), skill(tmp_path, "letters")), ReActState)
