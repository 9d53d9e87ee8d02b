"""What the change feed shows for one commit, worked out from its actions.

The rules are those of Delta's own reader: where a commit has `cdc` files they are all there is to
see; else its adds and removes with dataChange are inserts and deletes; a MERGE that only copied
rows shows nothing; an add and a remove of one path (deletion vectors) show the difference.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from floodmark.deltalog.bulk import AddedFiles, added_files
from floodmark.deltalog.commit import Action, Commit
from floodmark.deltalog.files import location
from floodmark.deltalog.schema import fingerprint, schema_of
from floodmark.model import ChangeKind, VersionFacts

RowsOf = Callable[[set[str], int], Mapping[str, int | None]]
"""Rows of data files by path, from the adds of commits before a version."""

_ALL_KINDS: frozenset[ChangeKind] = frozenset(("insert", "update", "delete"))
_ONLY_INSERTS: frozenset[ChangeKind] = frozenset(("insert",))
_KINDS_OF: Mapping[str, frozenset[ChangeKind]] = {
    "UPDATE": frozenset(("update",)),
    "DELETE": frozenset(("delete",)),
    "WRITE": frozenset(("insert", "delete")),
}
"""What operations can show at most; the kinds of others come from their metrics."""
_ONLY_SHRINKS = frozenset(("DELETE", "UPDATE", "MERGE", "WRITE"))
"""Operations whose new deletion vector of a file always contains the old one."""
_COUNT_FIRST = re.compile(r'\{"numRecords":(\d{1,18})[,}]')
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(slots=True)
class _Seen:
    """The actions of one commit that matter here."""

    info: Action = field(default_factory=dict)
    adds: dict[str, Action] = field(default_factory=dict)
    removes: dict[str, Action] = field(default_factory=dict)
    cdc: list[Action] = field(default_factory=list)
    metadata: Action | None = None
    transactions: dict[str, int] = field(default_factory=dict)
    added: AddedFiles | None = None
    """All adds of a large commit that does nothing else to files."""


class _Change(NamedTuple):
    kinds: frozenset[ChangeKind]
    bytes: int
    rows: int | None


_NO_CHANGE = _Change(frozenset(), 0, 0)


def instant(milliseconds: int) -> datetime:
    """A log's milliseconds as a UTC instant, exactly."""
    return _EPOCH + timedelta(milliseconds=milliseconds)


def version_facts(commit: Commit, rows_of: RowsOf) -> VersionFacts:
    """The facts of one commit; `rows_of` is asked only for removed files without statistics."""
    seen = _seen(commit)
    change = _change(seen, commit.version, rows_of)
    metadata = seen.metadata
    schema = None if metadata is None else schema_of(metadata)
    stamp = seen.info.get("inCommitTimestamp")
    return VersionFacts(
        version=commit.version,
        committed_at=instant(stamp if isinstance(stamp, int) else commit.modified_ms),
        operation=str(seen.info.get("operation") or ""),
        kinds=change.kinds,
        bytes=change.bytes,
        rows=change.rows,
        feed_enabled=None if metadata is None else feed_flag(metadata),
        schema_fingerprint=None if schema is None else fingerprint(schema),
        table_id=None if metadata is None else str(metadata["id"]),
        schema_json=schema,
        transactions=seen.transactions,
        metrics=_texts(seen.info.get("operationMetrics")),
        parameters=_texts(seen.info.get("operationParameters")),
        user_metadata=seen.info.get("userMetadata"),
    )


def _texts(values: Mapping[str, Any] | None) -> dict[str, str]:
    return {name: str(value) for name, value in (values or {}).items() if value is not None}


def feed_flag(metadata: Action) -> bool:
    """Whether a metaData action has the change feed on."""
    value = (metadata.get("configuration") or {}).get("delta.enableChangeDataFeed", "")
    return str(value).lower() == "true"


def file_rows(add: Action) -> int | None:
    """The live rows of a data file: its count less those its deletion vector hides."""
    records = _count(add)
    return None if records is None else records - _hidden(add)


