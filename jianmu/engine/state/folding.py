"""From the value before and what was written to the value after; the order is that of the contract.

The type of what comes in, the fold, the rules for the result. Nothing here knows of the manager.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, TypeAlias, cast  # Any: what Pydantic tells of an error

from pydantic import BaseModel
from pydantic_core import ValidationError

from jianmu.engine.state.freeze import Refused, freeze, refuse_flow, refuse_op
from jianmu.engine.state.markers import (
    MISSING,
    Clear,
    ConflictError,
    Fn,
    Fold,
    Items,
    Op,
    Reducer,
    Remove,
    Replace,
    Value,
)
from jianmu.engine.state.readonly import Growing, ReadOnlyDict, ReadOnlyList, shown
from jianmu.engine.state.schema import StateField
from jianmu.errors import StateWriteError

Others: TypeAlias = Mapping[str, Value] | None  # the other fields, for validators that ask
Keys: TypeAlias = dict[Value, Value]


def attempt(what: str, fn: Callable[..., Value], *args: Value) -> Value:
    """Call something of the user's; its exception is named by type, since its text may hold values.

    Raises:
        Refused: it raised; outside of the handler, so that the exception is not chained.
    """
    try:
        return fn(*args)
    except ValidationError as error:
        why = explained(error.errors(include_url=False, include_context=False))
    except Refused as error:
        why = error.why
    except ConflictError as error:
        why = f"{what} raised ConflictError: {error}"
    except StateWriteError:
        why = f"{what} raised StateWriteError: it may neither write to the state nor change what it is given"
    except Exception as error:  # noqa: BLE001  # whatever a user's function raises
        why = f"{what} raised {type(error).__name__}"
    raise Refused(why)


def explained(found: list[Any]) -> str:
    """Return what Pydantic refused: the kind, the place by index, and the type that was given."""
    told = [each["type"] + _tag(each) + _place(each["loc"], each["input"]) for each in found[:3]]
    return ", ".join(told) + (f" and {len(found) - 3} more" if len(found) > 3 else "")


def _tag(found: dict[str, Any]) -> str:
    # only where a checkpoint is read there is a context: the tag is a word of the program that has written it
    tag = found.get("ctx", {}).get("tag")
    return "" if tag is None else f" '{tag}'"


def _place(loc: tuple[int | str, ...], given: Value) -> str:
    # texts in a place may be keys of a user's dict, which are values
    indices = "".join(f"[{part}]" for part in loc if isinstance(part, int))
    inside = f" at {indices}" if indices else ""
    return f"{inside} (given {type(given).__name__})" if len(loc) > 1 or indices else ""


def checked(field: StateField, check: Callable[..., Value], value: Value, others: Others) -> Value:
    """Return a value as a check has it, read-only."""
    return freeze(attempt("a validator", check, value, others), field.hint)


class Step:
    """What a write does with one value; `old`, `others` and `default` are set just before it is done."""

    __slots__ = ("default", "field", "fold", "name", "old", "others", "raw")
    default: Callable[[StateField, Others], Value]
    old: Value
    others: Others

    def __init__(self, name: str, field: StateField, fold: Callable[[Step], Value], raw: Value = MISSING) -> None:
        self.name, self.field, self.fold, self.raw = name, field, fold, raw

    @property
    def given(self) -> str | None:
        """The type of the value that was written, where it is one."""
        return None if self._plain is MISSING else type(self._plain).__name__

    def guess(self, others: Mapping[str, Value]) -> Value:
        """Return what a field will be, before its validators have run; as it is where that is not known."""
        with suppress(Refused):
            if self._plain is not MISSING:
                return checked(self.field, self.field.incoming, self._plain, others)
        return others.get(self.name)

    @property
    def _plain(self) -> Value:
        raw = self.raw.value if isinstance(self.raw, Replace) else self.raw
        return MISSING if isinstance(raw, Op) or callable(raw) else raw

    # The four folds

    def reset(self) -> Value:
        """Return the default."""
        return self.default(self.field, self.others)

    def update(self) -> Value:
        """Return the value after an `update`."""
        raw, field, reducer = self.raw, self.field, self.field.reducer
        if isinstance(raw, Op):
            return self._told(raw)
        refuse_flow(raw)
        if reducer is None:
            return checked(field, field.full, raw, self.others)
        is_one = reducer.key is not None and type(raw) is not list and isinstance(raw, (Mapping, BaseModel))
        new = checked(field, field.incoming, [raw] if is_one else raw, self.others)
        if field.grows:
            if new is None and reducer.fn is operator.add:
                raise Refused("None cannot be added to a list")
            grown = self._grown(new or [], reducer)
            if grown is not MISSING:
                return grown
        old = shown(self.old)
        is_first = reducer.kind == "append" and old is None
        result = new if is_first else attempt(f"the reducer {reducer.name}", reducer.fn, old, new)
        return self._remade(result, new) if reducer.kind == "own" else self._ruled(result)

    def merge(self) -> Value:
        """Return the value after a `merge_dict`."""
        updates, old = self.raw, shown(self.old)
        if not isinstance(updates, Mapping):
            raise Refused(f"merge_dict takes a mapping, not {type(updates).__name__}")
        if old is not None and not isinstance(old, Mapping):
            raise Refused(f"it holds {type(old).__name__}, which is no mapping")
        before, added = cast("Keys", old) or {}, cast("Keys", updates)
        if not self.field.is_dict:
            return self._replaced({**before, **added})
        return self._ruled({**before, **self._checked(self.field.incoming, dict(added))})

    def transform(self) -> Value:
        """Return the value after a `transform_field`."""
        fn = self.raw
        if inspect.iscoroutinefunction(fn):
            raise Refused("transform_field takes a plain function, not a coroutine function")
        result = attempt("the function given to transform_field", fn, shown(self.old))
        if self._is_same(result):
            return self.old
        if self.field.has_functions:
            refuse_flow(result)
            result = attempt("a validator", self.field.prepared, result, self.others)
        return self._remade(result, None)

    def _told(self, op: Op) -> Value:
        """Return the value after `Replace`, `Clear` or `Remove`."""
        if isinstance(op, Replace):
            return self._replaced(op.value)
        if isinstance(op, Clear):
            return self.default(self.field, self.others)
        reducer, keys = self.field.reducer, cast("Remove", op).keys
        if reducer is None or reducer.remove is None:
            raise Refused("Remove needs a keyed reducer, such as add_by_id")
        unknown: list[Value] = []
        result = attempt("removing", _removed, reducer.remove, shown(self.old), keys, unknown)
        if unknown:  # keys may be named
            raise Refused(f"Remove was given a key that is not there: {unknown[0]!r}")
        return self._ruled(result)

    # Their parts

    def _checked(self, check: Callable[..., Value], value: Value) -> Value:
        return checked(self.field, check, value, self.others)

    def _is_same(self, result: Value) -> bool:
        return result is shown(self.old) and not self.field.has_info

    def _replaced(self, value: Value) -> Value:
        """Return the stored form of a value that takes the place of the old one."""
        refuse_flow(value)
        refuse_op(value, "stands inside another one")
        return self._checked(self.field.full, value)

    def _ruled(self, result: Value) -> Value:
        """Return a result whose items are known to be good, after the rules for the whole."""
        if self._is_same(result):
            return self.old
        refuse_flow(result)
        return self._checked(self.field.result, result)

    def _grown(self, new: Items, reducer: Reducer) -> Value:
        """Return the list after an append, without a copy of what was there; MISSING if it would have a key twice."""
        held, field, limit = self.old, self.field, reducer.limit
        is_nothing = not new and held is not None and limit is None and not field.has_functions
        if is_nothing and reducer.key is None:
            return held
        old = held if type(held) is Growing else _growing(list(held or ()), field)
        if reducer.key is not None and not _are_new(new, old, reducer.key):
            return MISSING
        if is_nothing:
            return held
        grown = old.grown(new)
        if limit is not None and grown.size > limit:
            grown = _growing(grown.shown()[-limit:], field)
        return self._whole(grown, grown.size)

    def _whole(self, value: Growing | ReadOnlyList, size: int) -> Value:
        """Return a list whose items are known to be good, after the rules for the whole."""
        if self.field.has_functions:
            return self._checked(self.field.result, shown(value))
        least, most = self.field.min_length, self.field.max_length
        if size < least or (most is not None and size > most):
            raise Refused(f"it would have {size} items; its length is at least {least}, at most {most}")
        return value

    def _remade(self, result: Value, new: Value) -> Value:
        """Return the result of a function of the user's; what was there before, or came in, is not checked again."""
        if self._is_same(result):
            return self.old
        refuse_flow(result)
        kind, old = self.field.kind, shown(self.old)
        if kind == "list" and isinstance(result, list):
            return self._remade_list(as_list(old), as_list(result), as_list(new))
        if kind == "dict" and isinstance(result, dict):
            return self._remade_dict(cast("Keys", result), _dict(old), _dict(new))
        return self._checked(self.field.full_result, result)

    def _remade_list(self, old: Items, result: Items, new: Items) -> Value:
        field = self.field
        start, kept = common(old, result)
        end = len(result) - kept
        known = {id(item) for item in (*old[start : len(old) - kept], *new)} if start < end else set[int]()
        fresh = [item for item in result[start:end] if id(item) not in known]
        made = iter(self._checked(field.items, fresh) if fresh else ())
        middle = [item if id(item) in known else next(made) for item in result[start:end]]
        return self._whole(ReadOnlyList([*result[:start], *middle, *result[end:]], field.hint), len(result))

    def _remade_dict(self, result: Keys, *known: Keys) -> Value:
        field = self.field
        fresh = {key: item for key, item in result.items() if not any(key in one and one[key] is item for one in known)}
        made: Keys = self._checked(field.items, fresh) if fresh else {}
        if made.keys() != fresh.keys():  # keys were changed by their validators, so their places are not known
            return self._checked(field.full_result, result)
        return self._checked(field.result, ReadOnlyDict({**result, **made}, field.hint))


