"""The settings of a project, as pydantic models: what keys there are and what they may hold."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    model_validator,
)
from pydantic_core import PydanticCustomError

from floodmark.config import durations
from floodmark.config.places import choices
from floodmark.model.names import PIPELINE_NAME, PIPELINE_NAME_RULE
from floodmark.model.upstream import Upstream

DEFAULT_CONTROL = "lake/_control"
DEFAULT_JOBS, MAX_JOBS, MAX_ATTEMPTS = 2, 64, 100
MAX_DELAY_SECONDS = 86_400.0

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]+):/")
_STORES = ("file", "s3", "s3a", "abfs", "abfss", "az", "azure", "adl", "gs", "gcs")
"""Where tables can be: the schemes that delta-rs and Spark both know."""
_FUNCTION = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


def _refused(title: str, allowed: str) -> PydanticCustomError:
    return PydanticCustomError("refused", "{title}", {"title": title, "allowed": allowed})


def _name(value: str) -> str:
    if not PIPELINE_NAME.fullmatch(value):
        raise _refused("not a name", PIPELINE_NAME_RULE)
    return value


def _identifier(value: str) -> str:
    if not _IDENTIFIER.fullmatch(value):
        raise _refused("not a schema name", "letters, digits and _, not beginning with a digit")
    return value


def _path(value: str) -> str:
    if not value.strip():
        raise _refused("the path is empty", "a path or URI")
    if any(ord(character) < 32 or ord(character) == 127 for character in value):
        raise _refused("the path has a control character", "a path or URI without them")
    scheme = _SCHEME.match(value)
    if scheme and scheme[1].lower() not in _STORES:
        known = choices(list(_STORES), scheme[1])
        raise _refused(f'unknown scheme "{scheme[1]}"', f"a path, or a URI with one of {known}")
    return value


def _function(value: str) -> str:
    if not _FUNCTION.fullmatch(value):
        raise _refused("not a function", "module.path:name, for example jobs.daily:process")
    return value


def _duration(shortest: str, longest: str) -> BeforeValidator:
    """Durations within these bounds, kept as they are written."""

    def check(value: object) -> object:
        try:
            seconds = durations.seconds_of(value if isinstance(value, str) else "")
        except ValueError:
            raise _refused("not a duration", durations.ALLOWED) from None
        if not durations.seconds_of(shortest) <= seconds <= durations.seconds_of(longest):
            raise _refused("the duration is out of range", f"{shortest} to {longest}")
        return value

    return BeforeValidator(check)


def _number(lowest: int, highest: int) -> AfterValidator:
    def check(value: int) -> int:
        if not lowest <= value <= highest:
            raise _refused("the number is out of range", f"{lowest} to {highest}")
        return value

    return AfterValidator(check)


def _choice(*allowed: str) -> BeforeValidator:
    def check(value: object) -> object:
        if value not in allowed:
            raise _refused(f"not one of the choices: {value}", choices(list(allowed), str(value)))
        return value

    return BeforeValidator(check)


def _baseline(value: object) -> object:
    is_version = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    if not is_version and value != "latest":
        raise _refused("not a baseline", "a version from 0 up, or latest")
    return value


Name = Annotated[str, AfterValidator(_name)]
UpstreamPath = Annotated[str, AfterValidator(_path)]
Timeout = Annotated[str, _duration("10ms", "30d")]
Jobs = Annotated[int, _number(1, MAX_JOBS)]


class _Settings(BaseModel):
    # Strict: a number where text belongs is a mistake to be shown, not to be guessed at.
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class RetrySettings(_Settings):
    """How often a failed run is tried again, and how long to wait: each time twice as long."""

    attempts: Annotated[int, _number(1, MAX_ATTEMPTS)] = 3
    backoff: Annotated[str, _duration("0s", "1d")] = "30s"

    def delay_seconds(self, failed_attempts: int) -> float:
        """How long to wait after so many attempts have failed; never more than a day."""
        first = durations.seconds_of(self.backoff)
        return min(first * 2.0 ** (failed_attempts - 1), MAX_DELAY_SECONDS)


class UpstreamSettings(_Settings):
    """An upstream: its name alone, or a mapping with what is said about it."""

    name: UpstreamPath
    baseline: Annotated[Any, BeforeValidator(_baseline)] = None
    method: Annotated[str | None, _choice("feed", "snapshot")] = None
    on_feed_gap: Annotated[str, _choice("snapshot", "fail")] = "snapshot"
    on_schema_change: Annotated[str, _choice("evolve", "fail", "reload")] = "evolve"
    on_recreated: Annotated[str, _choice("fail", "reload")] = "fail"
    on_lost_range: Annotated[str, _choice("fail", "snapshot", "accept")] = "fail"

    @model_validator(mode="before")
    @classmethod
    def _from_name(cls, value: Any) -> Any:
        return value if isinstance(value, dict) else {"name": value}

    def upstream(self) -> Upstream:
        """The same as the API takes it."""
        given: dict[str, Any] = self.model_dump()
        return Upstream(**given)


class PipelineSettings(_Settings):
    """One pipeline: the user's function over exact inputs."""

    pipeline: Name
    scope: Name | None = None
    declared: Annotated[list[UpstreamSettings], Field(min_length=1, alias="upstreams")]
    lookups: list[UpstreamPath] = Field(default_factory=list)
    function: Annotated[str, AfterValidator(_function)]
    timeout: Timeout | None = None
    retry: RetrySettings | None = None

    @property
    def upstreams(self) -> list[str]:
        """The names of the upstreams."""
        return [upstream.name for upstream in self.declared]

    @property
    def timeout_seconds(self) -> float | None:
        """How long one attempt may take."""
        return durations.seconds_of(self.timeout) if self.timeout else None

    @property
    def shared_scope(self) -> str:
        """The scope whose batches the pipeline shares: its own name unless it says one."""
        return self.scope or self.pipeline


class ProjectSettings(_Settings):
    """A project file."""

    project: Name
    control: UpstreamPath = DEFAULT_CONTROL
    catalog_schema: Annotated[str, AfterValidator(_identifier), Field(alias="schema")] = "gold"
    lease_ttl: Annotated[str, _duration("1s", "1d")] = "60s"
    jobs: Jobs = DEFAULT_JOBS
    """How many pipelines run side by side."""
    pipelines: Annotated[list[PipelineSettings], Field(min_length=1)]

    @property
    def lease_ttl_seconds(self) -> float:
        """How long a lease lives without a sign of life."""
        return durations.seconds_of(self.lease_ttl)
