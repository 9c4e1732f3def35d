"""Reads refund requests from JSON Lines: what is no request is reported with its number, and nothing is lost."""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

from pydantic import ValidationError

from jianmu.cli.demo.records import Request, Skipped

LONGEST = 100_000
WORDS = {
    "missing": "is missing",
    "string_unicode": "is no valid Unicode",
    "int_type": "has to be a whole number",
    "string_type": "has to be a text",
}


class Read(NamedTuple):
    """What a file holds; `lines` counts those that are not blank."""

    lines: int
    requests: tuple[Request, ...]
    skipped: tuple[Skipped, ...]


def read_requests(file: Path) -> Read:
    """Return the requests of a file, and the lines that are none."""
    requests: list[Request] = []
    skipped: list[Skipped] = []
    seen: dict[str, int] = {}
    with file.open("rb") as stream:
        for number, raw in _lines(stream):
            found = _parsed(raw, number)
            if isinstance(found, str):
                skipped.append(Skipped(line=number, problem=found))
                continue
            same = seen.setdefault(found.id, number)
            requests.append(found if same == number else found.model_copy(update={"same_as": same}))
    return Read(len(requests) + len(skipped), tuple(requests), tuple(skipped))


def _lines(stream: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Yield the lines that are not blank with their numbers, from 1; of one that is too long only the beginning."""
    number = 0
    while raw := stream.readline(LONGEST + 1):
        number += 1
        rest = raw
        while len(rest) > LONGEST and not rest.endswith(b"\n"):
            rest = stream.readline(LONGEST + 1)
        raw = raw.removeprefix(b"\xef\xbb\xbf") if number == 1 else raw
        if raw.strip():
            yield number, raw.rstrip(b"\r\n")


def _parsed(raw: bytes, number: int) -> Request | str:
    """Return the request that a line is, or what is wrong with it."""
    if len(raw) >= LONGEST:
        return f"longer than {LONGEST:,} bytes"
    try:
        fields: object = json.loads(raw.decode(), parse_float=Decimal, parse_constant=_refuse)
    except UnicodeDecodeError:
        return "not UTF-8"
    except json.JSONDecodeError as error:
        return f"not JSON: {error.msg} (column {error.colno})"
    except (ValueError, ArithmeticError, RecursionError):
        return "not JSON: a number or a nesting that is out of all bounds"
    if isinstance(fields, dict):
        return _request(cast("dict[str, object]", fields), number)
    return "not a JSON object"


def _request(fields: dict[str, object], number: int) -> Request | str:
    if type(fields.get("amount", 0)) not in (int, Decimal):
        return "amount: has to be a number"
    try:
        return Request.model_validate({**fields, "line": number, "same_as": None})
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        words = WORDS.get(first["type"], f"{first['msg'][:1].lower()}{first['msg'][1:]}")
        return f"{'.'.join(map(str, first['loc']))}: {words}"


def _refuse(name: str) -> None:
    raise ValueError(name)