def slim(file: Action) -> Action:
    """A data file without what nobody asks for, which is most of it: values, bounds, tags.

    Python's garbage collector looks through whatever refers to other objects, and a log may name
    300,000 files: with their whole actions that takes as long as reading them.
    """
    kept = {"path": file["path"], "size": file.get("size"), "numRecords": _count(file)}
    if not file.get("dataChange", True):
        kept["dataChange"] = False
    if file.get("deletionVector"):
        kept["deletionVector"] = file["deletionVector"]
    return kept


def _count(file: Action) -> int | None:
    records = file.get("numRecords")
    return _records(file.get("stats")) if records is None else records


def _records(stats: Any) -> int | None:
    if not stats:
        return None
    # Delta writes the count first; the rest, bounds of every column, takes most of the time.
    head = _COUNT_FIRST.match(stats) if isinstance(stats, str) else None
    if head:
        return int(head[1])
    try:
        records = json.loads(stats)["numRecords"]
    except (ValueError, TypeError, KeyError):
        return None  # statistics are optional; without them the count is unknown
    return records if isinstance(records, int) else None


def _hidden(file: Action) -> int:
    vector = file.get("deletionVector")
    return int(vector["cardinality"]) if vector else 0


def _actions(commit: Commit, seen: _Seen) -> Iterable[tuple[str, Action]]:
    if seen.added is None:
        return commit.actions()
    names = ("commitInfo", "metaData", "txn")
    return ((name, body) for name in names for body in commit.named(name))


def _seen(commit: Commit) -> _Seen:
    seen = _Seen(added=added_files(commit))
    for name, body in _actions(commit, seen):
        if name == "add":
            seen.adds[location(body["path"])] = slim(body)
        elif name == "remove":
            seen.removes[location(body["path"])] = slim(body)
        elif name == "cdc":
            seen.cdc.append(body)
        elif name == "commitInfo":
            seen.info = body
        elif name == "metaData":
            seen.metadata = body
        elif name == "txn":
            seen.transactions[body["appId"]] = body["version"]
    return seen


def _change(seen: _Seen, version: int, rows_of: RowsOf) -> _Change:
    if seen.cdc:
        return _change_of_cdc(seen)
    if _is_merge_without_effect(seen.info):
        return _NO_CHANGE
    if seen.added is not None:
        kinds = _ONLY_INSERTS if seen.added.has_rows else frozenset()
        return _Change(kinds, seen.added.bytes, seen.added.rows)
    adds = {p: a for p, a in seen.adds.items() if a.get("dataChange", True)}
    removes = {p: r for p, r in seen.removes.items() if r.get("dataChange", True)}
    if not adds and not removes:
        return _NO_CHANGE
    return _change_of_files(seen, adds, removes, version, rows_of)


def _change_of_cdc(seen: _Seen) -> _Change:
    size = sum(int(c.get("size") or 0) for c in seen.cdc)
    counts = _counts(seen.info)
    possible = _KINDS_OF.get(str(seen.info.get("operation")), _ALL_KINDS)
    if counts is None:
        return _Change(possible, size, None)
    kinds = frozenset(kind for kind, rows in counts.items() if rows)
    rows = counts["insert"] + counts["delete"] + 2 * counts["update"]
    # cdc files with not one counted row contradict the metrics: then nothing is known.
    return _Change(kinds, size, rows) if rows else _Change(possible, size, None)


def _counts(info: Action) -> dict[ChangeKind, int] | None:
    """Rows inserted, updated and deleted by the metrics; None where they do not tell."""
    metrics = info.get("operationMetrics") or {}
    match info.get("operation"):
        case "MERGE":
            inserted = _metric(metrics, "numTargetRowsInserted", "num_target_rows_inserted")
            updated = _metric(metrics, "numTargetRowsUpdated", "num_target_rows_updated")
            deleted = _metric(metrics, "numTargetRowsDeleted", "num_target_rows_deleted")
        case "UPDATE":
            inserted, deleted = 0, 0
            # Not delta-rs's num_updated_rows: it counts rows that were set to what they were,
            # and its feed leaves those out.
            updated = _metric(metrics, "numUpdatedRows")
        case "DELETE":
            inserted, updated = 0, 0
            deleted = _metric(metrics, "numDeletedRows", "num_deleted_rows")
        case "WRITE":
            # replaceWhere: the files it wrote hold its own rows and those it copied.
            updated = 0
            deleted = _metric(metrics, "numDeletedRows")
            inserted = _rows_written(metrics)
        case _:
            return None
    if inserted is None or updated is None or deleted is None:
        return None
    return {"insert": inserted, "update": updated, "delete": deleted}


