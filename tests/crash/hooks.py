"""Deaths at a place with a name: when a function is called, or has returned."""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Deed = Callable[[], object]


@dataclass(frozen=True)
class Hook:
    """A call of a function, and what is done there.

    Attributes:
        target: the function, as `module:Class.method`.
        when: `before` or `after` the call.
        count: the how-manieth call; 0 is each.
        since: another function; calls count only after the first one of it.
        of: the name of the node whose calls count; all, if it is empty.
        deed: `kill`; `stop`, until it is continued; `halt` the run; `copy` the file; `answer` all open questions, as
            another process would; `answer kill` both, one after the other.
    """

    target: str
    when: str = "before"
    count: int = 1
    since: str = ""
    of: str = ""
    deed: str = "kill"

    def __str__(self) -> str:
        """Return it as it stands in a report."""
        return f"{self.target} {self.when} #{self.count}" + (f" since {self.since}" if self.since else "")

    def install(self, deed: Deed) -> None:
        """Have the deed done there, in this process."""
        calls = 0
        is_on = not self.since

        def begin(*_: Any) -> None:
            nonlocal is_on
            is_on = True

        def reach(*args: Any) -> None:
            nonlocal calls
            counts = is_on and self.of in ("", getattr(args[0] if args else None, "name", ""))
            calls += counts
            if counts and self.count in (0, calls):
                deed()

        _wrap(self.target, reach, self.when)
        if self.since:
            _wrap(self.since, begin, "before")


def _wrap(target: str, reach: Callable[..., None], when: str) -> None:
    """Put a function in the place of another, which tells when it is called."""
    module, _, place = target.partition(":")
    owner: Any = importlib.import_module(module)
    *above, name = place.split(".")
    for part in above:
        owner = getattr(owner, part)
    function = inspect.getattr_static(owner, name)

    @functools.wraps(function)
    async def awaited(*args: Any, **options: Any) -> Any:
        if when == "before":
            reach(*args)
        result = await function(*args, **options)
        if when == "after":
            reach(*args)
        return result

    @functools.wraps(function)
    def called(*args: Any, **options: Any) -> Any:
        if when == "before":
            reach(*args)
        result = function(*args, **options)
        if when == "after":
            reach(*args)
        return result

    setattr(owner, name, awaited if inspect.iscoroutinefunction(function) else called)
