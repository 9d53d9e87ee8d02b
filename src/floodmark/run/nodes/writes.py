"""What a full refresh does to a write, and where the rows go that do not pass."""

from __future__ import annotations

from floodmark.model import DELTA, WriteSpec
from floodmark.model.names import connection_of
from floodmark.model.quarantine import QUARANTINE, quarantine_name


def has_log(spec: WriteSpec) -> bool:
    """Whether what a write committed can be read from its target: only Delta has a change feed."""
    return spec.format == DELTA and connection_of(spec.target) is None


def quarantine_of(spec: WriteSpec, *, replaces: bool) -> WriteSpec:
    """Where the rows go that do not pass: a table beside the target, rows of every batch.

    It follows the columns of the rows whatever the target does about new ones: nobody reads it in
    the place of the target. `replaces` is for a full refresh, which checks every row again; what
    another write has set aside in the same table stays.
    """
    return WriteSpec(
        target=quarantine_name(spec.target),
        mode="overwrite" if replaces else "append",
        name=f"{spec.name}.{QUARANTINE}",
        changes="handled",
        allow_full=not replaces,
        allow_partial=replaces,
        keeps_others=True,
        format=spec.format,
        writer=spec.writer,
        adds_columns=spec.format == DELTA,
        is_node=True,
        is_aside=True,
        allow_single_writer=spec.allow_single_writer,
    )
