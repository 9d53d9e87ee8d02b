"""A valid project, broken in every way a rule can find; each time one typed error at its place.

The first part is generated: every key misspelled, repeated and left out, every value of another
kind, every choice nearly right. Places come from PyYAML's own marks, not from the loader under test.
The second part is written by hand: `§` stands where the error is expected.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from floodmark.config import load_project
from floodmark.errors import ConfigError, ConfigErrors

PROJECT = """\
project: shop
control: lake/_control
schema: gold
lease_ttl: 60s
jobs: 3
connections:
  erp:
    type: postgres
    host: db
    port: 5432
    database: shop
    user: etl
    password: "${env:FM_ERP_PASSWORD}"
    sslmode: require
    options: {fetchsize: 1000}
  crm:
    type: sqlserver
    url: jdbc:sqlserver://crm;databaseName=crm
    driver: com.microsoft.sqlserver.jdbc.SQLServerDriver
    user: etl
    password: "${secret:vault/crm}"
  lake:
    type: lake
    root: lake
    storage_options: {aws_region: eu-central-1}
  inbox: {type: files, root: data/inbox}
  rates:
    type: http
    base_url: https://example.org/rates
    cache: 30d
    timeout: 10s
    token: "${file:token.txt}"
    headers: {accept: application/json}
  events:
    type: kafka
    bootstrap_servers: [localhost:9092]
    security_protocol: SASL_SSL
    sasl_mechanism: PLAIN
    user: reader
    password: "${env:FM_KAFKA}"
pipelines:
  - pipeline: custom
    scope: nightly
    tags: [own]
    timeout: 2h
    retry: {attempts: 3, backoff: 30s}
    upstreams:
      - raw.orders
      - {name: lake/raw/customers, baseline: 5, method: feed, on_feed_gap: fail}
    lookups: [lake/raw/countries]
    function: jobs.daily:process
"""
ORDERS = """\
pipeline: daily_orders
description: orders of a day
nodes:
  - name: load_orders
    tags: [raw]
    read:
      connection: erp
      format: sql
      table: dbo.orders
      incremental:
        cursor: updated_at
        overlap: 15 minutes
        settle: 1m
        keys: [order_id]
        on_null_cursor: fail
        type: timestamp
        time_zone: UTC
    write:
      connection: lake
      format: delta
      path: raw/orders
      mode: append
      register_table: raw.orders
      first_run_query: SELECT * FROM dbo.orders
      options:
        cluster_by: order_date
        optimize_write: true
  - name: customers
    read: {connection: crm, query: SELECT * FROM dbo.customers}
    write:
      connection: lake
      path: raw/customers
      mode: replace_where
      replace_where: day = '2026-01-01'
  - name: orders
    depends_on: [load_orders]
    transform:
      - cast_columns: {columns: {amount: "decimal(12,2)"}}
      - sql: SELECT *, amount * 0.2 AS vat FROM input
      - python: {function: transforms.orders:enrich, params: {rate: 2}}
      - join: {with: customers, on: [customer_id]}
    columns:
      email: {sensitive: true, description: where to write to}
    expect:
      - not_null: order_id
      - {check: amount >= 0, action: quarantine, name: not-negative}
      - accepted_values: {column: state, values: [new, paid]}
      - range: {column: amount, min: 0, max: 1000}
      - regex: {column: email, pattern: .+@.+}
      - row_count: {min: 1, max: 100000}
    write:
      connection: lake
      path: silver/orders
      mode: merge
      on_schema_change: add_columns
      merge:
        keys: [order_id]
        strategy: upsert
        sequence_by: updated_at
        deletes: soft
        missing: keep
        audit: {created_at: created, updated_at: updated}
