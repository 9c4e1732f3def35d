"""How long `import jianmu` takes beside the import of what it depends on.

pydantic is a shell that loads its parts when a name is first taken from it; a dependency on it is one on its models,
so the peer takes those names too. Both sides find their bytecode ready, as they do once a program was started before.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile

from bench.measure import Effort, Pair, in_turns

DEPENDENCIES = "import anyio, py_trees, structlog; from pydantic import BaseModel, TypeAdapter"


def taken(statement: str, bytecode: str) -> float:
    """Return the seconds that a new interpreter takes for an import; its own start is left out."""
    program = f"import time; t = time.perf_counter()\n{statement}\nprint(time.perf_counter() - t)"
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": bytecode}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    return float(done.stdout)


def dependencies(effort: Effort) -> Pair:
    """Import jianmu, and its four dependencies, each in interpreters of its own."""
    with tempfile.TemporaryDirectory() as bytecode:
        return in_turns(lambda: taken("import jianmu", bytecode), lambda: taken(DEPENDENCIES, bytecode), effort.rounds)
