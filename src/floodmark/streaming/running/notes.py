"""What a runner tells other commands of its machine that its database cannot tell.

The circuit breaker of a stream is open when its database does not take anything, so its state is a
small file in the cache of the user. It counts only while the process that wrote it runs the stream.
"""

from __future__ import annotations

import hashlib
import json
import logging
from dataclasses import dataclass
from pathlib import Path

from floodmark.engines.cache import cache_dir
from floodmark.engines.files import write_atomically
from floodmark.streaming.ledger.batches import Claim
from floodmark.streaming.running.watching import Nobody
from floodmark.work import ProcessName

log = logging.getLogger("floodmark.streaming")


@dataclass(frozen=True)
class RunnerNotes(Nobody):
    """Watches a runner of this process and notes the state of its breaker."""

    stream_id: str
    schema: str

    def claimed(self, claim: Claim) -> None:  # noqa: ARG002  (every watcher is told it)
        """The breaker of a new runner is closed."""
        self.breaker("closed")

    def breaker(self, state: str) -> None:
        """Note a state; a note that cannot be written is missed, and nothing else."""
        try:
            write_atomically(
                self._path, json.dumps({"pid": ProcessName.here().pid, "breaker": state}).encode()
            )
        except OSError as error:
            log.warning("stream %s: its breaker cannot be noted: %s", self.stream_id, error)

    def breaker_of(self, pid: int) -> str | None:
        """The state of the breaker of the runner with this number; None if it is not known."""
        try:
            said = json.loads(self._path.read_text())
        except (OSError, ValueError):
            return None
        return str(said["breaker"]) if said.get("pid") == pid else None

    @property
    def _path(self) -> Path:
        named = f"{self.schema}\0{self.stream_id}".encode()
        return cache_dir() / "streams" / f"{hashlib.sha256(named).hexdigest()[:32]}.json"
