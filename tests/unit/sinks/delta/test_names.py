"""Targets by catalog name where there is no catalog, and what the store remembers of names."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from tests.support.outsides import ON_ARROW

import floodmark as fm
from floodmark.model.state import SinkDone
from floodmark.sinks.delta.names import last_write


def done(table: str | None, seq: int) -> SinkDone:
    return SinkDone("w", f"floodmark/c/p/w/{seq}", "/t", "id", 1, None, seq=seq, table=table)


def test_the_last_write_to_a_name_is_found_whatever_its_case() -> None:
    sinks = [done("gold.report", 3), done("GOLD.Report", 5), done("gold.other", 9), done(None, 9)]

    found = last_write(sinks, "Gold.report")

    assert found is not None
    assert found.seq == 5
    assert last_write(sinks, "gold.nothing") is None


def test_without_a_session_a_name_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path / "orders"), pa.table({"id": [1]}))
    coordinator = fm.Coordinator(str(tmp_path / "_control"), outside=ON_ARROW)
    coordinator.register("p", [str(tmp_path / "orders")])
    batch_id = str(coordinator.create_batch().batch_id)

    def write(inputs: Mapping[str, Any], run: Any) -> None:
        run.write(next(iter(inputs.values())), "gold.report", mode="append")

    with pytest.raises(fm.FloodmarkError) as caught:
        coordinator.run_pipeline("p", batch_id, write)

    assert caught.value.code == "FM-SINK-023"
    assert coordinator.look.state().sinks == {}
