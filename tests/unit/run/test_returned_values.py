"""Whatever a function returns, raises or hands to its run, the store stays readable and goes on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from deltalake import write_deltalake
from tests.support.outsides import ON_ARROW

import floodmark as fm
from floodmark.control.events.bodies import Failed, Succeeded, encode
from floodmark.errors import ControlError, FloodmarkError

HALF = "\ud800"
"""Half of a character: what Python makes of a byte in the name of a file that is not UTF-8."""


class NoText(Exception):
    """Something whose text cannot be made."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


def raises(error: Exception) -> Callable[[], Any]:
    def made() -> Any:
        raise error

    return made


TAKEN: dict[str, tuple[Callable[[], Any], tuple[int | None, int | None]]] = {
    "nothing": (lambda: None, (1, None)),
    "counts of numpy": (lambda: (np.int64(5), np.int64(6), {"a": np.float64(1)}), (5, 6)),
    "no metrics": (lambda: fm.Metrics(2, 3, None), (2, 3)),  # type: ignore[arg-type]
    "half a character": (lambda: {f"a{HALF}": HALF, "b": "\0"}, (1, None)),
    "no text": (lambda: {"x": NoText(), None: object()}, (1, None)),
}
REFUSED: dict[str, Callable[[], Any]] = {
    "text for a count": lambda: fm.Metrics(rows_written="7"),  # type: ignore[arg-type]
    "a fraction": lambda: fm.Metrics(rows_written=1.5),  # type: ignore[arg-type]
    "a number of pandas": lambda: (np.float64(5), 1, {}),
    "more than 64 bits": lambda: (10**30, 1, {}),
    "less than nothing": lambda: fm.Metrics(rows_read=-1),
    "a list of metrics": lambda: fm.Metrics(metrics=[1]),  # type: ignore[arg-type]
    "rows": lambda: pa.table({"secret": ["x"]}),
}
RAISED: dict[str, Callable[[], Any]] = {
    "half a character": raises(ValueError(f"caf{HALF}.csv\0")),
    "no text": raises(NoText()),
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_deltalake(str(tmp_path / "orders"), pa.table({"id": [1]}))
    return tmp_path


def coordinator_of(root: Path) -> fm.Coordinator:
    return fm.Coordinator(str(root / "control"), base=str(root), outside=ON_ARROW)


def begin(root: Path) -> str:
    coordinator = coordinator_of(root)
    coordinator.register("p", (str(root / "orders"),))
    return str(coordinator.create_batch(str(root / "orders")).batch_id)


def run(root: Path, batch: str, make: Callable[[], Any]) -> fm.RunResult:
    return coordinator_of(root).run_pipeline("p", batch, lambda _, __: make())


def goes_on(root: Path, batch: str) -> None:
    """Every command of another process works, and the retry ends the batch."""
    coordinator_of(root).run_pipeline("p", batch, lambda _, __: None)
    assert coordinator_of(root).finalize_batch(batch)
    assert [f for f in coordinator_of(root).verify() if not f.ok] == []
    coordinator_of(root).admin.upkeep()
    coordinator_of(root).admin.export_state(str(root / "export.jsonl"))


@pytest.mark.parametrize("case", TAKEN)
def test_what_can_be_stored_is_taken(root: Path, case: str) -> None:
    make, counts = TAKEN[case]
    batch = begin(root)

    result = run(root, batch, make)

    assert (result.rows_read, result.rows_written) == counts
    goes_on(root, batch)


@pytest.mark.parametrize("case", REFUSED)
def test_what_no_column_holds_is_a_failed_run_with_a_typed_error(root: Path, case: str) -> None:
    batch = begin(root)

    with pytest.raises(FloodmarkError) as caught:
        run(root, batch, REFUSED[case])

    assert caught.value.code == "FM-RUN-002"
    assert coordinator_of(root).look.state().batches[batch].runs["p"].status == "FAILED"
    assert "secret" not in str(caught.value)
    goes_on(root, batch)


@pytest.mark.parametrize("case", RAISED)
def test_an_error_of_any_text_is_recorded_and_raised(root: Path, case: str) -> None:
    batch = begin(root)

    with pytest.raises((ValueError, NoText)):
        run(root, batch, RAISED[case])

    failed = coordinator_of(root).look.state().batches[batch].runs["p"]
    assert failed.status == "FAILED"
    assert failed.error
    goes_on(root, batch)


WRITES: dict[str, dict[str, Any]] = {
    "no frame": {"frame": None},
    "rows of python": {"frame": [{"secret": 1}]},
    "no target": {"target": None},
    "a path": {"target": Path("/tmp/t")},
    "keys of nothing": {"keys": None},
    "a list of None": {"keys": [None]},
    "a number for a name": {"name": 3},
    "partitions of None": {"partition_by": [None]},
    "upstreams of None": {"upstreams": [None]},
    "half a character": {"target": f"/tmp/{HALF}"},
    "an unknown argument": {"colour": "red"},
}


@pytest.mark.parametrize("case", WRITES)
def test_a_write_of_wrong_types_is_a_typed_error(root: Path, case: str) -> None:
    batch = begin(root)

    def write(inputs: Any, run: Any) -> None:
        given = {"frame": next(iter(inputs.values())), "target": "t", "mode": "append"}
        given |= WRITES[case]
        run.write(given.pop("frame"), given.pop("target"), **given)

    with pytest.raises(FloodmarkError) as caught:
        coordinator_of(root).run_pipeline("p", batch, write)

    assert caught.value.code == "FM-CONFIG-007"
    assert "secret" not in str(caught.value)
    goes_on(root, batch)


@pytest.mark.parametrize("method", ["table", "window"])
@pytest.mark.parametrize("value", [None, 3, [None]])
def test_a_name_of_a_wrong_type_is_a_typed_error(root: Path, method: str, value: Any) -> None:
    batch = begin(root)

    with pytest.raises(FloodmarkError) as caught:
        coordinator_of(root).run_pipeline("p", batch, lambda _, run: getattr(run, method)(value))

    assert caught.value.code == "FM-CONFIG-007"


# Behind every check of arguments -------------------------------------------------------------------


@pytest.mark.parametrize("rows", ["7", 1.5, 10**30, -(10**20)])
def test_nothing_that_cannot_be_read_again_gets_into_the_journal(rows: Any) -> None:
    with pytest.raises(ControlError) as caught:
        encode(Succeeded("b", "p", 1, rows, None, {}))

    assert caught.value.code == "FM-CONTROL-034"


def test_long_digits_in_text_are_no_number() -> None:
    assert "9" * 40 in encode(Failed("b", "p", 1, "9" * 40))
    with pytest.raises(ControlError):
        encode(Failed("b", "p", 1, HALF))


def test_what_others_report_of_their_runs_is_stored_or_refused(root: Path) -> None:
    batch = begin(root)
    coordinator = coordinator_of(root)

    with pytest.raises(ControlError) as caught:
        coordinator.record_run("p", batch, status="SUCCESS", rows_read=10**30)
    coordinator.record_run("p", batch, status="FAILED", error=HALF)
    coordinator.record_run("p", batch, status="RUNNING")
    coordinator.record_run("p", batch, status="SUCCESS", rows_read=1, metrics={HALF: NoText()})

    assert caught.value.code == "FM-CONTROL-034"
    goes_on(root, batch)
