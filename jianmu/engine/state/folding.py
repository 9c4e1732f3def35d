"""From the value before and what was written to the value after; the order is that of the contract.

The type of what comes in, the fold, the rules for the result. Nothing here knows of the manager.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Mapping
from typing import TypeAlias, cast

from pydantic_core import ValidationError

from jianmu.engine.state.freeze import Unfit, freeze, refuse_flow
from jianmu.engine.state.growing import Growing, shown
from jianmu.engine.state.markers import Clear, Fold, Op, Remove, Replace, Value
from jianmu.engine.state.readonly import ReadOnlyDict, ReadOnlyList
from jianmu.engine.state.schema import Check, StateField
from jianmu.errors import StateWriteError

Others: TypeAlias = Mapping[str, Value] | None
_IMPURE = ": it may neither write to the state nor change what it is given"


def attempt(what: str, fn: Callable[..., Value], *args: Value) -> Value:
    """Call something of the user's; its exception is named by type, since its text may hold values.

    Raises:
        Unfit: it raised; outside of the handler, so that the exception is not chained.
    """
    try:
        return fn(*args)
    except ValidationError as error:
        why = explained(error)
    except Unfit as error:
        why = str(error)
    except Exception as error:  # noqa: BLE001  # whatever a user's function raises
        why = f"{what} raised {type(error).__name__}" + (_IMPURE if isinstance(error, StateWriteError) else "")
    raise Unfit(why)


def explained(error: ValidationError) -> str:
    """Return what Pydantic refused: the kind, the place by index, and the type that was given."""
    found = error.errors(include_url=False, include_context=False)
    told = [each["type"] + _place(each["loc"], each["input"]) for each in found[:3]]
    return ", ".join(told) + (f" and {len(found) - 3} more" if len(found) > 3 else "")


def _place(loc: tuple[int | str, ...], given: Value) -> str:
    """Return the indices of a place inside a value; texts there may be keys of a user's dict, which are values."""
    indices = "".join(f"[{part}]" for part in loc if isinstance(part, int))
    inside = f" at {indices}" if indices else ""
    return f"{inside} (given {type(given).__name__})" if len(loc) > 1 or indices else ""


def frozen(field: StateField, check: Check, value: Value, others: Others) -> Value:
    """Return a value as a check has it, read-only."""
    return freeze(attempt("a validator", check, value, others), field.hint)


def replaced(field: StateField, value: Value, others: Others) -> Value:
    """Return the stored form of a value that takes the place of the old one."""
    refuse_flow(value)
    if isinstance(value, Op):
        raise Unfit(f"{type(value).__name__} stands inside another one")
    return frozen(field, field.full, value, others)


def updated(field: StateField, old: Value, value: Value, others: Others, default: Callable[[], Value]) -> Value:
    """Return the value after an `update`."""
    if isinstance(value, Op):
        return _told(field, old, value, others, default)
    reducer = field.reducer
    if reducer is None:
        return replaced(field, value, others)
    refuse_flow(value)
    new = frozen(field, field.incoming, value, others)
    if field.grows:
        if new is None and reducer.fn is operator.add:
            raise Unfit("None cannot be added to a list")
        return _appended(field, old, new or [], reducer.limit, others)
    old = shown(old)
    if reducer.kind == "append" and old is None:
        result = new
    else:
        result = attempt(f"the reducer {reducer.name}", reducer.fn, old, new)
    if reducer.kind == "own":
        return _checked(field, field.full_result, old, result, new, others)
    return _ruled(field, old, result, others)


def _told(field: StateField, old: Value, op: Op, others: Others, default: Callable[[], Value]) -> Value:
    """Return the value after `Replace`, `Clear` or `Remove`."""
    if isinstance(op, Replace):
        return replaced(field, op.value, others)
    if isinstance(op, Clear):
        return default()
    reducer, keys = field.reducer, cast("Remove", op).keys
    if reducer is None or reducer.remove is None:
        raise Unfit("Remove needs a keyed reducer, such as add_by_id")
    return _ruled(field, old, _removed(reducer.remove, shown(old), keys), others)


def _removed(remove: Fold, old: Value, keys: tuple[Value, ...]) -> Value:
    try:
        return remove(old, keys)
    except KeyError as error:
        unknown = next((key for key in keys if error.args and error.args[0] == key), None)
        why = "Remove was given a key that is not there" + (f": {unknown!r}" if unknown is not None else "")
    except Exception as error:  # noqa: BLE001  # a reducer's own function
        why = f"removing raised {type(error).__name__}"
    raise Unfit(why)


def merged(field: StateField, old: Value, updates: Mapping[Value, Value], others: Others) -> Value:
    """Return the value after a `merge_dict`."""
    if not isinstance(cast("object", updates), Mapping):
        raise Unfit(f"merge_dict takes a mapping, not {type(updates).__name__}")
    if old is not None and not isinstance(old, Mapping):
        raise Unfit(f"it holds {type(old).__name__}, which is no mapping")
    before: Mapping[Value, Value] = cast("Mapping[Value, Value]", old) or {}
    if not field.is_dict:
        return replaced(field, {**before, **updates}, others)
    new = frozen(field, field.incoming, dict(updates), others)
    return _ruled(field, old, {**before, **new}, others)


