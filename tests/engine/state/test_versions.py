"""Migrations in the body of a schema: what may be one, and which of them lead from version to version."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel

from jianmu.engine.state import migration
from jianmu.engine.state.versions import migrations_of, steps_between
from jianmu.errors import SchemaError, SchemaVersionError


class First(BaseModel):
    """A schema with the first two steps."""

    name: str = ""

    @staticmethod
    @migration(1, 2)
    def one(saved: dict[str, Any]) -> dict[str, Any]:
        """Say that it was called."""
        return {**saved, "one": True}

    @staticmethod
    @migration(2, 3)
    def two(saved: dict[str, Any]) -> dict[str, Any]:
        """Say that it was called."""
        return {**saved, "two": True}


class Third(First):
    """A schema that adds a step and has another second one."""

    @migration(2, 3)
    @staticmethod
    def two(saved: dict[str, Any]) -> dict[str, Any]:
        """Say that it was called."""
        return {**saved, "other two": True}

    @staticmethod
    @migration(3, 5)
    def _three(saved: dict[str, Any]) -> dict[str, Any]:
        return {**saved, "three": True}


def test_steps_are_found_in_the_schema_and_its_bases() -> None:
    """By the version that they start at; one that is overridden counts as it is below; the field is still a field."""
    assert [*First.model_fields] == ["name"]
    assert [First.one({}), Third().two({})] == [{"one": True}, {"other two": True}]
    assert [step.name for step in steps_between(First, 1, 3)] == ["one", "two"]
    assert [(step.name, step.start, step.end) for step in steps_between(Third, 2, 5)] == [
        ("two", 2, 3),
        ("_three", 3, 5),
    ]
    assert migrations_of(Third)[2].fn({}) == {"other two": True}
    assert steps_between(Third, 5, 5) == []


@pytest.mark.parametrize(
    ("start", "end", "line"),
    [
        (4, 5, r"from version 4, .* to 5: write @staticmethod, @migration\(4, 5\), `def migrate"),
        (3, 4, r"from version 3, .* to 4: write @staticmethod, @migration\(3, 4\)"),
        (0, 5, r"from version 0, .* to 5: write @staticmethod, @migration\(0, 1\)"),
    ],
)
def test_a_missing_step_is_an_error_with_the_line_to_write(start: int, end: int, line: str) -> None:
    """No step from there, or only one that leads past the version wanted."""
    with pytest.raises(SchemaVersionError, match=line):
        steps_between(Third, start, end)


def test_two_steps_from_one_version_are_an_error() -> None:
    """Which of them counts could only be guessed."""

    class Twice(First):
        @staticmethod
        @migration(1, 3)
        def again(saved: dict[str, Any]) -> dict[str, Any]:
            return saved

    with pytest.raises(SchemaError, match=r"Twice has two migrations from version 1, one and again"):
        migrations_of(Twice)


@pytest.mark.parametrize("versions", [(2, 1), (1, 1), (-1, 2), ("1", 2), (True, 2), (1.0, 2.0)])
def test_versions_are_whole_numbers_that_rise(versions: Any) -> None:
    """All else is refused when the class is made, with the line to write."""
    with pytest.raises(SchemaError, match=r"write @migration\(1, 2\)"):
        migration(*versions)


@pytest.mark.parametrize("fn", [lambda: None, lambda self, saved: saved, dict, 3])
def test_a_step_is_a_function_of_what_was_saved(fn: Any) -> None:
    """Methods and classes are refused, with the line to write; so is one function for two steps."""
    with pytest.raises(SchemaError, match=r"write @staticmethod, @migration\(1, 2\), `def "):
        migration(1, 2)(fn)
    once = migration(1, 2)(lambda saved: saved)
    with pytest.raises(SchemaError, match="is a migration already"):
        migration(2, 3)(once)
