"""Local files that appear whole or not at all."""

from __future__ import annotations

from floodmark.storage.files import write_whole

__all__ = ["write_whole"]
