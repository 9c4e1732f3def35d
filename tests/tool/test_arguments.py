"""What a tool takes: schemas, strict checks, what is injected, and functions that cannot be tools."""

from __future__ import annotations

import enum
import functools
import json
from collections.abc import Callable
from datetime import date
from typing import Annotated, Any, Literal

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import AfterValidator, BaseModel, Field, JsonValue

from jianmu.engine.context import NodeContext
from jianmu.errors import SetupError
from jianmu.tool import Tool, ToolCall, tool


class Size(enum.Enum):
    """A size."""

    S = "s"
    L = "l"


class Order(BaseModel):
    """An order."""

    item: str
    count: Annotated[int, Field(ge=1)] = 1


def problem(made: Tool, **arguments: JsonValue) -> str | None:
    """Return what is wrong with arguments."""
    return made.check(ToolCall(id="1", name=made.name, arguments=arguments))


def test_t15_two_integers() -> None:
    """T15: the schema of `add(a: int, b: int)` has the two integers, both required."""

    @tool
    async def add(a: int, b: int) -> int:
        return a + b

    assert add.parameters == {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
        "additionalProperties": False,
    }
    assert (add.name, add.description, add.is_async) == ("add", "", True)


def test_descriptions_defaults_and_names_of_pydantic() -> None:
    """The docstring describes arguments, an annotation goes before; names that models have are usual ones."""

    @tool
    def find(query: str, json: Annotated[int, Field(description="own", le=9)] = 3, model_copy: bool = False) -> None:
        """Find.

        Args:
            query: what to find
            json: not this
            model_copy: whether
        """

    assert find.description == "Find."
    assert find.parameters["properties"] == {
        "query": {"type": "string", "description": "what to find"},
        "json": {"type": "integer", "description": "own", "maximum": 9, "default": 3},
        "model_copy": {"type": "boolean", "description": "whether", "default": False},
    }
    assert problem(find, query="x", json=9, model_copy=True) is None


def test_a_tool_without_arguments() -> None:
    """Its schema is an object without properties."""

    @tool
    def now() -> str:
        return "now"

    assert now.parameters == {"type": "object", "properties": {}, "additionalProperties": False}
    assert problem(now) is None
    assert "- x: there is no such argument; there are: none" in (problem(now, x=1) or "")


@tool
def many(n: int, when: date, size: Size, kind: Literal["a", "b"], orders: list[Order], extra: dict[str, float]) -> None:
    """Take a bit of everything."""


GOOD: dict[str, JsonValue] = {
    "n": 1,
    "when": "2030-01-31",
    "size": "s",
    "kind": "a",
    "orders": [{"item": "x", "count": 2}, {"item": "y"}],
    "extra": {"x": 1, "y": 0.5},
}


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("n", "1", "n: Input should be a valid integer"),
        ("n", 1.0, "n: "),
        ("n", True, "n: "),
        ("when", 3, "when: "),
        ("size", "xl", "size: Input should be 's' or 'l'"),
        ("kind", "c", "kind: Input should be 'a' or 'b'"),
        ("orders", [{"item": "x", "count": 0}], "orders.0.count: Input should be greater than or equal to 1"),
        ("orders", {"item": "x"}, "orders: "),
        ("extra", {"x": "1"}, "extra.x: "),
    ],
)
def test_arguments_are_strict_json(name: str, value: JsonValue, told: str) -> None:
    """What JSON has a form for is taken in that form; nothing is converted, and the text names the place."""
    assert problem(many, **GOOD) is None
    assert f"- {told}" in (problem(many, **{**GOOD, name: value}) or "")


def test_all_faults_are_told_up_to_ten() -> None:
    """A model can mend everything at once, and a flood stays readable."""
    text = problem(many, zzz=1) or ""
    assert text.startswith("The arguments of 'many' do not fit, so it was not called:\n")
    assert text.count("is missing") == 6
    assert "- zzz: there is no such argument; there are: n, when, size, kind, orders, extra" in text
    flood = problem(many, **{f"x{number}": 1 for number in range(100)}) or ""
    assert len(flood.splitlines()) == 12
    assert flood.endswith("- and 96 more")


def test_a_validator_speaks_through_its_value_error_only() -> None:
    """A ValueError is meant for the model; of other exceptions of the host only the type is told."""

    def check(value: str) -> str:
        raise {"v": ValueError("say please"), "k": KeyError("token=abc"), "r": RuntimeError("token=abc")}[value]

    @tool
    def ask(word: Annotated[str, AfterValidator(check)]) -> None: ...

    assert "say please" in (problem(ask, word="v") or "")
    for word, name in (("k", "KeyError"), ("r", "RuntimeError")):
        assert (problem(ask, word=word) or "").endswith(f"- they could not be checked ({name})")


