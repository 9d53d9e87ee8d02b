"""The SQL of a merge into PostgreSQL; pure text, so that it can be read and tested.

Rows are staged in a temporary table, reduced there to one row per key, then applied. Keys are
compared null-safe in two steps: `=` for keys without NULL, which an index or a hash join serves, and
`IS NOT DISTINCT FROM`, which neither serves, for the few with one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from floodmark.model import CHANGE_COLUMNS, RESERVED_PREFIX, SOFT_DELETE_COLUMNS, Strategy
from floodmark.postgres.connect import quoted

__all__ = (
    "CHANGE_TYPES",
    "CREATE_ORIGINS",
    "FILL_ORIGINS",
    "ORIGIN_FIELDS",
    "STAGE",
    "WINNERS",
    "Merge",
    "applied",
    "has_null_keys",
    "latest",
    "missing",
    "ties",
    "winners",
)

STAGE, WINNERS = "pg_temp.floodmark_stage", "pg_temp.floodmark_winners"
ORIGINS = "pg_temp.floodmark_origins"
CREATE_ORIGINS = (
    "CREATE TEMPORARY TABLE floodmark_origins"
    " (upstream text, version bigint, low bigint, high bigint) ON COMMIT DROP"
)
"""What `winners` joins with where several upstreams are in the frame; see `origins.Origin`."""
ORIGIN_FIELDS = ("upstream", "version", "low", "high")
FILL_ORIGINS = (
    f"INSERT INTO {ORIGINS} SELECT * FROM"
    " unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[])"
)
CHANGE_TYPES = ("update_preimage", "delete", "insert", "update_postimage")

_TYPE, _VERSION, _TIMESTAMP = map(quoted, CHANGE_COLUMNS)
_GONE = quoted(f"{RESERVED_PREFIX}deleted")
_GONE_AT = quoted(f"{RESERVED_PREFIX}deleted_at")
_TIED = quoted(f"{RESERVED_PREFIX}tied")
_POSITION = quoted(f"{RESERVED_PREFIX}position")
_IS_LAST = quoted(f"{RESERVED_PREFIX}is_last_of_version")
_UPSTREAMS = quoted(f"{RESERVED_PREFIX}upstreams")
_TEXT = quoted(f"{RESERVED_PREFIX}text")
_RANKED = quoted(f"{RESERVED_PREFIX}rank")
_NUMBER = quoted(f"{RESERVED_PREFIX}version")
_ORIGIN = quoted(f"{RESERVED_PREFIX}origin")
_UPSERT = f"{_TYPE} IN ('insert', 'update_postimage')"
_RANK = f"CASE {_TYPE} WHEN 'update_preimage' THEN 0 WHEN 'delete' THEN 1 ELSE 2 END"
_FLAGS = tuple(map(quoted, SOFT_DELETE_COLUMNS))

Effect = Literal["inserted", "updated", "deleted"]


@dataclass(frozen=True, slots=True)
class Merge:
    """What a merge works on; names are the target's own, unquoted."""

    table: str
    """The quoted target."""
    columns: tuple[str, ...]
    """Without the flags of soft deletes."""
    keys: tuple[str, ...]
    changes: frozenset[str]
    """The change columns that the frame has."""
    sequence_by: str | None = None
    is_soft: bool = False
    only_upserts: bool = False
    keeps_first: bool = False
    has_origins: bool = False
    tells_equal_rows: bool = False
    """Whether a key ties only if its rows differ; see `rules.loses_order`."""
    absent: tuple[str, ...] = ()
    """Columns of the target that the frame does not have: an update sets their default."""
    strategy: Strategy = "upsert"
    created_at: str | None = None
    updated_at: str | None = None


