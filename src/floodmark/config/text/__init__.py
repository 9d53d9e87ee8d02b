"""The text of project files: YAML and JSON with places, layers, kinds of values, secrets by reference."""

from __future__ import annotations

from floodmark.config.text.places import KeyPath, Report, choices, key_name, nearest
from floodmark.config.text.references import Secret, Vault
from floodmark.config.text.tables import is_inside, table_name

__all__ = [
    "KeyPath",
    "Report",
    "Secret",
    "Vault",
    "choices",
    "is_inside",
    "key_name",
    "nearest",
    "table_name",
]
