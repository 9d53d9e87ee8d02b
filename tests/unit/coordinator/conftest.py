from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

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
    return fm.Coordinator(str(tmp_path / "_control"), actor="tester", lease_ttl=2)
