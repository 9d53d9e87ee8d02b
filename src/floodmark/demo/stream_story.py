"""The story of a stream: killed in the middle of a batch, robbed of its checkpoint, complete."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from rich.markup import escape

from floodmark.demo.events import POISON_EVERY, Events
from floodmark.demo.story import (
    command,
    console,
    environment,
    fresh_folder,
    inside,
    program_from,
    say,
    show_commands,
    show_truths,
    shown,
)
from floodmark.engines import kafka_server, postgres_server
from floodmark.engines.java import FEW_ROWS

FIRST, MORE, LATE = 10_000, 5_000, 3
KILLED_AT = "stream.before_tracker:3"
"""In the third batch: its rows are copied, its offsets are not yet written."""


def tell(folder: str) -> int:
    """Start broker and database, tell the story, return 0 if every truth holds in the end."""
    started = time.monotonic()
    os.environ.setdefault("SPARK_SUBMIT_OPTS", FEW_ROWS)
    root = Path(folder).absolute()
    fresh_folder(root, "floodmark demo --stream another-folder")
    with inside(root), services(root) as events:
        events_arrive(events)
        killed_in_a_batch(events)
        without_its_checkpoint(events)
        started_again()
        is_true = nothing_lost_nothing_doubled(events)
    what_next(root, time.monotonic() - started)
    return 0 if is_true else 1


@contextmanager
def services(root: Path) -> Iterator[Events]:
    """A broker and a database of the demo's own, and a stream from one to the other."""
    say("A broker and a database", "Kafka and PostgreSQL on this machine, only for this demo")
    with ExitStack() as stack:
        with console.status("starting Kafka"):
            kafka = stack.enter_context(kafka_server.running())
        with console.status("starting PostgreSQL"):
            postgres = stack.enter_context(postgres_server.running())
        events = Events(root, kafka, postgres)
        stack.enter_context(environment(FLOODMARK_CREDENTIAL_DEMO=postgres.password))
        events.prepare()
        console.print(f"  Kafka       {kafka.bootstrap}, topic events with 2 partitions")
        console.print(f"  PostgreSQL  {postgres.host}:{postgres.port}")
        command("stream", "validate", "stream.json")
        yield events


def events_arrive(events: Events) -> None:
    say("Events arrive", f"{FIRST:,} of them, numbered; one of {POISON_EVERY:,} is no JSON")
    with console.status("sending"):
        events.send(FIRST)


def killed_in_a_batch(events: Events) -> None:
    say(
        "Killed in the middle",
        "kill -9 in the third batch: its rows are copied, its offsets are not written",
    )
    kill_a_run()
    events.show("SELECT count(*) AS rows FROM events")
    events.show(
        "SELECT batch_id, record_count, written, dead_lettered FROM batch_tracker ORDER BY 1"
    )
    console.print("[dim]two batches are there with all they have, and nothing of the third[/]")


def without_its_checkpoint(events: Events) -> None:
    say("It gets worse", "somebody deletes Spark's checkpoint, and more events arrive")
    console.print("\n[bold cyan]$ rm -r checkpoint[/]")
    shutil.rmtree("checkpoint")
    with console.status("sending"):
        events.send(MORE, late=LATE)
    console.print(f"  {MORE:,} more events, {LATE} that come a year late")


def started_again() -> None:
    say("And again", "the database knows where the stream stands, and it goes on there")
    command("stream", "run", "stream.json")


def nothing_lost_nothing_doubled(events: Events) -> bool:
    say("Nothing lost, nothing doubled", "every record is a row, a dead letter, or was dropped")
    events.show(
        "SELECT sum(record_count) AS received, sum(written) AS written,"
        " sum(dead_lettered) AS dead_lettered, sum(dropped) AS dropped FROM batch_tracker"
    )
    events.show("SELECT count(*) AS rows, count(DISTINCT id) AS ids FROM events")
    events.show("SELECT reason, count(*) AS records FROM floodmark_dead_letters GROUP BY reason")
    console.print()
    is_true = show_truths(events.truths())
    command("stream", "status", "stream.json")
    return is_true


def what_next(root: Path, seconds: float) -> None:
    say("Yours to try", f"the demo took {seconds:.0f} s; its stream is {shown(root)}/stream.json")
    console.print("[dim]broker and database are gone; name yours in it, and it runs with them[/]")
    program = program_from(root)
    show_commands(
        f"cd {shown(root)}",
        "less stream.json schemas/event.ddl",
        f"{program} stream validate stream.json",
    )


def kill_a_run() -> None:
    """`floodmark stream run` as a process of its own that dies by SIGKILL inside of a batch."""
    words = f"FLOODMARK_FAILPOINT={KILLED_AT} floodmark stream run stream.json"
    console.print(f"\n[bold cyan]$ {escape(words)}[/]")
    sys.stdout.flush()
    process = subprocess.Popen(
        [sys.executable, "-m", "floodmark", "stream", "run", "stream.json"],
        env={**os.environ, "FLOODMARK_FAILPOINT": KILLED_AT},
        start_new_session=True,
    )
    try:
        code = process.wait()
    finally:
        # Its JVM goes with it, as it would with the machine; so nobody writes to the checkpoint.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    if code != -signal.SIGKILL:
        raise SystemExit(f"the run should have been killed, but ended with {code}")
    console.print("  Killed")
