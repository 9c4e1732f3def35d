"""Values that can be read and not written, and the snapshots made of them.

1. What is stored is frozen once, when it is written: lists, dicts, sets and models are copied, at every depth.
2. A list that grows by appends is kept in one buffer that its versions share; the list that readers see is made at
   the first read.
3. A snapshot is an instance of a subclass of the schema, so that such a list can be put in when it is asked for.
"""

from __future__ import annotations

import copy
import io
from abc import ABCMeta
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn, cast

from pydantic import BaseModel

from jianmu.engine.state.markers import Value
from jianmu.engine.state.readonly import (
    READ_ONLY,
    FieldsDict,
    Hint,
    ReadOnlyDict,
    ReadOnlyList,
    ReadOnlySet,
    Unfit,
    refuse,
)
