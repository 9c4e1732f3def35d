"""Shows a chat in this terminal until the person quits."""

from __future__ import annotations

from typing import Any  # Any: agents of every schema

import anyio
from anyio.lowlevel import current_token

from jianmu.agent import Agent
from jianmu.errors import RunError, SetupError
from jianmu.terminal.app import ChatApp
from jianmu.terminal.conversation import Conversation


async def chat(agent: Agent[Any], thread_id: str | None = None, *, hint: str = "") -> str | None:
    """Talk with an agent in this terminal until the person quits.

    Args:
        agent: whom to talk with; the field `messages` of its state is the conversation.
        thread_id: the thread to go on with, or to begin; None: a new one.
        hint: what stands in the empty prompt.

    Returns:
        The id of the thread that was shown last, or None if nothing was said in it.

    Raises:
        RunError: the chat itself has an error.
        SetupError: the state has no `messages`, or the event loop is not asyncio's, on which alone textual runs.
    """
    if type(current_token().native_token).__module__.partition(".")[0] == "trio":
        raise SetupError("chat() needs asyncio, on which alone textual runs: anyio.run(chat, agent)")
    talk = Conversation(agent, thread_id)
    try:
        if await _shown(talk, hint, has_thread=thread_id is not None):
            raise RunError("the chat has broken down with an error of its own, which stands above")
    finally:
        talk.close()
    return None if talk.is_new else talk.thread_id


async def _shown(talk: Conversation, hint: str, *, has_thread: bool) -> int | None:
    """Show a conversation, and return the app's exit code when the last turn has ended."""
    async with anyio.create_task_group() as group:
        app = ChatApp(talk, group.start_soon, hint=hint, has_thread=has_thread)
        try:
            await app.run_async()
        finally:
            talk.leave()
        return app.return_code
