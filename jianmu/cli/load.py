"""What a command line names: an agent, its input, a checkpoint."""

from __future__ import annotations

import difflib
import importlib
import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, cast  # Any: JSON, and whatever a module holds

from py_trees.behaviour import Behaviour
from py_trees.trees import BehaviourTree

from jianmu.agent import Agent
from jianmu.cli.faults import UsageError

AnyAgent = Agent[Any]
FORM = "write it as module:name, like shop.desk:agent"


def load_agent(target: str) -> AnyAgent:
    """Return the agent that `module:name` names, or that the function of this name returns.

    A tree of py_trees will do as well: it is run on an empty state.

    Raises:
        UsageError: there is no such module or name, or it is no agent.
    """
    place, colon, name = target.partition(":")
    if not place or (colon and not name):
        raise UsageError(f"'{target}' names no agent: {FORM}")
    module = _module(place)
    if not colon:
        raise UsageError(f"'{target}' names a module, not an agent: {FORM}{_known(module)}")
    return _as_agent(_attribute(module, name), target)


def _module(place: str) -> ModuleType:
    if place.endswith(".py") or place.startswith(".") or "/" in place:
        raise UsageError(f"'{place}' is a path, not a module: {FORM}")
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        return importlib.import_module(place)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if place != missing and not place.startswith(f"{missing}."):
            raise
    raise UsageError(f"there is no module '{missing}' in {folder} or among what is installed")


def _attribute(module: ModuleType, name: str) -> object:
    found: object = module
    for part in name.split("."):
        if not hasattr(found, part):
            near = difflib.get_close_matches(part, dir(found), 1)
            hint = f"; did you mean '{near[0]}'?" if near else _known(module)
            raise UsageError(f"module '{module.__name__}' has no '{name}'{hint}")
        found = getattr(found, part)
    return found


def _known(module: ModuleType) -> str:
    """Return a hint that names the agents of a module."""
    names = [name for name, value in vars(module).items() if isinstance(value, Agent)]
    return f"; its agents are: {', '.join(names)}" if names else ""


def _as_agent(found: object, target: str) -> AnyAgent:
    made = found
    if callable(found) and not isinstance(found, (Agent, Behaviour, BehaviourTree)):
        made = cast("Callable[[], object]", found)()
    if isinstance(made, (Behaviour, BehaviourTree)):
        return Agent(made)
    if isinstance(made, Agent):
        return cast("AnyAgent", made)
    what = type(made).__name__ if made is found else f"a function that returned {type(made).__name__}"
    raise UsageError(f"'{target}' is {what}: name an Agent, or a function without arguments that returns one")


def read_input(given: str | None) -> dict[str, Any] | None:
    """Return the fields that `--input` gives: JSON, `@file`, or `-` for stdin.

    Raises:
        UsageError: it cannot be read, or is no JSON object.
    """
    if given is None:
        return None
    fields = parse_json(_text(given), "--input")
    if isinstance(fields, dict):
        return cast("dict[str, Any]", fields)
    raise UsageError(f"--input has to be a JSON object of fields, not {_kind(fields)}")


def _text(given: str) -> str:
    try:
        if given == "-" and sys.__stdin__ is not None:
            return sys.stdin.buffer.read().decode("utf-8-sig")
        return Path(given[1:]).read_text(encoding="utf-8-sig") if given.startswith("@") else given
    except (OSError, ValueError) as error:
        problem = _problem(error)
    raise UsageError(f"--input {given}: {problem}")


def parse_json(text: str, what: str) -> Any:
    """Return a JSON value.

    Raises:
        UsageError: it is none; `what` says what was read.
    """
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        problem = f"{error.msg} (line {error.lineno}, column {error.colno})"
    except (ValueError, RecursionError) as error:
        problem = str(error)
    raise UsageError(f"{what} is not JSON: {problem}")


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON value")


def read_checkpoint(file: Path) -> dict[str, Any]:
    """Return what `--save` has written.

    Raises:
        UsageError: the file cannot be read, or is no JSON object.
    """
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise UsageError(f"{file}: {_problem(error)}") from None
    record = parse_json(text, str(file))
    if isinstance(record, dict):
        return cast("dict[str, Any]", record)
    raise UsageError(f"{file} is no checkpoint: it holds {_kind(record)}")


def check_writable(file: Path) -> None:
    """Refuse a file that could not be written at the end of a run, before the run.

    Raises:
        UsageError: its folder is missing, or one may not write there.
    """
    folder = file.absolute().parent
    if not folder.is_dir():
        raise UsageError(f"{file}: there is no folder {folder}")
    if file.is_dir():
        raise UsageError(f"{file} is a folder: name a file")
    if not os.access(folder, os.W_OK):
        raise UsageError(f"{file}: one may not write in {folder}")


def write_text(file: Path, text: str) -> None:
    """Write a file whole or not at all: what was there before stays until the new text is on disk."""
    target = file.resolve()
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        Path(name).chmod(target.stat().st_mode & 0o777 if target.exists() else 0o666 & ~_umask())
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _problem(error: Exception) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else "it is not UTF-8"


def _kind(value: object) -> str:
    """Return what a JSON value is called."""
    names = {"NoneType": "null", "str": "a text", "list": "a list", "bool": "true or false"}
    return names.get(type(value).__name__, "a number")
