"""Where a query has its checkpoint, and what Spark is told."""

from __future__ import annotations

import json
import uuid
from dataclasses import replace
from pathlib import Path

import pytest

from floodmark.config.stream.fields import Trigger
from floodmark.model.offsets import Offsets
from floodmark.streaming.ledger.batches import StreamRow
from floodmark.streaming.query import active_folder, empty_folder, is_left, spark_trigger


def row(checkpoint: str | None) -> StreamRow:
    return StreamRow(
        stream_id="s",
        epoch=1,
        claim_id="c",
        incarnation=1,
        topic_ids={},
        start_offsets=None,
        end_offsets=None,
        batch_id=None,
        spark_batch_id=None,
        query_id=None,
        checkpoint=checkpoint,
        config_hash=None,
        event_watermark=None,
        exactly_once=True,
        holder=None,
        commit_id=None,
    )


@pytest.mark.parametrize(
    ("known", "folder"),
    [(None, "/c"), ("/c", "/c"), ("/c/incarnation-2", "/c/incarnation-2"), ("/c-other", "/c")],
)
def test_the_checkpoint_that_was_used_last_is_looked_at(known: str | None, folder: str) -> None:
    assert active_folder("/c", row(known)) == folder
    assert active_folder("/c", None) == "/c"


def test_a_new_incarnation_leaves_an_old_checkpoint_alone(tmp_path: Path) -> None:
    place = tmp_path / "c"
    assert empty_folder(str(place), 2) == str(place)

    place.mkdir()
    (place / "metadata").write_text(json.dumps({"id": str(uuid.uuid4())}))
    (place / "offsets").mkdir()
    (place / "sources/0").mkdir(parents=True)
    assert empty_folder(str(place), 2) == str(place)

    (place / "sources/0/0").write_bytes(b'\0v1\n{"t":{"0":0}}')
    (place / "offsets/0").write_text('v1\n{"batchWatermarkMs":0}\n{"t":{"0":5}}')

    assert empty_folder(str(place), 2) == f"{place}/incarnation-2"
    (place / "offsets/0").write_text("damaged")
    (place / "incarnation-2/commits").mkdir(parents=True)
    (place / "incarnation-2/commits/0").write_text("")
    assert empty_folder(str(place), 2) == f"{place}/incarnation-3"


def test_a_target_that_forgot_is_compared_with_the_newest_checkpoint(tmp_path: Path) -> None:
    for name in ("incarnation-2", "incarnation-10", "incarnation-x"):
        (tmp_path / name).mkdir()

    assert active_folder(str(tmp_path), None) == f"{tmp_path}/incarnation-10"


def test_a_stream_that_was_rewound_leaves_its_checkpoint() -> None:
    known = row(None)
    there = replace(known, end_offsets=Offsets.of({("t", 0): 5}))

    assert [is_left(each) for each in (None, known, there)] == [False, False, True]
    assert not is_left(replace(there, query_id="q"))


@pytest.mark.parametrize(
    ("trigger", "told"),
    [
        (Trigger("once"), {"once": True}),
        (Trigger("availableNow"), {"availableNow": True}),
        (Trigger("continuous"), {"processingTime": "0 seconds"}),
        (Trigger("processingTime", "2 minutes"), {"processingTime": "120.000000 seconds"}),
    ],
)
def test_a_trigger_is_told_in_the_words_of_spark(trigger: Trigger, told: dict[str, object]) -> None:
    assert spark_trigger(trigger) == told


def test_once_comes_in_several_batches_where_they_have_to_be_bounded() -> None:
    assert spark_trigger(Trigger("once"), is_bounded=True) == {"availableNow": True}
