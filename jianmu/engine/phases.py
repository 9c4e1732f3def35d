"""The phases of a runner, as a table; the picture in the docs is drawn from it."""

from __future__ import annotations

from enum import Enum

from jianmu.errors import AgentBusyError


class Phase(Enum):
    """Where a runner stands."""

    IDLE = "idle"
    DRIVING = "driving"
    STEPPING = "stepping"
    SUSPENDED = "suspended"
    PARKING = "parking"
    FINISHED = "finished"


REST = (Phase.IDLE, Phase.SUSPENDED, Phase.FINISHED)

# (phase, what happens) -> the next phase; everything else is refused.
TRANSITIONS: dict[tuple[Phase, str], Phase] = {
    **{(phase, "drive"): Phase.DRIVING for phase in REST},
    **{(phase, "step"): Phase.STEPPING for phase in REST},
    **{(phase, "park"): Phase.PARKING for phase in (*REST, Phase.DRIVING, Phase.STEPPING)},
    (Phase.DRIVING, "suspend"): Phase.SUSPENDED,
    (Phase.STEPPING, "pause"): Phase.IDLE,
    (Phase.STEPPING, "suspend"): Phase.SUSPENDED,
    (Phase.PARKING, "park"): Phase.PARKING,
    (Phase.PARKING, "rest"): Phase.IDLE,
    (Phase.PARKING, "finish"): Phase.FINISHED,
    (Phase.PARKING, "suspend"): Phase.SUSPENDED,
}


def advance(phase: Phase, what: str) -> Phase:
    """Return the phase after `what`.

    Raises:
        AgentBusyError: the runner is in use.
    """
    after = TRANSITIONS.get((phase, what))
    if after is None:
        raise AgentBusyError(
            f"the agent is {phase.value} in another call: await that call first, or build an agent for each thread"
        )
    return after
