"""The node that gives a thread its title; who may write one is told in `jianmu.thread.title`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from py_trees.common import Status

from jianmu.engine.context import NodeContext
from jianmu.engine.tree import path_of
from jianmu.errors import StateWriteError
from jianmu.message import Message, human, system
from jianmu.model.base import ChatModel, Settings
from jianmu.nodes import conversation
from jianmu.nodes.base import FINITE, Number, Option, Shape
from jianmu.nodes.llm import AgentLLMNode
from jianmu.thread.asking import Nobody, SideModelNode
from jianmu.thread.part import Kinds, Part, nodes_around
from jianmu.thread.title import give_title, printed, title_of_text

PROMPT = (
    "You name conversations. Answer with a title of at most six words, in the language of the conversation: "
    "no quotation marks, no full stop, nothing else."
)
_READ = 2000
"""Characters that the model is shown of what each has said."""
_AROUND = " \t\"'`*#_“”„«»‘’"
_ABOVE_0: Shape = (lambda value: FINITE[0](value) and value > 0), "seconds above 0"


class Title(Part, SideModelNode):
    """Give the thread a title when the first exchange is over, if it has none.

    Reads `messages` and `title`; writes `title`, `title_by` and, where the schema has it, `usage`. A model is asked
    once, with what was said first; nothing of that is told as `Token` events, and no projection changes it. Without a
    model, or when it fails, answers nothing, takes too long or may not be asked any more in this run, the title is made
    of the person's first text. A rename that comes meanwhile stays.

    It stands after the model node, best after the loop: the answer is there by then. `Finally("run", tree,
    Title.fallback)` around the tree gives a title to a first turn that is broken off.
    SUCCESS in any case; at once where there is a title or no reply yet.
    RUNNING while the model is asked.
    Halting ends the request; nothing is written.

    Args:
        name: the node's name.
        model: who is asked, a cheap one will do; None: nobody.
        seconds: how long that may take, or a function of the snapshot.
        settings: how the model is to answer.
    """

    reads: ClassVar[tuple[str, ...]] = ("messages",)
    writes: ClassVar[tuple[str, ...]] = ("title", "title_by")
    requires: ClassVar[Kinds] = (AgentLLMNode,)
    after: ClassVar[Kinds] = (AgentLLMNode,)

    def __init__(
        self,
        name: str | None = None,
        *,
        model: ChatModel | str | None = None,
        seconds: Number = 10.0,
        settings: Settings | None = None,
    ) -> None:
        super().__init__(name, model=Nobody() if model is None else model, settings=settings)
        self._seconds = Option(self, "seconds", seconds, _ABOVE_0)

    @staticmethod
    def fallback(context: NodeContext) -> None:
        """Give a thread without a title one from the person's text, and ask no model: the cleanup of a Finally."""
        _give(context, title_of_text(conversation.messages_of(context)), by="text")

    def on_bound(self) -> None:
        """Refuse a second one: a thread has one title."""
        super().on_bound()
        other = next((node for node in nodes_around(self) if isinstance(node, Title) and node is not self), None)
        if other is not None:
            raise self._refused(f"and '{path_of(other)}' both give the thread its title: leave one out")

    async def _work(self) -> Status:
        messages = conversation.messages_of(self.context)
        if self.context.manager.read("title") or all(one.role != "ai" for one in messages):
            return Status.SUCCESS
        told = None
        if not isinstance(self._model, Nobody):
            told = await self._told([system(PROMPT), human(_exchange(messages))], self._seconds())
            if used := conversation.counted(self.context, self._spent):
                self.write_state(used)
        if not _give(self.context, _title_in(told or ""), by="model"):
            self.fallback(self.context)
        return Status.SUCCESS


def _give(context: NodeContext, title: str | None, by: Literal["model", "text"]) -> bool:
    """Give the thread a title if it has none; one that the schema does not take is none."""
    try:
        return give_title(context, title, by)
    except StateWriteError as error:
        context.log.warning("a title was refused", reason=str(error))
        return False


def _exchange(messages: Sequence[Message]) -> str:
    """Return what was said first, in a text."""
    first = {"human": "", "ai": ""}
    for role in first:
        texts = (message.text.strip()[:_READ] for message in messages if message.role == role)
        first[role] = next((text for text in texts if text), "")
    return f"Person: {first['human']}\n\nAssistant: {first['ai']}"


def _title_in(reply: str) -> str:
    """Return the title in what a model has answered, without what it was told to leave out."""
    lines = [printed(line).strip(_AROUND) for line in reply.splitlines()]
    return next((line for line in lines if line), "").removeprefix("Title:").strip(_AROUND)
