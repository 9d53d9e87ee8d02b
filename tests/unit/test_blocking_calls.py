"""Nothing waits for ever: every call that can block has a limit, of its own or by the list below."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path

import pytest
from tests.unit.blocking_calls import Call, blocking_calls

import floodmark

PACKAGE = Path(floodmark.__file__).parent

LIMITED_BY = {
    "timeout: of the pipeline (FM-RUN-007): its Spark jobs are cancelled, a JVM that hangs is not"
    " waited for (run/limits.py)": (
        "engines/arrow_frames.py _encoded.toLocalIterator",
        "engines/jvm.py channel.tryLock",
        "engines/jvm.py frame.count",
        "engines/jvm.py select.count",
        "run/nodes/*.py agg.collect",
        "run/nodes/side_by_side.py _changed.wait",
        "run/limits.py call.wait",
        "run/landings.py with _turn",
        "run/nodes/counted.py with guard",
        "run/nodes/outputs.py with guard",
        "run/nodes/side_by_side.py with _changed",
        "sources/files/looks.py pool.map",
        "sources/files/rows.py pool.map",
        "sinks/delta/write.py *.collect",
        "sinks/delta/write.py *.execute",
        "sinks/delta/write.py *.load",
        "sinks/delta/write.py *.save",
        "sinks/delta/write.py *.sql",
        "sinks/files/write.py writer.save",
        "sources/http/answers.py schema.json",
        "sources/delta/old_versions.py *",
        "sources/delta/spool.py reader.parquet",
        "sources/files/rows.py reader.load",
        "transforms/*.py *.sql",
        "transforms/steps.py call",
    ),
    "Spark itself, while a plan is made: spark.task.maxFailures, and the timeouts of drivers"
    " (jdbc._PATIENCE) and catalogs; the command shows for what it waits": (
        "engines/catalog.py *",
        "engines/jvm.py range.collect",
        "sinks/delta/names.py *.sql",
        "sources/delta/catalog_log.py *",
        "sources/cursor/jdbc.py *",
        "sources/delta/catalog_names.py *",
        "sources/time/read.py *",
        "sources/cursor/sql/own_values.py spark.sql",
        "sources/cursor/database.py self.jdbc",
    ),
    "a stream: Spark's retries of tasks, Kafka's kafkaConsumer.pollTimeoutMs, stopTimeout of our"
    " sessions": (
        "streaming/query.py *",
        "streaming/records/read.py reader.load",
        "streaming/records/judged_letters.py *",
        "streaming/records/state.py *",
        "streaming/records/target_rules.py *",
    ),
    "writeTimeout of a stream (FM-STREAM-055): statements, COMMIT and jobs of Spark of a batch are"
    " ended (streaming/ledger/limits.py)": (
        "streaming/load/delta.py ledger.commit",
        "streaming/load/postgres.py ledger.commit",
        "streaming/load/staging.py results.collect",
    ),
    "LOGIN_SECONDS of the socket": ("engines/kafka_refusals.py *",),
    "PostgreSQL: connect_timeout and keepalives (postgres._PATIENCE), lock_timeout (limit_locks);"
    " a statement by timeout: of the pipeline, which cancels it (open_connections)": (
        "postgres/open_connections.py connect",
        "postgres/connect.py driver.connect",
        "postgres/connect.py cursor.execute",
        "postgres/rows/*.py *",
        "postgres/transactions/*.py *",
        "sinks/postgres.py *",
        "sinks/postgres_target.py *",
        "sources/cursor/sql/probes.py *",
        "streaming/ledger/postgres.py *",
        "streaming/load/rows.py *",
        "streaming/outbox/relay.py *",
        "streaming/load/stage_task.py *",
        "streaming/load/staged_letters.py *",
        "streaming/load/staging.py *",
        "streaming/load/target.py run",
    ),
    "delta-rs: its object store gives a request up after 30 s and retries after 3 minutes"
    " (storage_options timeout, retry_timeout); a local disk answers or fails": (
        "control/published/archive.py *",
        "control/journal/delta.py *",
        "control/published/projections.py *",
        "control/published/reading.py *",
        "control/upkeep/retention.py DeltaTable",
        "run/claims.py DeltaTable",
        "sources/delta/delta_rs.py *",
        "sources/cursor/sql/own_values.py *",
        "sources/time/probe.py *",
        "streaming/ledger/delta.py *",
        "streaming/ledger/delta_letters.py *",
        "streaming/outbox/delta.py *",
    ),
    "a lock of this process, held while values in memory change": (
        "cli/progress.py with _guard",
        "postgres/open_connections.py with _guard",
        "failpoints.py with _guard",
        "observe/stages.py with _guard",
        "run/landings.py with _guard",
        "run/writes.py with _guard",
        "sources/row_counts.py with _guard",
        "streaming/running/breaker.py with _guard",
        "streaming/running/metrics.py with _guard",
    ),
    "a lock of this process, held while files of the control store are read and written: as delta-rs": (
        "control/heartbeats.py with _guard",
        "control/journal/journal.py with _guard",
        "coordinator/store.py with _opening",
    ),
    "timeout: of the connection, for each request as a whole (http._TimeLimit)": (
        "sources/http/api.py answer.read1",
        "sources/http/api.py super.connect",
    ),
    "MAX_ATTEMPTS of the journal (FM-CONTROL-009); a commit as delta-rs": (
        "control/upkeep/upkeep.py *compact",
        "coordinator/*.py *.commit",
        "finalize/__init__.py store.commit",
        "run/leases.py *.commit",
    ),
    "LOCK_NB: the lock is had at once or not at all": ("control/turns.py fcntl.flock",),
    "lease_ttl: a Pulse beats until its run has ended": ("control/heartbeats.py _stop.wait",),
    "timeout: of each pipeline, and a signal: threads work for the caller": (
        "work/pool.py thread.join",
        "work/pool.py with _places",
    ),
    "a signal: it serves until it is told to stop": ("cli/metrics.py thread.join",),
    "START_SECONDS of our own servers, for the demo and tests": (
        "engines/kafka_server.py *",
        "engines/postgres_server.py *",
    ),
    "MAKE_TIMEOUT_SECONDS of the process that it runs in": ("engines/class_archive.py *",),
    "SPARK_LAUNCHER: Spark's own start of a JVM, told on the screen": (
        "engines/spark.py builder.getOrCreate",
        "project/session.py with _starting",
        "streaming/together.py with _guard",
    ),
    "the user's own code, in a template": ("templates/*.py *",),
}
"""By setting: file and callee, with wildcards."""

NO_WAIT = (
    # A thread begins, or a position, a text, a value of a dictionary: nothing is waited for.
    "* project.select", "* definitions.select", "* report.take", "* frame.select", "* *thread.start", "* waiting.start", "* helper.start", "* timer.start", "* _timer.start", "* Thread.start",
    "* _thread.start", "* match.start", "* end.start", "* token.start", "* number.start", "* stdout.flush",
    "* _LOOKED_AT.get", "* get.get", "* search.*", "* tally.take", "* table.take", "* course.take",
    "* self.result", "* _target.result", "* folder.json", "* folder.text", "* pickle.load",
    "* copy", "* load", "* put", "* count", "* letters.count", "* copy.copy", "* into.copy",
    "* office.acquire", "* node.execute", "* Project.load", "* Stream.load", "* installed.load", "* _spinner.*",
    "* data_type.sql", "* query.sql", "* part.sql", "* parsed.sql", "* projector.compact",
    "* Projector.compact", "* compact", "* built.sql", "* schema.json",
)  # fmt: skip


@pytest.fixture(scope="module")
def unlimited() -> list[Call]:
    return [call for call in blocking_calls(PACKAGE) if not call.has_limit]


def names(call: Call) -> str:
    return f"{call.where.partition('::')[0]} {call.callee}"


def is_listed(call: Call) -> bool:
    listed = (*NO_WAIT, *(each for group in LIMITED_BY.values() for each in group))
    return any(fnmatchcase(names(call), pattern) for pattern in listed)


def test_every_call_that_can_block_has_a_limit(unlimited: list[Call]) -> None:
    unknown = [
        f"{call.where.partition('::')[0]}:{call.line} {call.callee} in {call.where}"
        for call in unlimited
        if not is_listed(call)
    ]

    assert unknown == [], "give the call a timeout, or list the setting that limits it"


def test_the_list_names_nothing_that_is_gone(unlimited: list[Call]) -> None:
    there = {names(call) for call in unlimited}
    listed = [each for group in LIMITED_BY.values() for each in group]

    assert [p for p in listed if not any(fnmatchcase(name, p) for name in there)] == []


@pytest.mark.parametrize(
    ("code", "callee"),
    [
        ("thread.join()", "thread.join"),
        ("queue.get()", "queue.get"),
        ("lock.acquire()", "lock.acquire"),
        ("future.result()", "future.result"),
        ("event.wait()", "event.wait"),
        ("import subprocess\nsubprocess.run(['x'])", "subprocess.run"),
        ("process.communicate()", "process.communicate"),
        ("cursor.execute('SELECT 1')", "cursor.execute"),
        ("psycopg.connect(dsn)", "psycopg.connect"),
        ("producer.flush()", "producer.flush"),
        ("consumer.poll()", "consumer.poll"),
        ("frame.collect()", "frame.collect"),
        ("DeltaTable(path)", "DeltaTable"),
        ("urlopen(url)", "urlopen"),
        ("query.awaitTermination()", "query.awaitTermination"),
        ("ready.select()", "ready.select"),
        ("build_opener().open(request)", "build_opener.open"),
        ("connection.getresponse()", "connection.getresponse"),
        ("connection.request('GET', '/')", "connection.request"),
        ("answer.read1(size)", "answer.read1"),
        ("process.stdout.readline()", "stdout.readline"),
        ("import threading\nguard = threading.Lock()\nwith guard:\n    pass", "with guard"),
        (
            "import threading\n\n\ndef turn() -> threading.Lock: ...\n\n\nwith turn():\n    pass",
            "with turn",
        ),
    ],
)
def test_the_finder_finds_each_kind(code: str, callee: str, tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text(code)

    assert [(call.callee, call.has_limit) for call in blocking_calls(tmp_path)] == [(callee, False)]


@pytest.mark.parametrize(
    "code",
    [
        "thread.join(5)",
        "queue.get(timeout=5)",
        "event.wait(WAIT_SECONDS)",
        "future.result(self._seconds)",
        "import subprocess\nsubprocess.run(['x'], timeout=5)",
        "producer.flush(2 * self._seconds)",
    ],
)
def test_a_call_may_say_its_limit_itself(code: str, tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text(code)

    assert all(call.has_limit for call in blocking_calls(tmp_path))


def test_text_that_is_joined_and_dictionaries_that_are_asked_wait_for_nobody(
    tmp_path: Path,
) -> None:
    (tmp_path / "m.py").write_text("', '.join(names)\nknown.get('a')\n'a'.count('b')")

    assert list(blocking_calls(tmp_path)) == []
