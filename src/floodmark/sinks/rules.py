"""What a write must say before it may begin; pure, so that every rule can be read and tested.

Each check returns nothing or raises SinkError before anything is written.
"""

from __future__ import annotations

import difflib
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice

from floodmark.errors import SinkError
from floodmark.model import (
    CHANGE_COLUMNS,
    DELTA,
    RESERVED_PREFIX,
    SOFT_DELETE_COLUMNS,
    Receipt,
    Window,
    WriteSpec,
    narrowed_columns,
    shown_type,
)
from floodmark.model.names import matching, quoted
from floodmark.model.write_rules import (
    NOT_WRITTEN,
    REPLACING,
    bad_option,
    check_options,
    leaves_missing_open,
    needs_change_columns,
    replaced_anew,
    replaces_by_part,
    write_name,
)
from floodmark.model.write_words import option
from floodmark.next_steps import BATCH, THEN_RETRY, Next, command, statement

log = logging.getLogger("floodmark")

LOG_COLUMNS = ("change_type", "change_version", "change_ts")
"""Columns that `changes="log"` adds to the target, for the three change columns."""

_CHANGE_TYPE, _COMMIT_VERSION, _ = CHANGE_COLUMNS
_RETENTION = "delta.setTransactionRetentionDuration"
_CHANGE_AND_RETRY = "change the write, " + THEN_RETRY

EXAMPLE_LENGTH = 200
"""Characters of a key that is shown as an example."""


@dataclass(frozen=True, slots=True)
class Target:
    """What the rules need to know of the target."""

    exists: bool
    table_id: str | None = None
    version: int = -1
    """The newest version."""
    columns: tuple[str, ...] = ()
    schema: str = ""
    """Its columns with their types, as its log has them; empty where no log tells."""
    partition_by: tuple[str, ...] = ()
    has_rows: bool = False
    """Looked up only where `needs_rows` says that a rule asks for it."""
    holds_ours: bool = False
    """Whether it has a receipt of this write."""
    properties: Mapping[str, str] = field(default_factory=dict)
    has_feed: bool = False
    is_shared: bool = False
    """Whether it has a receipt of another write."""
    is_replaced: bool = False
    """Whether the write removes all rows: a lost target is rebuilt, and nobody else writes it."""


def holds_rows_of_ours(
    receipts: Mapping[str, int], receipt: Receipt, sharers: Sequence[tuple[str, str]]
) -> bool:
    """Whether rows of this write may be in a target with these receipts, but for this very batch.

    Receipts of another control store or of another name count too: a store that was lost, or a
    pipeline that was renamed, starts with a snapshot of rows that are there already. Those of the
    other writes that the project has into the target do not.
    """
    store = "/".join(receipt.app_id.split("/")[:2]) + "/"
    others = tuple(f"{store}{pipeline}/{name}/" for pipeline, name in sharers)
    return any(
        app_id.startswith("floodmark/")
        and not app_id.startswith(others)
        and not (app_id.startswith(store) and seq == receipt.seq)
        for app_id, seq in receipts.items()
    )


def needs_rows(windows: Iterable[Window]) -> bool:
    """Whether a rule asks if the target has rows: only snapshots can double or miss some.

    The answer takes a pass over the target's log, so a write of changes does without.
    """
    return bool(_snapshots(windows))


def check_write(
    spec: WriteSpec, windows: Sequence[Window], columns: Sequence[str], target: Target
) -> None:
    """Every rule, in the order in which a user would want to hear of them."""
    check_options(spec)
    check_columns(spec, columns)
    check_changes(spec, windows, columns)
    check_snapshot_append(spec, windows, target)
    check_partial_overwrite(spec, windows)
    check_missing(spec, windows, target)
    check_retention(spec, target)
    check_schema(spec, columns, target)


