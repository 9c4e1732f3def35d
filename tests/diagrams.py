"""The diagrams of the docs, drawn from the tables in the code: `python -m tests.diagrams` prints them."""

from __future__ import annotations

from jianmu.engine.phases import TRANSITIONS, Phase
from jianmu.engine.questions import ENDS

DEEDS = {"answered": "answer", "expired": "deadline", "withdrawn": "withdraw, or its node is halted"}


def phases() -> str:
    """Return the phases of a runner as a Mermaid state diagram."""
    arrows: dict[tuple[str, str], list[str]] = {}
    for (phase, what), after in TRANSITIONS.items():
        arrows.setdefault((phase.value, after.value), []).append(what)
    lines = [f"    {before} --> {after}: {' / '.join(what)}" for (before, after), what in arrows.items()]
    return "\n".join(["stateDiagram-v2", f"    [*] --> {Phase.IDLE.value}", *lines])


def questions() -> str:
    """Return the states of a question as a Mermaid state diagram."""
    lines = [f"    {before} --> {after}: {DEEDS[after]}" for before, ends in ENDS.items() for after in ends]
    last = [f"    {state} --> [*]" for state, ends in ENDS.items() if not ends]
    return "\n".join(["stateDiagram-v2", "    [*] --> open: ask", *lines, *last])


if __name__ == "__main__":
    print(phases(), questions(), sep="\n\n")  # noqa: T201  # it is what the command is for
