"""What is written down of a question when it is asked."""

from __future__ import annotations

from datetime import datetime
from typing import Any, cast  # Any: the snapshot, of the user's schema

from jianmu.engine.answers import is_kept
from jianmu.engine.questions import Origin, Suspension, digest_of_shown, question_id
from jianmu.engine.record import Record, ends_at
from jianmu.engine.request import Request, shown_json
from jianmu.errors import SetupError


def asked(origin: Origin, request: Request, key: str, count: int, *, snapshot: Any, now: datetime) -> Record:
    """Return the record of a new question.

    Args:
        origin: who asks.
        request: what; its functions are called with `snapshot`.
        key: tells the questions of one node apart.
        count: how many were asked under the same identity before.
        snapshot: the state.
        now: the present.

    Raises:
        SetupError: a function of the request returned something that cannot be shown.
    """
    message = request.message(snapshot) if callable(request.message) else request.message
    if not isinstance(cast("object", message), str):
        raise SetupError(f"the message of a Request has to be a text, not {type(message).__name__}", path=origin.path)
    texts = {"message": message.replace("\0", ""), "reason": request.reason, "key": key, "assignee": request.assignee}
    bad = next((name for name, text in texts.items() if text is not None and not is_kept(text)), None)
    if bad is not None:
        text = f"node '{origin.path}' asks with a {bad} that has a NUL or a lone surrogate, which no store keeps"
        raise SetupError(text, path=origin.path)
    data = shown_json("data", request.data(snapshot) if callable(request.data) else request.data)
    question = Suspension(
        id=question_id(origin, key, count),
        thread_id=origin.thread_id,
        path=origin.path,
        key=key,
        reason=request.reason,
        message=message,
        data=data,
        response_schema=request.door.schema,
        expires_at=ends_at(now, request.steps),
        assignee=request.assignee,
        metadata=request.details,
        digest=digest_of_shown(message, data),
    )
    return Record(
        question=question, origin=origin, count=count, steps=request.steps, asked_at=now, private=request.private
    )