def check_columns(spec: WriteSpec, columns: Sequence[str]) -> None:
    """The columns that options name are in the frame, and the frame's names can be kept apart."""
    named = [("keys", key) for key in spec.keys]
    named += [("sequence_by", spec.sequence_by)] if spec.sequence_by else []
    named += [("partition_by", column) for column in spec.partition_by]
    named += [("cluster_by", column) for column in spec.cluster_by]
    named += [("zorder_by", column) for column in spec.zorder_by]
    data = data_columns(columns)
    for where, name in named:
        if matching(name, data) is None:
            raise _unknown_column(spec, where, name, data)
    doubled = _doubled(columns)
    if doubled:
        raise misfit(spec, f"columns that differ only by case: {_names(doubled)}", "distinct names")
    reserved = [c for c in columns if c.lower().startswith(RESERVED_PREFIX)]
    reserved += _added_by_us(spec, data)
    if reserved:
        raise misfit(
            spec, f"columns that the sink adds itself: {_names(reserved)}", "other names for them"
        )


def check_changes(spec: WriteSpec, windows: Sequence[Window], columns: Sequence[str]) -> None:
    """Updates and deletes of a feed window are never written by guess (FM-SINK-001)."""
    has_type = _CHANGE_TYPE in columns
    has_order = _COMMIT_VERSION in columns or spec.changes == "handled"
    if spec.mode == "merge" and has_type and not has_order:
        raise bad_option(
            "the rows have _change_type but not _commit_version",
            spec,
            "both, so that the changes of a key can be put in order; neither; or"
            f" {option(spec, 'changes', 'handled')} if there is one row per key",
        )
    if needs_change_columns(spec):
        lost = [c for c in CHANGE_COLUMNS if c not in columns]
        if lost:
            raise _unsaid(spec, windows, f"a step dropped {_names(lost)}")
    changed = changed_upstreams(windows)
    if not changed or spec.changes is not None:
        return
    if spec.mode == "append" or (spec.mode in REPLACING and has_type):
        raise _unsaid(spec, windows, f"the write does not say {option(spec, 'changes')}")
    if spec.mode == "merge" and not has_type:
        dropped = "a step dropped the change columns, so updates and deletes cannot be told apart"
        raise _unsaid(spec, windows, dropped)


def check_snapshot_append(spec: WriteSpec, windows: Sequence[Window], target: Target) -> None:
    """A snapshot is not appended to rows of ours (FM-SINK-002)."""
    if spec.mode != "append" or spec.allow_full or not (target.holds_ours and target.has_rows):
        return
    snapshots = _snapshots(windows)
    if snapshots:
        raise SinkError(
            "FM-SINK-002",
            "a whole table would be appended to a target that holds rows of it already",
            where=write_name(spec),
            found=f"read as snapshot: {_upstreams(snapshots)}",
            allowed=_instead_of_an_append(spec)
            if spec.is_node
            else "mode merge with keys, or overwrite; upstreams=[...] if the rows come from others"
            " alone; allow_full=True if doubled rows are meant",
            state=NOT_WRITTEN,
            next=command("run", "--full-refresh")
            + ", which replaces what the target holds; or "
            + _CHANGE_AND_RETRY
            if spec.is_node and not spec.sharers
            else _CHANGE_AND_RETRY,
        )


def _instead_of_an_append(spec: WriteSpec) -> str:
    """What does not double rows; nor removes those of others, where the target has some."""
    merge = f"write.mode: merge with {option(spec, 'keys')}"
    if spec.sharers:
        return f"{merge} and missing: keep; or a target of its own: others write this one too"
    return f"{merge}, or write.mode: overwrite"


def check_partial_overwrite(spec: WriteSpec, windows: Sequence[Window]) -> None:
    """Changes alone replace neither a whole table nor all rows of a condition (FM-SINK-003)."""
    feeds = [w for w in windows if not w.is_whole and w.has_news]
    if feeds and replaces_by_part(spec):
        what = "a whole target" if spec.mode == "overwrite" else "all rows of the condition"
        raise SinkError(
            "FM-SINK-003",
            f"a feed window would overwrite {what}",
            where=write_name(spec),
            found=f"only what is new is read of: {_upstreams(feeds)}",
            allowed=f"mode merge; or {option(spec, 'allow_partial', True)}, if the rows are all that"  # noqa: FBT003
            " the target should have"
            + ("" if spec.is_node else ' (made from run.table(name, at="end"))')
            + " or only the changes shall stay",
            state=NOT_WRITTEN,
            next=_CHANGE_AND_RETRY,
        )


