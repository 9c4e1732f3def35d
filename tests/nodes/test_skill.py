"""Skill: what the model is told, what it can read, and what it cannot."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from jianmu.errors import SetupError
from jianmu.message import human
from jianmu.model import ScriptedModel
from jianmu.nodes import AgentLLMNode, Sequence, Skill, ToolExecutor
from jianmu.nodes.frontmatter import split
from jianmu.nodes.skill import with_skills
from jianmu.tool import Toolbox, tool
from tests.cases.leaves import SUCCESS
from tests.nodes.talk import agent, asked, call, run

pytestmark = pytest.mark.anyio

TEXT = """---
name: tea
description: How to make tea.
---
# Tea

Boil the water. See leaves/green.md.
"""


@tool
def boil(litres: int) -> str:
    """Boil water."""
    return f"{litres} l are hot"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A skill with a file, beside a file that is none of its."""
    top = tmp_path / "tea"
    (top / "leaves").mkdir(parents=True)
    (top / "SKILL.md").write_text(TEXT)
    (top / "leaves" / "green.md").write_text("80 degrees")
    (top / ".hidden").write_text("x")
    (tmp_path / "secret.txt").write_text("secret")
    return top


async def test_names_are_told_and_the_body_is_read_on_demand(folder: Path) -> None:
    """The prompt has name and description only; the model reads the body, then a file, through the tool."""
    calls = [[call("1", "read_skill", skill="tea")], [call("2", "read_skill", skill="tea", file="leaves/green.md")]]
    with ScriptedModel([*calls, "done"]) as model:
        turns: list[Any] = []
        for number in range(3):
            turns.append(AgentLLMNode(f"think {number}", model=model, system="Be kind."))
            turns.append(ToolExecutor(f"act {number}", tools=[]))
        made = agent(Sequence("s", memory=True, children=[Skill("tea", folder), *turns]))
        assert await run(made, human("tea, please")) is SUCCESS
    assert asked(model, 0)[0].text == (
        "Be kind.\n\nYou have skills: instructions for certain tasks. Before such a task, read its skill with the tool "
        "read_skill.\n- tea: How to make tea."
    )
    assert [spec.name for spec in model.requests[0].tools] == ["read_skill"]
    results = [message.text for message in made.state.messages if message.role == "tool"]
    assert results == [
        "# Tea\n\nBoil the water. See leaves/green.md.\n\nFiles of this skill:\n- leaves/green.md",
        "80 degrees",
    ]


async def test_a_skill_brings_its_tools(folder: Path) -> None:
    """The tools of a skill are offered and carried out where the skill is in reach, and nowhere else."""
    with ScriptedModel([[call("1", "boil", litres=2)], [call("2", "boil", litres=2)]]) as model:
        inner = Sequence(
            "in",
            memory=True,
            children=[
                Skill("tea", folder, tools=[boil]),
                Sequence(
                    "deep", memory=True, children=[AgentLLMNode("think", model=model), ToolExecutor("act", tools=[])]
                ),
            ],
        )
        after = [AgentLLMNode("think", model=model), ToolExecutor("act", tools=[])]
        made = agent(Sequence("s", memory=True, children=[inner, *after]))
        assert await run(made, human("tea, please")) is SUCCESS
    assert [[spec.name for spec in request.tools] for request in model.requests] == [["read_skill", "boil"], []]
    results = [message.tool_result for message in made.state.messages if message.role == "tool"]
    assert [(one.content, one.is_error) for one in results if one] == [
        ("2 l are hot", False),
        ("There is no tool 'boil', so nothing was called; there are: none.", True),
    ]


async def test_a_skill_that_comes_later_is_not_told(folder: Path) -> None:
    """A skill is for the nodes that come after it: one before it is told nothing of it."""
    with ScriptedModel(["fine"]) as model:
        nodes = [AgentLLMNode("think", model=model), Skill("tea", folder)]
        await run(agent(Sequence("s", memory=True, children=nodes)), human("x"))
    assert ([m.text for m in asked(model)], model.requests[0].tools) == (["x"], [])


@pytest.mark.parametrize(
    "file",
    ["../secret.txt", "leaves/../../secret.txt", "ABSOLUTE", "link", "dir/secret.txt", "leaves", "a\0b", "no", ""],
)
async def test_nothing_outside_is_read(folder: Path, file: str) -> None:
    """`..`, absolute paths, links that lead out, folders, and names of nothing are refused, and links are not told."""
    (folder / "link").symlink_to(folder.parent / "secret.txt")
    (folder / "dir").symlink_to(folder.parent)
    skill = Skill("tea", folder)
    file = str(folder.parent / "secret.txt") if file == "ABSOLUTE" else file
    with pytest.raises(ValueError, match="has no file"):
        skill.read(file)
    assert "Files of this skill:\n- leaves/green.md" in skill.read()
    assert "link" not in skill.read()


async def test_a_link_inside_is_read(folder: Path) -> None:
    """A link to another file of the same skill is a file of it."""
    (folder / "same.md").symlink_to(folder / "leaves" / "green.md")
    assert Skill("tea", folder).read("same.md") == "80 degrees"


async def test_what_is_no_text_is_told(folder: Path) -> None:
    """A file that is no text is an error for the model, not an exception of the run."""
    (folder / "pot.png").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match=r"'pot.png' is no text"):
        Skill("tea", folder).read("pot.png")