def winners(merge: Merge, *, decides_ties: bool) -> str:
    """One row per key, the last change, into WINNERS; the order is that of `changes.reduced`.

    With `decides_ties` the tied row that is applied is chosen by its values, which makes every row a
    text and takes its time.
    """
    is_by_version = _has(merge, 1) and (merge.sequence_by is not None or merge.keeps_first)
    text = [f"{_TEXT} DESC"] if decides_ties else []
    commit = [_ORIGIN] if merge.has_origins else []
    commit += [_NUMBER] if _has(merge, 1) else []
    claims = [_NUMBER] if _has(merge, 1) else []
    claims += [_RANKED] if _has(merge, 0) else []
    claims += [quoted(merge.sequence_by)] if merge.sequence_by else []
    # The rows of one commit lie together.
    sorting = [f"{name} DESC NULLS LAST" for name in [*(commit if is_by_version else ()), *claims]]
    by_key = f"PARTITION BY {_list(merge.keys)}"
    order = _ordered([*sorting, *text])
    if is_by_version and merge.keeps_first:
        last = [_NUMBER]
    elif is_by_version:
        last = [f"{name} DESC NULLS LAST" for name in (claims[-1], _NUMBER)] + text
    else:
        last = [*sorting, *text]
    same = f"{by_key}, {quoted(merge.sequence_by)}" if merge.sequence_by else by_key
    tied = _neighbour("lead", [*commit, *claims])
    if merge.tells_equal_rows:
        tied = f"min({_TEXT}) OVER ({by_key}) <> max({_TEXT}) OVER ({by_key})"
    has_text = decides_ties or merge.tells_equal_rows
    upstreams = _several(same) if merge.has_origins else "NULL::text[]"
    is_tied = f"{_TIED} OR {_UPSTREAMS} IS NOT NULL" if merge.sequence_by else _TIED
    return (
        f"CREATE TEMPORARY TABLE {_bare(WINNERS)} ON COMMIT DROP AS"
        f" WITH claimed AS ({_claimed(merge, with_text=has_text)}),"
        f" ranked AS (SELECT *, {tied} AS {_TIED},"
        f" NOT ({_neighbour('lag', commit)}) AS {_IS_LAST}"
        f" FROM claimed WINDOW w AS ({by_key}{order})),"
        f" numbered AS (SELECT *, {upstreams} AS {_UPSTREAMS},"
        f" row_number() OVER ({by_key}{_ordered(last)}) AS {_POSITION}"
        f" FROM ranked{f' WHERE {_IS_LAST}' if is_by_version else ''})"
        f" SELECT {_list(merge.columns)}, {_GONE}, {_GONE_AT}, {is_tied} AS {_TIED}, {_UPSTREAMS}"
        f" FROM numbered WHERE {_POSITION} = 1"
    )


def _claimed(merge: Merge, *, with_text: bool) -> str:
    """The staged rows, what becomes of their keys, and what decides which row is the last."""
    claims = [f"{_VERSION} AS {_NUMBER}"] if _has(merge, 1) else []
    claims += [f"{_RANK} AS {_RANKED}"] if _has(merge, 0) else []
    claims += [f"o.upstream AS {_ORIGIN}"] if merge.has_origins else []
    claims += [f'(s.*)::text COLLATE "C" AS {_TEXT}'] if with_text else []
    joined = f" LEFT JOIN {ORIGINS} o ON {_is_theirs(merge)}" if merge.has_origins else ""
    kept = f" WHERE {_UPSERT}" if merge.only_upserts and _has(merge, 0) else ""
    columns = ", ".join([f"s.{quoted(name)}" for name in merge.columns] + [_fate(merge), *claims])
    return f"SELECT {columns} FROM {STAGE} s{joined}{kept}"


def _is_theirs(merge: Merge) -> str:
    at = f"(extract(epoch FROM {_TIMESTAMP}) * 1000000)::bigint" if _has(merge, 2) else "0"
    at = f"coalesce({at}, 0)"
    return f"{_VERSION} = o.version AND {at} >= o.low AND {at} < o.high"


