"""What a long run shows while it works: a spinner on a terminal, plain lines elsewhere."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Self

from floodmark.cli.beside import STOP_SECONDS
from floodmark.cli.screen import STYLES, Screen, number
from floodmark.model import durations
from floodmark.next_steps import BATCH, command

if TYPE_CHECKING:
    from floodmark.cli.call import Call
    from floodmark.model import Batch
    from floodmark.project import PipelineOutcome


class Progress:
    """Watches a run and tells of it on standard error."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._screen: Screen = call.errors
        self._spinner: Any = None
        self._running: list[str] = []
        self._is_closed = False
        self._guard = threading.RLock()
        """Pipelines that run side by side tell of themselves from several threads."""

    def __enter__(self) -> Self:
        self._call.on_interrupt = self._close
        return self

    def __exit__(self, *_: object) -> None:
        with self._guard:
            self._stop()

    def _close(self) -> None:
        """Nothing moves on the screen once the command has said its last word."""
        with self._guard:
            self._stop()
            self._is_closed = True

    def planned(self, batch: Batch) -> None:
        """A batch is planned, or an open one was found."""
        with self._guard:
            is_first = not self._call.next
            what = f"batch {batch.batch_id} stands with its ranges"
            self._call.what_stays = (
                f"{what if is_first else 'the planned batches stand with their ranges'}; pipelines "
                "that have succeeded stay done, writes that committed are not repeated"
            )
            self._call.stop_seconds = STOP_SECONDS
            self._call.next = (
                command("retry", batch.batch_id or BATCH) if is_first else command("run")
            )
            word = "finishing the open batch" if batch.reused else "planned"
            self._say(f"scope {batch.scope}: {word} {batch.batch_id}")

    def starting_session(self) -> None:
        """Spark is about to start; that takes seconds."""
        with self._guard:
            self._wait("starting Spark")

    def started(self, pipeline: str, batch_id: str) -> None:
        """A pipeline begins."""
        del batch_id
        with self._guard:
            self._running.append(pipeline)
            self._wait(f"running {pipeline}", f"running {', '.join(self._running)}")

    def waiting(self, outcome: PipelineOutcome, delay_seconds: float) -> None:
        """A pipeline has failed and will be tried again."""
        code = outcome.error.code if outcome.error else ""
        with self._guard:
            self._end(outcome.name)
            self._say(
                f"{outcome.name}: attempt {outcome.attempts} {outcome.status} ({code}), "
                f"the next one in {durations.shown(delay_seconds)}"
            )
            self._wait_for_others()

    def finished(self, outcome: PipelineOutcome) -> None:
        """A pipeline has ended."""
        with self._guard:
            self._end(outcome.name)
            self._stop()
            self._tell(outcome)
            self._wait_for_others()

    def _tell(self, outcome: PipelineOutcome) -> None:
        if self._is_closed:
            return
        rows = f", {number(outcome.rows_written)} rows" if outcome.rows_written is not None else ""
        self._screen.line(
            f"{outcome.name}: ",
            (outcome.status, STYLES.get(outcome.status, "")),
            f"{rows}, {durations.shown(outcome.duration_seconds)}",
        )
        if outcome.already_applied:
            note = f"  already in {outcome.already_applied} from an earlier attempt, not repeated"
            self._screen.line((note, "dim"))

    def _say(self, text: str) -> None:
        if self._is_closed:
            return
        self._stop()
        self._screen.line((text, "dim"))

    def _end(self, pipeline: str) -> None:
        if pipeline in self._running:
            self._running.remove(pipeline)

    def _wait_for_others(self) -> None:
        if self._running and self._screen.is_terminal:
            self._wait(f"running {', '.join(self._running)}")

    def _wait(self, text: str, on_terminal: str | None = None) -> None:
        if self._is_closed:
            return
        self._stop()
        if not self._screen.is_terminal:
            self._screen.line(f"{text} ...")
            return
        from rich.progress import Progress as Bar
        from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

        self._spinner = Bar(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            TimeElapsedColumn(),
            console=self._screen.console,
            transient=True,
        )
        self._spinner.add_task(on_terminal or text, total=None)
        self._spinner.start()

    def _stop(self) -> None:
        if self._spinner is not None:
            self._spinner.stop()
            self._spinner = None
