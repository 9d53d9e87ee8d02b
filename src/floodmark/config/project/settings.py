"""The settings of a project, as pydantic models: what keys there are and what they may hold."""

from __future__ import annotations

import hashlib
import json
from typing import Annotated, Any

from pydantic import AfterValidator, Field, ValidationInfo, model_validator
from pydantic_core import PydanticKnownError

from floodmark.config.project.connections import Connections
from floodmark.config.project.nodes import NodeSettings
from floodmark.config.project.upstreams import UpstreamSettings
from floodmark.config.stream.settings import StreamPipeline
from floodmark.config.text.fields import (
    FunctionName,
    Identifier,
    ModuleName,
    Name,
    Names,
    Settings,
    TablePath,
    Text,
    Timeout,
    Wait,
    duration,
    number,
)
from floodmark.model import durations
from floodmark.work import RetryPolicy

DEFAULT_CONTROL = "lake/_control"
DEFAULT_JOBS, MAX_JOBS, MAX_ATTEMPTS = 2, 64, 100
MAX_DELAY_SECONDS = 86_400.0

Jobs = Annotated[int, number(1, MAX_JOBS)]


class RetrySettings(Settings):
    """How often a failed run is tried again, and how long to wait: each time twice as long."""

    attempts: Annotated[int, number(1, MAX_ATTEMPTS)] = Field(
        default=3, description="How often in all, the first time included."
    )
    backoff: Wait = Field(
        default="30s", description="The first wait; each further one is twice as long."
    )

    @property
    def policy(self) -> RetryPolicy:
        """The same as a value; no wait is longer than a day."""
        first = durations.seconds_of(self.backoff)
        return RetryPolicy(first, self.attempts, longest_seconds=MAX_DELAY_SECONDS)


class PipelineSettings(Settings):
    """One pipeline: nodes, or the user's own function over exact inputs."""

    pipeline: Name = Field(description="Unique in the project.")
    description: Text | None = Field(default=None, description="For people.")
    scope: Name | None = Field(
        default=None,
        description="Pipelines of one scope share batches and watermarks; else its own.",
    )
    tags: Names = Field(default_factory=list, description="For selectors: `tag:x`.")
    timeout: Timeout | None = Field(default=None, description="How long one attempt may take.")
    retry: RetrySettings | None = Field(default=None, description="What happens after a failure.")
    parallel: Jobs = Field(
        default=DEFAULT_JOBS, description="How many of its nodes run side by side."
    )
    nodes: Annotated[list[NodeSettings], Field(min_length=1)] = Field(
        default_factory=list,
        description="The nodes, in any order; a mapping of names is accepted too.",
    )
    declared: Annotated[list[UpstreamSettings], Field(min_length=1)] = Field(
        default_factory=list,
        alias="upstreams",
        description="What the function reads, by exact ranges.",
    )
    lookups: list[TablePath] = Field(
        default_factory=list, description="Frozen with the batch; they never hold it."
    )
    function: FunctionName | None = Field(
        default=None, description="module.path:name of the function."
    )

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

    @property
    def all_tags(self) -> frozenset[str]:
        """The tags of the pipeline and of its nodes."""
        return frozenset([*self.tags, *(tag for node in self.nodes for tag in node.tags)])

    @property
    def definition(self) -> str:
        """A hash of what the pipeline does: the same for the same settings, however written."""
        said = self.model_dump(mode="json", by_alias=True, exclude_defaults=True)
        # What nodes read is said by the nodes; as upstreams it is derived from them.
        for silent in (
            "description",
            "tags",
            "parallel",
            *(["upstreams", "lookups"] if self.nodes else []),
        ):
            said.pop(silent, None)
        text = json.dumps(said, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()


def _some(pipelines: list[PipelineSettings], info: ValidationInfo) -> list[PipelineSettings]:
    # Streams with errors of their own are not among the data: they are there all the same.
    if not pipelines and not info.data.get("streams", True):
        raise PydanticKnownError(
            "too_short", {"field_type": "List", "min_length": 1, "actual_length": 0}
        )
    return pipelines


class ProjectSettings(Settings):
    """A project: floodmark.yaml, the files of pipelines/, and an overlay."""

    project: Name = Field(description="The project's name.")
    control: TablePath = Field(default=DEFAULT_CONTROL, description="Where the control store is.")
    catalog_schema: Identifier = Field(
        default="gold",
        alias="schema",
        description="The schema under which the control tables are shown.",
    )
    lease_ttl: Annotated[str, duration("1s", "1d")] = Field(
        default="60s", description="How long a lease lives without a sign of life."
    )
    jobs: Jobs = Field(default=DEFAULT_JOBS, description="How many pipelines run side by side.")
    spark: dict[str, str] = Field(
        default_factory=dict, description="Settings of the local Spark session, by Spark's names."
    )
    plugins: list[ModuleName] = Field(
        default_factory=list,
        description="Modules of the project with transforms, formats, sources, sinks.",
    )
    connections: Connections = Field(
        default_factory=dict, description="Where data comes from and goes to, by name."
    )
    streams: list[StreamPipeline] = Field(
        default_factory=list,
        description="The streams; each file of streams/ adds one, or a list under this key.",
    )
    pipelines: Annotated[list[PipelineSettings], AfterValidator(_some)] = Field(
        description="The pipelines; each file of pipelines/ adds one, or a list under this key.",
        json_schema_extra={"minItems": 1},
    )

    @model_validator(mode="before")
    @classmethod
    def _may_be_of_streams(cls, said: Any) -> Any:
        """A project of streams needs no pipelines."""
        has_streams = isinstance(said, dict) and bool(said.get("streams"))
        return {"pipelines": [], **said} if has_streams else said

    @property
    def lease_ttl_seconds(self) -> float:
        """How long a lease lives without a sign of life."""
        return durations.seconds_of(self.lease_ttl)
