"""What the refund desk knows: requests, decisions, payments, and the state that holds them."""

from __future__ import annotations

import operator
from decimal import Decimal
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from jianmu.draw.outline import one_line
from jianmu.engine.state import Ephemeral

RUN = Ephemeral("run")
Kind = Literal["invalid", "small", "doubtful"]
Outcome = Literal["paid", "unpaid", "declined", "refused"]


class Request(BaseModel):
    """One line of the file: who wants how much back, and why.

    Attributes:
        id: the request's number, as the customer knows it.
        customer: the customer's name.
        amount: what was paid, and is wanted back.
        currency: three letters.
        days: since the purchase.
        reason: in the customer's words.
        account: where the money goes.
        line: the number of the line in the file.
        same_as: the number of an earlier line with the same id.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)

    id: str = Field(min_length=1, max_length=40)
    customer: str = Field(min_length=1, max_length=200)
    amount: Decimal = Field(strict=False)  # in JSON it is a text, so that no digit is lost
    currency: str = Field(default="EUR", max_length=10)
    days: int = 0
    reason: str = Field(default="", max_length=2000)
    account: Literal["open", "closed"] = "open"
    line: int = 0
    same_as: int | None = None

    @property
    def price(self) -> str:
        """The amount as it is shown."""
        cents = self.amount.as_tuple().exponent
        exact = f"{self.amount:,.2f}" if isinstance(cents, int) and cents >= -2 else f"{self.amount:.6g}"
        digits = exact if abs(self.amount) < Decimal(10) ** 12 else f"{self.amount:.2e}"
        return one_line(f"{digits} {self.currency}")


class Skipped(BaseModel):
    """A line that is no request."""

    model_config = ConfigDict(frozen=True)

    line: int
    problem: str


class Decision(BaseModel):
    """What was decided about a request, by whom, and why."""

    model_config = ConfigDict(frozen=True)

    request: Request
    outcome: Literal["approved", "declined", "refused"]
    by: str
    why: str = ""


class Filed(BaseModel):
    """A request that is done with."""

    model_config = ConfigDict(frozen=True)

    request: Request
    outcome: Outcome
    by: str
    note: str = ""


class Desk(BaseModel):
    """The state of the desk; each run begins with an empty one.

    Attributes:
        lines: the lines of the file that are not blank.
        skipped: those that are no requests.
        requests: all the others.
        current: the request that is being decided.
        problem: what is wrong with it.
        kind: what it was classified as.
        decisions: one for each request decided, in order.
        paying: the id of the request whose payment was begun and has not ended.
        filed: one for each request done with, in order.
    """

    lines: Annotated[int, RUN] = 0
    skipped: Annotated[tuple[Skipped, ...], RUN] = ()
    requests: Annotated[tuple[Request, ...], RUN] = ()
    current: Annotated[Request | None, RUN] = None
    problem: Annotated[str, RUN] = ""
    kind: Annotated[Kind, RUN] = "doubtful"
    decisions: Annotated[list[Decision], operator.add, RUN] = Field(default_factory=list)
    paying: Annotated[str | None, RUN] = None
    filed: Annotated[list[Filed], operator.add, RUN] = Field(default_factory=list)
