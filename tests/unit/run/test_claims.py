"""Which landed rows all pipelines of a batch read: those of whoever claims first."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from floodmark.deltalog import Storage
from floodmark.errors import ControlError
from floodmark.model import WriteResult
from floodmark.run.claims import Claims
from floodmark.run.landing import Attempt, LandingFolder

ATTEMPT = Attempt(1, "later", "abc")


def claims_in(folder: Path) -> Claims:
    return Claims(LandingFolder(str(folder), Storage()), "batch_1", "0f.lookup")


def landed_by(folder: Path, pipeline: str) -> WriteResult:
    path = f"{folder}/landing/batch_1/{pipeline}/0f.lookup/{ATTEMPT.folder}"
    return WriteResult(path, f"id of {pipeline}", 0, 3, already_applied=False)


def test_of_many_who_claim_at_once_one_is_first_for_all(tmp_path: Path) -> None:
    count = 8
    gate = Barrier(count)

    def claim(number: int) -> WriteResult:
        gate.wait()
        return claims_in(tmp_path).claim(ATTEMPT, landed_by(tmp_path, f"p{number}"))

    with ThreadPoolExecutor(count) as pool:
        rows = list(pool.map(claim, range(count)))

    assert len({(each.target, each.table_id, each.version) for each in rows}) == 1
    assert claims_in(tmp_path).claimed(ATTEMPT) == rows[0]
    assert claims_in(tmp_path).attempts() == [ATTEMPT]


def test_a_claim_follows_its_store_to_another_folder(tmp_path: Path) -> None:
    claims_in(tmp_path / "old").claim(ATTEMPT, landed_by(tmp_path / "old", "p"))

    (tmp_path / "old").rename(tmp_path / "new")

    rows = claims_in(tmp_path / "new").claimed(ATTEMPT)
    assert rows.target == landed_by(tmp_path / "new", "p").target


def test_a_claim_that_others_have_damaged_is_named(tmp_path: Path) -> None:
    claims = claims_in(tmp_path)
    claims.claim(ATTEMPT, landed_by(tmp_path, "p"))
    (log,) = (tmp_path / "landing").rglob("00000000000000000000.json")
    log.write_text("{}")

    with pytest.raises(ControlError) as raised:
        claims.claimed(ATTEMPT)

    assert raised.value.code == "FM-CONTROL-002"
    assert str(raised.value.next).endswith("floodmark retry batch_1")


def test_a_store_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "landing").write_text("a file where a folder should be")

    with pytest.raises(ControlError) as raised:
        claims_in(tmp_path).claim(ATTEMPT, landed_by(tmp_path, "p"))

    assert raised.value.code == "FM-CONTROL-002"
    assert raised.value.retryable
