"""What a pipeline may say about an upstream beyond its name."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import Any, Literal, TypeGuard, get_args

from floodmark.errors import ConfigError
from floodmark.model.window import NOTHING_PROCESSED

OnFeedGap = Literal["snapshot", "fail"]
OnSchemaChange = Literal["evolve", "fail", "reload"]
OnRecreated = Literal["fail", "reload"]
OnLostRange = Literal["fail", "snapshot", "accept"]
PreferredMethod = Literal["feed", "snapshot"]


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamOptions:
    """How an upstream is read; raises ConfigError FM-CONFIG-007 for a value that is not allowed.

    All pipelines of a scope say the same about an upstream: they share its windows.
    """

    baseline: int | Literal["latest"] | None = None
    """A first batch reads what follows this version, by feed; None: the whole table."""
    method: PreferredMethod | None = None
    """snapshot: always the whole table. feed: changes also where a snapshot would be simpler."""
    on_feed_gap: OnFeedGap = "snapshot"
    """Where the change feed does not cover what comes next."""
    on_schema_change: OnSchemaChange = "evolve"
    """Where the next version changes the schema; what lies before it is read first."""
    on_recreated: OnRecreated = "fail"
    """Where another table stands in the place of the one that was processed."""
    on_lost_range: OnLostRange = "fail"
    """Where commits that were not planned yet are gone from the log."""
    time_column: str | None = None
    latest_at: int | None = field(default=None, compare=False)
    """What "latest" meant when the pipeline was registered; set by floodmark."""

    def __post_init__(self) -> None:
        if not _is_baseline(self.baseline):
            raise _refused("baseline", self.baseline, _BASELINES)
        for name, allowed in _CHOICES.items():
            value = getattr(self, name)
            if value not in allowed:
                raise _refused(name, value, ", ".join(map(str, allowed)))

    @property
    def first_after(self) -> int:
        """The version after which the first window starts; -1 for the whole table."""
        if self.baseline is None:
            return NOTHING_PROCESSED
        if self.baseline == "latest":
            return NOTHING_PROCESSED if self.latest_at is None else self.latest_at
        return self.baseline


@dataclass(frozen=True, slots=True)
class Upstream(UpstreamOptions):
    """An upstream with options, where `register` takes a name: `fm.Upstream("lake/a", baseline=5)`."""

    name: str
    lookup: bool = field(default=False, kw_only=True)
    """A table that batches freeze for the pipeline; it neither holds a batch nor triggers one."""

    @property
    def options(self) -> UpstreamOptions:
        """The options without the name."""
        return UpstreamOptions(**{f.name: getattr(self, f.name) for f in fields(UpstreamOptions)})


_BASELINES = 'a version from 0 up, "latest", or nothing for the whole table'
_CHOICES: dict[str, tuple[Any, ...]] = {
    "method": (*get_args(PreferredMethod), None),
    "on_feed_gap": get_args(OnFeedGap),
    "on_schema_change": get_args(OnSchemaChange),
    "on_recreated": get_args(OnRecreated),
    "on_lost_range": get_args(OnLostRange),
}


def _is_baseline(value: object) -> bool:
    if isinstance(value, int) and not isinstance(value, bool):
        return value >= 0
    return value is None or value == "latest"


def _refused(name: str, value: object, allowed: str) -> ConfigError:
    return ConfigError(
        "FM-CONFIG-007",
        f"{name} of an upstream cannot be {value!r}",
        allowed=allowed,
        state="nothing was journaled",
        next="correct the option",
    )


DEFAULT_OPTIONS = UpstreamOptions()


def is_lookup(one: str | Upstream) -> TypeGuard[Upstream]:
    return isinstance(one, Upstream) and one.lookup


def names_of(upstreams: Iterable[str | Upstream]) -> list[str]:
    """The names of upstreams, with or without options."""
    return [one.name if isinstance(one, Upstream) else one for one in upstreams]
