"""The rules of the refund desk, as plain functions."""

from __future__ import annotations

from decimal import Decimal

from jianmu.cli.demo.records import Kind, Request

SMALL = Decimal(50)
LARGEST = Decimal(1_000_000)
FRESH_DAYS = 30
CURRENCIES = ("EUR", "GBP", "USD")
REVIEWER_LIMIT = Decimal(200)
REVIEWER_DAYS = 60
REVIEWER_RULE = (
    f"a scripted reviewer answers: y up to {REVIEWER_LIMIT} if bought within {REVIEWER_DAYS} days, otherwise n"
)


def problem_of(request: Request) -> str:
    """Return why a request cannot be looked at any further, or an empty text."""
    if request.same_as is not None:
        return f"same id as line {request.same_as}"
    if request.amount <= 0:
        return "amount is not positive"
    if request.amount > LARGEST:
        return f"amount is above {LARGEST:,}"
    if request.amount != request.amount.quantize(Decimal("0.01")):
        return "amount has fractions of a cent"
    if request.currency not in CURRENCIES:
        return f"currency is none of {', '.join(CURRENCIES)}"
    return "" if request.days >= 0 else "bought in the future"


def kind_of(request: Request, problem: str) -> Kind:
    """Return what becomes of a request: refused, approved by rule, or put before a person."""
    if problem:
        return "invalid"
    return "small" if request.amount <= SMALL and request.days <= FRESH_DAYS else "doubtful"


def why_doubtful(request: Request) -> str:
    """Return why the rule does not decide."""
    parts = [f"above {SMALL}"] if request.amount > SMALL else []
    parts += [f"bought more than {FRESH_DAYS} days ago"] if request.days > FRESH_DAYS else []
    return " and ".join(parts)


def review(amount: Decimal, days: int) -> bool:
    """Return what the scripted reviewer says."""
    return amount <= REVIEWER_LIMIT and days <= REVIEWER_DAYS
