"""Upstreams of a function pipeline, and what is said about a Delta table that is read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Self, get_args

from pydantic import Field, GetJsonSchemaHandler, model_validator

from floodmark.config.text.fields import (
    Baseline,
    Column,
    Settings,
    TablePath,
    TimeBaseline,
    Wait,
    one_of,
    refused,
)
from floodmark.errors import ConfigError
from floodmark.model import Format, Query, Upstream, query_of

if TYPE_CHECKING:
    from pydantic_core import CoreSchema


class DeltaReadSettings(Settings):
    """How a Delta table is read batch by batch, and what to do when it surprises."""

    baseline: Baseline = Field(
        default=None,
        description="A first batch reads what follows this version; else the whole table.",
    )
    method: Annotated[str | None, one_of("feed", "snapshot")] = Field(
        default=None,
        description="`snapshot`: always the whole table. `feed`: changes wherever possible.",
    )
    on_feed_gap: Annotated[str, one_of("snapshot", "fail")] = Field(
        default="snapshot", description="Where the change feed does not cover what comes next."
    )
    on_schema_change: Annotated[str, one_of("evolve", "fail", "reload")] = Field(
        default="evolve", description="Where the next version changes the schema."
    )
    on_recreated: Annotated[str, one_of("fail", "reload")] = Field(
        default="fail", description="Where another table stands in the place of the one processed."
    )
    on_lost_range: Annotated[str, one_of("fail", "snapshot", "accept")] = Field(
        default="fail", description="Where commits that were not planned yet are gone from the log."
    )


class UpstreamSettings(DeltaReadSettings):
    """An upstream: its name alone, or a mapping with what is said about it."""

    name: TablePath = Field(description="A path, a URI, or a catalog name.")
    baseline: TimeBaseline = Field(
        default=None,
        description="A first batch reads what follows this version, or with `time_column` this time; "
        "else the whole table.",
    )
    time_column: Column | None = Field(
        default=None,
        description="Versions are not used: a batch reads rows whose value here is new.",
    )
    settle: Wait | None = Field(
        default=None, description="How far the end of a time window stays behind now."
    )
    on_null_time: Annotated[str, one_of("fail", "ignore")] = Field(
        default="fail", description="What becomes of rows without a value in the time column."
    )
    format: Annotated[str | None, one_of(*get_args(Format))] = Field(
        default=None, description="Of an upstream with a time column; else Delta if it has a log."
    )

    @model_validator(mode="before")
    @classmethod
    def _from_name(cls, value: Any) -> Any:
        return value if isinstance(value, dict | UpstreamSettings) else {"name": value}

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """As it is written in a file: the name alone will do."""
        mapping = handler.resolve_ref_schema(handler(schema))
        return {"anyOf": [{"type": "string"}, mapping], "description": mapping["description"]}

    @property
    def has_versions(self) -> bool:
        """Whether windows are versions of a table."""
        return self.time_column is None

    @property
    def has_cursor(self) -> bool:
        """Whether rows are put aside before anybody reads them, since no two reads are the same."""
        return self.query is not None and self.query.has_cursor

    @property
    def reads_whole(self) -> bool:
        """Whether every window is all there is."""
        return self.query is not None and self.query.reads_whole

    @property
    def can_be_looked_up(self) -> bool:
        """Whether a read can be of everything, where there are no versions."""
        return self.query is not None and self.query.can_be_looked_up

    @property
    def query(self) -> Query | None:
        """How rows are found; None by versions."""
        if self.time_column is None:
            return None
        return query_of(self.time_column, self.format or "parquet")  # type: ignore[arg-type]  # `one_of` says so

    def upstream(self) -> Upstream:
        """The same as the API takes it."""
        given: dict[str, Any] = self.model_dump()
        return Upstream(**given)

    @model_validator(mode="after")
    def _as_the_api_takes_it(self) -> Self:
        try:
            self.upstream()
        except ConfigError as error:
            raise refused(error.title, error.allowed or "") from None
        return self
