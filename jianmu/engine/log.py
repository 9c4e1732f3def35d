"""The logger of the library: structlog's interface over the stdlib logger "jianmu"."""

from __future__ import annotations

import logging
from typing import Any  # Any: whatever was bound to a line

import structlog
from structlog.typing import EventDict, FilteringBoundLogger

RESERVED = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}
PASSED_ON = ("exc_info", "stack_info", "stacklevel")


def _logger() -> FilteringBoundLogger:
    """Return the wrapped logger; it is silent until the user configures logging."""
    stdlib = logging.getLogger("jianmu")
    if not any(isinstance(handler, logging.NullHandler) for handler in stdlib.handlers):
        stdlib.addHandler(logging.NullHandler())
    processors = [structlog.stdlib.filter_by_level, structlog.stdlib.PositionalArgumentsFormatter(), rendered]
    return structlog.wrap_logger(stdlib, processors=processors, wrapper_class=structlog.stdlib.BoundLogger)


def rendered(_logger: Any, _method: str, line: EventDict) -> dict[str, Any]:
    """Return what the stdlib logger takes: what was bound stands in the text and on the record.

    On the record a name that the stdlib needs for itself gets an underscore at its end: `record.thread_`.
    """
    passed = {key: line.pop(key) for key in PASSED_ON if key in line}
    text = " ".join([str(line.pop("event")), *(f"{key}={value!r}" for key, value in line.items())])
    extra = {f"{key}_" if key in RESERVED else key: value for key, value in line.items()}
    return {"msg": text, "extra": extra, **passed}


log = _logger()
