"""Log events, and text that is safe to show."""

from __future__ import annotations

from floodmark.observe.logs import configure_logging
from floodmark.observe.text import visible

__all__ = ["configure_logging", "visible"]
