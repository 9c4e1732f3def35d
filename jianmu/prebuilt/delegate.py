"""Delegate: a subtree as a tool, on a state of its own."""

from __future__ import annotations

from collections.abc import Callable

from py_trees.behaviour import Behaviour
from pydantic import BaseModel

from jianmu.engine.state import StateManager
from jianmu.errors import SetupError
from jianmu.nodes.delegates import Delegate, Delegated, Giving, Taking, built
from jianmu.nodes.subagent import Inputs, Outputs
from jianmu.tool.base import Approval


def delegate(
    name: str,
    build: Callable[[], Behaviour],
    *,
    state_schema: type[BaseModel],
    arguments: Taking | None = None,
    result: Giving = "final_answer",
    inputs: Inputs = None,
    outputs: Outputs = None,
    description: str | None = None,
    requires_approval: Approval = False,
    copies: int = 1,
) -> Delegate:
    """Return a tool that has a subtree do its calls.

    Each call begins with a fresh state; its result is what the model is shown. A question inside is one of the whole
    run, with its path.

        delegate("research", build_researcher, state_schema=ReActState)

    Args:
        name: what the model calls it by, and the name of its node.
        build: returns the subtree; called once for each copy.
        state_schema: of the subtree's own state.
        arguments: returns what goes into that state, `def arguments(topic: str) -> dict[str, Any]`; what it takes is
            what the model sends, and its docstring what the model is told. By default one text, `task`, which is the
            only message of the delegate's conversation.
        result: the field that is the result, or a function of the snapshot.
        inputs: outer fields that go in as well, by inner ones.
        outputs: inner fields that come out as well, by outer ones.
        description: what the model is told, instead of the docstring.
        requires_approval: as with every tool.
        copies: how many calls of one reply are done side by side.

    Raises:
        SetupError: something in it cannot work.
    """
    if isinstance(copies, bool) or not isinstance(copies, int) or copies < 1:  # pyright: ignore[reportUnnecessaryIsInstance]  # users
        raise SetupError(f"delegate '{name}': copies= is a whole number from 1 up, not {copies!r}")
    nodes: list[Delegated] = []
    for _ in range(copies):
        root, manager = built("delegate", name, build), StateManager(state_schema)
        nodes.append(Delegated(name, root, manager, is_fresh=True, inputs=inputs, outputs=outputs))
    return Delegate(
        name, nodes, arguments=arguments, result=result, description=description, requires_approval=requires_approval
    )
