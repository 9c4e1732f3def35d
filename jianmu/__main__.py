"""`python -m jianmu` is the command `jianmu`."""

from __future__ import annotations

import sys

from jianmu.cli import main

if __name__ == "__main__":
    sys.exit(main())
