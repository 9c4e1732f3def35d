"""The demo: a refund desk as a tree."""

from __future__ import annotations

from jianmu.cli.demo.command import run_demo

__all__ = ["run_demo"]
