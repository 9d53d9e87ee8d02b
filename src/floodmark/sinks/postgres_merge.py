"""The SQL of a merge into PostgreSQL; pure text, so that it can be read and tested.

Rows are staged in a temporary table, reduced there to one row per key, then applied. Keys are
compared null-safe in two steps: `=` for keys without NULL, which an index or a hash join serves, and
`IS NOT DISTINCT FROM`, which neither serves, for the few with one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from floodmark.engines.postgres import quoted
from floodmark.model.write import CHANGE_COLUMNS, Strategy
from floodmark.sinks.rules import RESERVED_PREFIX, SOFT_DELETE_COLUMNS

STAGE, WINNERS = "pg_temp.floodmark_stage", "pg_temp.floodmark_winners"
MORE_MEMORY = (
    "SELECT set_config('work_mem', '256MB', true)"
    " WHERE pg_size_bytes(current_setting('work_mem')) < 256 * 1024 * 1024"
)
"""For this transaction: the default of 4 MB sorts on disk."""
CHANGE_TYPES = ("update_preimage", "delete", "insert", "update_postimage")

_TYPE, _VERSION, _TIMESTAMP = map(quoted, CHANGE_COLUMNS)
_GONE = quoted(f"{RESERVED_PREFIX}deleted")
_GONE_AT = quoted(f"{RESERVED_PREFIX}deleted_at")
_TIED = quoted(f"{RESERVED_PREFIX}tied")
_POSITION = quoted(f"{RESERVED_PREFIX}position")
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
    ignores_deletes: bool = False
    strategy: Strategy = "upsert"
    created_at: str | None = None
    updated_at: str | None = None


def winners(merge: Merge, *, decides_ties: bool) -> str:
    """One row per key, the last change, into WINNERS.

    The order is (_commit_version, then pre-image < delete < insert or post-image, then
    `sequence_by`), as far as they are there. Rows equal in all of them are ties; with `decides_ties`
    the one applied is chosen by its values, which makes every row a text and takes its time.
    """
    claims = _claims(merge)
    order = [f"{claim} DESC NULLS LAST" for claim in claims]
    order += ['s::text COLLATE "C" DESC'] if decides_ties else []
    same = [f"lead({claim}) OVER w IS NOT DISTINCT FROM {claim}" for claim in claims]
    has_type = CHANGE_COLUMNS[0] in merge.changes
    kept = f" WHERE {_UPSERT}" if merge.ignores_deletes and has_type else ""
    window = f"PARTITION BY {_list(merge.keys)}"
    window += f" ORDER BY {', '.join(order)}" if order else ""
    return (
        f"CREATE TEMPORARY TABLE {_bare(WINNERS)} ON COMMIT DROP AS"
        f" SELECT {_list(merge.columns)}, {_GONE}, {_GONE_AT}, {_TIED} FROM ("
        f"SELECT {_list(merge.columns)}, {_fate(merge)},"
        f" {' AND '.join(['lead(true) OVER w IS NOT NULL', *same])} AS {_TIED},"
        f" row_number() OVER w AS {_POSITION} FROM {STAGE} s{kept}"
        f" WINDOW w AS ({window})) ranked WHERE {_POSITION} = 1"
    )


def ties(merge: Merge) -> str:
    """How many keys had two last changes, and one of them as JSON."""
    pairs = ", ".join(f"{_text(key)}, {quoted(key)}" for key in merge.keys)
    return (
        f"SELECT count(*) FILTER (WHERE {_TIED}),"
        f" min(jsonb_build_object({pairs})::text) FILTER (WHERE {_TIED}) FROM {WINNERS}"
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
        flags = [*_flags(merge), *_changed(merge)]
        return "updated", _update(merge, flags, matched, f"s.{_GONE}")
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


def _claims(merge: Merge) -> list[str]:
    claims = [_VERSION] if CHANGE_COLUMNS[1] in merge.changes else []
    claims += [_RANK] if CHANGE_COLUMNS[0] in merge.changes else []
    return claims + ([quoted(merge.sequence_by)] if merge.sequence_by else [])


def _fate(merge: Merge) -> str:
    if CHANGE_COLUMNS[0] not in merge.changes:
        return f"false AS {_GONE}, NULL::timestamptz AS {_GONE_AT}"
    at = _TIMESTAMP if CHANGE_COLUMNS[2] in merge.changes else "now()"
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
