"""The story: discover -> plan -> run -> finalize -> report.

A batch freezes the exact versions of many upstreams; pipelines read exactly that; an upstream's
watermark advances only when every pipeline that depends on it has succeeded.
"""

from __future__ import annotations

from floodmark.coordinator.looking import Looking
from floodmark.coordinator.operating import Operating
from floodmark.coordinator.outside import Outside
from floodmark.coordinator.planning import Planning
from floodmark.coordinator.probing import Prober
from floodmark.coordinator.running import Running
from floodmark.model.arguments import checks_arguments

__all__ = ["Coordinator", "Outside", "Prober"]


@checks_arguments
class Coordinator(Planning, Running, Operating, Looking):
    """Plans batches over versioned upstreams, runs pipelines on them, advances watermarks.

    `spark` may be None for everything that only plans or reads state. A control store that does
    not exist is created by the first call that has to write.
    """
