"""Ports: declared on the class, bound when the node is built, checked against the schema before the first tick."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypedDict

import pytest
from py_trees.composites import Sequence
from pydantic import BaseModel, ConfigDict, Field

from jianmu.agent import Agent
from jianmu.engine.node import AsyncNode, Node
from jianmu.engine.ports import Const, In, Out
from jianmu.errors import JianmuError, SetupError, StateWriteError
from jianmu.testing import node_context
from tests.cases.leaves import SUCCESS, Status, run

pytestmark = pytest.mark.anyio


class User(BaseModel):
    """A nested model."""

    name: str = ""


class Board(BaseModel):
    """A state with fields of several kinds."""

    task: str = "what"
    count: int = 1
    ratio: float = 0.5
    maybe: str | None = None
    tags: list[str] = Field(default_factory=list)
    outputs: dict[str, str] = Field(default_factory=dict)
    perhaps: dict[str, int] | None = None
    user: User = Field(default_factory=User)
    anything: Any = None


class Open(BaseModel):
    """A state that takes other fields too."""

    model_config = ConfigDict(extra="allow")

    task: str = ""


class Think(Node):
    """Copies a question, with what it costs."""

    question: In[str]
    cost: In[int] = 3
    answer: Out[str]

    def update(self) -> Status:
        """Copy."""
        self.answer = f"{self.question} {self.cost}"
        return SUCCESS


class Put(Node):
    """Writes a value to its output."""

    value: In[Any]
    to: Out[Any]

    def update(self) -> Status:
        """Write."""
        self.to = self.value
        return SUCCESS


def tried(node: Node, schema: type[BaseModel] = Board, values: dict[str, Any] | None = None) -> BaseModel:
    """Return the state after one tick of a node."""
    bench = node_context(schema, values)
    bench.tick(node)
    return bench.state


@pytest.mark.parametrize(
    ("bound", "answer"),
    [
        ({"question": "task"}, "what 3"),
        ({"question": "task", "cost": 7}, "what 7"),
        ({"question": "task", "cost": "count"}, "what 1"),
        ({"question": Const("why")}, "why 3"),
        ({"question": Const("task")}, "task 3"),
        ({"question": "outputs.q"}, "kept 3"),
        ({"question": "maybe"}, "None 3"),
    ],
)
def test_a_text_names_a_field_and_all_else_is_a_literal(bound: dict[str, Any], answer: str) -> None:
    """Fields, keys of dict fields, literals, `Const` for texts, class-level defaults."""
    assert tried(Think("think", answer="task", **bound), values={"outputs": {"q": "kept"}}).task == answer


def test_a_key_of_a_dict_field_is_written_alone() -> None:
    """By `merge_dict`: other keys stay; so does a field that was None."""
    state = tried(Put("p", value=Const("x"), to="outputs.a"), values={"outputs": {"b": "y"}})
    assert state.outputs == {"a": "x", "b": "y"}
    assert tried(Put("p", value=5, to="perhaps.n")).perhaps == {"n": 5}


def test_a_key_that_is_not_there_reads_as_none() -> None:
    """Also where the whole dict is None."""
    assert tried(Put("p", value="perhaps.n", to="anything"), values={"anything": 1}).anything is None
    assert tried(Put("p", value="outputs.n", to="anything"), values={"anything": 1}).anything is None


def test_inputs_are_read_when_they_are_asked_for() -> None:
    """A port is no copy: it gives the newest value at each read."""

    class Twice(Node):
        n: In[int]
        seen: Out[list[str]]

        def update(self) -> Status:
            first = self.n
            self.write_state({"count": first + 1})
            self.seen = [str(first), str(self.n)]
            return SUCCESS

    assert tried(Twice("t", n="count", seen="tags")).tags == ["1", "2"]


def test_write_port_does_what_assigning_does() -> None:
    """`write_port(name, value)` for names that are computed; one that is no output is refused."""

    class Named(Node):
        answer: Out[str]

        def update(self) -> Status:
            self.write_port("answer", "yes")
            with pytest.raises(SetupError, match=r"no output 'nothing': declare nothing: Out"):
                self.write_port("nothing", 1)
            return SUCCESS

    assert tried(Named("n", answer="task")).task == "yes"


def test_an_output_can_be_read_back() -> None:
    """It is the field's value."""

    class Reads(Node):
        answer: Out[str]

        def update(self) -> Status:
            self.answer = self.answer + "!"
            return SUCCESS

    assert tried(Reads("n", answer="task")).task == "what!"


async def test_async_nodes_have_ports_as_well() -> None:
    """And subclasses inherit them; two nodes of one class keep apart."""

    class Base(AsyncNode):
        source: In[str]
        target: Out[str]

    class Copies(Base):
        async def update_async(self) -> Status:
            self.target = self.source
            return SUCCESS

    root = Sequence(
        "s",
        memory=True,
        children=[
            Copies("a", source=Const("1"), target="outputs.a"),
            Copies("b", source="outputs.a", target="outputs.b"),
        ],
    )
    agent = Agent(root, Board)
    assert await run(agent) is SUCCESS
    assert agent.state.outputs == {"a": "1", "b": "1"}


def test_an_output_with_a_default_need_not_be_bound() -> None:
    """`answer: Out[str] = None`: what is assigned then goes nowhere."""

    class Optional(Node):
        answer: Out[str] = Const(None)

        def update(self) -> Status:
            self.answer = "lost"
            return SUCCESS

    assert tried(Optional("n")) == Board()


def think(**bound: Any) -> Callable[[], Node]:
    """Return what makes a Think with these bindings."""
    return lambda: Think("think", **bound)


