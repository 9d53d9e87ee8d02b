"""Log events, and text that is safe to show."""

from __future__ import annotations

from floodmark.observe.logs import configure_logging
from floodmark.observe.stages import STAGES, Tell, stage
from floodmark.observe.text import visible

__all__ = ["STAGES", "Tell", "configure_logging", "stage", "visible"]