"""
FILES = {"floodmark.yaml": PROJECT, "pipelines/orders.yaml": ORDERS}

FREE = {"params", "storage_options", "headers", "with", "on"}
"""Keys whose values are not the project's business, or are said by a plug-in."""
ANY_SCALAR = {"baseline", "min", "max", "values"}
CHOICES = {
    "sslmode": "requir", "security_protocol": "SASL_SSLL", "sasl_mechanism": "PLAINN",
    "method": "fed", "on_feed_gap": "fial", "on_null_cursor": "fale", "mode": "marge",
    "on_schema_change": "add_column", "strategy": "upsertt", "deletes": "sofd",
    "missing": "kep", "action": "quarantin",
}  # fmt: skip
REQUIRED = {
    ("project",), ("connections", "erp", "host"), ("connections", "erp", "database"),
    ("connections", "erp", "type"), ("connections", "lake", "root"), ("connections", "lake", "type"),
    ("connections", "inbox", "root"), ("connections", "rates", "base_url"),
    ("connections", "events", "bootstrap_servers"), ("connections", "crm", "type"),
    ("pipelines", "pipeline"), ("pipelines", "function"), ("pipelines", "upstreams"),
    ("pipeline",), ("nodes", "name"), ("nodes", "read", "incremental", "cursor"),
    ("nodes", "write", "merge", "keys"), ("nodes", "expect", "accepted_values", "column"),
    ("nodes", "expect", "accepted_values", "values"), ("nodes", "expect", "range", "column"),
    ("nodes", "expect", "regex", "column"), ("nodes", "expect", "regex", "pattern"),
    ("nodes", "transform", "python", "function"), ("pipelines", "upstreams", "name"),
}  # fmt: skip


@dataclass(frozen=True)
class Broken:
    """A project with one mistake, and what has to be said about it."""

    name: str
    files: dict[str, str]
    code: str
    where: str
    """file:line:column"""
    says: str
    """A word that the error must name: the key, or the value that is wrong."""


Item = tuple[tuple[str, ...], ScalarNode, Node]
"""The keys on the way (without positions), the key, the value."""


def items(node: Node, path: tuple[str, ...] = ()) -> Iterator[Item]:
    if isinstance(node, MappingNode):
        for key, value in node.value:
            here = (*path, key.value)
            yield here, key, value
            yield from items(value, here)
    elif isinstance(node, SequenceNode):
        for each in node.value:
            yield from items(each, path)


def is_free(path: tuple[str, ...]) -> bool:
    """Whether keys and values at a path are names or options of the user's own."""
    own_names = len(path) == 2 and path[0] == "connections"
    own_columns = path[:-1] == ("nodes", "columns") or path[-2:-1] == ("columns",)
    below_step = path[:2] == ("nodes", "transform") and len(path) > 3 and path[2] != "python"
    below_options = path[:1] == ("connections",) and path[-2:-1] == ("options",)
    free_above = bool(FREE & set(path[:-1]))
    return own_names or own_columns or below_step or below_options or free_above


def place(file: str, node: Node) -> str:
    return f"{file}:{node.start_mark.line + 1}:{node.start_mark.column + 1}"


def replaced(text: str, node: Node, by: str) -> str:
    """The text with another value; a block keeps the line break and indentation that follow it."""
    start, end = node.start_mark.index, node.end_mark.index
    is_block = not isinstance(node, ScalarNode) and not getattr(node, "flow_style", False)
    tail = "\n" + " " * node.end_mark.column if is_block else ""
    return text[:start] + by + tail + text[end:]


def keys() -> Iterator[tuple[str, str, Item]]:
    for file, text in FILES.items():
        for item in items(yaml.compose(text, Loader=yaml.SafeLoader)):
            yield file, text, item


def broken(  # noqa: PLR0917  (rows of a table)
    kind: str, file: str, item: Item, text: str, code: str, at: Node, says: str
) -> Broken:
    name = f"{kind}: {'.'.join(item[0])} in line {item[1].start_mark.line + 1} of {file}"
    return Broken(name, {**FILES, file: text}, code, place(file, at), says)


def misspelled_keys() -> Iterator[Broken]:
    for file, text, item in keys():
        path, key, _ = item
        if is_free(path):
            continue
        wrong = f"{key.value[:-1]}qz"
        is_step = path[:2] == ("nodes", "transform") and len(path) == 3
        if path[-1] == "type" and path[0] == "connections":
            continue  # without its type nothing is known about a connection: see the keys left out
        code = "FM-CONFIG-013" if is_step else "FM-CONFIG-003"
        yield broken("misspelled", file, item, replaced(text, key, wrong), code, key, wrong)


