"""The settings of a project: connections, pipelines, nodes, and what its nodes mean."""

from __future__ import annotations

from floodmark.config.project.connections import (
    DIALECTS,
    ConnectionModel,
    FilesConnection,
    HttpConnection,
    JdbcConnection,
    KafkaConnection,
    LakeConnection,
    PluginConnection,
    PostgresConnection,
)
from floodmark.config.project.nodes import Expectation, NodeSettings, Step
from floodmark.config.project.reads import FORMATS, IncrementalSettings, ReadSettings
from floodmark.config.project.resolved import parents_of
from floodmark.config.project.schema import Kind, header, json_schema
from floodmark.config.project.settings import MAX_JOBS

__all__ = [
    "DIALECTS",
    "FORMATS",
    "MAX_JOBS",
    "ConnectionModel",
    "Expectation",
    "FilesConnection",
    "HttpConnection",
    "IncrementalSettings",
    "JdbcConnection",
    "KafkaConnection",
    "Kind",
    "LakeConnection",
    "NodeSettings",
    "PluginConnection",
    "PostgresConnection",
    "ReadSettings",
    "Step",
    "header",
    "json_schema",
    "parents_of",
]
