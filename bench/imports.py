"""How long `import jianmu` takes beside the import of what it depends on."""

from __future__ import annotations

import subprocess
import sys
from functools import partial

from bench.measure import Effort, Pair, in_turns

DEPENDENCIES = "anyio, pydantic, py_trees, structlog"


def imported(names: str) -> float:
    """Return the seconds that a new interpreter takes to import some modules; its own start is left out."""
    program = f"import time; t = time.perf_counter()\nimport {names}\nprint(time.perf_counter() - t)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return float(done.stdout)


def dependencies(effort: Effort) -> Pair:
    """Import jianmu, and its four dependencies, each in interpreters of its own."""
    return in_turns(partial(imported, "jianmu"), partial(imported, DEPENDENCIES), effort.rounds)