def _growing(items: Items, field: StateField) -> Growing:
    return Growing(items, len(items), field.hint)


def _are_new(items: Items, old: Growing, key: Fn) -> bool:
    """Whether no key comes twice in a list with these items at its end."""
    with suppress(Exception):  # of a key that cannot be had: the reducer meets it too, and says so
        keys = [key(item) for item in items]
        return len(set(keys)) == len(keys) and old.has_none(keys, key)
    return False


def _removed(remove: Fold, old: Value, keys: tuple[Value, ...], unknown: list[Value]) -> Value:
    try:
        return remove(old, keys)
    except KeyError as error:
        unknown.extend(key for key in keys if error.args and error.args[0] == key)
        if not unknown:
            raise


def as_list(value: Value) -> Items:
    """Return a list, or an empty one for anything else."""
    return cast("Items", value) if isinstance(value, list) else []


def _dict(value: Value) -> Keys:
    return cast("Keys", value) if isinstance(value, dict) else {}


def common(old: Items, new: Items) -> tuple[int, int]:
    """Return how many items are the same objects at the start, and how many of the others at the end."""
    start = _same(old, new)
    rest = min(len(old), len(new)) - start
    end = 0 if rest == 0 else _same(old[: -rest - 1 : -1], new[: -rest - 1 : -1])
    return start, end


def _same(old: Items, new: Items) -> int:
    alike = list(map(operator.is_, old, new))
    return len(alike) if all(alike) else alike.index(False)
