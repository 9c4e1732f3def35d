"""The logger of the library: structlog's interface over the stdlib logger "jianmu"."""

from __future__ import annotations

import logging

import structlog
from structlog.typing import FilteringBoundLogger


def _logger() -> FilteringBoundLogger:
    """Return the wrapped logger; it is silent until the user configures logging."""
    stdlib = logging.getLogger("jianmu")
    if not any(isinstance(handler, logging.NullHandler) for handler in stdlib.handlers):
        stdlib.addHandler(logging.NullHandler())
    processors = [
        structlog.stdlib.filter_by_level,
        structlog.stdlib.add_log_level,
        structlog.processors.format_exc_info,
        structlog.stdlib.render_to_log_kwargs,
    ]
    return structlog.wrap_logger(stdlib, processors=processors, wrapper_class=structlog.stdlib.BoundLogger)


log = _logger()
