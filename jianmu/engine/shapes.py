"""Whether two requests ask for the same: their JSON schemas, compared without titles and descriptions."""

from __future__ import annotations

from typing import Any, cast  # Any: JSON

from jianmu.engine.answers import JsonObject
from jianmu.engine.questions import Suspension
from jianmu.engine.request import Request
from jianmu.errors import TreeMismatchError

_NOTES = ("title", "description")
_LITERAL = ("enum", "const", "default", "examples")
_PLAIN = ("string", "integer", "boolean", "null")


def is_same_shape(one: JsonObject, other: JsonObject) -> bool:
    """Whether two schemas ask for the same, whatever they call it."""
    return one == other or _bare(one) == _bare(other)


def is_other_kind(one: JsonObject, other: JsonObject) -> bool:
    """Whether no value is right for both: the one wants a text, say, and the other a number."""
    kinds = {str(one.get("type")), str(other.get("type"))}
    return all(isinstance(each.get("type"), str) for each in (one, other)) and kinds not in (
        {"integer", "number"},
        {str(one.get("type"))},
    )


def is_plain(schema: JsonObject) -> bool:
    """Whether what fits a schema is the same for Python as for JSON, so that no type is needed to read it."""
    rules = {key: value for key, value in schema.items() if key not in _NOTES}
    return not rules or rules.keys() == {"enum"} or (rules.keys() == {"type"} and rules["type"] in _PLAIN)


def refuse_other(question: Suspension, request: Request, path: str) -> None:
    """Refuse a request that is not what a question has asked, in another process, for the same node.

    Raises:
        TreeMismatchError: type or reason are others; nothing is changed.
    """
    is_same = is_same_shape(request.door.schema, question.response_schema)
    if is_same and request.reason == question.reason:
        return
    what = "of another reason" if is_same else "for an answer of another type"
    text = f"node '{path}' asks {what} than its question '{question.id}', which was asked before the thread was loaded"
    raise TreeMismatchError(f"{text}: go on with the program that asked it, or withdraw the question", path=path)


def _bare(schema: Any) -> Any:
    """Return a schema without titles and descriptions; a property of that name has a schema, and they are texts."""
    if isinstance(schema, list):
        return [_bare(each) for each in cast("list[Any]", schema)]
    if not isinstance(schema, dict):
        return schema
    parts = cast("dict[str, Any]", schema).items()
    kept = {key: part for key, part in parts if not (key in _NOTES and isinstance(part, str))}
    return {key: part if key in _LITERAL else _bare(part) for key, part in kept.items()}
