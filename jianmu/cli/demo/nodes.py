"""The tree of the refund desk. Two lanes work side by side: payments go on while a person thinks."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import anyio.to_thread
from py_trees.behaviour import Behaviour
from py_trees.common import ParallelPolicy, Status
from py_trees.composites import Parallel, Sequence
from pydantic import JsonValue

from jianmu.cli.demo.gateway import Gateway
from jianmu.cli.demo.reading import read_requests
from jianmu.cli.demo.records import Decision, Desk, Filed, Request
from jianmu.cli.demo.report import write_report
from jianmu.cli.demo.rules import SMALL, kind_of, problem_of, why_doubtful
from jianmu.cli.demo.showing import card, entry
from jianmu.cli.telling import Note
from jianmu.engine.node import AsyncNode, Node
from jianmu.nodes import InteractiveNode, Repeat, Switch
from jianmu.nodes import Request as Question


class ReadFile(AsyncNode):
    """Read the requests. SUCCESS when they are in the state; RUNNING while the file is read."""

    def __init__(self, name: str, file: Path) -> None:
        super().__init__(name)
        self._file = file

    async def update_async(self) -> Status:
        """Read in a thread, so that a large file holds nobody up."""
        found = await anyio.to_thread.run_sync(read_requests, self._file)
        self.write_state({"lines": found.lines, "requests": found.requests, "skipped": found.skipped})
        for line in found.skipped:
            self.emit(Note(text=f"! line {line.line} skipped: {line.problem}"))
        return Status.SUCCESS


class Take(Node):
    """Take the next request. SUCCESS."""

    def update(self) -> Status:
        """As many are decided as were taken before."""
        state: Desk = self.read_state()
        self.write_state({"current": state.requests[len(state.decisions)]})
        return Status.SUCCESS


class Validate(Node):
    """Note what is wrong with the current request. SUCCESS."""

    def update(self) -> Status:
        """Look at the request."""
        self.write_state({"problem": problem_of(_current(self))})
        return Status.SUCCESS


class Classify(Node):
    """Note what becomes of the current request. SUCCESS."""

    def update(self) -> Status:
        """Apply the rule."""
        self.write_state({"kind": kind_of(_current(self), self.read_state().problem)})
        return Status.SUCCESS


class Refuse(Node):
    """Refuse the current request. SUCCESS."""

    def update(self) -> Status:
        """Decide."""
        return _decide(self, "refused", "validation", self.read_state().problem)


class ApproveSmall(Node):
    """Approve the current request. SUCCESS."""

    def update(self) -> Status:
        """Decide."""
        return _decide(self, "approved", "rule", f"up to {SMALL}")


class AskPerson(InteractiveNode):
    """Ask a person. SUCCESS when it is decided; RUNNING until then."""

    def __init__(self, name: str, by: str) -> None:
        super().__init__(name)
        self._by = by

    def request(self) -> Question:
        """Return the question."""
        request = _current(self)
        data: dict[str, JsonValue] = {"amount": str(request.amount), "days": request.days}
        return Question("\n".join(card(request, why_doubtful(request))), answer=bool, data=data)

    def on_answer(self, answer: bool) -> Status:  # the answer is a bool
        """Decide."""
        return _decide(self, "approved" if answer else "declined", self._by, why_doubtful(_current(self)))


class NextDecision(Node):
    """Wait for a decision that is not filed yet. SUCCESS when there is one; RUNNING until then."""

    def update(self) -> Status:
        """Compare what is decided with what is filed."""
        state: Desk = self.read_state()
        return Status.SUCCESS if len(state.decisions) > len(state.filed) else Status.RUNNING


class Pay(AsyncNode):
    """Pay what was approved, and file the request. SUCCESS when it is filed; RUNNING while the gateway works."""

    def __init__(self, name: str, gateway: Gateway) -> None:
        super().__init__(name)
        self._gateway = gateway

    async def update_async(self) -> Status:
        """Pay once, whatever happens to the run."""
        state: Desk = self.read_state()
        decision = state.decisions[len(state.filed)]
        request, outcome, note = decision.request, decision.outcome, decision.why
        if outcome == "approved":
            self.write_state({"paying": request.id})
            is_paid = await self.once("pay", self._pay, request.id, request.account)
            outcome, note = ("paid", note) if is_paid else ("unpaid", "the account is closed")
        filed = Filed(request=request, outcome=outcome, by=decision.by, note=note)
        self.write_state({"filed": [filed], "paying": None})
        self.emit(Note(text=entry(filed)))
        return Status.SUCCESS

    async def _pay(self, id: str, account: str) -> bool:
        return await self._gateway.pay(self.context.idempotency_key, id, account)


class WriteReport(Node):
    """Write the report. SUCCESS."""

    def __init__(self, name: str, source: Path, target: Path) -> None:
        super().__init__(name)
        self._source = source
        self._target = target

    def update(self) -> Status:
        """Write all that was done."""
        write_report(self._target, self.read_state(), self._source, "finished")
        return Status.SUCCESS


def desk_tree(file: Path, report: Path, by: str, gateway: Gateway) -> Behaviour:
    """Return the tree of the desk.

    Args:
        file: the requests, JSON Lines.
        report: where the report is written.
        by: what whoever answers is called.
        gateway: pays.
    """
    cases: dict[str, Behaviour] = {
        "invalid": Refuse("refuse"),
        "small": ApproveSmall("approve by rule"),
        "doubtful": AskPerson("ask a person", by),
    }
    decide = Switch("decide", lambda state: state.kind, cases)
    request = _sequence("request", Take("take"), Validate("validate"), Classify("classify"), decide)
    decision = _sequence("settle", NextDecision("next decision"), Pay("pay", gateway))
    lanes = [Repeat("decide all", request, times=_count), Repeat("settle all", decision, times=_count)]
    work = Parallel("work", ParallelPolicy.SuccessOnAll(), children=lanes)
    return _sequence("refund desk", ReadFile("read", file), work, WriteReport("report", file, report))


def _sequence(name: str, *children: Behaviour) -> Sequence:
    return Sequence(name, memory=True, children=list(children))


def _count(state: Desk) -> int:
    return len(state.requests)


def _current(node: Node | InteractiveNode) -> Request:
    """Return the request that is being decided."""
    return node.context.manager.read("current")


def _decide(
    node: Node | InteractiveNode, outcome: Literal["approved", "declined", "refused"], by: str, why: str
) -> Status:
    node.write_state({"decisions": [Decision(request=_current(node), outcome=outcome, by=by, why=why)]})
    return Status.SUCCESS
