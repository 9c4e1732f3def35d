"""A schema with each kind of field, and what may be written to them, for the laws of the state and of its log."""

from __future__ import annotations

import operator
from typing import Annotated, Any

from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field

from jianmu.engine.state import Ephemeral, add_by_id, add_items, merge_map, ordered_union

ints = st.integers(-3, 3)
int_lists = st.lists(ints, max_size=3)
maps = st.dictionaries(st.sampled_from("abc"), ints, max_size=3)
entries = st.lists(st.builds(lambda key, n: {"id": key, "n": n}, st.sampled_from("abc"), ints), max_size=3)


class Model(BaseModel):
    """A field for each lifetime and each ready reducer."""

    model_config = ConfigDict(extra="allow")
    n: Annotated[int, Ephemeral("run")] = 0
    total: Annotated[int, operator.add, Field(ge=-20)] = 0
    xs: Annotated[list[int], operator.add, Field(max_length=12)] = []
    newest: Annotated[list[int], add_items(max=3)] = [0]
    union: Annotated[list[int] | None, ordered_union(max=4)] = None
    items: Annotated[list[dict[str, Any]], add_by_id()] = []
    notes: dict[str, int] | None = None
    merged: Annotated[dict[str, int], merge_map()] = {}
    stepped: Annotated[list[int], Ephemeral("step"), operator.add] = []
    text: Annotated[str, Ephemeral("call"), operator.add] = ""


VALUES: dict[str, Any] = {
    "n": ints,
    "total": ints,
    "xs": int_lists,
    "newest": int_lists,
    "union": int_lists,
    "items": entries,
    "notes": st.none() | maps,
    "merged": maps,
    "stepped": int_lists,
    "text": st.text("ab", max_size=2),
}
names = st.sampled_from(sorted(VALUES))
updates = st.sets(names, min_size=1).flatmap(lambda keys: st.fixed_dictionaries({key: VALUES[key] for key in keys}))
spaces = st.sampled_from(["a", "ab"])
