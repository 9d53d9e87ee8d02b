"""Arrow data from buffers is what pyarrow makes of the same rows."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from floodmark.control.columns import table_of
from floodmark.control.journal.delta import SCHEMA
from floodmark.control.published.tables import TABLES

VALUES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.string(): st.text(max_size=9),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.float64(): st.floats(allow_nan=False),
    pa.bool_(): st.booleans(),
    pa.date32(): st.dates(),
    pa.timestamp("us", "UTC"): st.datetimes(timezones=st.just(UTC)),
    pa.list_(pa.string()): st.lists(st.text(max_size=3), max_size=3),
    pa.map_(pa.string(), pa.string()): st.dictionaries(
        st.text(max_size=3), st.none() | st.text(max_size=3), max_size=3
    ),
}
SCHEMAS = {"_journal": SCHEMA, **{table.name: table.schema for table in TABLES}}


@pytest.mark.parametrize("name", SCHEMAS)
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_rows_of_every_control_table_become_what_pyarrow_makes_of_them(
    name: str, data: st.DataObject
) -> None:
    schema = SCHEMAS[name]
    row = st.fixed_dictionaries({}, optional={f.name: st.none() | VALUES[f.type] for f in schema})
    rows = data.draw(st.lists(row, max_size=20))

    made = table_of(rows, schema)

    made.validate(full=True)
    whole = [{f.name: row.get(f.name) for f in schema} for row in rows]
    assert made.equals(pa.Table.from_pylist(whole, schema=schema))


WRITES = """
import sys
import floodmark as fm
c = fm.Coordinator(sys.argv[1])
c.register("p", [sys.argv[2]])
batch = c.create_batch([sys.argv[2]])
c.record_run("p", batch.batch_id, status="SUCCESS")
assert c.finalize_batch(batch.batch_id)
sys.exit("pandas" in sys.modules)
"""


def test_a_process_that_plans_records_and_finalizes_imports_no_pandas(tmp_path: Any) -> None:
    from deltalake import write_deltalake

    at = pa.array([datetime(2026, 1, 1, tzinfo=UTC)], pa.timestamp("us", "UTC"))
    write_deltalake(str(tmp_path / "orders"), pa.table({"at": at}))
    command = [sys.executable, "-c", WRITES, str(tmp_path / "control"), str(tmp_path / "orders")]

    assert subprocess.run(command, check=False).returncode == 0
