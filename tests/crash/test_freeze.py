"""Killed by SIGKILL around the freeze of a deferred end, the normal commands reach the same end."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import orc
from tests.support import crash
from tests.support.outsides import ON_ARROW

import floodmark as fm
from floodmark import failpoints
from floodmark.control.published.reading import read_published
from floodmark.deltalog import Storage

KILLED = -signal.SIGKILL
PIPELINES = ("first", "second")


def add(root: Path, number: int) -> None:
    """One file with one row, into which nobody looks before a run; again it changes nothing."""
    folder = root / "events"
    folder.mkdir(parents=True, exist_ok=True)
    at = pa.array([datetime(2026, 1, 1, tzinfo=UTC) + timedelta(hours=number)])
    orc.write_table(pa.table({"id": pa.array([number]), "at": at}), str(folder / f"{number}.orc"))


def coordinator(root: str) -> fm.Coordinator:
    control = f"{root}/control"
    return fm.Coordinator(control, actor="story", lease_ttl=2, base=root, outside=ON_ARROW)


def tell(root: str) -> None:
    """Two batches with a deferred end each, for two pipelines."""
    c = coordinator(root)
    for pipeline in PIPELINES:
        c.register(pipeline, [fm.Upstream("./events", time_column="at", format="orc")])
    for number in (1, 2):
        add(Path(root), number)
        batch = c.create_batch()
        for pipeline in batch.pipelines:
            c.run_pipeline(pipeline, str(batch.batch_id), copy)
        c.finalize_batch(str(batch.batch_id))


def copy(inputs: Mapping[str, Any], run: Any) -> None:
    run.write(inputs["./events"], f"./sinks/{run.pipeline}", mode="append")


def end_state(root: str) -> dict[str, Any]:
    c = coordinator(root)
    rows = {
        pipeline: read_published(f"{root}/sinks/{pipeline}", Storage(), "SELECT id FROM t")
        for pipeline in PIPELINES
    }
    return {
        "rows": {p: sorted(table["id"].to_pylist()) for p, table in rows.items() if table},
        "marks": [checkpoint.mark for checkpoint in c.checkpoints()],
        "problems": [finding.text for finding in c.verify() if not finding.ok],
    }


@pytest.mark.parametrize("nth", [1, 2])
@pytest.mark.parametrize("point", failpoints.FREEZE_POINTS)
def test_a_process_killed_around_the_freeze_leaves_nothing_to_mend(
    point: str, nth: int, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    armed = {"FLOODMARK_FAILPOINT": f"{point}:{nth}"}
    code = crash.run(tell, str(tmp_path), log=log, environment=armed)
    assert code == KILLED, log.read_text()

    assert crash.run(tell, str(tmp_path), log=log) == 0, log.read_text()

    assert crash.result(end_state, str(tmp_path), log=log) == {
        "rows": {"first": [1, 2], "second": [1, 2]},
        "marks": ['{"type":"timestamp","value":"2026-01-01T02:00:00.000000Z"}'],
        "problems": [],
    }
