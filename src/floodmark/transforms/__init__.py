"""Transforms: steps between reading and writing.

A named transform is a small function that builds a query from the columns of its input; `sql`
and `python` steps are the user's own. Steps are read with `parse_steps`, checked without Spark
with `trace` and applied with `apply_steps`.
"""

from __future__ import annotations

from floodmark.transforms.context import StepContext
from floodmark.transforms.faults import without_plan
from floodmark.transforms.params import Params
from floodmark.transforms.registry import (
    Example,
    Registry,
    Table,
    Transform,
    standard,
    transform,
)
from floodmark.transforms.relation import Built, Column, Output, Relation
from floodmark.transforms.steps import (
    Step,
    Traced,
    apply_steps,
    parse_steps,
    problems,
    trace,
)

__all__ = [
    "Built",
    "Column",
    "Example",
    "Output",
    "Params",
    "Registry",
    "Relation",
    "Step",
    "StepContext",
    "Table",
    "Traced",
    "Transform",
    "apply_steps",
    "parse_steps",
    "problems",
    "standard",
    "trace",
    "transform",
    "without_plan",
]
