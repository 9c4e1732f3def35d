"""Options that several commands have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from cyclopts import Parameter

VARIABLE = "JIANMU_STORE"
Json = Annotated[str | None, Parameter(allow_leading_hyphen=True)]
Text = Annotated[str, Parameter(allow_leading_hyphen=True)]
Flag = Annotated[bool, Parameter(negative="")]
Number = Annotated[int | None, Parameter(allow_leading_hyphen=True)]
Place = Annotated[
    str | None,
    Parameter(
        env_var=VARIABLE,
        help="where threads are kept: a file of SQLite, or postgresql://…; by default .jianmu/runs.db.",
    ),
]


@Parameter(name="*")
@dataclass(frozen=True)
class Options:
    """What all commands on a store take."""

    store: Place = None
    json: Annotated[bool, Parameter(negative="", help="write JSON to stdout, one object a line.")] = False
    debug: Annotated[bool, Parameter(negative="", help="show the traceback of an error.")] = False


DEFAULTS = Options()