WRONG: dict[str, tuple[Callable[[], Node], str]] = {
    "a missing input": (
        think(answer="task"),
        r"node 'main/think' has no value for port 'question': bind it, Think\(\"think\", question=\"<field>\"\)",
    ),
    "a missing output": (
        think(question="task"),
        r"node 'main/think' has no field for port 'answer': bind it, Think\(\"think\", answer=\"<field>\"\)",
    ),
    "a typo": (think(question="taks", answer="task"), r"'taks'.*Board has no field 'taks': did you mean 'task'\?"),
    "a field that is not there": (think(question="zzz", answer="task"), "its fields are: task, count"),
    "an output into another type": (think(question="task", answer="count"), "gives str, but 'count' is int"),
    "an input from another type": (think(question="tags", answer="task"), r"takes str, but 'tags' is list\[str\]"),
    "another scalar": (think(question="task", cost="task", answer="task"), "takes int, but 'task' is str"),
    "a key of another type": (think(question="perhaps.n", answer="task"), "takes str, but 'perhaps.n' is int"),
    "an output into a nested model": (
        think(question="task", answer="user.name"),
        "'user.name', but 'user' is User: only keys of a dict field",
    ),
    "an input from a nested model": (think(question="user.name", answer="task"), "only keys of a dict field"),
    "a key of a scalar": (think(question="count.n", answer="task"), "only keys of a dict field"),
    "an output that is a literal": (
        think(question="task", answer=5),
        "binds output 'answer' to a literal: name a field",
    ),
    "an output that is a Const": (think(question="task", answer=Const("task")), "to a literal: name a field"),
    "a literal of another type": (think(question="task", cost=[1], answer="task"), "port 'cost' takes int, not list"),
    "a Const of another type": (think(question=Const(5), answer="task"), "port 'question' takes str, not int"),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_does_not_fit_the_schema_is_refused_when_the_tree_is_bound(what: str) -> None:
    """A SetupError with the node's path and what to write, before the first tick."""
    make, text = WRONG[what]
    with pytest.raises(SetupError, match=text) as caught:
        Agent(Sequence("main", memory=True, children=[make()]), Board)
    assert caught.value.path == "main/think"


@pytest.mark.parametrize(
    ("bound", "text"),
    [
        ({"qestion": "task"}, r"Think\('think'\) has no port 'qestion': did you mean 'question'\?"),
        ({"zzz": 1}, "its ports are: question, cost, answer"),
    ],
)
def test_unknown_ports_are_refused_when_the_node_is_built(bound: dict[str, Any], text: str) -> None:
    """With a near name, or all there are."""
    with pytest.raises(SetupError, match=text):
        Think("think", **bound)


@pytest.mark.parametrize(
    "name", ["status", "name", "parent", "children", "tick", "update", "context", "id", "feedback_message"]
)
def test_a_port_named_like_an_attribute_is_refused_with_the_class(name: str) -> None:
    """It would hide what py_trees needs: SetupError where the class is made."""
    with pytest.raises(SetupError, match=f"port '{name}' of Bad is named like an attribute of .*: rename it"):
        type("Bad", (Node,), {"__annotations__": {name: In[int]}, "__module__": __name__})


@pytest.mark.parametrize(
    "name", ["read_state", "write_state", "wake", "ask", "once", "emit", "write_port", "merge_dict"]
)
def test_so_is_one_named_like_what_a_node_has(name: str) -> None:
    """A port called `wake` would take the node's own `wake()` away."""
    with pytest.raises(SetupError, match=f"port '{name}'"):
        type("Bad", (Node,), {"__annotations__": {name: In[int]}, "__module__": __name__})


def test_values_are_checked_by_the_state_when_they_are_written() -> None:
    """What annotations cannot tell: the write is refused with the writer's path, and the value is not in the text."""
    with pytest.raises(StateWriteError, match=r"p.*count|count.*p") as caught:
        tried(Put("p", value=Const("secret"), to="count"))
    assert "secret" not in str(caught.value)


def test_compatible_types_fit() -> None:
    """An int into a float, an Optional into its type, a literal type, Any on either side."""

    class Wide(Node):
        ratio: In[float]
        text: In[str | None]
        any: In[Any]
        bare: In
        out: Out[int]

        def update(self) -> Status:
            self.out = 9
            return SUCCESS

    assert tried(Wide("w", ratio="count", text="task", any="tags", bare="user", out="ratio")).ratio == 9


def test_types_that_cannot_be_compared_fit() -> None:
    """Protocols and typed dicts are left to the state's own check."""

    class Speaks(Protocol):
        def speak(self) -> str: ...

    class Shape(TypedDict):
        x: int

    class Odd(Node):
        one: In[Speaks]
        two: In[Shape] = Const({"x": 1})
        out: Out[int]

        def update(self) -> Status:
            self.out = self.two["x"] + 1
            return SUCCESS

    assert tried(Odd("o", one="user", out="count")).count == 2


def test_an_open_schema_takes_other_fields_too() -> None:
    """With `extra="allow"` a new name is a field; a near one is still a typo."""
    assert tried(Put("p", value=Const("x"), to="found"), Open).found == "x"
    with pytest.raises(SetupError, match="did you mean 'task'"):
        Agent(Put("p", value=1, to="taskk"), Open)


def test_a_node_without_an_agent_says_so() -> None:
    """Reading a port of a node that is in no agent is an error with the line to write."""
    node = Think("think", question="task", answer="task")
    with pytest.raises(JianmuError, match=r"'think' is in no agent: run its tree with Agent\(root\)"):
        _ = node.question


def test_the_descriptor_is_seen_on_the_class() -> None:
    """For tools: the class has its ports, with types and defaults."""
    assert list(Think.declared_ports) == ["question", "cost", "answer"]
    port = Think.declared_ports["cost"]
    assert (port.type, port.default, port.is_output) == (int, 3, False)
    assert isinstance(Think.question, In)
