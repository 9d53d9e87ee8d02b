"""Moving a watermark by hand: marks only, and only through the journal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import date
from typing import Protocol

from floodmark.control.events.bodies import Body, Reset
from floodmark.errors import ConfigError, ControlError, UnknownNameError
from floodmark.model import (
    NOTHING_PROCESSED,
    PlannedBatch,
    Probe,
    State,
    TableFacts,
    TimeMark,
    UpstreamOptions,
    marks,
)
from floodmark.model.names import choices, is_of_project
from floodmark.next_steps import command


class TableLog(Protocol):
    """What a reset asks of a table's log."""

    def facts(self) -> TableFacts: ...
    def schema_at(self, version: int) -> tuple[str, str]: ...
    def feed_enabled_at(self, version: int) -> bool: ...


def reset_of(
    upstream: str, scope: str, version: int | None, log_of: Callable[[], TableLog]
) -> Reset:
    """The event that puts a mark at a version of the table as it is; None forgets the mark.

    Raises FM-SOURCE-001 if the table has no such version, FM-SOURCE-002 if its log no longer
    tells what the table was like there.
    """
    if version is None:
        return Reset(scope, upstream, NOTHING_PROCESSED)
    if version < 0:
        raise ConfigError(
            "FM-CONFIG-007",
            f"there is no version {version}",
            rule="out_of_range",
            allowed="a version from 0 on, or none at all to begin from the beginning",
            state="nothing was changed",
            next="correct the version",
        )
    log = log_of()
    table_id = log.facts().table_id
    return Reset(
        scope=scope,
        upstream=upstream,
        version=version,
        table_id=table_id,
        feed_enabled=log.feed_enabled_at(version),
        schema_fingerprint=log.schema_at(version)[1],
    )


def reset_to_value(
    upstream: str, scope: str, said: str | date, probe: Probe, latest: TimeMark
) -> Reset:
    """The event that puts a mark at a value of a time column; its step follows when it is decided.

    Raises FM-CONFIG-007 for a value after `latest`, and for one of another type.
    """
    try:
        mark = marks.last_of(latest.type, said)
        found = mark.text
    except ValueError as error:
        mark, found = None, str(error)
    if mark is None or mark.number > latest.number:
        raise ConfigError(
            "FM-CONFIG-007",
            f"{upstream} cannot be reset to {said}",
            rule="value_of_reset",
            found=found,
            allowed=f"an ISO value of a {latest.type}, not after {latest.text}",
            state="nothing was changed",
            next=command(
                "state", "reset", "--scope", scope, "--upstream", upstream, "--to", latest.text
            ),
        )
    return Reset(
        scope=scope,
        upstream=upstream,
        version=NOTHING_PROCESSED,
        table_id=probe.facts.table_id,
        schema_fingerprint=probe.facts.schema_fingerprint,
        query=probe.query,
        mark=mark,
    )


def time_options(state: State, upstream: str, scope: str, version: int | None) -> UpstreamOptions:
    """How the pipelines of a scope read an upstream by time; FM-CONFIG-007 if they do not."""
    readers = [p for p in state.pipelines_in(scope) if upstream in p.upstreams]
    options = [p.options_of(upstream) for p in readers]
    by_time = bool(options) and not options[0].has_versions
    if by_time and is_of_project(upstream):
        raise _only_to_the_beginning(upstream, scope, "a value", options[0])
    if version is None and by_time:
        return options[0]
    raise ConfigError(
        "FM-CONFIG-007",
        f"{upstream} cannot be reset to a value",
        rule="reset_takes_version",
        where=f"scope {scope}",
        found="a value and a version" if version is not None else "no time_column is said for it",
        allowed="a value, of an upstream that is read by a time column",
        state="nothing was changed",
        next=command(
            "state", "reset", "--scope", scope, "--upstream", upstream, "--to-version", "N"
        ),
    )


