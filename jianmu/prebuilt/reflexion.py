"""Reflexion: draft, score, and try again with what was learnt (Shinn et al., arXiv:2303.11366)."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, TypeAlias, cast  # Any: the snapshot, of a schema that may be the user's

from py_trees.behaviour import Behaviour
from py_trees.common import Status
from pydantic import BaseModel, Field

from jianmu.engine.node import AsyncNode, Node
from jianmu.engine.state import Ephemeral
from jianmu.errors import RunError, SetupError
from jianmu.model.base import ChatModel, Settings
from jianmu.nodes import LoopUntilSuccess, Sequence, SimpleLLMNode
from jianmu.nodes.base import FINITE, Number, Option
from jianmu.nodes.replies import Prompt


class Review(BaseModel):
    """How good a draft is.

    Attributes:
        score: from 0, of no use, to 1, perfect.
        critique: what is wrong with it, and what would make it better.
    """

    score: float = Field(ge=0, le=1)
    critique: str = ""


Score: TypeAlias = Callable[[Any], Review | float | bool | Awaitable[Review | float | bool]]


class ReflexionState(BaseModel):
    """What a tree of `reflexion` keeps; derive from it to add fields.

    Attributes:
        task: what is to be written.
        draft: the last draft.
        review: the last review, or None before the first.
        lessons: the critiques of this run, the oldest first.
        final_answer: the best draft so far, or None.
        best: its score.
    """

    task: str = ""
    draft: Annotated[str, Ephemeral(scope="run")] = ""
    review: Annotated[Review | None, Ephemeral(scope="run")] = None
    lessons: Annotated[list[str], Ephemeral(scope="run")] = Field(default_factory=list[str])
    final_answer: Annotated[str | None, Ephemeral(scope="run")] = None
    best: Annotated[float, Ephemeral(scope="run")] = 0.0


def reflexion(
    name: str = "reflexion",
    *,
    model: ChatModel | str,
    judge: ChatModel | str | Score,
    system: Prompt = None,
    settings: Settings | None = None,
    threshold: Number = 0.8,
    max_tries: Number = 3,
) -> Behaviour:
    """Return a tree that drafts an answer to `task`, has it scored, and tries again with the critique.

    The state needs the fields of `ReflexionState`; `final_answer` is the best draft, also when none was good enough.
    SUCCESS when a draft has scored `threshold`.
    RUNNING while a model is asked or a draft is scored.
    FAILURE when `max_tries` tries have not; one in which a model has failed counts too.

    Args:
        name: the name of the tree's root; below it are `try/draft`, `try/score` and `try/is good`.
        model: who drafts.
        judge: who scores: a model, which gives a `Review`; or a function of the snapshot, sync or async, which returns
            one, or a number from 0 to 1, or a bool.
        system: the system prompt of who drafts, or a function of the snapshot that returns it.
        settings: how the drafting model is to answer.
        threshold: the score that is good enough.
        max_tries: how many drafts at most.
    """
    draft = SimpleLLMNode("draft", model=model, prompt=_wanted, into="draft", system=system, settings=settings)
    steps: list[Behaviour] = [draft, _scoring(judge), IsGood("is good", threshold=threshold)]
    return LoopUntilSuccess(name, Sequence("try", memory=True, children=steps), max_iterations=max_tries)


class Scored(AsyncNode):
    """Score the draft by a function of the snapshot; writes `review`.

    SUCCESS when the score is in.
    RUNNING while it is awaited.
    """

    def __init__(self, name: str, score: Score) -> None:
        super().__init__(name)
        self._score = score

    async def update_async(self) -> Status:
        """Score it."""
        found: Any = self._score(self.read_state())
        found = await found if inspect.isawaitable(found) else found
        if isinstance(found, bool | int | float) and 0 <= found <= 1:
            found = Review(score=float(found))
        if not isinstance(found, Review):
            path = self.context.path
            raise RunError(f"node '{path}': judge= has to return a Review, or a number from 0 to 1", path=path)
        self.write_state({"review": found})
        return Status.SUCCESS


class IsGood(Node):
    """Whether the draft is good enough; keeps the best one as `final_answer`, and the critique in `lessons`.

    SUCCESS when its score is at least `threshold`.
    FAILURE otherwise; the feedback has the score.
    """

    def __init__(self, name: str, *, threshold: Number) -> None:
        super().__init__(name)
        self._threshold = Option(self, "threshold", threshold, FINITE)

    def update(self) -> Status:
        """Look at the review."""
        state = self.read_state()
        score, critique = state.review.score, state.review.critique
        updates: dict[str, Any] = {"lessons": [*state.lessons, *([critique] if critique else [])]}
        if state.final_answer is None or score > state.best:
            updates |= {"final_answer": state.draft, "best": score}
        self.write_state(updates)
        wanted = self._threshold()
        self.feedback_message = f"score {score:g}, wanted {wanted:g}"
        return Status.SUCCESS if score >= wanted else Status.FAILURE


def _scoring(judge: object) -> Behaviour:
    if callable(getattr(judge, "stream", None)) or isinstance(judge, str):
        model = cast("ChatModel | str", judge)
        return SimpleLLMNode("score", model=model, prompt=_judged, into="review", output=Review)
    if not callable(judge):
        raise SetupError(f"reflexion(judge=...) takes a model or a function of the snapshot, not {judge!r}")
    return Scored("score", cast("Score", judge))


def _wanted(state: Any) -> str:
    """Return what is asked of who drafts."""
    if state.review is None:
        return state.task
    lessons = "\n".join(f"- {lesson}" for lesson in state.lessons)
    learnt = f"\n\nWhat was said of your drafts:\n{lessons}" if lessons else ""
    return f"{state.task}\n\nYour last draft, which was not good enough:\n{state.draft}{learnt}\n\nWrite a better one."


def _judged(state: Any) -> str:
    """Return what is asked of who scores."""
    wish = "Score this draft from 0 to 1 and say what would make it better."
    return f"{wish}\n\nTask:\n{state.task}\n\nDraft:\n{state.draft}"
