"""Versions of a schema: what makes of a state saved with one version the state of a later one."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar, cast  # Any: JSON, and whatever is decorated

from pydantic import BaseModel

from jianmu.errors import SchemaError, SchemaVersionError

Saved = dict[str, Any]
"""`state` (its fields), `questions` and `journal` (lists of records), as JSON."""
F = TypeVar("F", bound=Callable[..., Saved])

_NOTE = "jianmu_migration"


@dataclass(frozen=True)
class Migration:
    """One step from a version of a schema to a later one.

    Attributes:
        start: the version that it reads.
        end: the version that it makes.
        name: its name.
        fn: takes what was saved, and returns the same shape.
    """

    start: int
    end: int
    name: str
    fn: Callable[[Saved], Saved]


def migration(start: int, end: int) -> Callable[[F], F]:
    """Make a function in the body of a schema the step from one of its versions to a later one.

    What was saved is `{"state": {...}, "questions": [...], "journal": [...]}`, JSON, and the function returns the
    same shape: the fields of the state, the records of the questions, the entries of the journal. It gets a copy.

        class Customer(BaseModel):
            first: str
            last: str

            @staticmethod
            @migration(1, 2)
            def split_the_name(saved: dict) -> dict:
                first, _, last = saved["state"].pop("name").partition(" ")
                saved["state"] |= {"first": first, "last": last}
                return saved

    The version that a program has is `Agent(version=2)`; what was saved without one has version 1.

    Args:
        start: the version that it reads.
        end: the version that it makes, a later one.

    Raises:
        SchemaError: these are no versions, or it is no function of one argument.
    """
    if not all(type(each) is int for each in cast("tuple[object, ...]", (start, end))) or not 0 <= start < end:
        raise SchemaError(f"@migration({start!r}, {end!r}) leads from a version to a later one: write @migration(1, 2)")

    def mark(fn: Any) -> Any:
        inner = getattr(fn, "__func__", fn)
        name = getattr(inner, "__name__", repr(type(inner).__name__))
        call = f"@staticmethod, @migration({start}, {end}), `def {name}(saved: dict) -> dict:`"
        if not inspect.isfunction(inner) or len(inspect.signature(inner).parameters) != 1:
            raise SchemaError(f"{name} is no function of what was saved: write {call}")
        if hasattr(inner, _NOTE):
            raise SchemaError(f"{name} is a migration already: write one function for each step")
        setattr(inner, _NOTE, Migration(start, end, name, inner))
        return staticmethod(inner)

    return mark


def migrations_of(model: type[BaseModel]) -> dict[int, Migration]:
    """Return the steps of a schema, its bases' too, by the version that each starts at.

    Raises:
        SchemaError: there are two for one step.
    """
    names = {name: value for base in reversed(model.__mro__) for name, value in vars(base).items()}
    found: dict[int, Migration] = {}
    for value in names.values():
        step = getattr(inspect.unwrap(cast("Any", value)), _NOTE, None) if isinstance(value, staticmethod) else None
        if isinstance(step, Migration):
            other = found.setdefault(step.start, step)
            if other is not step:
                twice = f"{model.__name__} has two migrations from version {step.start}, {other.name} and {step.name}"
                raise SchemaError(f"{twice}: leave one")
    return found


def steps_between(model: type[BaseModel], start: int, end: int) -> list[Migration]:
    """Return the steps from one version of a schema to another.

    Raises:
        SchemaError: there are two for one step.
        SchemaVersionError: one is missing; with the line to write.
    """
    known, steps = migrations_of(model), list[Migration]()
    while start < end:
        step = known.get(start)
        if step is None or step.end > end:
            what = f"{model.__name__} has no migration from version {start}, which this was saved with, to {end}"
            line = f"@migration({start}, {min([end, *(at for at in known if at > start)])})"
            raise SchemaVersionError(f"{what}: write @staticmethod, {line}, `def migrate(saved: dict) -> dict:` there")
        steps.append(step)
        start = step.end
    return steps
