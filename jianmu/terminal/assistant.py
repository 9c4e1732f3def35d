"""Whom one talks with without an agent of one's own: a model by its name, or the built-in scripted assistant."""

from __future__ import annotations

import operator
import os
import re
from collections.abc import Callable, Sequence
from typing import Annotated, Any  # Any: an agent of a schema that only its options name

from pydantic import Field

from jianmu.agent import Agent
from jianmu.engine.clock import Clock
from jianmu.engine.context import NodeContext
from jianmu.engine.request import Request
from jianmu.message import Message
from jianmu.model import ChatModel, ModelRequest, ScriptedModel, Turn
from jianmu.model.base import REAL, Stream
from jianmu.nodes.llm import AgentLLMNode
from jianmu.nodes.projections import is_added
from jianmu.prebuilt.react import ReActState, react_agent
from jianmu.thread import ThreadState, thread_agent
from jianmu.tool import Tool, ToolCall, tool

PAUSE = 0.03
"""Seconds between two words of the scripted assistant."""
NUMBER = r"-?\d+(?:\.\d+)?"
SUM = re.compile(rf"({NUMBER})\s*([-+*/x×])\s*({NUMBER})")
NOTE = re.compile(r"\bnote\b[:\s]*(.*)", re.IGNORECASE | re.DOTALL)
SHELL = re.compile(r"^\s*\$\s*(\S.*)", re.DOTALL)
TABLE = re.compile(r"\btable\b", re.IGNORECASE)
SIGNS: dict[str, Callable[[float, float], float]] = {
    "+": lambda left, right: left + right,
    "-": lambda left, right: left - right,
    "*": lambda left, right: left * right,
    "x": lambda left, right: left * right,
    "×": lambda left, right: left * right,
    "/": lambda left, right: left / right,
}

WELCOME = """\
# The scripted assistant

I am **no language model**: a script that comes with jianmu, to show what a chat looks like. Try one of these:

- `17 * 23`: a tool that is called at once
- `note: buy milk`: a tool that needs your **approval**; you may edit its arguments
- `book a table`: a tool that asks you something

The same agent with a real model and tools of your own:

```python
from jianmu.prebuilt import react_agent

agent = react_agent("openai:gpt-6-luna", [search, send_mail])
```

While I talk, **Ctrl-C** stops me, **Ctrl-T** shows the tree and the state, and **F1** all the keys.
"""


class Notebook(ReActState):
    """The state of the scripted assistant.

    Attributes:
        notes: what it was told to note.
    """

    notes: Annotated[list[str], operator.add] = Field(default_factory=list[str])


class ThreadNotebook(ThreadState):
    """The state of the scripted assistant that has files.

    Attributes:
        notes: what it was told to note.
    """

    notes: Annotated[list[str], operator.add] = Field(default_factory=list[str])


@tool(idempotent=True)
def calculate(left: float, sign: str, right: float) -> str:
    """Calculate with two numbers.

    Args:
        left: the first number.
        sign: +, -, * or /.
        right: the second number.
    """
    return f"{SIGNS[sign](left, right):g}"


@tool(requires_approval=True)
async def save_note(text: str, context: NodeContext) -> str:
    """Keep a note in the state."""
    context.write_state({"notes": [text]})
    return f"noted: {text}"


@tool
async def book_table(context: NodeContext) -> str:
    """Book a table; the tool itself asks when and for whom."""
    hour = await context.ask(Request("At what time?", answer={"enum": ["18:00", "19:30", "21:00"]}), key="hour")
    name = await context.ask(Request("In whose name?"), key="name")
    return f"a table at {hour} for {name}"


TOOLS: Sequence[Tool] = (calculate, save_note, book_table)


class ScriptedAssistant(ChatModel):
    """A model that answers by rules, word by word, without a network.

    Args:
        pause: seconds between two words.
    """

    def __init__(self, pause: float = PAUSE) -> None:
        self.name = "scripted"
        self._pause = pause

    def stream(self, request: ModelRequest, *, clock: Clock = REAL) -> Stream:
        """Return the reply that the rules have for the last message."""
        has_shell = any(one.name == "bash" for one in request.tools)
        turn = _reply(request.messages, self._pause, has_shell=has_shell)
        return ScriptedModel([turn], name=self.name).stream(request, clock=clock)


def model_agent(model: ChatModel | str, system: str | None = None) -> Agent[ReActState]:
    """Return an agent that only talks.

    Args:
        model: who talks.
        system: the system prompt.
    """
    return Agent(AgentLLMNode("reply", model=model, system=system), ReActState)


def scripted_agent(pause: float = PAUSE) -> Agent[Any]:
    """Return an agent that shows what a chat can do, by a script.

    Args:
        pause: seconds between two words.
    """
    return react_agent(ScriptedAssistant(pause), TOOLS, state_schema=Notebook)


def scripted_thread_agent(folders: str | os.PathLike[str], pause: float = PAUSE) -> Agent[Any]:
    """Return an assistant with all its parts that follows the script; `$ ls` runs a command in its sandbox.

    Args:
        folders: where the folders of its threads are.
        pause: seconds between two words.
    """
    return thread_agent(ScriptedAssistant(pause), TOOLS, folders=folders, state_schema=ThreadNotebook)


def _reply(messages: Sequence[Message], pause: float, *, has_shell: bool) -> Turn:
    """Return what the rules have for the last message."""
    last = next(message for message in reversed(messages) if not is_added(message))
    if last.role == "tool":
        return Turn(_after(last), pause=pause)
    text, id = last.text, f"call-{len(messages)}"
    if has_shell and (found := SHELL.search(text)):
        call = ToolCall(id=id, name="bash", arguments={"command": found[1]})
        return Turn("I run that in my sandbox.", [call], pause=pause)
    if found := SUM.search(text):
        left, sign, right = found.groups()
        call = ToolCall(id=id, name="calculate", arguments={"left": float(left), "sign": sign, "right": float(right)})
        return Turn("Let me calculate that.", [call], pause=pause)
    if found := NOTE.search(text):
        call = ToolCall(id=id, name="save_note", arguments={"text": found.group(1).strip() or text.strip()})
        return Turn("I would like to keep that as a note.", [call], pause=pause)
    if TABLE.search(text):
        return Turn("Gladly.", [ToolCall(id=id, name="book_table")], pause=pause)
    return Turn(WELCOME, pause=pause)


def _after(result: Message) -> str:
    """Return what is said when a tool has returned."""
    if result.is_error:
        return f"That did not work: {result.text}"
    return f"Done: **{result.text}**. Anything else?"
