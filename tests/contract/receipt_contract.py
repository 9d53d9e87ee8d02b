"""What every writer promises whose memory and target may part: nothing lost, nothing twice.

Batch `n` brings the row `n`. Each attack happens between batches 4 and 5; then batch 5 is either
written onto a right table, or refused with a code and a way out that loses nothing. Run on each sink,
each memory of a stream and `fm.stream_merge` by test_receipts.py and tests/spark/test_stream_merge.py.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Protocol

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from floodmark.deltalog import DeltaLog
from floodmark.errors import FloodmarkError

STRANGER = -1
"""The row that others write; nobody counts it."""


class Writer(Protocol):
    """One target and what remembers its batches; each call is that of a new process."""

    def write(self, number: int) -> None:
        """Bring the target to batch `number`; raises what speaks against it."""

    def numbers(self) -> list[int]:
        """The rows of the target, without those of strangers."""

    def settle(self, number: int) -> None:
        """Do what the error advises, as if the target is right as it is, or to be made anew."""

    def save(self) -> None:
        """Take a copy of the target."""

    def put_back(self) -> None:
        """Put the copy in the place of the target."""

    def strangers(self, commits: int) -> None:
        """Others write to the target."""

    def other_life(self, number: int) -> None:
        """A copy of writer and memory writes another batch of this number."""


class DeltaFolder:
    """A Delta table as those can handle it who own the folder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._copy = path.with_name(f"{path.name}-copy")

    def numbers(self) -> list[int]:
        rows = DeltaTable(self.path).to_pyarrow_table().column("n").to_pylist()
        return sorted(n for n in rows if n != STRANGER)

    def save(self) -> None:
        shutil.copytree(self.path, self._copy)

    def put_back(self) -> None:
        shutil.rmtree(self.path)
        shutil.copytree(self._copy, self.path)

    def strangers(self, commits: int) -> None:
        for _ in range(commits):
            rows = pa.table({"n": pa.array([STRANGER], pa.int64())})
            write_deltalake(self.path, rows, mode="append")

    def restore(self) -> None:
        """RESTORE to what was there with batch 2."""
        log = DeltaLog(self.path)
        commits = log.versions(0, log.facts().latest_version)
        written = [c.version for c in commits if 2 in c.transactions.values()]
        DeltaTable(self.path).restore(written[0])

    def clean(self) -> None:
        """What the retention of the log does once a checkpoint is behind the commits."""
        self.strangers(2)
        table = DeltaTable(self.path)
        table.create_checkpoint()
        for version in range(table.version()):
            (self.path / "_delta_log" / f"{version:020d}.json").unlink(missing_ok=True)

    def lose_checkpoint(self) -> None:
        self.clean()
        self.strangers(1)
        for file in (self.path / "_delta_log").glob("*checkpoint*"):
            file.unlink()


def put_back(writer: Any) -> None:
    writer.put_back()


def put_back_and_passed(writer: Any) -> None:
    writer.put_back()
    writer.strangers(6)


def copied(writer: Any) -> None:
    writer.put_back()
    for number in (3, 4):
        writer.other_life(number)


def restored_and_passed(writer: Any) -> None:
    writer.restore()
    writer.strangers(6)


def restored_and_cleaned(writer: Any) -> None:
    writer.restore()
    writer.clean()


def cleaned(writer: Any) -> None:
    writer.clean()


def checkpoint_gone(writer: Any) -> None:
    writer.lose_checkpoint()


Attack = Callable[[Any], None]
COPIES: tuple[Attack, ...] = (put_back, put_back_and_passed, copied)
OF_THE_LOG: tuple[Attack, ...] = (
    restored_and_passed,
    restored_and_cleaned,
    cleaned,
    checkpoint_gone,
)


def outcome(writer: Writer, attack: Attack) -> str:
    """What became of batch 5: `written`, or the code of the refusal; anything else fails."""
    for number in (1, 2):
        writer.write(number)
    writer.save()
    for number in (3, 4):
        writer.write(number)
    attack(writer)
    before = None if attack is checkpoint_gone else writer.numbers()
    refusal = _refusal(writer, 5)
    if refusal is None:
        assert writer.numbers() == [1, 2, 3, 4, 5]
        return "written"
    assert refusal.next, refusal
    assert before is None or writer.numbers() == before, "a refusal writes nothing"
    return refusal.code


def _refusal(writer: Writer, number: int) -> FloodmarkError | None:
    try:
        writer.write(number)
    except FloodmarkError as error:
        return error
    return None


class ReceiptContract:
    """Subclasses give the fixture `writer`, and what they expect of each attack in `EXPECTED`."""

    EXPECTED: ClassVar[dict[Attack, str]]
    WITHOUT_A_WAY_OUT: ClassVar[tuple[Attack, ...]] = (checkpoint_gone,)
    """Here a file has to come back first, by hand."""

    @pytest.mark.parametrize("attack", [*COPIES, *OF_THE_LOG])
    def test_what_parted_from_its_memory_is_refused_or_right(
        self, writer: Writer, attack: Attack
    ) -> None:
        if attack not in self.EXPECTED:
            pytest.skip("the target has no log of its own")

        result = outcome(writer, attack)

        assert result == self.EXPECTED[attack]
        if result == "written" or attack in self.WITHOUT_A_WAY_OUT:
            return
        writer.settle(5)
        assert writer.numbers() == [1, 2, 3, 4, 5], "the way out of the error"
