"""What all tests share: the two backends, and which tests run when."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.postgres import postgres, schema  # noqa: F401  # fixtures for all

FULL = os.environ.get("JIANMU_FULL") == "1"
HAS_MODEL = "JIANMU_MODEL" in os.environ
if not FULL:  # servers are on loopback and speak no TLS: certificates need not be read for each client
    os.environ.pop("SSL_CERT_FILE", None)
    os.environ["SSL_CERT_DIR"] = str(Path(__file__).parent)

# No deadline: a loaded machine makes one example slow, and a law holds or not, whatever the time.
# Under CI the examples are always the same: new ones are searched for where somebody can look at what was found.
settings.register_profile(
    "jianmu",
    deadline=None,
    max_examples=100 if FULL else 40,
    derandomize=bool(os.environ.get("CI")),
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("jianmu")


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """The backend of a test marked `anyio`: each runs on both."""
    return request.param


def done_alone(code: str) -> tuple[int, str, str]:
    """Run code in an interpreter of its own; return the exit code, and what it has printed to stdout and stderr."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def full() -> bool:
    """Whether the slow sweeps are wanted, for tests that only do more of the same then."""
    return FULL


ONCE = {("memory", "trio"), ("postgres", "asyncio")}
"""Which kinds of store meet a backend in the long run only: the short run has both on SQLite, and each kind on one."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is for the long run, unless JIANMU_FULL=1, and what needs a model that is not there."""
    left_out = {item for item in items if (not FULL and _is_slow(item)) or (not HAS_MODEL and _needs_model(item))}
    if left_out:
        config.hook.pytest_deselected(items=[*left_out])
        items[:] = [item for item in items if item not in left_out]


def _needs_model(item: pytest.Item) -> bool:
    return item.get_closest_marker("model") is not None


def _is_slow(item: pytest.Item) -> bool:
    params = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
    backend = params.get("anyio_backend")
    if item.get_closest_marker("full") or (backend == "trio" and item.get_closest_marker("slow_on_trio")):
        return True
    return (params.get("any_store", params.get("store")), backend) in ONCE
