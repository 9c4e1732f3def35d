"""How writes of a thread's fields are folded: total, pure, and the same however they are split into writes.

A fold that finds nothing new returns the very value that was there, so that nothing is woken.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar, cast  # Any: what was stored, which may be anything

from jianmu.engine.state import Reducer, upsert
from jianmu.thread.items import Delegation, LoadedSkill, Promoted, TitleBy, Todo

T = TypeVar("T")
Fold: TypeAlias = Callable[[list[T], T], list[T]]

MAX_DELEGATIONS = 50
MAX_SKILLS = 8


def replace_todos(old: list[Todo] | None, new: list[Todo] | None) -> list[Todo] | None:
    """Return the whole list that was written; `[]` is one, None is nothing new."""
    return old if new is None else new


def promote(old: Promoted | None, new: Promoted | None) -> Promoted | None:
    """Return the names of both, of one catalogue; those of another catalogue go."""
    if new is None:
        return old
    if old is None or old.catalog_hash != new.catalog_hash:
        return new
    names = tuple(dict.fromkeys([*old.names, *new.names]))
    return old if names == old.names else Promoted(catalog_hash=old.catalog_hash, names=names)


def name_giver(old: TitleBy | None, new: TitleBy | None) -> TitleBy | None:
    """Return whom the title is from; once it is from a person it stays so."""
    return old if new is None or old == "person" else new


def count(old: Mapping[str, int] | None, new: Mapping[str, int] | None) -> Mapping[str, int]:
    """Return the sums by key."""
    before = old or {}
    sums = {**before, **{key: before.get(key, 0) + number for key, number in (new or {}).items()}}
    return before if new is None or not new else sums


def record_delegations(old: list[Delegation] | None, new: list[Delegation] | None) -> list[Delegation]:
    """Return the newest delegations by id, in the order in which they were given."""
    return _one_by_one(old, new, _recorded)


def load_skills(old: list[LoadedSkill] | None, new: list[LoadedSkill] | None) -> list[LoadedSkill]:
    """Return the skills read last by path, the newest last."""
    return _one_by_one(old, new, _loaded)


def _one_by_one(old: Sequence[T] | None, new: Sequence[T] | None, fold: Fold[T]) -> list[T]:
    """Fold entry by entry, so that it makes no difference how they come."""
    before = made = cast("list[T]", [] if old is None else old)
    for entry in new or ():
        made = fold(made, entry)
    return before if made == before else made


def _recorded(held: list[Delegation], new: Delegation) -> list[Delegation]:
    """Return the ledger after one entry; what is late, and says that a finished one still runs, is left out."""
    place = next((at for at, one in enumerate(held) if one.id == new.id), None)
    if place is None:
        return [*held, new][-MAX_DELEGATIONS:]
    before = held[place]
    if before.is_finished and not new.is_finished:
        return held
    kept = {"created_at": before.created_at or new.created_at, "run_id": new.run_id or before.run_id}
    after = new.model_copy(update=kept)
    return held if after == before else [*held[:place], after, *held[place + 1 :]][-MAX_DELEGATIONS:]


def _loaded(held: list[LoadedSkill], new: LoadedSkill) -> list[LoadedSkill]:
    if held and held[-1] == new:
        return held
    return [*(one for one in held if one.path != new.path), new][-MAX_SKILLS:]


DELEGATIONS = Reducer(record_delegations, remove=upsert("id").remove)
SKILLS = Reducer(load_skills, remove=upsert("path").remove)


# What is read before it is folded


def or_list(given: Any) -> Any:
    """Return what was given; None is an empty list."""
    return [] if given is None else given


def or_dict(given: Any) -> Any:
    """Return what was given; None is an empty dict."""
    return {} if given is None else given


def of_a_catalogue(given: Any) -> Any:
    """Return what was given; names that are of no catalogue say nothing."""
    if isinstance(given, Mapping) and not _has(cast("object", given), "catalog_hash"):
        return None
    return cast("object", given)


def kept_entries(data: Any, field: str, key: str) -> Any:
    """Return what a state is made of, without stored entries of a field that lack the key that they are known by."""
    if not isinstance(data, Mapping):
        return data
    values = cast("Mapping[str, Any]", data)
    held: Any = values.get(field)
    if isinstance(held, list):
        return {**values, field: [one for one in cast("list[Any]", held) if _has(one, key)]}
    if isinstance(held, Mapping):
        entries = cast("Mapping[Any, Any]", held)
        return {**values, field: {name: one for name, one in entries.items() if _has(one, key)}}
    return values


def _has(entry: Any, key: str) -> bool:
    return not isinstance(entry, Mapping) or bool(cast("Mapping[str, Any]", entry).get(key))
