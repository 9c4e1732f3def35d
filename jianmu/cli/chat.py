"""`jianmu chat`: talk with an agent, a model, or the built-in scripted assistant."""

from __future__ import annotations

import shlex
import sys
from contextlib import redirect_stdout
from functools import partial
from importlib.util import find_spec
from typing import Annotated, Any, Literal, NamedTuple  # Any: agents of every schema

from cyclopts import Parameter

from jianmu.agent import Agent
from jianmu.cli.faults import Exit, UsageError, describe
from jianmu.cli.keyboard import is_terminal
from jianmu.cli.load import load_agent
from jianmu.cli.loop import in_loop
from jianmu.cli.options import Flag, Place
from jianmu.cli.store import check_id, closing, file_of, give_store, option
from jianmu.errors import MissingExtraError, ModelError, SetupError
from jianmu.model import ChatModel, Retrying, lookup

AnyAgent = Agent[Any]
SCRIPTED = "scripted"
HINT = 'Try "hello", "17 * 23", "note: buy milk" or "book a table"'
HINT_OF_FILES = 'Try "hello", "$ ls -la", "$ date > now.txt" or "note: buy milk"'
WAYS = """\
There are three ways to a model:

  1. the key of a provider (of any that pydantic-ai knows)
       export OPENAI_API_KEY=...
       jianmu chat --model openai:gpt-6-luna
       export ANTHROPIC_API_KEY=...
       jianmu chat --model anthropic:claude-sonnet-5-5
  2. a model on this machine, without a key
       ollama pull qwen3
       jianmu chat --model ollama:qwen3
  3. any server that speaks OpenAI's protocol, with its key if it wants one
       export OPENAI_COMPATIBLE_API_KEY=...
       jianmu chat --model 'openai_compatible:http://localhost:8080/v1#qwen3'

Or talk with an agent of your own: jianmu chat module:agent
"""
SAID = {"": True, "y": True, "yes": True, "n": False, "no": False}
INSTALL = "Models by name need the extra llm: pip install 'jianmu[llm]'\n"


def chat(
    agent: str | None = None,
    /,
    *,
    model: str | None = None,
    thread_agent: str | None = None,
    system: Annotated[str | None, Parameter(allow_leading_hyphen=True)] = None,
    thread: str | None = None,
    store: Place = None,
    debug: Flag = False,
) -> int:
    """Talk with an agent in the terminal.

    Without an agent it talks with a model by its name; without either, with a scripted assistant. With
    --thread-agent the model is the one of an assistant that plans and works with files in a sandbox on this machine.

    Args:
        agent: module:name of an Agent, or of a function that returns one; its state has the field messages.
        model: provider:model, like openai:gpt-6-luna, or "scripted".
        thread_agent: the same, for the assistant; its files are in the folder threads beside the store.
        system: the system prompt of that model.
        thread: go on with this thread of the store, or begin it; by default a new one.
        store: where threads are kept.
        debug: show the traceback of an error.
    """
    if agent is not None and (model, thread_agent, system) != (None, None, None):
        options = "--model, --thread-agent and --system"
        raise UsageError(f"{options} are for a chat without an agent: an agent has models of its own")
    if model is not None and thread_agent is not None:
        raise UsageError("--model talks with a model, --thread-agent with an assistant that has one: give one of them")
    if thread is not None:
        check_id(thread)
    if not _has_terminal():
        way = f"`jianmu run {agent} --input JSON`" if agent else "`jianmu run module:agent --input JSON`"
        raise UsageError(f"a chat needs a terminal: {way} runs an agent without one")
    if not find_spec("textual"):
        raise MissingExtraError("the chat", "cli")
    if agent is not None:
        with redirect_stdout(sys.stderr):
            loaded = load_agent(agent)
        return _show(loaded, thread, store, f"jianmu chat {agent}")
    talk = Talk("model" if thread_agent is None else "thread-agent", system, thread, store)
    return _with_model(model if thread_agent is None else thread_agent, talk)


def _has_terminal() -> bool:
    return is_terminal() and sys.__stdout__ is not None and sys.__stdout__.isatty()


class Talk(NamedTuple):
    """A chat with a model by its name.

    Attributes:
        way: the option that the model is given by.
        system: the system prompt.
        thread: the thread, or None: a new one.
        place: the store.
    """

    way: Literal["model", "thread-agent"]
    system: str | None
    thread: str | None
    place: str | None

    def agent(self, model: ChatModel) -> AnyAgent:
        """Return whom one talks with."""
        from jianmu.terminal import assistant  # noqa: PLC0415  # beside an extra

        is_script = isinstance(model, assistant.ScriptedAssistant)
        if self.way == "model":
            return assistant.scripted_agent() if is_script else assistant.model_agent(Retrying(model), self.system)
        folders = file_of(self.place).parent / "threads"
        if is_script:
            return assistant.scripted_thread_agent(folders)
        return assistant.thread_agent(Retrying(model), system=self.system, folders=folders)


def _with_model(name: str | None, talk: Talk) -> int:
    """Talk with a model, or say how one is got and offer the scripted assistant."""
    from jianmu.terminal.assistant import ScriptedAssistant  # noqa: PLC0415  # beside an extra

    problem = None
    if name not in (None, SCRIPTED):
        model, problem = _found(name or "")
        if model is not None:
            command = f"jianmu chat --{talk.way} {shlex.quote(model.name)}"
            return _show(talk.agent(model), talk.thread, talk.place, command)
    if name != SCRIPTED and not _accepts_script(problem):
        return Exit.USAGE
    command = f"jianmu chat --{talk.way} {SCRIPTED}"
    hint = HINT if talk.way == "model" else HINT_OF_FILES
    return _show(talk.agent(ScriptedAssistant()), talk.thread, talk.place, command, hint)


def _found(name: str) -> tuple[ChatModel | None, str | None]:
    """Return a model that can be asked, or why there is none."""
    try:
        model = lookup(name)
        in_loop(partial(_try, model))
    except (SetupError, ModelError) as error:
        said = describe(error).removeprefix("SetupError: ").partition(" To try Pydantic")[0]
        return None, f"error: {said}"
    return model, None


async def _try(model: ChatModel) -> None:
    """Open a model: a missing key is found so."""
    await model.open()
    await model.close()


def _accepts_script(problem: str | None) -> bool:
    """Say how a model is got, and ask whether the scripted assistant will do."""
    print(f"{problem}\n" if problem else "No model was named, and no agent.\n")
    print(WAYS)
    if not find_spec("pydantic_ai"):
        print(INSTALL)
    question = "Talk with the built-in scripted assistant for now? [Y/n] "
    try:
        while (said := input(question).strip().lower()) not in SAID:
            question = "Type y or n. [Y/n] "
    except EOFError:
        print()
        return False
    return SAID[said]


def _show(agent: AnyAgent, thread: str | None, place: str | None, command: str, hint: str = "") -> int:
    """Show the chat, and say at its end how to go on with it."""
    from jianmu.terminal import chat as show  # noqa: PLC0415  # it imports the extra

    store = give_store(agent, place, may_make=True)
    last = in_loop(lambda: closing(store, lambda _: show(agent, thread, hint=hint)))
    if last is not None:
        print(f"go on with this chat: {command} --thread {shlex.quote(last)}{option(place)}")
    return Exit.SUCCESS