def check_missing(spec: WriteSpec, windows: Sequence[Window], target: Target) -> None:
    """A snapshot does not show what disappeared: a merge of one must say (FM-SINK-004, -013)."""
    snapshots = _snapshots(windows)
    if spec.mode != "merge" or spec.strategy != "upsert" or not snapshots or spec.replaces_all:
        return  # no row is left, or taken away, because it is missing
    partly = _feeds_with_rows(windows)
    if not spec.allow_full:
        partly = [window for window in windows if window not in snapshots]
    if spec.missing == "delete" and partly:
        raise SinkError(
            "FM-SINK-013",
            f"{option(spec, 'missing', 'delete')} is ambiguous: the input does not have every row"
            " that the target should have",
            where=write_name(spec),
            found=f"snapshot: {_upstreams(snapshots)}; only news: {_upstreams(partly)}",
            allowed=f"{option(spec, 'missing', 'keep')} for this batch;"
            f" {option(spec, 'missing', 'delete')} where every upstream with rows is read as"
            " snapshot"
            + (
                ""
                if spec.is_node
                else "; upstreams=[...] if the rows come from some alone; with an upstream without"
                " news also allow_full=True, which says that the frame is whole all the same"
            ),
            state=NOT_WRITTEN,
            next=_CHANGE_AND_RETRY,
        )
    if leaves_missing_open(spec) and target.has_rows:
        raise SinkError(
            "FM-SINK-004",
            "this merge reads a whole table and does not say what becomes of rows that are no longer"
            " in it",
            where=write_name(spec),
            found=f"read as snapshot: {_upstreams(snapshots)}; a snapshot does not show deletes",
            allowed=f"{option(spec, 'missing', 'delete')} (such rows are deleted from the target;"
            " only if the input has every row that the target should have) or"
            f" {option(spec, 'missing', 'keep')}",
            state=NOT_WRITTEN,
            next=_CHANGE_AND_RETRY,
        )


def replaces(spec: WriteSpec, target: Target) -> bool:
    """Whether a write takes away rows that the frame does not have."""
    if spec.keeps_others and target.is_shared:
        return False
    return spec.mode in REPLACING or spec.replaces_all or target.is_replaced


def only_upserts(spec: WriteSpec) -> bool:
    """Whether deletes of the frame have no say in a merge.

    Of the strategies that insert or delete by key alone, a delete that came later would take back
    what an earlier batch of the same changes has done.
    """
    return spec.mode == "merge" and (spec.deletes == "ignore" or spec.strategy != "upsert")


def keeps_first(spec: WriteSpec) -> bool:
    """Whether the first row of a key stays, whatever comes after it, also in the same batch."""
    return spec.mode == "merge" and spec.strategy == "append_only"


def loses_order(spec: WriteSpec, windows: Sequence[Window], columns: Sequence[str]) -> bool:
    """Whether a merge gets rows of several versions, or upstreams, and nothing that orders them.

    A step has left their versions out. Which row of a key came last would be chance, and another one
    wherever the changes are cut into batches.
    """
    if spec.mode != "merge" or spec.strategy == "delete_match" or spec.sequence_by is not None:
        return False
    fresh = [window for window in windows if window.has_news]
    versions = chain.from_iterable(window.row_versions() for window in fresh)
    return CHANGE_COLUMNS[1] not in columns and len(list(islice(versions, 2))) > 1


