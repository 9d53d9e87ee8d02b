"""Targets that keep no receipts are known by their name: another name is another target."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from floodmark.errors import SinkError
from floodmark.model import NO_TABLE_ID, Receipt, SinkDone, WriteSpec, commit_metadata
from floodmark.sinks import RecoverableSink
from floodmark.sinks.files import FileSink
from floodmark.sinks.plugin import PluginSink

APP = "floodmark/store/p/a/0"
RECEIPT = Receipt(APP, 5, commit_metadata("store", "batch_5", 5, "p", {}))


def sink_of(kind: str, old: str, new: str, mode: Any = "append", seq: int = 4) -> RecoverableSink:
    previous = SinkDone("a", APP, old, NO_TABLE_ID, 3, None, seq=seq)
    spec = WriteSpec(target=new, mode=mode, name="a", format="csv")
    if kind == "files":
        return FileSink(None, spec, (), previous, lambda *_: None)
    return PluginSink(object(), spec, (), previous)


@pytest.fixture(params=["files", "plugin"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def names(kind: str, tmp_path: Path) -> tuple[str, str]:
    (tmp_path / "old").mkdir()
    return ("crm:old", "crm:new") if kind == "plugin" else (f"{tmp_path}/old", f"{tmp_path}/new")


@pytest.mark.parametrize("seq", [4, 5])
def test_another_name_is_refused_by_both_also_if_the_old_one_has_this_batch(
    kind: str, names: tuple[str, str], seq: int
) -> None:
    with pytest.raises(SinkError) as caught:
        sink_of(kind, *names, seq=seq).committed(RECEIPT)

    assert caught.value.code == "FM-SINK-007"
    assert names[0] in str(caught.value.allowed)
    assert caught.value.where == names[1]


@pytest.mark.parametrize("choice", ["accept", "rebuild"])
def test_it_goes_on_as_settled(kind: str, names: tuple[str, str], choice: Any) -> None:
    done = sink_of(kind, *names).resolved(choice, RECEIPT, "next")

    assert (done.write_name, done.app_id, done.target, done.settled) == (
        *("a", "next", names[1]),
        choice,
    )
    spec = WriteSpec(target=names[1], mode="append", name="a", format="csv")
    assert FileSink(None, spec, (), done, lambda *_: None).committed(RECEIPT) is None


def test_a_plug_in_is_not_asked_to_write_everything_beside_what_it_has_written() -> None:
    with pytest.raises(SinkError) as caught:
        sink_of("plugin", "crm:same", "crm:same").resolved("rebuild", RECEIPT, "next")

    assert caught.value.code == "FM-SINK-018"
    assert [list(words) for words in caught.value.commands] == [["floodmark", "retry", "batch_5"]]


def test_an_overwrite_brings_all_rows_to_any_name(kind: str, names: tuple[str, str]) -> None:
    sink = sink_of(kind, *names, mode="overwrite", seq=5)

    assert sink.loss(RECEIPT) is None
    assert sink.committed(RECEIPT) is None


def test_a_folder_that_was_moved_goes_on(tmp_path: Path) -> None:
    sink = sink_of("files", f"{tmp_path}/gone", f"{tmp_path}/new")

    assert sink.loss(RECEIPT) is None
