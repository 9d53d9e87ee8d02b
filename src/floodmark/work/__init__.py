"""How work is done, whatever the work is: by several threads at once.

Sources, sinks, runs and streams use it; it knows none of them.
"""

from __future__ import annotations

from floodmark.work.pool import Workers

__all__ = ["Workers"]
