"""Today's and the first version take turns at one stream: each believes and fences the other."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.contract.ledger_contract import begun, behind, committed, is_fenced
from tests.contract.ledger_places import DeltaLedgers, LedgerPlace, PostgresLedgers
from tests.services.stream_places import ME, StreamPlace, at

from floodmark.engines.postgres_server import PostgresServer
from floodmark.streaming.ledger.batches import Applied
from floodmark.streaming.running.holder import facts_of, process_of

ARCHIVE = Path(__file__).parents[1] / "fixtures/version-0.1/floodmark.zip"
"""The package as it was at 34db721; its own names are used below."""
OLD = """
import json, sys
from floodmark.model.offsets import Offsets
from floodmark.streaming.batches import LoadCounts, StreamBatch
from floodmark.streaming.holding import facts_of, process_of

place, end, before = json.loads(sys.argv[1]), int(sys.argv[2]), sys.argv[3]

class Settings:
    definition = "hash"
    class streaming:
        enable_idempotence = True

if place["kind"] == "delta":
    from floodmark.streaming.delta_ledger import DeltaLedger
    ledger = DeltaLedger(place["path"], "numbers")
else:
    from floodmark.engines.postgres import connector
    from floodmark.streaming.ledger import Ledger
    ledger = Ledger(connector(place["dsn"]), "numbers", place["schema"])
ledger.ensure()
row = ledger.trusted("numbers")
claim = ledger.claim(facts_of(Settings, {}), row)
start = claim.end_offsets
to = Offsets.of({("t", 0): end})
batch = StreamBatch(claim.next_batch_id, claim.incarnation, start, to)
numbers = range(start.at(("t", 0)), end)

def delta_commit():
    import pyarrow as pa
    from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
    if not ledger.admitted(claim, batch):
        return "AlreadyApplied"
    receipt = ledger.receipt(claim, batch, LoadCounts(len(numbers), len(numbers)))
    properties = CommitProperties(
        custom_metadata={"userMetadata": receipt.user_metadata},
        app_transactions=[Transaction(receipt.app_id, receipt.seq)],
    )
    rows = pa.table({"n": pa.array(numbers, pa.int64())})
    write_deltalake(place["path"], rows, mode="append", commit_properties=properties)
    return "Applied"

def postgres_commit():
    from floodmark.streaming.ledger import Loaded
    def load(cursor):
        for number in numbers:
            cursor.execute(f"INSERT INTO {place['table']} VALUES ($1)".encode(), (number,))
        return Loaded(LoadCounts(len(numbers), len(numbers)))
    return type(ledger.commit(claim, batch, load)).__name__

commit = delta_commit if place["kind"] == "delta" else postgres_commit
done = [commit(), commit()]
sign = ledger.sign_of_life(claim.claim_id)
holder = process_of(before)
print(json.dumps({
    "stood": start.at(("t", 0)), "done": done, "claim_id": claim.claim_id,
    "has_sign": sign is not None, "read_holder": holder and holder.pid,
}))
"""


@pytest.fixture(scope="module")
def old_source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("old")
    with zipfile.ZipFile(ARCHIVE) as archive:
        archive.extractall(folder)
    return folder / "src"


def old_turn(source: Path, place: dict[str, Any], end: int, holder: str | None) -> dict[str, Any]:
    """The old version claims the stream, and commits the same batch twice."""
    asked = [sys.executable, "-c", OLD, json.dumps(place), str(end), holder or ""]
    environment = {**os.environ, "PYTHONPATH": str(source)}
    told = subprocess.run(
        asked, capture_output=True, text=True, check=False, env=environment, timeout=120
    )
    assert told.returncode == 0, told.stderr
    document: dict[str, Any] = json.loads(told.stdout.splitlines()[-1])
    return document


def holder_here() -> str:
    """As this version writes it for a process."""
    settings: Any = SimpleNamespace(
        definition="hash", streaming=SimpleNamespace(enable_idempotence=True)
    )
    return facts_of(settings, {}).holder


def take_turns(place: LedgerPlace, source: Path, told: dict[str, Any]) -> None:
    new = place.ledger()
    new.ensure()
    claim = begun(new)
    committed(place, new, claim, 3)

    first = old_turn(source, told, 5, holder_here())
    row = new.stored()
    was_fenced = is_fenced(new, claim)
    trusted = new.trusted("numbers")
    mine = new.claim(ME, trusted)
    done = committed(place, new, mine, 6)
    second = old_turn(source, told, 8, holder_here())

    assert (first["stood"], first["done"]) == (3, ["Applied", "AlreadyApplied"])
    assert (first["has_sign"], first["read_holder"]) == (True, os.getpid())
    assert was_fenced
    assert row is not None
    assert (row.end_offsets, row.claim_id) == (at(5), first["claim_id"])
    assert trusted == row
    assert process_of(row.holder) is not None
    assert isinstance(done, Applied)
    assert (second["stood"], second["done"]) == (6, ["Applied", "AlreadyApplied"])
    assert is_fenced(new, behind(new, mine))
    assert place.numbers() == list(range(8))
    assert place.ledger().trusted("numbers") == new.stored()
    new.close()


def test_versions_take_turns_at_a_delta_table(tmp_lake: Path, old_source: Path) -> None:
    path = tmp_lake / "numbers"

    take_turns(DeltaLedgers(path), old_source, {"kind": "delta", "path": str(path)})


@pytest.mark.postgres
def test_versions_take_turns_at_a_database(
    postgres: PostgresServer, pg_schema: str, old_source: Path
) -> None:
    place = StreamPlace(postgres.dsn, pg_schema)

    told = {"kind": "postgres", "dsn": place.dsn, "schema": pg_schema, "table": place.table}

    take_turns(PostgresLedgers(place), old_source, told)
