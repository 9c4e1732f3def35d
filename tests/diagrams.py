"""The diagrams of the docs, drawn from the tables in the code: `python -m tests.diagrams` writes them.

What is joined to what comes from the tables alone; here stands only where it is drawn.
"""

from __future__ import annotations

from jianmu.engine.phases import REST, TRANSITIONS
from jianmu.engine.questions import ENDS
from tests.house import ROOT

FOLDER = ROOT / "docs" / "diagrams"
AT_REST = "at rest"
STYLE = """<style>
  text { font: 14px sans-serif; fill: #222; text-anchor: middle; }
  rect { fill: #eef2fb; stroke: #3f51b5; stroke-width: 1.5; }
  rect.group { fill: none; stroke-dasharray: 5 4; }
  path { fill: none; stroke: #555; stroke-width: 1.5; marker-end: url(#tip); }
  marker path { fill: #555; stroke: none; }
  @media (prefers-color-scheme: dark) {
    text { fill: #ddd; }
    rect { fill: #2a2f45; stroke: #8c9eff; }
    path { stroke: #aaa; }
    marker path { fill: #aaa; }
  }
</style>
<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" orient="auto">
  <path d="M0 0 10 5 0 10z"/></marker></defs>"""

# The middle of each state.
PHASES = {"idle": (110, 110), "suspended": (110, 220), "finished": (110, 330)}
PHASES |= {"driving": (400, 110), "stepping": (400, 330), "parking": (660, 220)}
QUESTIONS = {"open": (90, 120), "answered": (480, 40), "expired": (480, 120), "withdrawn": (480, 200)}

# For each arrow its curve and the place of its words.
ROUTES = {
    (AT_REST, "driving"): ("M190 92 L344 96", (268, 84)),
    (AT_REST, "stepping"): ("M190 348 L344 344", (268, 366)),
    (AT_REST, "parking"): ("M190 206 L600 210", (520, 200)),
    ("driving", "suspended"): ("M362 130 L166 208", (334, 166)),
    ("stepping", "suspended"): ("M362 310 L166 234", (244, 290)),
    ("stepping", "idle"): ("M376 310 L154 130", (356, 272)),
    ("driving", "parking"): ("M456 116 Q600 130 640 198", (590, 134)),
    ("stepping", "parking"): ("M456 324 Q600 310 640 242", (590, 322)),
    ("parking", "idle"): ("M668 198 C640 20 240 20 128 88", (400, 38)),
    ("parking", "suspended"): ("M604 226 L170 222", (520, 244)),
    ("parking", "finished"): ("M668 242 C640 420 240 420 128 352", (400, 416)),
    ("parking", "parking"): ("M716 208 C760 190 760 250 716 232", (740, 186)),
    ("open", "answered"): ("M146 108 L418 46", (280, 60)),
    ("open", "expired"): ("M146 120 L418 120", (280, 112)),
    ("open", "withdrawn"): ("M146 132 L418 194", (254, 200)),
}
DEEDS = {"answered": "answer", "expired": "deadline", "withdrawn": "withdraw, or its node is halted"}


def phases() -> str:
    """Return the phases of a runner as an SVG; what is the same for all phases at rest is one arrow from their box."""
    rest = {phase.value for phase in REST}
    arrows: dict[tuple[str, str], str] = {}
    for (phase, what), after in TRANSITIONS.items():
        source = AT_REST if phase in REST else phase.value
        arrows[source, after.value] = what
    shared = {(what, after) for (phase, what), after in TRANSITIONS.items() if phase in REST}
    assert all((phase, what) in TRANSITIONS for phase in REST for what, _ in shared), "the phases at rest differ"
    group = f'<rect class="group" x="28" y="66" width="162" height="306" rx="8"/>\n{words("at rest", (76, 58))}'
    return drawing(770, 430, {name: PHASES[name] for name in (*sorted(rest), *moving(rest))}, arrows, group)


def moving(rest: set[str]) -> list[str]:
    """Return the phases of the table that are not at rest."""
    found = {phase.value for phase, _ in TRANSITIONS} | {phase.value for phase in TRANSITIONS.values()}
    return sorted(found - rest)


def questions() -> str:
    """Return the states of a question as an SVG."""
    arrows = {(before, after): DEEDS[after] for before, ends in ENDS.items() for after in ends}
    return drawing(560, 240, {state: QUESTIONS[state] for state in ENDS}, arrows)


def drawing(
    width: int, height: int, states: dict[str, tuple[int, int]], arrows: dict[tuple[str, str], str], group: str = ""
) -> str:
    """Return an SVG of states and arrows with words."""
    title = "; ".join(f"{before} to {after}: {what}" for (before, after), what in arrows.items())
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" role="img">']
    parts += [f"<title>{title}</title>", STYLE, group]
    for arrow, what in arrows.items():
        curve, place = ROUTES[arrow]
        parts += [f'<path d="{curve}"/>', words(what, place)]
    for name, (x, y) in states.items():
        parts += [f'<rect x="{x - 56}" y="{y - 20}" width="112" height="40" rx="6"/>', words(name, (x, y + 5))]
    return "\n".join(part for part in [*parts, "</svg>"] if part) + "\n"


def words(text: str, place: tuple[int, int]) -> str:
    """Return a text at a place."""
    return f'<text x="{place[0]}" y="{place[1]}">{text}</text>'


DRAWINGS = {"phases": phases, "questions": questions}

if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, draw in DRAWINGS.items():
        (FOLDER / f"{name}.svg").write_text(draw(), encoding="utf-8")
