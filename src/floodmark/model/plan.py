"""What planning takes and gives: facts about upstreams in, a draft of a batch out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from floodmark.model.delta import SnapshotSize, TableFacts, VersionFacts
from floodmark.model.window import Window

DEFAULT_SCOPE = "default"


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """Which upstreams of a scope to plan, by stored name."""

    upstreams: tuple[str, ...]
    scope: str = DEFAULT_SCOPE
    max_versions: int | None = None


@dataclass(frozen=True, slots=True)
class Probe:
    """What the log of an upstream shows beyond its watermark."""

    facts: TableFacts
    versions: tuple[VersionFacts, ...] = ()
    """The commits after the watermark, as far as planning needs them; empty on a first run."""
    size: SnapshotSize | None = None
    """The whole table at its newest version, where a snapshot may be planned."""


@dataclass(frozen=True, slots=True)
class Draft:
    """A batch that is not journaled."""

    scope: str
    windows: tuple[Window, ...]
    required: Mapping[str, tuple[str, ...]]

    @property
    def has_news(self) -> bool:
        return any(window.has_news for window in self.windows)
