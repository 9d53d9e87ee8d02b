"""Planning looks at each upstream once, outside of the journal, and never plans an outdated look."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.support.outsides import ON_ARROW

import floodmark as fm
from floodmark.coordinator import Outside
from floodmark.coordinator.probing import UpstreamProber
from floodmark.deltalog import Storage
from floodmark.model import Mark, Probe, SystemClock, UpstreamOptions

Append = Callable[..., str]
WAIT_SECONDS = 20.0


class WatchedProber(UpstreamProber):
    """Counts the looks at each upstream, and tells when one is taken."""

    def __init__(self, looks: Counter[str], after_look: Callable[[], None]) -> None:
        super().__init__(Storage(), None, {}, SystemClock(), lambda upstream: upstream)
        object.__setattr__(self, "looks", looks)
        object.__setattr__(self, "after_look", after_look)

    def of(self, pipelines: Iterable[str]) -> WatchedProber:
        return self

    def probe(
        self,
        upstream: str,
        mark: Mark | None,
        options: UpstreamOptions,
        max_versions: int | None = None,
    ) -> Probe:
        probe = super().probe(upstream, mark, options, max_versions)
        watched: Any = self
        watched.looks[Path(upstream).name] += 1
        watched.after_look()
        return probe


def watched(looks: Counter[str], after_look: Callable[[], None] = lambda: None) -> Outside:
    return replace(ON_ARROW, prober=WatchedProber(looks, after_look))


def copy(inputs: Any, run: Any) -> None:
    for name, frame in inputs.items():
        run.write(frame, f"{name}-copy", mode="append")


def test_a_run_of_a_project_looks_at_each_upstream_once(tmp_path: Path, grow: Append) -> None:
    grow("orders"), grow("users")
    (tmp_path / "floodmark.yaml").write_text(
        "project: shop\npipelines:\n"
        "  - {pipeline: p, upstreams: [./orders, ./users], function: 'work:copy'}\n"
    )
    (tmp_path / "work.py").write_text(
        "def copy(inputs, run):\n"
        "    for name, frame in inputs.items():\n"
        "        run.write(frame, f'{name}-copy', mode='append')\n"
    )
    looks: Counter[str] = Counter()
    project = fm.Project.load(tmp_path, outside=watched(looks), session=lambda: None)

    summary = project.run()

    assert summary.exit_code == 0
    assert looks == {"orders": 1, "users": 1}


def test_others_use_the_journal_while_an_upstream_is_looked_at(
    tmp_path: Path, grow: Append
) -> None:
    orders = grow("orders")
    answered: list[bool] = []

    def look_at_the_store() -> None:
        thread = threading.Thread(target=coordinator.look.state)
        thread.start()
        thread.join(WAIT_SECONDS)
        answered.append(not thread.is_alive())

    outside = watched(Counter(), look_at_the_store)
    coordinator = fm.Coordinator(str(tmp_path / "_control"), outside=outside)
    coordinator.register("p", [orders])

    coordinator.create_batch([orders])

    assert answered == [True]


def test_a_look_from_before_the_end_moved_is_taken_again(tmp_path: Path, grow: Append) -> None:
    orders = grow("orders")
    other = fm.Coordinator(str(tmp_path / "_control"), outside=ON_ARROW)
    other.register("p", [orders])
    looks: Counter[str] = Counter()

    def be_overtaken() -> None:
        if looks["orders"] > 1:
            return
        batch = other.create_batch([orders])
        other.run_pipeline("p", str(batch.batch_id), copy)
        other.finalize_batch(str(batch.batch_id))
        grow("orders")

    outside = watched(looks, be_overtaken)
    batch = fm.Coordinator(str(tmp_path / "_control"), outside=outside).create_batch([orders])

    assert looks["orders"] == 2
    assert [(window.start, window.end) for window in batch.windows] == [(1, 1)]