def tie_notes(
    spec: WriteSpec,
    ties: int,
    example: str | None,
    mixed: str | None,
    upstreams: Sequence[str] | None,
    *,
    loses_order: bool = False,
) -> dict[str, str]:
    """What a merge says of keys with two last changes, for its metrics.

    `mixed` is a key that comes from two `upstreams` with nothing between its rows that decides:
    without `sequence_by` that is refused (FM-SINK-036), before anything is written. So is a tie
    where `loses_order` holds; rows that are equal in everything are none then.
    """
    if loses_order and ties:
        raise SinkError(
            "FM-SINK-036",
            "one key comes from several versions, and nothing says which of its rows is the newest",
            where=write_name(spec),
            found=f"{_example(spec, str(example))}; the rows have lost their {CHANGE_COLUMNS[1]} in a"
            " step",
            allowed=f"{option(spec, 'sequence_by')}, a column that grows with every change; or steps"
            f" that keep {', '.join(CHANGE_COLUMNS)}: a select may name them",
            state=NOT_WRITTEN,
            next=_CHANGE_AND_RETRY,
        )
    if mixed is not None and spec.sequence_by is None:
        raise SinkError(
            "FM-SINK-036",
            "one key comes from two upstreams, and nothing says which of its rows is newer",
            where=write_name(spec),
            found=f"{_example(spec, mixed)} in {' and '.join(upstreams or ())}; versions of two tables"
            " cannot be compared",
            allowed=f"{option(spec, 'sequence_by')}, a column that grows with every change in all of"
            " them; or keys that tell the upstreams apart",
            state=NOT_WRITTEN,
            next=_CHANGE_AND_RETRY,
        )
    notes = {"ties": str(ties)}
    if ties:
        notes |= {} if spec.hides_values else {"tie_example": str(example)[:EXAMPLE_LENGTH]}
    if upstreams:
        notes["tie_upstreams"] = ", ".join(upstreams)
    return notes


def _example(spec: WriteSpec, key: str) -> str:
    return "a key" if spec.hides_values else f"key {key[:EXAMPLE_LENGTH]}"


def deletes_missing(spec: WriteSpec, windows: Sequence[Window]) -> bool:
    """Whether rows of the target that the frame does not have are deleted by this write."""
    acts = bool(_snapshots(windows)) and not _feeds_with_rows(windows)
    return spec.mode == "merge" and spec.missing == "delete" and acts


def check_retention(spec: WriteSpec, target: Target) -> None:
    """A target that forgets transaction ids would apply a batch twice (FM-SINK-010)."""
    value = target.properties.get(_RETENTION)
    if value is not None:
        raise SinkError(
            "FM-SINK-010",
            "the target forgets transaction ids too early",
            where=write_name(spec),
            found=f"{_RETENTION} = {value}",
            allowed="the property unset",
            state=NOT_WRITTEN,
            next=statement(
                f"ALTER TABLE delta.{quoted(spec.target)} UNSET TBLPROPERTIES ('{_RETENTION}')"
            )
            + "; "
            + THEN_RETRY,
        )


def check_schema(spec: WriteSpec, columns: Sequence[str], target: Target) -> None:
    """The frame has the columns of the target, in any order and case (FM-SINK-011)."""
    if not target.exists:
        _check_creation(spec)
        return
    written = [*data_columns(columns), *added_columns(spec)]
    extra = [c for c in written if matching(c, target.columns) is None]
    absent = [c for c in target.columns if matching(c, written) is None]
    if spec.mode == "merge" and spec.strategy == "delete_match":
        extra, absent = [], []  # only keys and the column of the order are looked at
    if spec.adds_columns:
        extra = [c for c in extra if c not in new_columns(spec, columns, target)]
        absent = [c for c in absent if c not in absent_columns(spec, columns, target.columns)]
    if extra or absent:
        parts = [f"new columns, not in the target: {_names(extra)}"] if extra else []
        parts += (
            [f"columns of the target that the rows do not have: {_names(absent)}"] if absent else []
        )
        raise misfit(
            spec,
            "; ".join(parts),
            f"the target's columns: {_names(target.columns)}",
            _schema_step(spec),
        )


def _check_creation(spec: WriteSpec) -> None:
    if spec.mode == "merge" and spec.strategy == "delete_match":
        raise misfit(spec, "no table", "a target that exists: delete_match adds no row")


