"""Steps of nodes over Arrow tables, for tests without Spark: a few of them, and Python.

Rows are put together by pyarrow, written independently of the SQL that Spark gets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from floodmark.config.plugins import load_function
from floodmark.transforms import Step

_JOINS = {
    "inner": "inner",
    "left": "left outer",
    "right": "right outer",
    "full": "full outer",
    "semi": "left semi",
    "anti": "left anti",
}


def applied(
    steps: Sequence[Step], frame: pa.Table, others: Mapping[str, pa.Table], root: Path
) -> pa.Table:
    """The frame after the steps: `join`, `union`, `select`, `rename` and `python`.

    A Python step gets the frame and the others by name.
    """
    for step in steps:
        frame = _applied(step, frame, others, root)
    return frame


def _applied(step: Any, frame: pa.Table, others: Mapping[str, pa.Table], root: Path) -> pa.Table:
    if step.name == "python":
        return load_function(root, step.function)(frame, others, **step.params)
    params = step.params
    if step.name == "select":
        return frame.select(params.columns)
    if step.name == "rename":
        return frame.rename_columns([params.columns.get(n, n) for n in frame.column_names])
    if step.name == "union":
        parts = [frame, *(others[name].select(frame.column_names) for name in params.others)]
        return pa.concat_tables(parts, promote_options="default")
    if step.name == "join":
        keys, other = list(params.on), others[params.other]
        if params.columns is not None:
            other = other.select(list(dict.fromkeys([*params.on.values(), *params.columns])))
        return frame.join(other, keys, list(params.on.values()), join_type=_JOINS[params.how])
    raise NotImplementedError(step.name)