@pytest.mark.parametrize("value", [float("nan"), "\ud800", functools.reduce(lambda deep, _: [deep], range(5000), [])])
def test_odd_json_is_a_fault_of_the_model(value: Any) -> None:
    """NaN, half characters and endless depth are told as what they are: arguments that do not fit."""

    @tool
    def take(x: JsonValue) -> None: ...

    assert take.check(ToolCall.model_construct(id="1", name="take", arguments={"x": value}, raw=None)) is not None


def test_arguments_that_are_no_json() -> None:
    """The model is told to send an object."""
    assert "no JSON object" in (many.check(ToolCall.parse("1", "many", '{"n": ')) or "")


def test_what_is_injected_is_hidden() -> None:
    """`context`, `deps`, and what is annotated as a NodeContext, are neither shown to the model nor taken of it."""

    @tool
    def look(what: str, context: Any, deps: dict[str, str], here: NodeContext | None = None, *, n: int = 1) -> None: ...

    @tool
    def unannotated(context, deps): ...

    assert list(look.parameters["properties"]) == ["what", "n"]  # type: ignore[arg-type]  # an object of JSON
    assert unannotated.parameters["properties"] == {}
    for name in ("context", "deps", "here"):
        assert f"- {name}: there is no such argument" in (problem(look, what="x", **{name: {}}) or "")


def test_what_a_partial_binds_is_hidden() -> None:
    """A key that was bound stays on this machine."""

    def fetch(url: str, key: str, n: int = 1) -> str:
        return url + key

    made = Tool(functools.partial(fetch, key="secret"))
    assert made.name == "fetch"
    assert "secret" not in json.dumps(made.parameters)
    assert list(made.parameters["properties"]) == ["url", "n"]  # type: ignore[arg-type]  # an object of JSON
    assert "- key: there is no such argument" in (problem(made, url="x", key="y") or "")


def test_methods_and_objects_are_functions_too() -> None:
    """A bound method leaves out self; an object is called, and described by its call or its class."""

    class Shelf:
        """A shelf."""

        def take(self, name: str) -> str:
            """Take one."""
            return name

        async def __call__(self, name: str) -> str:
            return name

    taken, called = Tool(Shelf().take), Tool(Shelf(), name="shelf")
    assert (taken.name, taken.description, taken.is_async) == ("take", "Take one.", False)
    assert (called.name, called.description, called.is_async) == ("shelf", "A shelf.", True)
    assert list(called.parameters["properties"]) == ["name"]  # type: ignore[arg-type]  # an object of JSON


def positional(a: int, /) -> None: ...
def star(*a: int) -> None: ...
def stars(**a: int) -> None: ...
def bare(a): ...
def opaque(a: threading_lock_type) -> None: ...  # noqa: F821  # the name is missing on purpose
def callback(fine: int, a: Callable[[], None]) -> None: ...
def own(a: object, b: Opaque) -> None: ...
def field(a: int = Field(3)) -> None: ...
def taken(context: str) -> None: ...
def steps(a: int):
    yield a


class Opaque:
    """Nothing that JSON knows."""


@pytest.mark.parametrize(
    ("fn", "text"),
    [
        (positional, "'a' is positional-only; a model gives arguments by name"),
        (star, "'a' is variadic positional"),
        (stars, "'a' is variadic keyword"),
        (bare, "'a' has no annotation: write a: <type>"),
        (opaque, "the annotation of 'a' cannot be read .*threading_lock_type"),
        (callback, "the type of 'a' has no JSON schema"),
        (own, "the type of '[ab]' has no JSON schema"),
        (field, r"write a: Annotated\[<type>, Field\(...\)\] = <default>"),
        (taken, "give this parameter another name"),
        (steps, "is a generator: return one value"),
        (lambda: 1, "name='<lambda>': it takes 1 to 64 letters"),
        (Opaque, "a tool is made of a function, not of"),
        (3, "a tool is made of a function, not of 3"),
    ],
)
def test_what_cannot_be_a_tool(fn: Any, text: str) -> None:
    """It is said when the tool is made, with the parameter and what to write."""
    with pytest.raises(SetupError, match=text):
        tool(fn)


