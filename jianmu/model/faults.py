"""What went wrong at a provider, in jianmu's words."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from jianmu.errors import (
    BadReplyError,
    BadRequestError,
    ContextTooLongError,
    ModelError,
    ModelRefusedError,
    ModelUnavailableError,
    RateLimitedError,
    SetupError,
)

if TYPE_CHECKING:  # an extra: it may be absent
    from pydantic_ai.exceptions import ModelAPIError

POLICY = ("content_filter", "content_policy", "moderation", "safety", "policy_violation", "refusal")
"""Parts of the codes by which providers refuse a request for what it says."""
FAMILIES: tuple[tuple[str, type[ModelError], str, bool | None], ...] = (
    ("ModelContextWindowExceededError", ContextTooLongError, "the request has more tokens than the model takes", None),
    ("ModelAuthenticationError", BadRequestError, "the provider does not accept the key, or not for this model", None),
    ("ModelNotFoundError", BadRequestError, "the provider does not know the model, or the address is wrong", None),
    ("ModelRequestRejectedError", BadRequestError, "the provider refused the request as wrong", None),
    ("ModelQuotaExceededError", RateLimitedError, "the account's quota is used up", False),
    ("ModelRateLimitError", RateLimitedError, "the provider takes no more requests for now", None),
    ("ModelTimeoutError", ModelUnavailableError, "the provider did not answer in time", None),
    ("ModelRequestTimeout", ModelUnavailableError, "the provider did not answer in time", None),
    ("ModelConnectionError", ModelUnavailableError, "the connection to the provider failed or broke off", None),
    ("ModelUnavailableError", ModelUnavailableError, "the provider has a fault of its own", None),
    ("ModelServerError", ModelUnavailableError, "the provider has a fault of its own", None),
)
"""The library's classes, the first that fits counts: ours, the problem in words, and whether it passes where the class
does not say so."""
DETAIL = 2000
"""Characters that are kept of what a provider said."""


@contextmanager
def faults(model: str) -> Generator[None]:
    """Turn the provider library's exceptions into jianmu's errors; all others pass."""
    from pydantic_ai import exceptions as theirs  # noqa: PLC0415  # an extra

    try:
        yield
    except theirs.ModelAPIError as error:
        raise _api_error(model, error) from error
    except theirs.ContentFilterError as error:
        raise ModelRefusedError("the provider's policy stopped the reply", model=model, detail=_cut(error)) from error
    except theirs.UnexpectedModelBehavior as error:
        raise BadReplyError("the provider sent a reply of no known form", model=model, detail=_cut(error)) from error
    except theirs.UserError as error:
        raise SetupError(f"model '{model}': {error}") from error
    except (ValueError, TypeError, AttributeError, KeyError, IndexError) as error:
        # what the libraries below stumble over in a chunk that has not the form that the provider documents
        raise BadReplyError("the provider sent something of no known form", model=model, detail=_cut(error)) from error


def _api_error(model: str, error: ModelAPIError) -> ModelError:
    """Return the error of the family that a refused or broken request belongs to."""
    from pydantic_ai import exceptions as theirs  # noqa: PLC0415  # an extra

    code = error.provider_error_code or error.provider_error_type or ""
    known = (row[1:] for row in FAMILIES if isinstance(error, getattr(theirs, row[0])))
    status: int | None = getattr(error, "status_code", None)
    family, problem, passes = next(known, None) or _by_status(status)
    if family is BadRequestError and any(word in code.lower() for word in POLICY):
        family, problem = ModelRefusedError, "the provider's policy refused the request"
    where = f" (status {status})" if status else ""
    said = f", code '{code[:80]}'" if code else ""
    return family(
        f"{problem}{where}{said}",
        model=model,
        retry_after=error.retry_after,
        is_transient=passes,
        detail=_cut(error.body or error),
    )


def _by_status(status: int | None) -> tuple[type[ModelError], str, bool | None]:
    """Return what an error without a category means."""
    if status is None:
        return BadReplyError, "what the provider sent is no whole reply", None
    if status in {408, 409, 425} or status >= 500:
        return ModelUnavailableError, "the provider could not answer now", None
    if status == 429:
        return RateLimitedError, "the provider takes no more requests for now", None
    return BadRequestError, "the provider refused the request as wrong", None


def _cut(said: object) -> str:
    """Return what was said, cut to a length that fits a log."""
    return str(said)[:DETAIL]
