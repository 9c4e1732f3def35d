"""What a tool takes: the JSON schema that a model is shown, and the check of what it sends.

1. Arguments are checked as strict JSON: what a JSON client can send for a type, and nothing looser.
2. What is injected is no argument: it is not in the schema, and a model that sends it is refused.
3. A text made here is for the model: what it sent and what the schema says, nothing else of this machine. A validator
   of the user's speaks to the model through its ValueError; of any other exception only the type is told.
"""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, TypeAlias, cast, get_args, get_type_hints  # Any: users' functions and types

from pydantic import Field, JsonValue, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema

from jianmu.engine.answers import JsonObject, door_of, json_copy
from jianmu.engine.context import NodeContext
from jianmu.errors import MissingExtraError, SetupError
from jianmu.tool.docstring import read_docstring

Injected: TypeAlias = Literal["context", "deps"]
_INJECTED: tuple[Injected, ...] = ("context", "deps")
_PLAIN = (str, int, float, bool, bytes, list, tuple, dict, set)
_NOT_SENT = "missing_keyword_only_argument"
_NOT_TAKEN = "unexpected_keyword_argument"
_FAULTS = 10
_TEXT = json.JSONEncoder(allow_nan=False)


class Untitled(GenerateJsonSchema):
    """A schema without the titles that Pydantic makes of names: they tell a model nothing, and cost tokens."""

    def get_title_from_name(self, name: str) -> str:
        """Return no title."""
        return ""

    def field_title_should_be_set(self, schema: Any) -> bool:
        """Return that a field needs none."""
        return False


class Arguments:
    """What a function takes, read from its signature and its docstring.

    Attributes:
        schema: the JSON schema of the arguments, an object.
        injected: by parameter, what it is given by whoever calls the tool.
        description: what the docstring says before its sections.
    """

    def __init__(self, fn: Callable[..., Any], where: str, names: Mapping[str, Any]) -> None:
        reading = _Reading(fn, where, names)
        self.description, told = read_docstring(reading.doc)
        given = reading.parameters()
        self.injected: dict[str, Injected] = {}
        for one in given:
            kind = reading.kind(one)
            if kind is not None:
                self.injected[one.name] = kind
        taken = [reading.taken(one, told) for one in given if one.name not in self.injected]
        self._names = [one.name for one in taken]
        try:
            self._adapter = _adapter_of(taken)
            schema = json_copy(self._adapter.json_schema(schema_generator=Untitled))
        except Exception as error:  # noqa: BLE001  # a type's own hooks run here and may raise anything
            problem = type(error).__name__
        else:
            self.schema: JsonObject = {"properties": {}, **cast("JsonObject", schema)}
            return
        name = next((one.name for one in taken if not _has_schema(one)), "?")
        text = f"the type of '{name}' has no JSON schema ({problem}): give one that a model can send"
        raise SetupError(f"{where}: {text}, or name it 'deps' if it is no argument of the model's")

    def read(self, arguments: Mapping[str, JsonValue]) -> dict[str, Any]:
        """Return the values to call the function with, defaults among them.

        Raises:
            ValueError: they do not fit; the text is for the model.
        """
        try:
            return self._adapter.validator.validate_json(_TEXT.encode(arguments), strict=True)
        except ValidationError as error:
            faults = error.errors(include_url=False, include_context=False, include_input=False)
            told = [self._told(one["loc"], one["type"], one["msg"]) for one in faults[:_FAULTS]]
            problem = "\n".join(f"- {one}" for one in told)
            more = len(faults) - len(told)
            problem += f"\n- and {more} more" if more > 0 else ""
        except Exception as error:  # noqa: BLE001  # a validator of the user's may raise anything
            problem = f"- they could not be checked ({type(error).__name__})"
        raise ValueError(problem)

    def _told(self, loc: tuple[int | str, ...], code: str, message: str) -> str:
        place = ".".join(str(part) for part in loc)[:80] or "all"
        if code == _NOT_SENT:
            return f"{place}: is missing"
        if code == _NOT_TAKEN:
            names = ", ".join(self._names) or "none"
            return f"{place}: there is no such argument; there are: {names}"
        return f"{place}: {message[:300]}"