def absent_columns(
    spec: WriteSpec, columns: Sequence[str], target_columns: Sequence[str]
) -> list[str]:
    """The columns of the target that a frame does not have; they are NULL in what is written.

    Rows from before a column was added are such: a file with the older header, or the versions of a
    backfill.
    """
    if not spec.adds_columns or spec.strategy == "delete_match":
        return []
    written = [*data_columns(columns), *SOFT_DELETE_COLUMNS, *LOG_COLUMNS, *audit_columns(spec)]
    return [c for c in target_columns if matching(c, written) is None]


def absence_notes(spec: WriteSpec, absent: Sequence[str]) -> dict[str, str]:
    """What a write says of columns that it left NULL, in its metrics and in the log."""
    if not absent or spec.is_aside:
        return {}
    log.warning("%s: the rows have no %s, which is NULL for them", write_name(spec), _names(absent))
    return {"null_columns": _names(absent)}


def left_out_notes(spec: WriteSpec, count: int) -> dict[str, str]:
    """What a write says of rows that its target did not take, in its metrics and in the log."""
    if count <= 0:
        return {}
    log.warning("%s: a trigger of the target did not take %d rows", write_name(spec), count)
    return {"rows_left_out": str(count)}


def new_columns(spec: WriteSpec, columns: Sequence[str], target: Target) -> list[str]:
    """The columns of a frame that a write adds to its target before it writes."""
    if not (spec.adds_columns and target.exists) or spec.strategy == "delete_match":
        return []
    return [c for c in data_columns(columns) if matching(c, target.columns) is None]


def outside(spec: WriteSpec) -> SinkError:
    """The error for rows that a replacement would add beside those it replaces."""
    return SinkError(
        "FM-SINK-034",
        "rows do not match the condition of replace_where",
        where=write_name(spec),
        found="at least one row for which the condition does not hold",
        allowed=f"rows for which this holds: {spec.replace_where}",
        state=NOT_WRITTEN,
        next="filter the rows or change the condition, " + THEN_RETRY,
    )


def bad_condition(spec: WriteSpec, found: str) -> SinkError:
    """The error for a condition that the target's SQL does not take."""
    allowed = "a condition over the columns of the target, in its SQL"
    return bad_option("the condition of replace_where is not understood", spec, allowed, found)


def data_columns(columns: Sequence[str]) -> list[str]:
    """The columns of a frame without the change columns."""
    return [c for c in columns if c not in CHANGE_COLUMNS]


def added_columns(spec: WriteSpec) -> tuple[str, ...]:
    """The columns that the sink adds to those of the frame."""
    if spec.mode == "merge":
        return (*(SOFT_DELETE_COLUMNS if spec.deletes == "soft" else ()), *audit_columns(spec))
    return LOG_COLUMNS if spec.changes == "log" else ()


def audit_columns(spec: WriteSpec) -> tuple[str, ...]:
    """The columns in which a merge keeps when rows came and when they were written."""
    return tuple(name for name in (spec.created_at, spec.updated_at) if name)


def changed_upstreams(windows: Iterable[Window]) -> list[Window]:
    """The feed windows in which the log shows updates or deletes."""
    feeds = (w for w in windows if w.feed_start is not None and w.has_news)
    return [w for w in feeds if w.changes & {"update", "delete"}]


def _snapshots(windows: Iterable[Window]) -> list[Window]:
    return [w for w in windows if _has_all_rows(w) and w.has_news]


def _has_all_rows(window: Window) -> bool:
    return window.shows_all_rows


def _feeds_with_rows(windows: Iterable[Window]) -> list[Window]:
    partly = [w for w in windows if not _has_all_rows(w) and w.has_news]
    return [w for w in partly if w.method == "lost" or w.rows != 0]


def _added_by_us(spec: WriteSpec, data: Sequence[str]) -> list[str]:
    added = {name.lower() for name in added_columns(spec)}
    return [column for column in data if column.lower() in added]


