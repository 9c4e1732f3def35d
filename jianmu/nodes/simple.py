"""SimpleLLMNode: asks a language model one thing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast  # Any: snapshots, prompts and output types are the users'

from py_trees.common import Status

from jianmu.engine.ports import Port
from jianmu.errors import RunError
from jianmu.message import Message, human
from jianmu.model.base import ChatModel, Settings
from jianmu.nodes.base import call_of, give_ports, plain
from jianmu.nodes.replies import ModelNode, Prompt
from jianmu.nodes.streaming import Shown


class SimpleLLMNode(ModelNode):
    """Ask the model one thing and write the answer to the field `into`, or to `field.key` of a dict field.

    `prompt` is a field's name, `Const("text")`, or a function of the snapshot that returns a text, parts, or messages.
    The answer is a text; with `output` an object of that type, validated. One that does not fit is sent back to the
    model with what is wrong, once. The text is told as `Token` events. Requests, tokens and cost count for the limits
    of the run. No conversation is read or written.
    SUCCESS when the answer is written.
    RUNNING while it is awaited.
    FAILURE when the model refused, cannot be reached, takes no more requests or not so long ones, answered nothing, or
    twice something of another form; the feedback says why, and nothing is written.
    What only the program can put right is raised, and `LimitExceeded` before a request that the run may not send.
    Halting ends the request; nothing is written.

    Args:
        name: the node's name.
        model: who is asked: a ChatModel, or its name as `jianmu.model.lookup` takes it.
        prompt: what is asked.
        into: where the answer goes; without it it is dropped.
        output: the type of the answer: a Pydantic model, or another type that Pydantic validates.
        system: the system prompt, or a function of the snapshot that returns it.
        settings: how to answer.
    """

    def __init__(
        self,
        name: str | None = None,
        *,
        model: ChatModel | str,
        prompt: object,
        into: str | None = None,
        output: Any = str,
        system: Prompt = None,
        settings: Settings | None = None,
    ) -> None:
        super().__init__(name, model=model, system=system, settings=settings, output=output)
        self._ask = prompt if callable(prompt) else None
        if self._ask is not None:
            plain(self, "prompt", self._ask)
        ports = {"into": Port("into", True, output, None)}
        ports |= {} if self._ask else {"prompt": Port("prompt", False, str)}
        given = {"into": into, "prompt": None if self._ask else prompt}
        give_ports(self, ports, {name: value for name, value in given.items() if value is not None})

    async def _work(self) -> Status:
        """Ask, and write the answer."""
        _, value = await self._fitting(self._request(self._question()), Shown(self.context, None))
        self.write_port("into", value)
        return Status.SUCCESS

    def _question(self) -> list[Message]:
        """Return what is asked, as messages."""
        asked: Any = self._ask(self.read_state()) if self._ask else self.context.read_port("prompt")
        path, kind = self.context.path, type(asked).__name__
        given = cast("Sequence[Any]", asked if isinstance(asked, list | tuple) else [asked])
        if given and all(isinstance(one, Message) for one in given):
            return [*given]
        try:
            return [human(cast("Any", asked), id=f"prompt:{path}")]
        except ValueError:
            pass
        text = f"node '{path}': what {call_of(self, 'prompt')} gives is a text, parts, or messages, not {kind}"
        raise RunError(text, path=path)