class GivenArguments:
    """What a function takes that gets all arguments as one dict, by a JSON schema that came from elsewhere.

    Raises:
        SetupError: it is no JSON schema of an object.
        MissingExtraError: the schema needs `jsonschema`.
    """

    def __init__(self, schema: Mapping[str, Any], fn: Callable[..., Any], where: str) -> None:
        try:
            self._check, self.schema = door_of(dict(schema)).check, cast("JsonObject", json_copy(dict(schema)))
            is_object = schema.get("type") == "object"
        except MissingExtraError:
            raise
        except SetupError:
            is_object = False
        if not is_object:
            raise SetupError(f'{where}: parameters= takes a JSON schema with "type": "object"')
        names = [one.name for one in _Reading(fn, where, {}).parameters()]
        if not names or names[0] in _INJECTED:
            raise SetupError(f"{where} takes its arguments as one dict: write def call(arguments, ...)")
        self.description = read_docstring(inspect.getdoc(fn))[0]
        self.injected: dict[str, Injected] = {name: name for name in _INJECTED if name in names}
        self._first = names[0]

    def read(self, arguments: Mapping[str, JsonValue]) -> dict[str, Any]:
        """Return the values to call the function with; raises ValueError as `Arguments.read` does."""
        copied = json_copy(dict(arguments))
        problem = self._check(copied)
        if problem is not None:
            required = cast("list[str]", self.schema.get("required") or [])
            missing = [f"- {name}: is missing" for name in required if name not in cast("JsonObject", copied)]
            raise ValueError("\n".join(missing) or f"- {problem}")
        return {self._first: copied}


def unwrapped(fn: Any) -> Any:
    """Return the function in a partial."""
    return fn.func if isinstance(fn, functools.partial) else fn


class _Reading:
    """A function while it is read.

    Attributes:
        doc: its docstring.
    """

    def __init__(self, fn: Callable[..., Any], where: str, names: Mapping[str, Any]) -> None:
        self._where, self._names = where, names
        self._fn: Any = fn
        inner = unwrapped(fn)
        self._target = inner if inspect.isroutine(inner) else inner.__call__
        self.doc: str | None = getattr(self._target, "__doc__", None) or inner.__doc__

    def parameters(self) -> list[inspect.Parameter]:
        """Return the parameters; what a partial binds is none of the model's business."""
        bound: dict[str, Any] = self._fn.keywords if unwrapped(self._fn) is not self._fn else {}
        try:
            found = inspect.signature(self._fn).parameters.values()
        except (ValueError, TypeError):
            found = None
        if found is None:
            raise SetupError(f"{self._where}: its signature cannot be read: wrap it in a function of your own")
        return [one for one in found if one.name not in bound]

    def kind(self, one: inspect.Parameter) -> Injected | None:
        """Return what a parameter is given, or None for one that the model gives."""
        if one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD, one.POSITIONAL_ONLY):
            kind = one.kind.description
            raise SetupError(f"{self._where}: '{one.name}' is {kind}; a model gives arguments by name: name each")
        if one.name == "deps":
            return "deps"
        annotation = self._annotation(one, is_needed=one.name != "context")
        if annotation is NodeContext or NodeContext in get_args(annotation):
            return "context"
        if one.name == "context" and annotation in _PLAIN:
            text = "'context' is the name of what a tool is given of its run: give this parameter another name"
            raise SetupError(f"{self._where}: {text}")
        return "context" if one.name == "context" else None

    def taken(self, one: inspect.Parameter, told: Mapping[str, str]) -> inspect.Parameter:
        """Return a parameter as the schema needs it: by keyword, with its description."""
        if isinstance(one.default, FieldInfo):
            line = f"{one.name}: Annotated[<type>, Field(...)] = <default>"
            raise SetupError(f"{self._where}: '{one.name}' has a Field as its default: write {line}")
        annotation = self._annotation(one)
        description = told.get(one.name)
        if description and not any(isinstance(note, FieldInfo) and note.description for note in get_args(annotation)):
            annotation = Annotated[annotation, Field(description=description)]
        return one.replace(kind=one.KEYWORD_ONLY, annotation=annotation)

    def _annotation(self, one: inspect.Parameter, *, is_needed: bool = True) -> Any:
        """Return the type of a parameter, read in the module of its function and the names around it."""
        if one.annotation is one.empty and is_needed:
            raise SetupError(f"{self._where}: '{one.name}' has no annotation: write {one.name}: <type>")
        holder = type("Holder", (), {"__annotations__": {one.name: one.annotation}})
        space = getattr(inspect.unwrap(getattr(self._target, "__func__", self._target)), "__globals__", {})
        try:
            return get_type_hints(holder, {**space, **self._names}, include_extras=True)[one.name]
        except Exception as error:  # noqa: BLE001  # an annotation that is a text is code, which may raise anything
            problem = str(error) if isinstance(error, NameError) else type(error).__name__
        if not is_needed:
            return None
        raise SetupError(f"{self._where}: the annotation of '{one.name}' cannot be read ({problem})")


def _adapter_of(parameters: list[inspect.Parameter]) -> TypeAdapter[dict[str, Any]]:
    def take(**given: Any) -> dict[str, Any]:
        return given

    stand_in: Any = take
    stand_in.__signature__ = inspect.Signature(parameters)
    stand_in.__annotations__ = {one.name: one.annotation for one in parameters}
    return TypeAdapter(stand_in)


def _has_schema(one: inspect.Parameter) -> bool:
    try:
        _adapter_of([one]).json_schema()
    except Exception:  # noqa: BLE001  # as above
        return False
    return True
