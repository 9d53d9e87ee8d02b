"""The spellings of older projects, turned into the ones the models know.

`nodes` as a mapping, `read.options.query`, and `transformer` with `params`. Every value keeps the
place where it was written.
"""

from __future__ import annotations

from floodmark.config.text.places import Report
from floodmark.config.text.tree import Entry, is_named

_MERGE_LAYOUT = ("optimize_write", "zorder_by", "cluster_by", "partition_by")
_AUDIT = {"created_col": "created_at", "updated_col": "updated_at"}


def normalised_pipeline(pipeline: Entry, report: Report) -> Entry:
    """A pipeline in today's spelling; what is said twice is an error in the report."""
    nodes = pipeline.get("nodes")
    if nodes is None:
        return pipeline
    if nodes.is_mapping:
        nodes = Entry([_named(nodes, name) for name in nodes.value], nodes.place)
    if not nodes.is_list:
        return pipeline
    items = [normalised_node(node, report) for node in nodes.value]
    return pipeline.having("nodes", Entry(items, nodes.place))


def _named(nodes: Entry, name: str) -> Entry:
    node: Entry = nodes.value[name]
    if not node.is_mapping or node.get("name") is not None:
        return node
    place = nodes.key_place(name)
    named = Entry({"name": Entry(name, place)}, node.place, {"name": place})
    return Entry(
        {**named.value, **node.value}, node.place, {**(named.keys or {}), **(node.keys or {})}
    )


def normalised_node(node: Entry, report: Report) -> Entry:
    """A node in today's spelling."""
    if not node.is_mapping:
        return node
    read = node.get("read")
    if read is not None and read.is_mapping:
        node = node.having("read", _with_query(read, report))
    return _with_transformer(node, report) if is_named(node, "transformer") else node


def _with_query(read: Entry, report: Report) -> Entry:
    """`options.query` as `query`."""
    options = read.get("options")
    query = options.get("query") if options is not None else None
    if options is None or query is None:
        return read
    place = options.key_place("query")
    if "query" in read.value:
        return _twice(read, "query", "options.query", report)
    rest = options.without("query")
    read = read.having("options", rest) if rest.value else read.without("options")
    return read.having("query", query, place)


def _twice(entry: Entry, key: str, other: str, report: Report) -> Entry:
    report.add(
        "FM-CONFIG-005",
        f'"{key}" and "{other}" say the same thing twice',
        entry.key_place(key),
        key=key,
        allowed="one of them",
    )
    return entry


def _with_transformer(node: Entry, report: Report) -> Entry:
    """`transformer: merge` as a write by merge, any other as a step of the transform."""
    name: Entry = node.value["transformer"]
    place = node.key_place("transformer")
    params = node.get("params") or Entry({}, name.place, {})
    node = node.without("transformer").without("params")
    if name.value == "merge" and params.is_mapping:
        return _with_merge(node, params, report)
    step = Entry({name.value: params}, name.place, {name.value: place})
    steps = node.get("transform")
    before = steps.value if steps is not None and steps.is_list else []
    return node.having("transform", Entry([*before, step], name.place), place)


def _with_merge(node: Entry, params: Entry, report: Report) -> Entry:
    write = node.get("write") or Entry({}, params.place, {})
    if not write.is_mapping:
        return node
    merge, write = params, _with_target(write, params)
    options = write.get("options") or Entry({}, params.place, {})
    for key in _MERGE_LAYOUT:
        if key in params.value and options.is_mapping:
            options = options.having(key, params.value[key], params.key_place(key))
            merge = merge.without(key)
    for key in ("target", "connection", "audit_cols"):
        merge = merge.without(key)
    if (audit := params.get("audit_cols")) is not None:
        merge = merge.having("audit", _renamed(audit), params.key_place("audit_cols"))
    if "merge" in write.value:
        return _twice(node.having("write", write), "write", "transformer", report)
    write = write.having("merge", merge, params.place)
    write = write.having("mode", Entry("merge", params.place), params.place)
    if options.value:
        write = write.having("options", options)
    return node.having("write", write)


def _with_target(write: Entry, params: Entry) -> Entry:
    connection, target = params.get("connection"), params.get("target")
    if connection is not None and "connection" not in write.value:
        write = write.having("connection", connection, params.key_place("connection"))
    if target is None or "path" in write.value or "table" in write.value:
        return write
    key = "path" if isinstance(target.value, str) and "/" in target.value else "table"
    return write.having(key, target, params.key_place("target"))


def _renamed(audit: Entry) -> Entry:
    if not audit.is_mapping:
        return audit
    values = {_AUDIT.get(key, key): value for key, value in audit.value.items()}
    keys = {_AUDIT.get(key, key): place for key, place in (audit.keys or {}).items()}
    return Entry(values, audit.place, keys)