def _neighbour(side: str, names: Sequence[str]) -> str:
    """Whether the row before (lag) or behind (lead) is equal in these columns."""
    same = [f"{side}({name}) OVER w IS NOT DISTINCT FROM {name}" for name in names]
    return " AND ".join([f"{side}(true) OVER w IS NOT NULL", *same])


def _several(group: str) -> str:
    """Two upstreams of a group of rows, or NULL."""
    first, last = (f"{side}({_ORIGIN}) OVER ({group})" for side in ("min", "max"))
    return f"CASE WHEN {first} <> {last} THEN ARRAY[{first}, {last}] END"


def _ordered(order: Sequence[str]) -> str:
    return f" ORDER BY {', '.join(order)}" if order else ""


def _has(merge: Merge, number: int) -> bool:
    """Whether the frame has that one of the change columns."""
    return CHANGE_COLUMNS[number] in merge.changes


def ties(merge: Merge) -> str:
    """How many keys had two last changes, one of them as JSON; one of two upstreams, and these."""
    pairs = ", ".join(f"{_text(key)}, {quoted(key)}" for key in merge.keys)
    key, mixed = f"jsonb_build_object({pairs})::text", f"{_UPSTREAMS} IS NOT NULL"
    return (
        f"SELECT count(*) FILTER (WHERE {_TIED}), min({key}) FILTER (WHERE {_TIED}),"
        f" min({key}) FILTER (WHERE {mixed}), min({_UPSTREAMS}) FROM {WINNERS}"
    )


def has_null_keys(merge: Merge) -> str:
    """Whether a winner has a NULL in its key."""
    return f"SELECT EXISTS (SELECT 1 FROM {WINNERS} s WHERE {_null_key(merge)})"


def applied(merge: Merge, at: str, *, null_keys: bool) -> list[tuple[Effect, str]]:
    """The statements that bring the winners into the target, each with what it does.

    `at` is the quoted time of a soft delete that no row of a change feed tells.
    """
    matched = f"{_on(merge, null_keys=null_keys)} AND {_newer(merge)}"
    if merge.strategy == "append_only":
        return [("inserted", _insert(merge, null_keys=null_keys))]
    if merge.strategy == "delete_match":
        return [_matched_away(merge, matched, at)]
    return [
        _taken_away(merge, matched),
        ("updated", _update(merge, _written(merge), matched, f"NOT s.{_GONE}")),
        ("inserted", _insert(merge, null_keys=null_keys)),
    ]


def missing(merge: Merge, at: str, *, null_keys: bool) -> tuple[Effect, str]:
    """Take away, or flag at the quoted time `at`, the rows that no winner has."""
    found = [_on(merge, null_keys=False)]
    found += [_on(merge, null_keys=True)] if null_keys else []
    unmatched = " AND ".join(f"NOT EXISTS (SELECT 1 FROM {WINNERS} s WHERE {on})" for on in found)
    if not merge.is_soft:
        return "deleted", f"DELETE FROM {merge.table} t WHERE {unmatched}"
    is_deleted, deleted_at = _FLAGS
    flags = ", ".join([f"{is_deleted} = true", f"{deleted_at} = {at}", *_changed(merge)])
    alive = f"NOT coalesce(t.{is_deleted}, false)"
    return "updated", f"UPDATE {merge.table} t SET {flags} WHERE {alive} AND {unmatched}"


def _matched_away(merge: Merge, matched: str, at: str) -> tuple[Effect, str]:
    """Take away, or flag, the rows whose key a winner has."""
    if not merge.is_soft:
        using = f"DELETE FROM {merge.table} t USING {WINNERS} s"
        return "deleted", f"{using} WHERE {matched} AND NOT s.{_GONE}"
    is_deleted, deleted_at = _FLAGS
    flags = [f"{is_deleted} = true", f"{deleted_at} = {at}", *_changed(merge)]
    alive = f"NOT s.{_GONE} AND NOT coalesce(t.{is_deleted}, false)"
    return "updated", _update(merge, flags, matched, alive)