def repeated_keys() -> Iterator[Broken]:
    for file, text, item in keys():
        path, key, value = item
        if not isinstance(value, ScalarNode) or "\n" in text[: key.start_mark.index][-1:]:
            continue
        line_start = text.rfind("\n", 0, key.start_mark.index) + 1
        before = text[line_start : key.start_mark.index]
        if before.strip(" "):
            continue  # inside a flow mapping, or after a dash
        again = f"{key.value}: {text[value.start_mark.index : value.end_mark.index]}\n{before}"
        broken_text = text[: key.start_mark.index] + again + text[key.start_mark.index :]
        case = broken("repeated", file, item, broken_text, "FM-CONFIG-005", key, path[-1])
        line = key.start_mark.line + 2
        where = f"{file}:{line}:{key.start_mark.column + 1}"
        yield Broken(case.name, case.files, case.code, where, case.says)


def values_of_another_kind() -> Iterator[Broken]:
    for file, text, item in keys():
        path, _, value = item
        last = path[-1]
        if is_free(path) or last in FREE or last in ANY_SCALAR:
            continue
        if path[:2] == ("nodes", "transform") and len(path) == 3 and last != "sql":
            continue  # what a transform takes is its own business; python is in the second part
        code = "FM-CONFIG-011" if last in ("password", "token") else "FM-CONFIG-004"
        wrong = "{surely: not}" if isinstance(value, ScalarNode) else "7"
        yield broken("kind", file, item, replaced(text, value, wrong), code, value, last)


def values_with_a_tag() -> Iterator[Broken]:
    for file, text, item in keys():
        value = item[2]
        if isinstance(value, ScalarNode):
            tagged = replaced(text, value, "!secret x")
            yield broken("tag", file, item, tagged, "FM-CONFIG-002", value, "!secret")


def nearly_right_choices() -> Iterator[Broken]:
    for file, text, item in keys():
        path, _, value = item
        if path[-1] in CHOICES and not is_free(path):
            wrong = CHOICES[path[-1]]
            yield broken(
                "choice", file, item, replaced(text, value, wrong), "FM-CONFIG-004", value, wrong
            )


def without_required_keys() -> Iterator[Broken]:
    """Left out by renaming to a key that is allowed there: only the absence is wrong."""
    for file, text, item in keys():
        path, key, value = item
        if path not in REQUIRED or is_free(path):
            continue
        parent = parent_of(text, key)
        end = value.end_mark.index
        if isinstance(parent, MappingNode) and parent.flow_style:
            rest = text[end:].lstrip(",").lstrip(" ") if text[end] == "," else text[end:]
            cut = text[: key.start_mark.index] + rest
        else:
            cut = without_lines(text, key, value)
        says = f'"{path[-1]}"'
        yield broken("left out", file, item, cut, "FM-CONFIG-004", parent, says)


def parent_of(text: str, key: Node) -> Node:
    """The mapping that holds a key."""
    found: list[Node] = []

    def look(node: Node) -> None:
        if isinstance(node, MappingNode):
            if any(
                each is key or each.start_mark.index == key.start_mark.index
                for each, _ in node.value
            ):
                found.append(node)
            for _, value in node.value:
                look(value)
        elif isinstance(node, SequenceNode):
            for each in node.value:
                look(each)

    look(yaml.compose(text, Loader=yaml.SafeLoader))
    return found[0]


def without_lines(text: str, key: Node, value: Node) -> str:
    """The text without a key of a block mapping; after a dash the next key moves up to it."""
    start = key.start_mark.index
    is_last_mark = isinstance(value, ScalarNode) or getattr(value, "flow_style", False)
    end = text.index("\n", value.end_mark.index) + 1 if is_last_mark else value.end_mark.index
    rest = text[end:]
    return text[:start] + (rest.lstrip(" ") if is_last_mark else rest)


