"""The typed state of an agent: markers for its schema, the manager that writes it, ready reducers."""

from __future__ import annotations

from jianmu.engine.state.change import Delta, StateChange, fold
from jianmu.engine.state.manager import StateManager
from jianmu.engine.state.markers import (
    Clear,
    Ephemeral,
    Internal,
    Reducer,
    Remove,
    Replace,
    Transient,
    add_by_id,
    add_items,
    keep_first,
    merge_map,
    ordered_union,
    same_or_error,
    upsert,
)
from jianmu.engine.state.runtime import WRITER
from jianmu.engine.state.schema import Schema, StateField
from jianmu.engine.state.versions import migration

__all__ = [
    "WRITER",
    "Clear",
    "Delta",
    "Ephemeral",
    "Internal",
    "Reducer",
    "Remove",
    "Replace",
    "Schema",
    "StateChange",
    "StateField",
    "StateManager",
    "Transient",
    "add_by_id",
    "add_items",
    "fold",
    "keep_first",
    "merge_map",
    "migration",
    "ordered_union",
    "same_or_error",
    "upsert",
]
