"""py_trees' own tests, with jianmu ticking their trees."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
VERSION = "2.6.0"


def fetched(cache: Path) -> Path:
    """Return the folder of py_trees' source distribution, fetched by pip the first time."""
    folder = cache / f"py_trees-{VERSION}"
    if not folder.is_dir():
        wanted = ["--no-binary", ":all:", "--no-deps", f"py-trees=={VERSION}", "--dest", str(cache)]
        done = subprocess.run(
            [sys.executable, "-m", "pip", "download", "-q", *wanted], capture_output=True, check=False
        )
        if done.returncode:
            pytest.skip(f"py_trees' source distribution cannot be fetched: {done.stderr.decode()[-300:]}")
        with tarfile.open(next(cache.glob("py_trees-*.tar.gz"))) as archive:
            archive.extractall(cache, filter="data")
    return folder


@pytest.mark.full
@pytest.mark.timeout(600)
def test_py_trees_own_tests_pass_with_this_ticker(pytestconfig: pytest.Config) -> None:
    """What py_trees promises of its trees holds when jianmu ticks them."""
    assert pytestconfig.cache is not None
    folder = fetched(pytestconfig.cache.mkdir("py_trees"))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "ticked_by_jianmu", "-q", "-c", os.devnull, "--rootdir", ".", "tests"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(Path(__file__).parent)])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    passed, ticked = re.search(r"(\d+) passed", done.stdout), re.search(r"ticked by jianmu: (\d+)", done.stdout)
    assert passed is not None
    assert int(passed[1]) >= 200
    assert ticked is not None
    assert int(ticked[1]) >= 500