def _doubled(columns: Sequence[str]) -> list[str]:
    lowered = [c.lower() for c in columns]
    return [c for c in columns if lowered.count(c.lower()) > 1]


def _unknown_column(spec: WriteSpec, where: str, name: str, columns: Sequence[str]) -> SinkError:
    near = difflib.get_close_matches(name, columns, n=1)
    return bad_option(
        f"{option(spec, where)} names a column that the rows do not have: {name}",
        spec,
        _names(columns) + (f"; nearest: {near[0]}" if near else ""),
    )


def _schema_step(spec: WriteSpec) -> str:
    if spec.adds_columns or spec.format != DELTA:
        return "change the rows, " + THEN_RETRY
    if spec.is_node:
        return (
            "to add new columns to the target, and write NULL where the rows lack one of"
            " its columns, set write.on_schema_change: add_columns; or select the target's"
            " columns; " + THEN_RETRY
        )
    return "change the frame, or add the columns with ALTER TABLE, " + THEN_RETRY


def new_fields(spec: WriteSpec, fields: Sequence[str]) -> SinkError:
    """The error for structs that have fields which those of the target lack."""
    found = f"new fields, not in the target: {_names(fields)}"
    return misfit(spec, found, "the fields that the target's structs have", _schema_step(spec))


_CHANGE_ROWS = "change the rows, " + THEN_RETRY


def misfit(spec: WriteSpec, found: str, allowed: str, step: str = _CHANGE_ROWS) -> SinkError:
    """The error for a frame whose columns do not fit the target; `step` is what to do next."""
    return SinkError(
        "FM-SINK-011",
        "the rows do not fit the target",
        where=write_name(spec),
        found=found,
        allowed=allowed,
        state=NOT_WRITTEN,
        next=step,
    )


def retyped(spec: WriteSpec, schema: str, target: Target) -> SinkError | None:
    """The error for rows of these columns if their types do not fit the target; None if they do."""
    columns = narrowed_columns(target.schema, schema)
    if not columns:
        return None
    shown = [
        f"{c} is {shown_type(schema, c)}, in the target {shown_type(target.schema, c)}"
        for c in columns
    ]
    error = misfit(spec, "; ".join(shown), "rows with the types of the target")
    error.next = (
        "cast the columns to these types, or declare them in the schema of a node that reads files, "
        + THEN_RETRY
        + "; or "
        + _with_these_types(spec)
    )
    return error


def _with_these_types(spec: WriteSpec) -> Next:
    anew = "load everything with the new types, which replaces what the target holds: "
    if replaced_anew(spec) and not spec.is_aside:
        return anew + command("retry", BATCH, "--full-refresh")
    return "move the table away and load everything with the new types: " + command(
        "retry", BATCH, "--on-lost-target", "rebuild"
    )


def _unsaid(spec: WriteSpec, windows: Sequence[Window], found: str) -> SinkError:
    changed = changed_upstreams(windows)
    kinds = "; ".join(f"{w.upstream}: {', '.join(sorted(w.changes))}" for w in changed)
    who = "the steps" if spec.is_node else "the function"
    handled = f"{option(spec, 'changes', 'handled')} if {who} dealt with them"
    allowed = (
        f"_change_type and _commit_version kept in every select; or {handled}"
        if spec.mode == "merge"
        else f"{option(spec, 'changes', 'latest')} (with keys: the last change of each key);"
        f" {option(spec, 'changes', 'log')} (every change as a row); {handled}; or mode merge with"
        " keys"
    )
    return SinkError(
        "FM-SINK-001",
        "a write does not say what to do with updates and deletes",
        where=write_name(spec),
        found=f"{found}; {kinds}" if kinds else found,
        allowed=allowed,
        state=NOT_WRITTEN,
        next=_CHANGE_AND_RETRY,
    )


def _upstreams(windows: Iterable[Window]) -> str:
    return ", ".join(_shown(w) for w in windows)


def _shown(window: Window) -> str:
    return window.shown_in_full


def _names(columns: Iterable[str]) -> str:
    return ", ".join(columns)
