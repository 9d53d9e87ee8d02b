"""`upkeep --keep-rows`: old rows move to the archive, and every answer stays as it is."""

from __future__ import annotations

import shutil
import signal
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from tests.support import crash
from tests.support.crash import Story, build_lake, churn_lake, end_state
from tests.support.outsides import ON_ARROW

import floodmark as fm
from floodmark import failpoints
from floodmark.control.published import projections
from floodmark.control.published.archive import AGING
from floodmark.control.published.reading import read_published
from floodmark.deltalog import Storage
from floodmark.errors import ControlError
from floodmark.model.clock import SystemClock
from floodmark.report.runs import tracks

DAY = 86_400.0
AGES = (500, 300, 1)
"""How many days ago each batch of the story was planned and run."""
POLICY = 400 * DAY
INSIDE = 2
"""The batches of the story that the policy keeps."""


class Past(SystemClock):
    """A clock that is some days behind."""

    def __init__(self, days: float) -> None:
        self.days = days

    def now(self) -> datetime:
        return datetime.now(UTC) - timedelta(days=self.days)


def coordinator_of(root: Path, days: float = 0.0) -> fm.Coordinator:
    outside = replace(ON_ARROW, clock=Past(days))
    return fm.Coordinator(str(root / "control"), actor="story", base=str(root), outside=outside)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Three finished batches, the first of them older than the policy."""
    build_lake(tmp_path)
    story = Story(tmp_path, "append")
    for number, days in enumerate(AGES):
        coordinator = coordinator_of(tmp_path, days)
        story.register(coordinator)
        story.step(coordinator)
        churn_lake(tmp_path, number)
    return tmp_path


def rows_of(path: Path | str, query: str = "SELECT * FROM t") -> list[dict[str, Any]]:
    table = read_published(str(path), Storage(), query)
    return [] if table is None else table.to_pylist()


def keys_of(path: Path | str, name: str) -> Counter[tuple[Any, ...]]:
    names = ", ".join(AGING[name].key)
    return Counter(tuple(row.values()) for row in rows_of(path, f"SELECT {names} FROM t"))


def answers(root: Path) -> dict[str, Any]:
    """Everything that people ask a store."""
    coordinator = coordinator_of(root)
    return {
        "verify": [(f.name, f.ok, f.text) for f in coordinator.verify()],
        "gaps": coordinator.gaps(),
        "history": coordinator.history(),
        "checkpoints": coordinator.checkpoints(),
        "tracks": tracks(coordinator.look.state(), str(root / "control"), Storage()),
        "lag": [(lag.upstream, lag.versions_behind) for lag in coordinator.lag()],
        "sql": [rows_of(root / "control" / name, query) for name, query in SEED_SQL.items()],
    }


SEED_SQL = {
    # The newest batches only: what the policy keeps.
    "pipeline_checkpoints": """
        SELECT pipeline_name, batch_id, status FROM (
          SELECT *, row_number() OVER (PARTITION BY pipeline_name, batch_id
                                       ORDER BY processed_ts DESC) AS rn,
                 dense_rank() OVER (ORDER BY substr(batch_id, 1, 21) DESC) AS age FROM t) AS x
        WHERE rn = 1 AND age <= 2 ORDER BY batch_id, pipeline_name""",
    "watermarks": """
        SELECT batch_id, table_name, start_version, end_version, status, update_ts FROM t
        WHERE batch_seq > 1 ORDER BY batch_seq, table_name""",
    "committed_watermarks": "SELECT * FROM t ORDER BY table_name",
    "pipeline_registry": "SELECT * FROM t ORDER BY pipeline_name",
}


def everything(root: Path) -> dict[str, Counter[tuple[Any, ...]]]:
    """The keys of all rows, wherever they are."""
    control = root / "control"
    return {
        name: keys_of(control / name, name) + keys_of(control / "archive" / name, name)
        for name in AGING
    }


def test_old_rows_move_to_the_archive_and_every_answer_stays(root: Path) -> None:
    before, all_rows = answers(root), everything(root)

    done = coordinator_of(root).admin.upkeep(keep_rows="400d")

    control = root / "control"
    assert set(done.archived) == set(AGING)
    assert everything(root) == all_rows
    for name, aging in AGING.items():
        column = "planned" if name == "watermarks" else aging.age
        ages = [row[aging.age] for row in rows_of(control / "archive" / name)]
        assert ages, column
        assert max(ages) < datetime.now(UTC) - timedelta(days=400)
    seqs = {row["batch_seq"] for row in rows_of(control / "watermarks")}
    assert len(seqs) == INSIDE
    kinds = [
        r["kind"] for r in rows_of(control / "history", "SELECT * FROM t ORDER BY seq LIMIT 1")
    ]
    assert kinds == ["CREATE"]
    assert answers(root) == before


def test_without_a_policy_every_row_stays(root: Path) -> None:
    before = everything(root)

    done = coordinator_of(root).admin.upkeep()

    assert done.archived == {}
    assert not (root / "control/archive").exists()
    assert everything(root) == before


def test_a_second_upkeep_moves_nothing_and_a_later_one_what_has_become_old(root: Path) -> None:
    all_rows = everything(root)
    coordinator_of(root).admin.upkeep(keep_rows=POLICY)

    assert coordinator_of(root).admin.upkeep(keep_rows=POLICY).archived == {}
    later = coordinator_of(root, days=-150).admin.upkeep(keep_rows=POLICY)

    assert later.archived["watermarks"] == 2
    assert everything(root) == all_rows
    assert all(f.ok for f in coordinator_of(root).verify())


def test_a_pipeline_that_no_longer_runs_keeps_its_last_success(root: Path) -> None:
    """Else monitoring would say that it never succeeded."""
    coordinator_of(root).pause("wide")
    for _ in range(2):
        churn_lake(root, 30)
        Story(root, "append", pipelines=("copy",)).step(coordinator_of(root))
    before = answers(root)

    coordinator_of(root).admin.upkeep(keep_rows=0)

    assert answers(root) == before | {"sql": answers(root)["sql"]}


def test_an_open_batch_keeps_all_of_its_rows(root: Path) -> None:
    story, old = Story(root, "append"), coordinator_of(root, 450)
    batch = old.create_batch()
    old.record_run("copy", str(batch.batch_id), status="FAILED", error="long ago")

    coordinator_of(root).admin.upkeep(keep_rows=0)

    numbers = {row["batch_seq"] for row in rows_of(root / "control/watermarks")}
    assert numbers == {len(AGES), len(AGES) + 1}  # and the one of the newest success
    kinds = {r["kind"] for r in rows_of(root / "control/history")}
    assert {"CREATE", "PLAN", "FAILED"} <= kinds
    story.step(coordinator_of(root))
    assert end_state(str(root))["problems"] == []


def test_a_batch_in_the_archive_is_found_by_its_id(root: Path) -> None:
    (first,) = [e["batch_id"] for e in _history(root) if e["kind"] == "PLAN"][:1]
    before = coordinator_of(root).frozen_set(first)

    coordinator_of(root).admin.upkeep(keep_rows=0)

    assert coordinator_of(root).frozen_set(first) == before


def _history(root: Path) -> list[dict[str, Any]]:
    return rows_of(root / "control/history", "SELECT * FROM t ORDER BY seq")


def test_a_gap_from_before_the_policy_is_still_shown(root: Path) -> None:
    upstream = str(root / "lake/orders")
    for number in (20, 21):
        churn_lake(root, number)
    old = coordinator_of(root, 450)
    mark = next(c.version for c in old.checkpoints() if c.upstream == upstream)
    old.admin.reset(upstream, to_version=mark + 2)
    before = coordinator_of(root).gaps()

    coordinator_of(root).admin.upkeep(keep_rows=0)

    assert before
    assert coordinator_of(root).gaps() == before


@pytest.mark.parametrize("lost", [(), ("watermarks", "pipeline_checkpoints", "history")])
def test_a_rebuild_writes_what_the_policy_kept(root: Path, lost: tuple[str, ...]) -> None:
    coordinator_of(root).admin.upkeep(keep_rows=POLICY)
    control = root / "control"
    before = {name: keys_of(control / name, name) for name in AGING}
    answered = answers(root)
    if lost:
        coordinator_of(
            root
        ).admin.upkeep()  # the tables that are lost next are in the journal no more
    for name in lost[:2]:
        shutil.rmtree(control / name)

    is_complete = coordinator_of(root).admin.rebuild_tables()

    assert is_complete
    assert {name: keys_of(control / name, name) for name in AGING} == before
    assert answers(root) == answered


def test_an_export_holds_the_archive_and_fills_an_empty_place_only(root: Path) -> None:
    coordinator_of(root).admin.upkeep(keep_rows=POLICY)
    content = coordinator_of(root).admin.export_state(str(root / "store.jsonl"))
    for name in ("_journal", "watermarks", "pipeline_checkpoints", "history"):
        shutil.rmtree(root / "control" / name)

    with pytest.raises(ControlError) as refused:
        coordinator_of(root).admin.import_state(str(root / "store.jsonl"))
    shutil.rmtree(root / "control")
    imported = coordinator_of(root).admin.import_state(str(root / "store.jsonl"))

    assert refused.value.code == "FM-CONTROL-021"
    assert imported.events == content.events == len(coordinator_of(root).history())
    assert all(f.ok for f in coordinator_of(root).verify())


def test_a_store_with_an_archive_is_restored_from_its_targets(root: Path) -> None:
    coordinator_of(root).admin.upkeep(keep_rows=POLICY)
    marks = {c.upstream: c.version for c in coordinator_of(root).checkpoints()}
    shutil.rmtree(root / "control")
    targets = [str(root / t) for writes in crash.WRITES.values() for _, t in writes]

    coordinator_of(root).admin.rebuild_from_targets(targets)

    assert {c.upstream: c.version for c in coordinator_of(root).checkpoints()} == marks
    Story(root, "append").register(coordinator_of(root))
    Story(root, "append").step(coordinator_of(root))
    coordinator_of(root, days=-500).admin.upkeep(keep_rows=POLICY)
    assert all(f.ok for f in coordinator_of(root).verify())


def test_an_archive_that_was_taken_away_is_said_and_nothing_breaks(root: Path) -> None:
    coordinator_of(root).admin.upkeep(keep_rows=POLICY)
    shutil.rmtree(root / "control/archive")
    control = root / "control"
    before = {name: keys_of(control / name, name) for name in AGING}

    problems = [f.name for f in coordinator_of(root).verify() if not f.ok]
    is_complete = coordinator_of(root).admin.rebuild_tables()
    Story(root, "append").step(coordinator_of(root))
    folded = coordinator_of(root).admin.upkeep(keep_rows=POLICY).folded_events

    assert "history" in problems
    assert not is_complete
    assert all(keys_of(control / name, name) >= rows for name, rows in before.items())
    assert folded > 1


def test_small_files_of_the_archive_are_joined(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(projections, "SMALL_FILES", 2)
    story, counts = Story(root, "append"), []
    for number in range(30, 36):
        churn_lake(root, number)
        story.step(coordinator_of(root))
        coordinator_of(root).admin.upkeep(keep_rows=0)
        counts.append(DeltaTable(root / "control/archive/history").get_add_actions().num_rows)

    assert max(counts) <= 3
    assert all(count == 1 for keys in everything(root).values() for count in keys.values())
    assert all(f.ok for f in coordinator_of(root).verify())


def test_the_archive_of_another_store_is_refused(root: Path, tmp_path_factory: Any) -> None:
    other = tmp_path_factory.mktemp("other")
    build_lake(other)
    Story(other, "append").tell()
    coordinator_of(root).admin.upkeep(keep_rows=POLICY)
    coordinator_of(other).admin.upkeep()
    shutil.copytree(root / "control/archive", other / "control/archive")
    history = _history(other)

    for call in (
        lambda: coordinator_of(other).admin.upkeep(keep_rows=0),
        lambda: coordinator_of(other).verify(),
    ):
        with pytest.raises(ControlError) as refused:
            call()
        assert refused.value.code == "FM-CONTROL-031"
    assert _history(other) == history


# Killed in the middle, and beside others ----------------------------------------------------------


def keep_rows(root: str) -> None:
    coordinator_of(Path(root)).admin.upkeep(keep_rows=POLICY)


@pytest.mark.parametrize("point", failpoints.ARCHIVE_POINTS)
def test_killed_anywhere_no_row_is_lost_or_archived_twice(root: Path, point: str) -> None:
    all_rows, before, log = everything(root), answers(root), root / "log"

    # In each of the tables; those that were moved before are not passed again.
    for nth in (1, 1, 1) if point == "archive.after_move" else (1, 2, 2):
        armed = {"FLOODMARK_FAILPOINT": f"{point}:{nth}"}
        code = crash.run(keep_rows, str(root), log=log, environment=armed)

        assert code == -signal.SIGKILL, log.read_text()
        left = everything(root)
        archived = {name: keys_of(root / "control/archive" / name, name) for name in AGING}
        assert all(left[name].keys() == all_rows[name].keys() for name in AGING)
        assert all(set(rows.values()) <= {1} for rows in archived.values())
        assert answers(root) == before
    Story(root, "append").step(coordinator_of(root))  # ordinary commands
    coordinator_of(root).admin.rebuild_tables()
    coordinator_of(root).admin.upkeep(0, allow_short=True, keep_rows=POLICY)
    assert end_state(str(root))["problems"] == []
    assert all(set(rows.values()) == {1} for rows in everything(root).values())
    assert everything(root)["history"].keys() >= all_rows["history"].keys()


def test_upkeeps_beside_one_another_and_beside_pipelines_lose_and_double_nothing(
    root: Path,
) -> None:
    log, all_rows = root / "log", everything(root)
    keepers = [crash.start(keep_rows, str(root), log=log) for _ in range(3)]

    for number in range(2):
        churn_lake(root, 50 + number)
        Story(root, "append").step(coordinator_of(root))
    codes = [crash.ended(keeper) for keeper in keepers]

    assert codes == [0, 0, 0], log.read_text()
    left = everything(root)
    assert all(set(rows.values()) == {1} for rows in left.values())
    assert all(left[name].keys() >= all_rows[name].keys() for name in AGING)
    judged = end_state(str(root))
    assert (judged["problems"], judged["history"]) == ([], [])


@pytest.mark.parametrize(
    "point",
    [
        *("project.before", "project.between_tables", "project.after"),
        *("compact.before_commit", "compact.after_commit"),
        *("cleanup.mid", "cleanup.mid:9"),
    ],
)
def test_killed_before_and_behind_its_move_every_answer_stays(root: Path, point: str) -> None:
    all_rows, before, log = everything(root), answers(root), root / "log"
    armed = {"FLOODMARK_FAILPOINT": point}

    code = crash.run(keep_rows_and_no_files, str(root), log=log, environment=armed)

    assert code == -signal.SIGKILL, log.read_text()
    assert answers(root) == before
    assert all(everything(root)[name].keys() == all_rows[name].keys() for name in AGING)
    keep_rows_and_no_files(str(root))
    assert all(set(rows.values()) == {1} for rows in everything(root).values())
    assert answers(root) == before


def keep_rows_and_no_files(root: str) -> None:
    coordinator_of(Path(root)).admin.upkeep(0, allow_short=True, keep_rows=POLICY)


@pytest.mark.parametrize("nth", [1, 2, 3])
@pytest.mark.parametrize("point", failpoints.ARCHIVE_POINTS)
def test_a_rebuild_of_a_store_that_was_killed_in_its_move_gives_the_same_answers(
    root: Path, point: str, nth: int
) -> None:
    all_rows, before, log = everything(root), answers(root), root / "log"
    armed = {"FLOODMARK_FAILPOINT": f"{point}:{nth}"}
    assert crash.run(keep_rows, str(root), log=log, environment=armed) == -signal.SIGKILL

    for name in ("watermarks", "pipeline_checkpoints"):
        shutil.rmtree(root / "control" / name)
    coordinator_of(root).admin.rebuild_tables()

    assert answers(root) == before
    assert all(everything(root)[name].keys() == all_rows[name].keys() for name in AGING)
    coordinator_of(root).admin.upkeep(keep_rows=POLICY)
    assert all(set(rows.values()) == {1} for rows in everything(root).values())
    assert answers(root) == before
