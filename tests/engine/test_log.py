"""The logger: silent until configured, each line with its place, no name that could break a line."""

from __future__ import annotations

import logging

import pytest

from jianmu.engine.clock import VirtualClock
from jianmu.engine.context import RunContext
from jianmu.engine.log import RESERVED, log
from jianmu.engine.state import StateManager
from tests.cases.leaves import World


def test_every_line_has_thread_run_pass_and_path(caplog: pytest.LogCaptureFixture) -> None:
    """They stand in the text, for plain handlers, and on the record, for structured ones."""
    context = RunContext(VirtualClock(), StateManager(World))
    context.thread_id, context.run, context.passes = "t1", 2, 3
    context.log_at("main/x").warning("hot", why="so")
    record = caplog.records[0]
    assert record.getMessage() == "hot thread='t1' run=2 pass=3 path='main/x' why='so'"
    assert (record.name, record.levelname, record.why, record.path) == ("jianmu", "WARNING", "so", "main/x")
    assert record.thread_ == "t1"


def test_any_name_may_be_bound(caplog: pytest.LogCaptureFixture) -> None:
    """Names that the stdlib keeps for itself do not break the line."""
    log.bind(**dict.fromkeys(RESERVED - {"exc_info", "stack_info"}, 1)).error("all of them")
    assert caplog.records[0].getMessage().startswith("all of them")


def test_a_percent_sign_is_text(caplog: pytest.LogCaptureFixture) -> None:
    """Texts are formatted only where arguments are given."""
    log.warning("100% of %s")
    log.warning("100%% of %s", "it")
    assert [record.getMessage() for record in caplog.records] == ["100% of %s", "100% of it"]


def test_an_exception_comes_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    """Handlers print the traceback as they do for every record."""
    error = ValueError("no")
    log.error("failed", exc_info=error)
    assert caplog.records[0].exc_info is not None
    assert caplog.records[0].exc_info[1] is error


def test_lines_below_the_level_are_not_made(caplog: pytest.LogCaptureFixture) -> None:
    """A value that is not logged is not rendered."""

    class Loud:
        def __repr__(self) -> str:
            raise AssertionError("rendered")

    with caplog.at_level(logging.WARNING, logger="jianmu"):
        log.info("quiet", loud=Loud())
    assert caplog.records == []
