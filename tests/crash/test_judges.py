"""The judges of the crash tests find what they are there to find."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, QueryBuilder, Transaction, write_deltalake
from tests.support import crash, soak, soak_judges

from floodmark.control.events.bodies import Advanced, Event, Succeeded
from floodmark.coordinator import Look, Outside
from floodmark.deltalog import DeltaLog
from floodmark.model.receipt import Receipt
from floodmark.model.state import SinkDone
from floodmark.model.window import Window
from floodmark.model.write import WriteMode, WriteSpec
from floodmark.testing import ArrowEngine
from floodmark.testing.arrow import ArrowSink

SPAN = (0.0, 100.0)


def ok(client: str, command: str, at: float = 0.0, **facts: Any) -> dict[str, Any]:
    return {"client": client, "command": command, "kind": "ok", "at": at, **facts}


def event(seq: int, body: Any) -> Event:
    return Event(seq, body, op_id="op", actor="somebody", at=datetime(2026, 1, 1, tzinfo=UTC))


class Forgetful(ArrowSink):
    """A sink that does not look for its receipt."""

    def committed(self, receipt: Receipt) -> None:
        return None

    def refuse_moved(self, table: Any, receipt: Receipt) -> None:
        """Whatever is there."""


class ForgetfulEngine(ArrowEngine):
    def sink(
        self, spec: WriteSpec, windows: Sequence[Window], previous: SinkDone | None
    ) -> Forgetful:
        return Forgetful(spec, tuple(windows), previous)


def tell_without_looking_for_receipts(root: str, mode: WriteMode) -> None:
    story = crash.Story(Path(root), mode)
    story.tell(story.coordinator(Outside(engine=ForgetfulEngine())))


def test_a_sink_that_does_not_look_for_its_receipt_is_refused(tmp_path: Path) -> None:
    """The target itself shows a batch that the journal does not know to be written."""
    log = tmp_path / "log"
    crash.run(crash.build_lake, tmp_path, log=log)
    armed = {"FLOODMARK_FAILPOINT": "sink.after_commit:5"}
    crash.run(crash.tell, str(tmp_path), "append", log=log, environment=armed)

    assert crash.run(tell_without_looking_for_receipts, str(tmp_path), "append", log=log) != 0

    assert "FM-SINK-015" in log.read_text()


def write_once_more(root: str) -> None:
    """What a sink does that does not look: the newest commit again, under the same receipt."""
    place = Path(root) / "sinks/second"
    table = crash.open_table(Path(root), "./sinks/second")
    newest = DeltaLog(str(place)).versions(table.version(), table.version())[0]
    receipts = [Transaction(app_id, number) for app_id, number in newest.transactions.items()]
    properties = CommitProperties(app_transactions=receipts)
    rows = QueryBuilder().register("t", table).execute("SELECT * FROM t LIMIT 1").read_all()
    write_deltalake(table, pa.table(rows), mode="append", commit_properties=properties)


def test_a_sink_that_does_not_look_for_its_receipt_is_caught(
    tmp_path: Path, undisturbed: dict[str, Any]
) -> None:
    log = tmp_path / "log"
    crash.run(crash.build_lake, tmp_path, log=log)
    armed = {"FLOODMARK_FAILPOINT": "sink.after_commit:5"}
    crash.run(crash.tell, str(tmp_path), "append", log=log, environment=armed)
    crash.run(write_once_more, str(tmp_path), log=log)
    crash.run(crash.tell, str(tmp_path), "append", log=log)
    state = crash.result(crash.end_state, str(tmp_path), log=log)
    assert state["rows"] != undisturbed["append"]["rows"]
    assert any("2 times" in problem for problem in state["problems"])


def test_an_acknowledgement_that_the_journal_does_not_know_is_found() -> None:
    done = [
        ok("p", "plan", batch_id="b1"),
        ok("r", "run", batch_id="b1", pipeline="copy"),
        ok("f", "finalize", batch_id="b1", advanced=["u"]),
    ]
    assert len(list(soak_judges.unacknowledged(done, []))) == 3
    known = [event(1, Succeeded("b1", "copy", 1)), event(2, Advanced("b1", {"u": 3}))]
    assert len(list(soak_judges.unacknowledged(done, known))) == 1


def test_what_happened_twice_is_found() -> None:
    advance = Advanced("b1", {"u": 3})
    assert list(soak_judges.repeated([event(1, advance), event(2, advance)]))
    assert not list(soak_judges.repeated([event(1, advance)]))


def test_a_watermark_that_moves_back_is_found_for_each_client() -> None:
    reads = [ok("a", "read", 1, marks={"u": 5}), ok("b", "read", 2, marks={"u": 4})]
    assert not list(soak_judges.moved_back(reads))
    assert list(soak_judges.moved_back([*reads, ok("a", "read", 3, marks={"u": 4})]))


def test_a_planner_that_gets_nothing_done_is_found_unless_it_was_away() -> None:
    others = [ok(c, "plan", t) for c in soak.ROLES for t in range(0, 100, 10) if c != "planner-1"]
    lonely = [*others, ok("planner-1", "plan", 20), ok("planner-1", "plan", 80)]
    assert list(soak_judges.starved(lonely, soak.PLANNERS, [], SPAN))
    assert not list(soak_judges.starved(lonely, soak.PLANNERS, [("planner-1", 25.0, 75.0)], SPAN))


def test_an_error_that_no_command_should_meet_is_found() -> None:
    line = {"client": "r", "command": "run", "kind": "fail", "code": "FM-CONTROL-010", "text": "x"}
    assert list(soak_judges.unexpected([line]))
    assert not list(soak_judges.unexpected([{**line, "code": "FM-CONTROL-006"}]))


def test_lost_and_doubled_rows_are_found(tmp_path: Path) -> None:
    log = tmp_path / "log"
    crash.run(soak.prepare, tmp_path, log=log)
    crash.run(soak.recover, tmp_path, log=log)
    assert crash.result(lost_amounts, tmp_path, log=log) == []
    crash.run(crash.append_rows, tmp_path, "./lake/orders", [(1, 1)], log=log)
    assert len(crash.result(lost_amounts, tmp_path, log=log)) == 3


def lost_amounts(root: Path) -> list[str]:
    return list(soak_judges.lost_amounts(root))


def tell_of_a_run_that_never_was(root: Path) -> None:
    write_diary(root, ok("runner-1", "run", batch_id="batch_x", pipeline="copy"))


def read_an_older_watermark(root: Path) -> None:
    reads = [ok("planner-1", "read", at, marks={"u": 5 - at}) for at in (1, 2)]
    write_diary(root, *reads)


def advance_twice(root: Path) -> None:
    """The journal itself takes no event twice, so it is the reading of it that repeats one."""
    history = Look.history

    def repeated(look: Look, limit: int | None = None) -> list[Event]:
        events = history(look, limit)
        return [*events, *(e for e in events if isinstance(e.body, Advanced))]

    Look.history = repeated  # type: ignore[method-assign, assignment]


def lose_a_row_of_a_sink(root: Path) -> None:
    crash.open_table(root, "./sinks/customers").delete("id = 1")


def double_the_rows_of_a_sink(root: Path) -> None:
    place = str(root / "sinks/first")
    rows = QueryBuilder().register("t", DeltaTable(place)).execute("SELECT * FROM t").read_all()
    write_deltalake(place, pa.table(rows), mode="append")


def write_diary(root: Path, *lines: dict[str, Any]) -> None:
    numbered = [{**line, "number": number} for number, line in enumerate(lines)]
    text = "".join(json.dumps(line) + "\n" for line in numbered)
    (root / "diary" / "somebody.1.jsonl").write_text(text)


def judged_after(tamper: Callable[[Path], None] | None, root: Path) -> list[str]:
    (root / "diary").mkdir(exist_ok=True)
    if tamper is not None:
        tamper(root)
    problems: list[str] = soak.judge(root, [], (0.0, soak_judges.STARVED_SECONDS))["problems"]
    return problems


@pytest.mark.parametrize(
    ("tamper", "says"),
    [
        (None, None),
        (tell_of_a_run_that_never_was, "the journal does not know it"),
        (read_an_older_watermark, "saw u move back to 3"),
        (advance_twice, "happened 2 times"),
        (lose_a_row_of_a_sink, "./sinks/customers holds"),
        (double_the_rows_of_a_sink, "./sinks/first holds"),
    ],
)
def test_the_judgement_of_a_soak_finds_what_was_tampered_with(
    tamper: Callable[[Path], None] | None, says: str | None, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    crash.run(soak.prepare, tmp_path, log=log)
    crash.run(soak.recover, tmp_path, log=log)

    problems = crash.result(judged_after, tamper, tmp_path, log=log)

    assert any(says in problem for problem in problems) if says else problems == []


def test_a_process_that_does_not_end_is_killed_and_told(tmp_path: Path) -> None:
    process = crash.start(time.sleep, 60, log=tmp_path / "log")
    with pytest.raises(TimeoutError):
        crash.ended(process, timeout=0.5)
    process.join(10)
    assert process.exitcode == -9