def transformed(field: StateField, old: Value, fn: Callable[[Value], Value], others: Others) -> Value:
    """Return the value after a `transform_field`."""
    if inspect.iscoroutinefunction(fn):
        raise Unfit("transform_field takes a plain function, not a coroutine function")
    old = shown(old)
    result = attempt("the function given to transform_field", fn, old)
    if result is old and not field.has_info:
        return old
    return _checked(field, field.full, old, result, None, others)


def _appended(field: StateField, old: Value, new: Value, limit: int | None, others: Others) -> Value:
    """Return the list after an append, without a copy of what was there."""
    if not new and old is not None and limit is None and not field.has_functions:
        return old
    grown = _growing(field, old).grown(new)
    if limit is not None and grown.size > limit:
        kept = list(grown.shown()[grown.size - limit :])
        grown = Growing(kept, limit, field.hint)
    if field.has_functions:
        return frozen(field, field.result, grown.shown(), others)
    _check_length(field, grown.size)
    return grown


def _growing(field: StateField, old: Value) -> Growing:
    if type(old) is Growing:
        return old
    items: list[Value] = list(old or ())
    return Growing(items, len(items), field.hint)


def _check_length(field: StateField, size: int) -> None:
    if size < field.min_length or (field.max_length is not None and size > field.max_length):
        raise Unfit(
            f"it would have {size} items; its length is at least {field.min_length}, at most {field.max_length}"
        )


def _ruled(field: StateField, old: Value, result: Value, others: Others) -> Value:
    """Return a result whose items are known to be good, after the rules for the whole."""
    if result is old and not field.has_info:
        return old
    refuse_flow(result)
    return frozen(field, field.result, result, others)


def _checked(  # noqa: PLR0917  # one place for what two writes have in common
    field: StateField, check: Check, old: Value, result: Value, new: Value, others: Others
) -> Value:
    """Return the result of a function of the user's: what was there before, and what came in, is not checked again."""
    refuse_flow(result)
    if field.prepared is not None and check is field.full:
        result = attempt("a validator", field.prepared, result, others)
    if field.kind == "list" and isinstance(result, list):
        return _checked_list(field, _listed(old), cast("list[Value]", result), _listed(new), others)
    if field.kind == "dict" and isinstance(result, dict):
        known = (dict_of(old), dict_of(new))
        return _checked_dict(field, known, cast("dict[Value, Value]", result), others)
    return frozen(field, field.full_result if field.prepared else check, result, others)


def _listed(value: Value) -> list[Value]:
    return cast("list[Value]", value) if isinstance(value, list) else []


def dict_of(value: Value) -> dict[Value, Value]:
    """Return a dict, or an empty one for anything else."""
    return cast("dict[Value, Value]", value) if isinstance(value, dict) else {}


def _checked_list(field: StateField, old: list[Value], result: list[Value], new: list[Value], others: Others) -> Value:
    start, kept = common(old, result)
    end = len(result) - kept
    known = {id(item) for item in (*old[start : len(old) - kept], *new)} if start < end else set[int]()
    fresh = [item for item in result[start:end] if id(item) not in known]
    checked = iter(frozen(field, field.items, fresh, others) if fresh else ())
    middle = [item if id(item) in known else next(checked) for item in result[start:end]]
    whole = ReadOnlyList([*result[:start], *middle, *result[end:]], field.hint)
    if field.has_functions:
        return frozen(field, field.result, whole, others)
    _check_length(field, len(whole))
    return whole


def common(old: list[Value], new: list[Value]) -> tuple[int, int]:
    """Return how many items are the same objects at the start, and how many of the others at the end."""
    start = _same(old, new)
    rest = min(len(old), len(new)) - start
    end = 0 if rest == 0 else _same(old[: -rest - 1 : -1], new[: -rest - 1 : -1])
    return start, end


def _same(old: list[Value], new: list[Value]) -> int:
    alike = list(map(operator.is_, old, new))
    return len(alike) if all(alike) else alike.index(False)


def _checked_dict(
    field: StateField, known: tuple[dict[Value, Value], dict[Value, Value]], result: dict[Value, Value], others: Others
) -> Value:
    fresh = {key: item for key, item in result.items() if not any(key in one and one[key] is item for one in known)}
    checked = dict_of(frozen(field, field.items, fresh, others)) if fresh else {}
    if checked.keys() != fresh.keys():  # keys were changed by their validators, so their places are not known
        return frozen(field, field.full_result, result, others)
    whole = ReadOnlyDict({key: checked.get(key, item) for key, item in result.items()}, field.hint)
    return frozen(field, field.result, whole, others)
