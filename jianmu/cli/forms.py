"""What a person has to type for an answer, by the JSON schema that it has to fit."""

from __future__ import annotations

import json
import math
import string
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

from pydantic import JsonValue

from jianmu.engine.answers import JsonObject, wants

Parse = Callable[[str], JsonValue]


@dataclass(frozen=True)
class Form:
    """How one kind of answer is typed.

    Attributes:
        prompt: stands before the cursor.
        wanted: says what is wanted, after a line that is no answer.
        parse: returns the answer that a line means, or raises ValueError.
        options: lines to show before the prompt.
        is_inline: whether the prompt stands on the line of the question.
    """

    prompt: str
    wanted: str
    parse: Parse
    options: tuple[str, ...] = ()
    is_inline: bool = False


def form_of(schema: JsonObject) -> Form:
    """Return the form for a schema: y or n, a numbered choice, a line, a number, or JSON for all the rest."""
    options = _options(schema)
    if options:
        return _choice(options)
    kind = schema.get("type")
    parts = [_resolved(part, schema) for part in _objects(schema.get("anyOf"))]
    inner = [part for part in parts if part.get("type") != "null"]
    if kind == "boolean" or any(part.get("type") == "boolean" for part in parts if len(parts) == len(inner)):
        return Form("[y/n]: ", "type y or n", _yes_or_no, is_inline=True)
    if len(inner) == 1 and len(parts) == 2:
        return _or_nothing(form_of(inner[0]))
    return _plain(kind, schema)


def hint(schema: JsonObject) -> str:
    """Return what JSON answers a schema, short enough for a line."""
    options = _options(schema)
    if options:
        return " or ".join(json.dumps(option, ensure_ascii=False) for option in options)
    if form_of(schema).is_inline:
        return "true or false"
    names = {"string": 'a text in quotes, "..."', "integer": "a whole number", "number": "a number"}
    return names.get(str(schema.get("type")), f"JSON that fits {wants(schema)}")


def _plain(kind: JsonValue, schema: JsonObject) -> Form:
    if kind == "string":
        return Form("> ", 'type a text ("" for an empty one)', _text)
    if kind == "integer":
        return Form("whole number: ", "type a whole number", lambda line: int(line.strip()))
    if kind == "number":
        return Form("number: ", "type a number", _number)
    return Form("JSON: ", "type JSON", _json, (f"answer with JSON that fits {wants(schema)}",))


def _or_nothing(form: Form) -> Form:
    """Return a form that takes an empty line as null."""
    prompt = f"(Enter for none) {form.prompt}"
    parse: Parse = lambda line: form.parse(line) if line.strip() else None  # noqa: E731  # one line, named for its type
    return Form(prompt, f"{form.wanted}, or nothing", parse, form.options)


def _choice(options: Sequence[JsonValue]) -> Form:
    """Return the form of a choice: its labels are numbers, or letters where an option is itself a number."""
    texts = [option if isinstance(option, str) else json.dumps(option, ensure_ascii=False) for option in options]
    has_numbers = any(text.strip().isdigit() for text in texts) and len(texts) <= 26
    labels = list(string.ascii_lowercase) if has_numbers else [str(number + 1) for number in range(len(texts))]
    meaning = {**dict(zip(texts, options, strict=True)), **dict(zip(labels, options, strict=False))}

    def parse(line: str) -> JsonValue:
        if line.strip() in meaning:
            return meaning[line.strip()]
        raise ValueError(line)

    span = f"{labels[0]}-{labels[len(texts) - 1]}"
    shown = tuple(f"  {label}) {text}" for label, text in zip(labels, texts, strict=False))
    return Form(f"[{span}]: ", f"type one of {span}", parse, shown)


def _options(schema: JsonObject) -> list[JsonValue]:
    """Return the values that a schema lists, if it lists all of them."""
    listed = schema.get("enum", [schema["const"]] if "const" in schema else None)
    if isinstance(listed, list):
        return listed
    parts = _objects(schema.get("oneOf") or schema.get("anyOf"))
    return [part["const"] for part in parts] if parts and all("const" in part for part in parts) else []


def _resolved(part: JsonObject, schema: JsonObject) -> JsonObject:
    """Return a part of a schema, with a reference into `$defs` followed."""
    name = str(part.get("$ref", "")).removeprefix("#/$defs/")
    found = cast("JsonObject", schema.get("$defs") or {}).get(name)
    return {"$defs": schema.get("$defs"), **found} if isinstance(found, dict) else part


def _objects(value: JsonValue) -> list[JsonObject]:
    return [part for part in value if isinstance(part, dict)] if isinstance(value, list) else []


def _yes_or_no(line: str) -> bool:
    answers = {"y": True, "n": False}
    said = line.strip().lower()
    if said not in answers:
        raise ValueError(line)
    return answers[said]


def _text(line: str) -> str:
    if not line.strip():
        raise ValueError(line)
    return "" if line.strip() == '""' else line


def _number(line: str) -> JsonValue:
    try:
        return int(line.strip())
    except ValueError:
        found = float(line.strip())
    if math.isfinite(found):
        return found
    raise ValueError(line)


def _json(line: str) -> JsonValue:
    return json.loads(line, parse_constant=_refuse)


def _refuse(name: str) -> None:
    raise ValueError(name)