GENERATED = [
    *misspelled_keys(),
    *repeated_keys(),
    *values_of_another_kind(),
    *values_with_a_tag(),
    *nearly_right_choices(),
    *without_required_keys(),
]


@pytest.mark.parametrize("case", GENERATED, ids=lambda case: case.name)
def test_a_generated_mistake_is_found_at_its_place(case: Broken, tmp_path: Path) -> None:
    check(case, tmp_path)


def test_the_project_itself_is_fine(tmp_path: Path) -> None:
    written(FILES, tmp_path)

    loaded = load_project(tmp_path / "floodmark.yaml")

    assert [p.pipeline for p in loaded.settings.pipelines] == ["custom", "daily_orders"]
    assert [warning.code for warning in loaded.warnings] == ["FM-CONFIG-042"]


def test_there_are_enough_of_them() -> None:
    assert len({case.name for case in [*GENERATED, *HAND_MADE]}) >= 300


# By hand -----------------------------------------------------------------------------------------

Row = tuple[str, str, str, str, str]
"""What is wrong, the text to replace, its replacement with § at the place, code, named word."""

BY_HAND: list[Row] = [
    # Names that must exist
    ("unknown connection of a read", "connection: erp", "connection: §erpp", "013", "erpp"),
    ("unknown connection of a write", "connection: lake\n      path: raw/c", "connection: §lakes\n      path: raw/c", "013", "lakes"),
    ("unknown node", "depends_on: [load_orders]", "depends_on: [§load_order]", "013", "load_order"),
    ("a node of itself", "depends_on: [load_orders]", "depends_on: [§orders]", "014", "orders"),
    ("unknown format", "format: sql\n", "format: §sqll\n", "013", "sqll"),
    ("unknown transform", "- cast_columns:", "- §cast_column:", "013", "cast_column"),
    # Names twice
    ("a node twice", "- name: customers", "- name: §load_orders", "005", "load_orders"),
    ("a pipeline twice", "pipeline: daily_orders", "pipeline: §custom", "005", "custom"),
    ("a column twice in keys", "keys: [order_id]\n        on", "keys: [order_id, §order_id]\n        on", "005", "order_id"),
    ("an upstream twice", "- raw.orders\n", "- raw.orders\n      - §raw.orders\n", "005", "raw.orders"),
    # Secrets
    ("a literal password", '"${env:FM_ERP_PASSWORD}"', "§hunter2", "011", "password"),
    ("a password in quotes", '"${env:FM_ERP_PASSWORD}"', "§'hunter2'", "011", "password"),
    ("a password with a default", '"${env:FM_ERP_PASSWORD}"', '§"${env:FM_ERP_PASSWORD:-hunter2}"', "011", "password"),
    ("a password with a beginning", '"${env:FM_ERP_PASSWORD}"', '§"hunter2${env:FM_ERP_PASSWORD}"', "011", "password"),
    ("a number as a password", '"${env:FM_ERP_PASSWORD}"', "§12345", "011", "password"),
    ("a literal token", '"${file:token.txt}"', "§hunter2", "011", "token"),
    ("a literal key of a store", "aws_region: eu-central-1", "aws_secret_access_key: §hunter2", "011", "aws_secret_access_key"),
    ("a literal header", "accept: application/json", "Authorization: §Bearer hunter2", "011", "Authorization"),
    ("a password in options", "fetchsize: 1000", "sslpassword: §hunter2", "011", "sslpassword"),
    ("a password in a URL", "databaseName=crm", "databaseName=crm;password=hunter2", "011@jdbc:", "url"),
    ("a login in a URL", "https://example.org", "§https://me:hunter2@example.org", "011", "base_url"),
    ("a secret where text is", "host: db", 'host: §"${secret:vault/host}"', "011", "host"),
    ("a secret in SQL", "SELECT * FROM dbo.customers", "§'${secret:a/b}'", "011", "query"),
    # References
    ("an unknown kind of reference", "host: db", 'host: §"${envv:HOST}"', "004", "${envv"),
    ("a reference without kind", "host: db", 'host: §"${HOST}"', "004", "${HOST"),
    ("a reference without name", "host: db", 'host: §"${env:}"', "004", "${env:}"),
    ("a reference that never ends", "host: db", 'host: §"${env:HOST"', "004", "host"),
    ("a variable with a blank", "host: db", 'host: §"${env:A B}"', "004", "${env:A B}"),
    ("a variable that is not set", "host: db", 'host: §"${env:FM_NOT_SET}"', "012", "FM_NOT_SET"),
    ("a file that is not there", "root: lake\n", 'root: §"${file:nowhere.txt}"\n', "012", "nowhere.txt"),
    ("a secret without key", '"${secret:vault/crm}"', '§"${secret:vault}"', "004", "password"),
    ("an unknown kind for a secret", '"${secret:vault/crm}"', '§"${vault:crm}"', "004", "password"),
    # Settings that exclude one another
    ("clusters and partitions", "optimize_write: true", "partition_by: §order_date", "015", "partition_by"),
    ("clusters and z-order", "optimize_write: true", "zorder_by: §order_id", "015", "zorder_by"),
    ("a merge without merge", "mode: append", "mode: §merge", "015", "merge"),
    ("merge with another mode", "mode: merge", "mode: append", "015@keys: [order_id]\n        strategy", "merge"),
    ("replace without a condition", "mode: append", "mode: §replace_where", "015", "replace_where"),
    ("a condition with another mode", "mode: replace_where\n      replace_where: ", "mode: overwrite\n      replace_where: §", "015", "replace_where"),
    ("changes with a merge", "mode: merge", "mode: merge\n      changes: §log", "015", "changes"),
    ("the latest change without keys", "mode: append", "mode: append\n      changes: §latest", "015", "changes"),
    ("a format of another database", "format: sql\n", "format: §mysql\n", "015", "mysql"),
    ("files from a database", "format: sql\n", "format: §csv\n", "015", "csv"),
    ("SQL from a lake", "format: delta\n", "format: §postgres\n", "015", "postgres"),
    ("nodes and a function", "description: orders of a day", "§function: jobs:f", "015", "function"),
    ("nodes and upstreams", "description: orders of a day", "§upstreams: [a/b]", "015", "upstreams"),
    ("a node and a table", "read: {connection: crm, query", "read: {node: load_orders, query", "015@SELECT * FROM dbo.customers}", "query"),
    ("NULL cursors without keys", "keys: [order_id]\n        on_null_cursor: fail", "on_null_cursor: §include", "015", "on_null_cursor"),
    ("a cursor of text without order", "type: timestamp", "type: §string", "015", "type"),
    ("an overlap in time of a number", "type: timestamp", "type: integer", "015@15 minutes", "overlap"),
    ("a first run of files", "read: {connection: crm, query: SELECT * FROM dbo.customers}\n    write:", "read: {connection: inbox, format: csv, path: a.csv}\n    write:\n      first_run_query: §SELECT 1", "015", "first_run_query"),
    ("a query of files", "{connection: crm, query: ", "{connection: inbox, format: csv, path: x, query: §", "015", "query"),
    # Something is missing
    ("a read of nothing", "table: dbo.orders\n      incremental", "incremental", "004@connection: erp", "sql"),
    ("a read without format", "{connection: crm, query: SELECT * FROM dbo.customers}", "§{connection: inbox, path: x}", "004", "format"),
    ("a write to nowhere", "path: raw/customers\n      ", "", "004@connection: lake\n      mode: replace", "written"),
    ("a write without mode", "mode: replace_where\n      replace_where: day = '2026-01-01'", "keys: [a]", "004@connection: lake\n      path: raw/customers", "mode"),
    ("a node without input", "depends_on: [load_orders]\n    ", "", "004@name: orders\n", "orders"),
    ("a pipeline without anything", "upstreams:\n      - raw.orders\n      - {name: lake/raw/customers, baseline: 5, method: feed, on_feed_gap: fail}\n    lookups: [lake/raw/countries]\n    function: jobs.daily:process", "lookups: [a/b]", "004@pipeline: custom", "neither"),
    # Values
    ("a name with a slash", "project: shop", "project: §a/b", "004", "project"),
    ("a connection's name with a blank", "  inbox:", "  §in box:", "004", "in box"),
    ("a port beyond measure", "port: 5432", "port: §99999", "004", "port"),
    ("a port in words", "port: 5432", "port: §many", "004", "port"),
    ("an address without scheme", "https://example.org/rates", "§example.org", "004", "base_url"),
    ("a cache without unit", "cache: 30d", "cache: §30", "004", "cache"),
    ("an unknown type of connection", "type: files", "type: §fils", "004", "fils"),
    ("an unknown store", "root: data/inbox", "root: §ftp://x/y", "004", "root"),
    ("an empty path", "root: data/inbox", "root: §''", "004", "root"),
    ("an empty query", "SELECT * FROM dbo.customers", "§''", "004", "query"),
    ("an empty step", "SELECT *, amount * 0.2 AS vat FROM input", "§''", "004", "sql"),
    ("two steps in one", "- sql: SELECT *, amount * 0.2 AS vat FROM input", "- §{sql: a, python: 'b:c'}", "004", "transform"),
    ("a step that is a number", "- sql: SELECT *, amount * 0.2 AS vat FROM input", "- §7", "004", "transform"),
    ("a step with an odd name", "- cast_columns:", "- §Cast-Columns:", "004", "transform"),
    ("python that is a number", "{function: transforms.orders:enrich, params: {rate: 2}}", "§7", "004", "python"),
    ("python that is no function", "{function: transforms.orders:enrich, params: {rate: 2}}", "§orders.py", "004", "python"),
    ("two checks in one", "- not_null: order_id", "- §{not_null: a, unique: b}", "004", "expect"),
    ("no check", "- not_null: order_id", "- §{action: warn}", "004", "expect"),
    ("an overlap in words", "overlap: 15 minutes", "overlap: §a while", "004", "overlap"),
    ("a negative overlap", "overlap: 15 minutes", "overlap: §-5", "004", "overlap"),
    ("no keys", "keys: [order_id]\n        strategy", "keys: §[]\n        strategy", "004", "keys"),
    ("an empty key", "keys: [order_id]\n        strategy", "keys: [§'']\n        strategy", "004", "keys"),
    ("a table with a blank", "register_table: raw.orders", "register_table: §raw orders", "004", "register_table"),
    ("a table of four parts", "register_table: raw.orders", "register_table: §a.b.c.d", "004", "register_table"),
    ("a boolean in words", "optimize_write: true", "optimize_write: §yes", "004", "optimize_write"),
    ("a schema that is SQL", "schema: gold", 'schema: §"gold; DROP"', "004", "schema"),
    ("a baseline below nothing", "baseline: 5", "baseline: §-1", "004", "baseline"),
    ("no nodes", ORDERS[ORDERS.index("nodes:") :], "nodes: §[]\n", "004", "nodes"),
    ("nothing as a node", "- name: customers\n", "- §~\n  - name: customers\n", "004", "nodes"),
    ("jobs beyond measure", "jobs: 3", "jobs: §1000", "004", "jobs"),
    # Web APIs and plug-ins
    ("pages by two ways", "read: {connection: crm, query: SELECT * FROM dbo.customers}",
     "read: {connection: rates, path: a, pagination: §{next: n, page: p}}", "004", "one of next, page and cursor"),
    ("a token without its parameter", "read: {connection: crm, query: SELECT * FROM dbo.customers}",
     "read: {connection: rates, path: a, pagination: §{next: n, token: t}}", "004", "cursor and token"),
    ("a first page beyond measure", "read: {connection: crm, query: SELECT * FROM dbo.customers}",
     "read: {connection: rates, path: a, pagination: {page: p, first: §-1}}", "004", "first"),
    ("records of a database", "read: {connection: crm, query: SELECT * FROM dbo.customers}",
     "read: {connection: crm, query: SELECT 1, records: §items}", "015", "goes only with a web API"),
    ("a parameter of a database", "        type: timestamp", "        parameter: §since\n        type: timestamp", "015", "web API"),
    ("a cursor of a web API without types", "read: {connection: crm, query: SELECT * FROM dbo.customers}",
     "read: {connection: rates, path: a, incremental: §{cursor: c}}", "004", "schema"),
    ("a key in parameters", "timeout: 10s", "timeout: 10s\n    params: {api_key: §hunter2}", "011", "secret"),
    ("no attempt", "timeout: 10s", "timeout: 10s\n    attempts: §0", "004", "1 to 20"),
    ("no room for an answer", "timeout: 10s", "timeout: 10s\n    max_megabytes: §0", "004", "1 to 4096"),
    ("a plug-in with another key", "{type: files, root: data/inbox}", "{type: plugin, name: x, §optoins: {}}", "003", "nearest: options"),
    ("a secret of a plug-in", "{type: files, root: data/inbox}", "{type: plugin, name: x, options: {token: §hunter2}}", "011", "secret"),
    ("a plug-in by no name", "inbox: {type: files, root: data/inbox}\n", "inbox: {type: plugin, name: §a b}\n", "004", "not a name"),
    # Not YAML
    ("a tab", "    tags: [raw]", "§\ttags: [raw]", "002", "\\t"),
    ("an open bracket", "tags: [own]", "tags: [own", "002@: 2h", "YAML"),
    ("an unknown alias", "host: db", "host: §*db", "002", "db"),
    ("two documents", "pipeline: daily_orders", "a: 1\n§---\npipeline: daily_orders", "002", "document"),
]  # fmt: skip