async def test_a_skill_that_is_not_there_is_told(folder: Path) -> None:
    """A name that no skill has is an error result with the names that there are."""
    with ScriptedModel([[call("1", "read_skill", skill="cake")]]) as model:
        nodes = [Skill("tea", folder), AgentLLMNode("think", model=model), ToolExecutor("act", tools=[])]
        made = agent(Sequence("s", memory=True, children=nodes))
        await run(made, human("x"))
    result = made.state.messages[-1]
    assert (result.is_error, "there is no skill 'cake'; there are: tea" in result.text) == (True, True)


async def test_a_folder_outside_of_the_root_is_refused(folder: Path, tmp_path: Path) -> None:
    """A folder, or a link to one, that lies outside of `root` is a SetupError."""
    inside = tmp_path / "skills"
    inside.mkdir()
    (inside / "link").symlink_to(folder)
    for given in (folder, inside / ".." / "tea", inside / "link"):
        with pytest.raises(SetupError, match="lies outside of root="):
            Skill("tea", given, root=inside)
    assert Skill("tea", folder, root=tmp_path).title == "tea"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (None, "there is no such file in the folder"),
        ("# Tea", "it does not begin with a line ---"),
        ("---\nname: tea\n", "its front matter has no end"),
        ("---\nname: tea\n---\n", "needs a line description:"),
        ("---\ndescription: x\n---\n", "needs a line name:"),
        ("---\nname: [a]\ndescription: x\n---\n", "needs a line name:"),
        ("---\nname: tea time\ndescription: x\n---\n", "needs a line name:"),
        ("---\nname: tea\ndescription: " + "x" * 1025 + "\n---\n", "of 1 to 1024 characters"),
        ("---\nname: tea\nname: tea\n---\n", "line 3: 'name' is there twice"),
        ("---\njust words\n---\n", "line 2 is not of the form key: text"),
        ("---\nname: 'tea\n---\n", "line 2: the text in quotes has no end"),
        ('---\nname: "te\\a"\n---\n', "line 2: the text in quotes has an escape"),
    ],
)
async def test_a_folder_that_is_no_skill_is_refused(tmp_path: Path, text: str | None, problem: str) -> None:
    """What is wrong with SKILL.md is a SetupError that says so, when the node is built."""
    if text is not None:
        (tmp_path / "SKILL.md").write_text(text)
    with pytest.raises(SetupError) as found:
        Skill("tea", tmp_path)
    assert str(found.value).startswith(f'Skill("tea", "{os.fspath(tmp_path)}"): SKILL.md cannot be used: ')
    assert problem in str(found.value)


async def test_two_skills_of_one_name_are_refused(folder: Path, tmp_path: Path) -> None:
    """Two skills of one name in reach of a node are a SetupError that names both folders."""
    other = tmp_path / "other"
    other.mkdir()
    (other / "SKILL.md").write_text(TEXT)
    nodes = [Skill("a", folder), Skill("b", other), AgentLLMNode("think", model=ScriptedModel())]
    with pytest.raises(SetupError, match="two skills are named 'tea'"):
        await run(agent(Sequence("s", memory=True, children=nodes)), human("x"))


async def test_the_box_of_a_node_is_made_once_for_its_skills(folder: Path) -> None:
    """It is the same one in each round, and another one when a skill has come."""
    think, box = AgentLLMNode("think", model=ScriptedModel()), Toolbox(boil)
    tree = Sequence("s", memory=True, children=[Skill("tea", folder), think])
    first = with_skills(think, box)
    assert with_skills(think, box) is first
    assert first.names == ("boil", "read_skill")
    other = folder.parent / "coffee"
    other.mkdir()
    (other / "SKILL.md").write_text(TEXT.replace("name: tea", "name: coffee"))
    tree.insert_child(Skill("coffee", other, tools=[steep]), 0)
    assert with_skills(think, box).names == ("boil", "read_skill", "steep")


@tool
def steep(minutes: int) -> str:
    """Steep."""
    return f"{minutes} min"


@pytest.mark.parametrize(
    ("lines", "value"),
    [
        ("k: a plain text # not this", "a plain text"),
        ("k: Use it when: always, a#b", "Use it when: always, a#b"),
        ("k: one\n  two # c\n\n  three\n  # c", "one two\nthree"),
        ("k: >\n  one\n   more\n  two\n  three\n\n\n  four", "one\n more\ntwo three\n\nfour\n"),
        ("k: 'it''s' # x", "it's"),
        ('k: "a \\"b\\"\\n"', 'a "b"\n'),
        ("k: >\n  one\n  two\n\n  three", "one two\nthree\n"),
        ("k: >-\n  one\n  two", "one two"),
        ("k: |\n  one\n    two\nj: x", "one\n  two\n"),
        ("k: |+\n  one\n\nj: x", "one\n\n"),
        ("k:\n  a: b", None),
        ("k:\n- a\n- b", None),
        ("k: {a: b}", None),
        ("k:", None),
        ("# c\n\nk: ja\ttab", "ja\ttab"),
    ],
)
async def test_texts_are_read_as_yaml_reads_them(lines: str, value: str | None) -> None:
    """Plain, quoted and block texts are what YAML has; lists and mappings are no texts."""
    found, body = split(f"---\n{lines}\n---\n\nbody\n")
    assert (found["k"], body) == (value, "body")