def _taken_away(merge: Merge, matched: str) -> tuple[Effect, str]:
    if merge.is_soft:
        # With its values: a row that comes later is compared with the delete's `sequence_by`.
        return "updated", _update(merge, _written(merge), matched, f"s.{_GONE}")
    return (
        "deleted",
        f"DELETE FROM {merge.table} t USING {WINNERS} s WHERE {matched} AND s.{_GONE}",
    )


def _update(merge: Merge, settings: Sequence[str], matched: str, fate: str) -> str:
    what = ", ".join(settings)
    return f"UPDATE {merge.table} t SET {what} FROM {WINNERS} s WHERE {matched} AND {fate}"


def _insert(merge: Merge, *, null_keys: bool) -> str:
    """Winners without a row; gone ones too if they are to leave a row that says so."""
    audit = [quoted(name) for name in (merge.created_at, merge.updated_at) if name]
    into = [*map(quoted, merge.columns), *(_FLAGS if merge.is_soft else ()), *audit]
    taken = [*map(quoted, merge.columns), *((_GONE, _GONE_AT) if merge.is_soft else ())]
    chosen = f"({_null_key(merge)})" if null_keys else f"NOT ({_null_key(merge)})"
    leaves_gone = merge.is_soft and merge.strategy == "upsert"
    chosen += "" if leaves_gone else f" AND NOT s.{_GONE}"
    there = f"EXISTS (SELECT 1 FROM {merge.table} t WHERE {_on(merge, null_keys=null_keys)})"
    values = ", ".join([*(f"s.{name}" for name in taken), *("now()" for _ in audit)])
    select = f"SELECT {values} FROM {WINNERS} s WHERE {chosen} AND NOT {there}"
    return f"INSERT INTO {merge.table} ({', '.join(into)}) {select}"


def _written(merge: Merge) -> list[str]:
    """What an update sets."""
    values = [f"{quoted(column)} = s.{quoted(column)}" for column in merge.columns]
    values += [f"{quoted(column)} = DEFAULT" for column in merge.absent]
    return [*values, *_flags(merge), *_changed(merge)]


def _changed(merge: Merge) -> list[str]:
    return [f"{quoted(merge.updated_at)} = now()"] if merge.updated_at else []


def _flags(merge: Merge) -> list[str]:
    if not merge.is_soft:
        return []
    return [f"{_FLAGS[0]} = s.{_GONE}", f"{_FLAGS[1]} = s.{_GONE_AT}"]


def latest(merge: Merge) -> str:
    """Append the winners that are still there."""
    names = _list(merge.columns)
    return f"INSERT INTO {merge.table} ({names}) SELECT {names} FROM {WINNERS} WHERE NOT {_GONE}"


def _fate(merge: Merge) -> str:
    if not _has(merge, 0):
        return f"false AS {_GONE}, NULL::timestamptz AS {_GONE_AT}"
    at = _TIMESTAMP if _has(merge, 2) else "now()"
    return f"NOT {_UPSERT} AS {_GONE}, CASE WHEN NOT {_UPSERT} THEN {at} END AS {_GONE_AT}"


def _newer(merge: Merge) -> str:
    if merge.sequence_by is None:
        return "true"
    column = quoted(merge.sequence_by)
    return f"(s.{column} >= t.{column} OR t.{column} IS NULL)"


def _on(merge: Merge, *, null_keys: bool) -> str:
    equal = "IS NOT DISTINCT FROM" if null_keys else "="
    same = " AND ".join(f"t.{quoted(key)} {equal} s.{quoted(key)}" for key in merge.keys)
    return f"{same} AND ({_null_key(merge)})" if null_keys else same


def _null_key(merge: Merge) -> str:
    return " OR ".join(f"s.{quoted(key)} IS NULL" for key in merge.keys)


def _list(names: Sequence[str]) -> str:
    return ", ".join(map(quoted, names))


def _bare(table: str) -> str:
    return table.partition(".")[2]


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'::text"
