"""The title of a thread: who may write it, and when.

1. What comes by itself comes once: it never takes the place of a title that is there.
2. A person's rename wins, whenever it comes, and goes along into forks.
3. A title is one line of signs that are printed, whoever gives it: terminals and logs show it as it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, Literal, Protocol  # Any: an agent of any schema, and values of its fields

from jianmu.agent import Agent
from jianmu.engine.state import Clear
from jianmu.errors import SetupError
from jianmu.message import Message
from jianmu.tool.types import whole_text

LONGEST = 60
"""Characters of a title that comes by itself."""
_TO_TERMINALS = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?")
"""The sequences by which a terminal is told something, with the texts in them."""
_JOINERS = "\u200c\u200d"
"""They are not printed, and hold the parts of one sign together."""


class Writing(Protocol):
    """What can write a state: a manager, a node, or a node's context."""

    def transform_field(self, key: str, fn: Callable[[Any], Any], /) -> None:
        """Write `fn(current)`."""
        ...


def give_title(state: Writing, title: str | None, by: Literal["model", "text"] = "model") -> bool:
    """Give the thread a title if it has none, in one write that no rename can fall into; say whether it was taken.

    Args:
        state: what can write the state.
        title: the title; made one line, and cut where it is too long. None, and one with nothing in it, give none.
        by: whom it is from: a model, or the text of the first message.
    """
    made = _short(title or "")
    taken = False

    def once(old: str | None) -> str | None:
        nonlocal taken
        taken = not old and bool(made)
        return made if taken else old

    state.transform_field("title", once)
    if taken:
        state.transform_field("title_by", lambda old: old if old == "person" else by)
    return taken


def renamed(title: str | None) -> dict[str, Any]:
    """Return the updates for a person's rename: `manager.update(renamed("Taxes 2026"))`.

    It is made one line, and is not cut. With None, or one with nothing in it, the thread has no title, and may be given
    one again.
    """
    made = printed(title or "")
    return {"title": made, "title_by": "person"} if made else {"title": Clear(), "title_by": Clear()}


def title_of_text(messages: Iterable[Message]) -> str | None:
    """Return a title from the first message of a person that has a text, without a model; None if there is none."""
    texts = (_short(message.text) for message in messages if message.role == "human")
    return next((text for text in texts if text), None)


async def fork_thread(agent: Agent[Any], thread_id: str, new_id: str | None = None, *, at: int | None = None) -> str:
    """Make a new thread that goes on from a number of another one, under the name that a person has given that one.

    The new thread is the agent's current one afterwards. It gets a sandbox and folders of its own, which are empty: the
    files of the other thread are not copied.

    Args:
        agent: of the thread's program, with a store.
        thread_id: the source.
        new_id: the new thread's id; by default a new one.
        at: the number; None: the last one.

    Returns:
        The new thread's id.

    Raises:
        SetupError: the agent has no store.
        StoreError: the log does not have that number, or there is a thread with the new id.
    """
    if agent.store is None:
        raise SetupError("fork_thread needs the store that the threads are in: Agent(..., store=SQLiteStore(path))")
    store: Any = agent.store
    made: str = await store.fork(thread_id, new_id, at=at)
    newest = (await store.show(thread_id)).fields
    await agent.load(made)
    own = renamed(newest.get("title")) if newest.get("title_by") == "person" else {}
    if "sandbox" in agent.state_manager.schema.fields and agent.state_manager.read("sandbox") is not None:
        own["sandbox"] = Clear()
    if own:
        agent.state_manager.update(own)
        await agent.save()
    return made


def printed(text: str) -> str:
    """Return what is printed of a text, on one line."""
    line = " ".join(_TO_TERMINALS.sub("", whole_text(text)).split())
    return " ".join("".join(sign for sign in line if sign.isprintable() or sign in _JOINERS).split())


def _short(text: str) -> str:
    """Return a text on one line, cut where it is too long."""
    line = printed(text)
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 1].rstrip()}…"
