"""Everything that judges files, without Spark and without looking at data."""

from __future__ import annotations

from floodmark.config.checks.databases import database_problems
from floodmark.config.checks.faults import add_finding
from floodmark.config.checks.findings import OLDER_CSV, SENSITIVE, UNREAD_SQL, Finding
from floodmark.config.checks.foreseen import foreseen_refusals
from floodmark.config.checks.nodes import has_plugins
from floodmark.config.checks.plugins import plugin_problems
from floodmark.config.checks.sensitive import hides_values
from floodmark.config.checks.unsupported import unsupported_keys

__all__ = [
    "OLDER_CSV",
    "SENSITIVE",
    "UNREAD_SQL",
    "Finding",
    "add_finding",
    "database_problems",
    "foreseen_refusals",
    "has_plugins",
    "hides_values",
    "plugin_problems",
    "unsupported_keys",
]
