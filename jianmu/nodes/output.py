"""The form that a reply is to have, and what the model is told when it has another."""

from __future__ import annotations

import inspect
import json
import re
from typing import Any  # Any: the user's type, and JSON

from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError

from jianmu.errors import SetupError
from jianmu.message import Message, human
from jianmu.model.base import OutputSpec

_FENCED = re.compile(r"\s*```\w*\n(.*?)```\s*", re.DOTALL)
_NO_NAME = re.compile(r"[^a-zA-Z0-9_-]+")
MOST = 10
"""Faults that the model is told of one invalid reply."""


class Output:
    """A type that a reply is to be of: a Pydantic model, or anything else that Pydantic can validate.

    Args:
        kind: the type.
        where: the call that gives it, for errors.

    Attributes:
        spec: what the model is told.

    Raises:
        SetupError: the type has no JSON schema.
    """

    def __init__(self, kind: Any, where: str) -> None:
        if inspect.isroutine(kind):
            raise SetupError(f"{where} takes a type, not a function")
        try:
            self._adapter: TypeAdapter[Any] = TypeAdapter(kind)
            schema = self._adapter.json_schema()
        except PydanticUserError as error:
            raise SetupError(f"{where}: {kind!r} has no JSON schema: {error}") from error
        self._is_boxed = schema.get("type") != "object" and "$ref" not in schema
        if self._is_boxed:  # providers take objects only
            definitions = {"$defs": schema.pop("$defs")} if "$defs" in schema else {}
            schema = {"type": "object", "properties": {"value": schema}, "required": ["value"], **definitions}
        name = _NO_NAME.sub("_", getattr(kind, "__name__", "output"))[:64] or "output"
        text = (vars(kind).get("__doc__") or "") if isinstance(kind, type) else ""
        self.spec = OutputSpec(schema, name, inspect.cleandoc(text))

    def read(self, text: str) -> Any:
        """Return the value that a reply's text is.

        Raises:
            ValueError: it is none; the text says why, for the model.
        """
        fenced = _FENCED.fullmatch(text)
        text = fenced[1] if fenced else text
        try:
            if not self._is_boxed:
                return self._adapter.validate_json(text)
            return self._adapter.validate_json(_boxed(text))
        except ValidationError as error:
            problem = _told(error)
        raise ValueError(problem)


def correction(problem: str) -> Message:
    """Return what the model is told after a reply that has another form."""
    return human(
        f"Your answer does not have the form that was asked for:\n{problem}\n"
        f"Answer again with the corrected JSON, and nothing else.",
        id="correction",
    )


def _boxed(text: str) -> str:
    try:
        found: Any = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict) or "value" not in found:
        raise ValueError('it is no JSON object with the key "value"')
    return json.dumps(found["value"])


def _told(error: ValidationError) -> str:
    faults = error.errors(include_url=False, include_context=False, include_input=False)
    lines = [f"- {'.'.join(map(str, fault['loc'])) or 'the answer'}: {fault['msg']}" for fault in faults[:MOST]]
    return "\n".join(lines)