@pytest.mark.parametrize(
    "options",
    [
        {"name": "a b"},
        {"name": "x" * 65},
        {"name": ""},
        {"description": 3},
        {"timeout": 0},
        {"timeout": True},
        {"timeout": float("inf")},
        {"requires_approval": "yes"},
        {"idempotent": 1},
        {"max_result_chars": 0},
        {"max_result_chars": 1.5},
    ],
)
def test_an_option_has_a_shape(options: dict[str, Any]) -> None:
    """The error names the option, the value and what it takes; so does `replace`."""

    def fine() -> None: ...

    with pytest.raises(SetupError, match=f"{next(iter(options))}=.*: it takes"):
        tool(**options)(fine)
    with pytest.raises(SetupError, match=f"{next(iter(options))}=.*: it takes"):
        tool(fine).replace(**options)


def test_replace_makes_another_tool() -> None:
    """The first is as it was; an option that is none is refused."""

    @tool
    def fine() -> None: ...

    other = fine.replace(name="other", timeout=3)
    assert (fine.name, fine.timeout, other.name, other.timeout) == ("fine", None, "other", 3)
    with pytest.raises(SetupError, match="no option fn=: there are: name"):
        fine.replace(fn=len)


async def proxy(arguments: dict[str, JsonValue], deps: Any = None) -> Any:
    """Hand a call on."""
    return arguments


def test_a_schema_from_elsewhere() -> None:
    """With `parameters=` the schema is shown and checked as it is, and the function gets one dict."""
    schema = {"type": "object", "properties": {"context": {"type": "integer"}}, "required": ["context"]}
    made = Tool(proxy, parameters=schema)
    assert (made.parameters, made.description) == (schema, "Hand a call on.")
    assert problem(made, context=1, more="x") is None
    assert "- at $.context: type" in (problem(made, context="1") or "")


@pytest.mark.parametrize("schema", [{"type": "array"}, {}, {"type": "object", "properties": 3}])
def test_a_schema_from_elsewhere_is_one_of_an_object(schema: dict[str, Any]) -> None:
    """Anything else is refused when the tool is made; so is a function that takes nothing."""
    with pytest.raises(SetupError, match="takes a JSON schema with"):
        Tool(proxy, parameters=schema)
    with pytest.raises(SetupError, match="takes its arguments as one dict"):
        Tool(lambda: None, name="x", parameters={"type": "object"})


KINDS: dict[Any, st.SearchStrategy[Any]] = {
    int: st.integers(-(2**53), 2**53),
    str: st.text(st.characters(exclude_categories=["Cs"])),
    bool: st.booleans(),
    list[int]: st.lists(st.integers(0, 9)),
    dict[str, str]: st.dictionaries(st.sampled_from("ab"), st.just("x")),
    int | None: st.none() | st.integers(0, 9),
    Literal["a", "b"]: st.sampled_from("ab"),
}
SIGNATURES = st.dictionaries(
    st.from_regex(r"[a-z_]{1,6}", fullmatch=True).filter(lambda name: name not in ("context", "deps")),
    st.sampled_from(list(KINDS)),
    max_size=4,
)


@given(st.data())
def test_the_schema_and_the_check_agree(data: st.DataObject) -> None:
    """What the schema allows is taken and arrives as it was sent; what lacks an argument or has one more is refused."""
    kinds = data.draw(SIGNATURES)
    space: dict[str, Any] = {}
    names = [name for name in kinds if not __import__("keyword").iskeyword(name)]
    exec(f"def f({', '.join(names)}): return dict({', '.join(f'{name}={name}' for name in names)})", space)
    space["f"].__annotations__ = {name: kinds[name] for name in names}
    made = Tool(space["f"])
    sent = {name: data.draw(KINDS[kinds[name]]) for name in names}
    jsonschema.validate(sent, made.parameters)
    assert problem(made, **sent) is None
    for wrong in ({**sent, "zzzzzzz": 1}, *({k: v for k, v in sent.items() if k != name} for name in names)):
        assert problem(made, **wrong) is not None
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(wrong, made.parameters)


def test_nothing_of_the_place_of_definition_is_kept_alive() -> None:
    """The names around a function are read once: a tool holds none of them."""
    import gc
    import weakref

    class Big:
        pass

    def make() -> tuple[Tool, weakref.ref[Big]]:
        big = Big()

        @tool
        def small(a: int) -> None: ...

        return small, weakref.ref(big)

    made, big = make()
    gc.collect()
    assert big() is None
    assert made.name == "small"
