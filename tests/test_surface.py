"""The public surface: the names that users import, no more and no fewer."""

from __future__ import annotations

import importlib
import inspect
import pkgutil

import py_trees
import pytest

import jianmu
from jianmu import errors, nodes, prebuilt
from tests.conftest import done_alone

CORE = [
    "Agent",
    "Outcome",
    "Limits",
    "Node",
    "AsyncNode",
    "InteractiveNode",
    "NodeMixin",
    "In",
    "Out",
    "Const",
    "action",
    "condition",
    "async_action",
    "async_condition",
    "StateManager",
    "Ephemeral",
    "Transient",
    "Internal",
    "Reducer",
    "Replace",
    "Clear",
    "Remove",
    "Request",
    "Answer",
    "Suspension",
    "Status",
]
NODES = [
    "Race",
    "ForEach",
    "Switch",
    "IfThenElse",
    "Utility",
    "LoopUntilSuccess",
    "Retry",
    "Timer",
    "Repeat",
    "Timeout",
    "Cooldown",
    "Guard",
    "Catch",
    "Finally",
    "Invert",
    "ForceSuccess",
    "ForceFailure",
]
MODELS = [
    "AgentLLMNode",
    "SimpleLLMNode",
    "HasFinalAnswer",
    "ToolExecutor",
    "Skill",
    "RequestProjection",
    "Reminders",
    "ContextBudget",
    "CallDecorator",
    "CallOutcome",
    "AskingTool",
    "Delegate",
    "DelegateExecutor",
    "acting",
]
READY = ["ReActState", "ReflexionState", "Review", "delegate", "react", "react_agent", "reflexion"]
MESSAGES = ["Message", "human", "ai", "system", "tool_result"]
ERRORS = [name for name, value in vars(errors).items() if inspect.isclass(value) and issubclass(value, Exception)]
ASKING = ["AskHuman", "Choose", "WaitFor", "Approve"]

# py_trees' decorators keep their names where ours have not taken them.
STOCK = [
    name
    for name, value in vars(py_trees.decorators).items()
    if inspect.isclass(value)
    and issubclass(value, py_trees.decorators.Decorator)
    and value.__module__ == "py_trees.decorators"
]


def packages() -> list[str]:
    """Return the names of all folders of the library."""
    found = pkgutil.walk_packages(jianmu.__path__, "jianmu.")
    return ["jianmu", *(module.name for module in found if module.ispkg)]


def test_the_top_has_the_names_of_the_contract() -> None:
    """Everything that users need day by day comes from `jianmu`; nothing else does."""
    names = set(jianmu.__all__)
    required = {*CORE, *NODES, *MESSAGES, *ERRORS}
    assert required - names == set()
    assert names - required - {*ASKING, *STOCK} == set()


def test_what_asks_models_is_with_the_nodes() -> None:
    """The nodes that ask models and call tools come from their folder, and are not at the top."""
    assert set(MODELS) - set(nodes.__all__) == set()
    assert set(MODELS) & set(jianmu.__all__) == set()


def test_the_ready_trees_have_their_names() -> None:
    """The trees and their schemas come from `jianmu.prebuilt`."""
    assert prebuilt.__all__ == READY


def test_the_top_has_no_name_of_a_folder() -> None:
    """A name like `agent` or `message` at the top would hide a module of that name."""
    modules = {module.name for module in pkgutil.iter_modules(jianmu.__path__)}
    assert modules & set(jianmu.__all__) == set()


@pytest.mark.parametrize("package", packages())
def test_a_folder_says_what_is_public(package: str) -> None:
    """Each folder has an `__all__` whose names exist, each named once."""
    module = importlib.import_module(package)
    assert [name for name in module.__all__ if not hasattr(module, name)] == []
    assert len(set(module.__all__)) == len(module.__all__)


def test_importing_builds_no_model() -> None:
    """`import jianmu` has Pydantic build no validator: the first one takes it tens of milliseconds."""
    code = (
        "import jianmu\n"
        "from pydantic import BaseModel\n"
        "def under(model):\n"
        "    return [deeper for one in model.__subclasses__() for deeper in [one, *under(one)]]\n"
        "print([one.__name__ for one in under(BaseModel) if one.__pydantic_complete__])\n"
    )
    assert done_alone(code) == (0, "[]\n", "")
