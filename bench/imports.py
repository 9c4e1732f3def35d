"""How long `import jianmu` takes beside the import of what it depends on.

pydantic is a shell that loads its parts when a name is first taken from it; a dependency on it is one on its models,
so the peer takes those names too.
"""

from __future__ import annotations

import subprocess
import sys
from functools import partial

from bench.measure import Effort, Pair, in_turns

DEPENDENCIES = "import anyio, py_trees, structlog; from pydantic import BaseModel, TypeAdapter"


def taken(statement: str) -> float:
    """Return the seconds that a new interpreter takes for an import; its own start is left out."""
    program = f"import time; t = time.perf_counter()\n{statement}\nprint(time.perf_counter() - t)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return float(done.stdout)


def dependencies(effort: Effort) -> Pair:
    """Import jianmu, and its four dependencies, each in interpreters of its own."""
    return in_turns(partial(taken, "import jianmu"), partial(taken, DEPENDENCIES), effort.rounds)