def refuse_version(state: State, upstream: str, scope: str, version: int | None) -> None:
    """An upstream without versions goes to a value, or to its beginning (FM-CONFIG-007)."""
    mark = state.marks.get((scope, upstream))
    readers = state.pipelines_in(scope)
    by_time = any(not p.options_of(upstream).has_versions for p in readers)
    if version is not None and by_time and is_of_project(upstream):
        options = next(p.options_of(upstream) for p in readers if upstream in p.upstreams)
        raise _only_to_the_beginning(upstream, scope, f"version {version}", options)
    if version is not None and (by_time or (mark is not None and not mark.has_versions)):
        raise ConfigError(
            "FM-CONFIG-007",
            f"{upstream} is not read by versions",
            rule="reset_takes_value",
            found=f"version {version}; the watermark is {mark.shown_mark if mark else 'not set'}",
            allowed="a value of its column; nothing: all is processed again, or what follows its"
            " baseline",
            state="nothing was changed",
            next=command(
                "state",
                "reset",
                "--scope",
                scope,
                "--upstream",
                upstream,
                "--to",
                mark.mark.text if mark and mark.mark else "2026-01-01T00:00:00Z",
            ),
        )


def _only_to_the_beginning(
    upstream: str, scope: str, found: str, options: UpstreamOptions
) -> ConfigError:
    """The error for databases and files: which rows near a mark were applied is kept beside it."""
    has_values = options.has_cursor
    again = command("backfill", upstream, "--from", "VALUE", "--to", "VALUE")
    return ConfigError(
        "FM-CONFIG-007",
        f"{upstream} is reset to its beginning, or not at all",
        rule="reset_to_beginning_only",
        where=f"scope {scope}",
        found=f"{found}; which rows near it were applied is known only of the mark where it stands, so"
        " rows there would come twice or never",
        allowed="neither --to nor --to-version: everything is processed again",
        state="nothing was changed",
        next=(again if has_values else command("replay", "BATCH"))
        + "; or, to load everything anew: "
        + command("run", "--full-refresh", "PIPELINE"),
    )


def decide_reset(state: State, body: Reset) -> list[Body]:
    """What a reset has to journal: nothing if the mark is there already.

    Raises FM-CONTROL-023 while a batch holds the upstream, FM-CONTROL-005 if the scope does not
    know it.
    """
    for batch in state.open_batches(body.scope):
        if body.upstream in batch.windows:
            raise _held(body, batch)
    refuse_unknown(state, body.upstream, body.scope)
    mark = state.marks.get((body.scope, body.upstream))
    is_same_table = mark is None or mark.table_id == body.table_id
    if body.query is not None:
        step = state.committed_version(body.scope, body.upstream) + 1
        is_there = mark is not None and (mark.query, mark.mark) == (body.query, body.mark)
        return [] if is_there and is_same_table else [replace(body, version=step)]
    is_there = mark.version == body.version if mark else body.version == NOTHING_PROCESSED
    return [] if is_there and is_same_table else [body]


def _held(body: Reset, batch: PlannedBatch) -> ControlError:
    way = "cancel" if batch.can_be_cancelled else "retry"
    return ControlError(
        "FM-CONTROL-023",
        f"batch {batch.batch_id} holds {body.upstream}",
        where=f"scope {body.scope}",
        found=f"the batch is {batch.status}",
        state="nothing was changed; the watermark stays",
        next=command(way, batch.batch_id) + ", then run the same command again",
    )


def refuse_unknown(state: State, upstream: str, scope: str) -> None:
    """Raise FM-CONTROL-005 for a scope, or an upstream of it, that nobody has named."""
    read = [(p.scope, name) for p in state.pipelines.values() for name in p.upstreams]
    known = list(dict.fromkeys((*read, *state.marks)))
    if (scope, upstream) in known:
        return
    scopes = sorted({each for each, _ in known})
    there = [name for each, name in known if each == scope]
    raise UnknownNameError(
        "FM-CONTROL-005",
        f"no pipeline of scope {scope} reads {upstream}" if there else f"there is no scope {scope}",
        allowed=choices(there[:10], upstream) if there else choices(scopes, scope) or "none yet",
        state="nothing was changed",
        next="name one of them; " + command("state", "show") + " lists them",
    )
