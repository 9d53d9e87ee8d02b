"""The memories of streams keep the contract: tables of a database, and the log of a Delta table."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.contract.ledger_contract import StreamLedgerContract
from tests.contract.ledger_places import DeltaLedgers, LedgerPlace, PostgresLedgers
from tests.services.stream_places import StreamPlace

from floodmark.engines.postgres_server import PostgresServer


@pytest.mark.postgres
class TestPostgres(StreamLedgerContract):
    @pytest.fixture
    def place(self, postgres: PostgresServer, pg_schema: str) -> PostgresLedgers:
        return PostgresLedgers(StreamPlace(postgres.dsn, pg_schema))


class TestDelta(StreamLedgerContract):
    @pytest.fixture
    def place(self, tmp_lake: Path) -> DeltaLedgers:
        return DeltaLedgers(tmp_lake / "numbers")


_: tuple[type[LedgerPlace], ...] = (PostgresLedgers, DeltaLedgers)
