"""Whether a value of one annotation may stand where another is wanted, as far as classes tell."""

from __future__ import annotations

import types
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin  # Any: annotations are any object


def fits(source: Any, target: Any) -> bool:
    """Return False only where no value of `source` could be one of `target`."""
    return any(_one_fits(one, other) for one in _options(source) for other in _options(target))


def show(annotation: Any) -> str:
    """Return an annotation as a user would write it."""
    if isinstance(annotation, type) and not get_args(annotation):
        return annotation.__name__
    return str(annotation).replace("typing.", "")


def _options(annotation: Any) -> list[Any]:
    """Return the members of a union, without `Annotated` and aliases; literals as their classes."""
    while get_origin(annotation) is Annotated or hasattr(annotation, "__value__"):
        annotation = annotation.__value__ if hasattr(annotation, "__value__") else get_args(annotation)[0]
    if get_origin(annotation) in (Union, types.UnionType):
        return [option for member in get_args(annotation) for option in _options(member)]
    if get_origin(annotation) is Literal:
        return [type(value) for value in get_args(annotation)]
    return [annotation]


def _one_fits(source: Any, target: Any) -> bool:
    """Compare two annotations that are no unions."""
    one, other = _class(source), _class(target)
    if one is None or other is None:
        return True
    if (one, other) == (int, float):
        return True
    try:
        if not (issubclass(one, other) or issubclass(other, one)):
            return False
    except TypeError:  # protocols and typed dicts cannot be asked
        return True
    mine, theirs = get_args(source), get_args(target)
    return len(mine) != len(theirs) or all(fits(a, b) for a, b in zip(mine, theirs, strict=True))


def _class(annotation: Any) -> type | None:
    """Return the class of an annotation, or None where there is nothing to compare."""
    if annotation is Any or annotation is Ellipsis or isinstance(annotation, TypeVar):
        return None
    if annotation is None:
        return type(None)
    kind = get_origin(annotation) or annotation
    return kind if isinstance(kind, type) and kind is not object else None