def _rows_written(metrics: Mapping[str, Any]) -> int | None:
    output, copied = _metric(metrics, "numOutputRows"), _metric(metrics, "numCopiedRows")
    return None if output is None or copied is None else output - copied


def _metric(metrics: Mapping[str, Any], *names: str) -> int | None:
    for name in names:
        text = str(metrics.get(name, ""))
        if text.isascii() and text.isdigit():
            return int(text)
    return None


def _is_merge_without_effect(info: Action) -> bool:
    """Delta's reader skips the files of a MERGE whose metrics say that it only copied rows."""
    if info.get("operation") != "MERGE":
        return False
    counts = _counts(info)
    return counts is not None and not any(counts.values())


def _change_of_files(
    seen: _Seen,
    adds: Mapping[str, Action],
    removes: Mapping[str, Action],
    version: int,
    rows_of: RowsOf,
) -> _Change:
    pairs = adds.keys() & removes.keys()
    removed = {p: r for p, r in removes.items() if p not in pairs}
    parts = [_inserted(add for path, add in adds.items() if path not in pairs)]
    parts += _deleted(removed, version, rows_of)
    shrinks = seen.info.get("operation") in _ONLY_SHRINKS
    parts += [_difference(removes[p], adds[p], shrinks=shrinks) for p in pairs]
    return _sum(parts)


def _inserted(adds: Iterable[Action]) -> _Change:
    size, rows, is_known, shows = 0, 0, True, False
    for add in adds:
        live = file_rows(add)
        size += int(add.get("size") or 0)
        rows += live or 0
        is_known = is_known and live is not None
        shows = shows or live != 0
    kinds = _ONLY_INSERTS if shows else frozenset()
    return _Change(kinds, size, rows if is_known else None)


def _deleted(removed: Mapping[str, Action], version: int, rows_of: RowsOf) -> list[_Change]:
    rows = {path: file_rows(remove) for path, remove in removed.items()}
    unknown = {path for path, count in rows.items() if count is None}
    if unknown:
        # The add carries the count of the whole file; the remove says what was hidden by then.
        whole = rows_of(unknown, version)
        for path in unknown:
            records = whole.get(path)
            rows[path] = None if records is None else records - _hidden(removed[path])
    kinds: frozenset[ChangeKind] = frozenset(("delete",))
    return [_Change(kinds, int(r.get("size") or 0), rows[p]) for p, r in removed.items()]


def _difference(old: Action, new: Action, *, shrinks: bool) -> _Change:
    """One path removed and added again: the feed shows the rows whose visibility changed."""
    size = int(new.get("size") or 0)
    before, after = _hidden(old), _hidden(new)
    if old.get("deletionVector") and new.get("deletionVector") and not shrinks:
        # Neither vector need contain the other (RESTORE): counts alone do not tell.
        return _Change(frozenset(("insert", "delete")), size, None)
    if after > before:
        return _Change(frozenset(("delete",)), size, after - before)
    if after < before:
        return _Change(frozenset(("insert",)), size, before - after)
    return _NO_CHANGE


def _sum(parts: Iterable[_Change]) -> _Change:
    kinds: frozenset[ChangeKind] = frozenset()
    size, rows = 0, 0
    is_known = True
    for part in parts:
        size += part.bytes
        is_known = is_known and part.rows is not None
        rows += part.rows or 0
        # A file with no live row shows nothing, whatever happened to it.
        kinds = kinds if part.rows == 0 else kinds | part.kinds
    return _Change(kinds, size, rows if is_known else None)