def hand_made() -> Iterator[Broken]:
    for row in BY_HAND:
        yield _by_hand(*row)


def _by_hand(name: str, old: str, new: str, code: str, says: str) -> Broken:
    (file,) = [file for file, text in FILES.items() if text.count(old)]
    assert FILES[file].count(old) >= 1, name
    text = FILES[file].replace(old, new, 1)
    code, _, elsewhere = code.partition("@")
    position = text.index("§") if "§" in text else text.index(elsewhere)
    before = text[:position]
    where = f"{file}:{before.count(chr(10)) + 1}:{position - before.rfind(chr(10))}"
    files = {**FILES, file: text.replace("§", "")}
    return Broken(name, files, f"FM-CONFIG-{code}", where, says)


HAND_MADE = list(hand_made())


@pytest.mark.parametrize("case", HAND_MADE, ids=lambda case: case.name)
def test_a_mistake_made_by_hand_is_found_at_its_place(case: Broken, tmp_path: Path) -> None:
    check(case, tmp_path)


MORE_MISTAKES = (
    ("lease_ttl: 60s", "lease_ttl: soon"),
    ("baseline: 5", "baseline: [5]"),
    ('- cast_columns: {columns: {amount: "decimal(12,2)"}}', "- 5"),
    ("- not_null: order_id", "- {}"),
)
"""Values of other parts of the project, and what they are broken into: no line comes or goes."""


@pytest.mark.parametrize("case", HAND_MADE, ids=lambda case: case.name)
def test_mistakes_elsewhere_hide_no_mistake(case: Broken, tmp_path: Path) -> None:
    files = dict(case.files)
    for whole, broken_value in MORE_MISTAKES:
        files = {name: text.replace(whole, broken_value, 1) for name, text in files.items()}

    check(replace(case, files=files), tmp_path)


def written(files: dict[str, str], root: Path) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(text)


def check(case: Broken, root: Path) -> None:
    written(case.files, root)
    before = sorted(os.walk(root))

    with pytest.raises(ConfigError) as caught:
        load_project(root / "floodmark.yaml")

    error = caught.value
    errors = list(error.errors) if isinstance(error, ConfigErrors) else [error]
    where = f"{root}/{case.where}"
    found = [e for e in errors if (e.where or "").partition(": ")[0] == where]
    expected = [e for e in found if e.code == case.code]
    assert len(expected) == 1, f"{where}\n{error}"
    assert case.says in str(expected[0])
    assert "hunter2" not in str(error)
    assert "hunter2" not in repr(error.as_dict())
    assert sorted(os.walk(root)) == before
