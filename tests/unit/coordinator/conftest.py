from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from tests.support.outsides import AFTER_A_CRASH, ON_ARROW

import floodmark as fm

Append = Callable[..., str]


@pytest.fixture
def grow(tmp_path: Path) -> Append:
    """Append one commit to an upstream, creating it with its change feed on."""

    def append(name: str, *ids: int, feed: bool = True) -> str:
        path = str(tmp_path / name)
        configuration = {"delta.enableChangeDataFeed": "true"} if feed else None
        is_new = not (tmp_path / name).exists()
        rows = pa.table({"id": pa.array(ids or (1,), pa.int64())})
        write_deltalake(path, rows, mode="append", configuration=configuration if is_new else None)
        return path

    return append


@pytest.fixture
def coordinator(tmp_path: Path) -> fm.Coordinator:
    """Runs pipelines through delta-rs."""
    control = str(tmp_path / "_control")
    return fm.Coordinator(control, actor="tester", lease_ttl=2, outside=ON_ARROW)


@pytest.fixture
def after_a_crash(coordinator: fm.Coordinator) -> fm.Coordinator:
    """The same store; whoever held a lease of it is gone."""
    control = coordinator.control
    return fm.Coordinator(control, actor="tester", outside=AFTER_A_CRASH)
