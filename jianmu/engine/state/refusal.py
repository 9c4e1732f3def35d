"""Why a write was refused, in words that hold no values."""

from __future__ import annotations

from collections.abc import Mapping

from jianmu.engine.state.namespaces import Target
from jianmu.errors import StateWriteError


class Misfit(Exception):  # noqa: N818  # it never leaves the package
    """A value cannot be taken; nothing was changed. It never leaves the package.

    Attributes:
        target: what was to be written; None for the model as a whole.
        why: the reason, without values.
        given: the type of what was given, where it is known.
    """

    def __init__(self, target: Target | None, why: str, given: str | None = None) -> None:
        super().__init__(why)
        self.target = target
        self.why = why
        self.given = given


def refusal(
    problem: Misfit, model: str, names: list[str], writer: str | None, writers: Mapping[str, str | None]
) -> StateWriteError:
    """Return the error for a write that was refused.

    Args:
        problem: what was found.
        model: the name of the schema.
        names: the full names of what was to be written.
        writer: the path of the writer.
        writers: the last writer of each value that was written before.
    """
    target = problem.target
    if target is None:
        what = f"the model {model} refuses the write of {', '.join(names) or 'its fields'}"
    elif target.field.name:
        what = f"field '{target.name}' takes {target.field.type_text}"
    else:
        what = f"the extra value '{target.name}' is refused"
    given = f" and was given {problem.given}" if problem.given else ""
    name = target.name if target is not None else None
    before = [f"previous writer {shown(writers[each])}" for each in ([name] if name else names) if each in writers]
    previous = before[0] if before else "not written before"
    text = f"{what}{given}: {problem.why}; writer {shown(writer)}, {previous}; nothing was changed"
    return StateWriteError(text, field=name, path=writer)


def shown(writer: str | None) -> str:
    """Return a writer as errors name it."""
    return "unnamed" if writer is None else f"'{writer}'"
