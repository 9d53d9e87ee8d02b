"""The settings of a stream, its schemas and its credentials."""

from __future__ import annotations

from floodmark.config.stream.credentials import Credential, Credentials
from floodmark.config.stream.fields import Trigger
from floodmark.config.stream.params import checked_starting_offsets
from floodmark.config.stream.schemas import StreamSchema
from floodmark.config.stream.settings import (
    DEFAULT_DRIVER_COPY_ROWS,
    WINDOW_COLUMNS,
    WRITE_SECONDS,
    AggregateSettings,
    StreamingSettings,
    StreamPipeline,
)

__all__ = [
    "DEFAULT_DRIVER_COPY_ROWS",
    "WINDOW_COLUMNS",
    "WRITE_SECONDS",
    "AggregateSettings",
    "Credential",
    "Credentials",
    "StreamPipeline",
    "StreamSchema",
    "StreamingSettings",
    "Trigger",
    "checked_starting_offsets",
]
