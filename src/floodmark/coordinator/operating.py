"""What operators do to pipelines, and with ranges that are committed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence

from floodmark.control import operations
from floodmark.control.events import Body, Planned
from floodmark.control.journal import number_events
from floodmark.control.rules import fold
from floodmark.coordinator.probes import Probes, commit_plan, frozen_lookups
from floodmark.coordinator.store import Store
from floodmark.errors import SourceError
from floodmark.model import (
    DEFAULT_SCOPE,
    Batch,
    BatchKind,
    Draft,
    Mark,
    PlannedBatch,
    Probe,
    State,
    UpstreamOptions,
    Window,
    batch_view,
)
from floodmark.plan import lookups, rerun
from floodmark.sinks import refuse_harm

log = logging.getLogger("floodmark")


class Operating:
    """What operators do to pipelines, and with ranges that are committed."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def pause(self, pipeline: str) -> None:
        """See `Coordinator.pause`."""
        self.operate(lambda state, dead: operations.pausing(state, pipeline, dead), pipeline)

    def resume(self, pipeline: str) -> None:
        """See `Coordinator.resume`."""
        self.operate(lambda state, _: operations.resuming(state, pipeline))

    def unregister(self, pipeline: str) -> None:
        """See `Coordinator.unregister`."""
        self.operate(lambda state, dead: operations.removing(state, pipeline, dead), pipeline)

    def operate(
        self, events: Callable[[State, str | None], list[Body]], ended: str | None = None
    ) -> None:
        """Journal what an operation means; `ended` names a pipeline that must not be running."""
        store = self.store.existing()
        dead = self.store.leases(store).proven_dead(ended, store.state()) if ended else None
        store.commit(lambda state: events(state, dead))
        self.store.publish()

    def backfill(
        self,
        upstream: str,
        *,
        start: rerun.Edge,
        end: rerun.Edge,
        pipelines: Sequence[str],
        scope: str = DEFAULT_SCOPE,
        allow_duplicates: bool = False,
        allow_stale: bool = False,
    ) -> Batch:
        """See `Coordinator.backfill`."""
        name = self.store.names.stored(upstream)
        allows = _allowed(allow_duplicates, allow_stale)

        def draft(state: State, probes: Probes) -> Draft:
            chosen = tuple(operations.known(state, pipeline) for pipeline in pipelines)
            request = rerun.Backfill(scope, name, start, end, chosen)
            request.refuse_strangers()
            marks = {u: state.marks.get((scope, u)) for u in request.upstreams()}
            marks[name] = request.mark(state)
            news = {
                u: _probe_again(
                    probes.of(pipelines),
                    u,
                    -1 if mark is None else request.after(mark) if u == name else mark.version,
                    mark,
                    request.options(u),
                )
                for u, mark in marks.items()
            }
            return rerun.backfilling(state, request, news)

        return self._plan_again("backfill", draft, allows)

    def replay(
        self,
        batch_id: str,
        *,
        pipelines: Sequence[str] | None = None,
        allow_duplicates: bool = False,
        allow_stale: bool = False,
    ) -> Batch:
        """See `Coordinator.replay`."""
        allows = _allowed(allow_duplicates, allow_stale)
        batch = self.store.batch(batch_id)
        names = tuple(batch.required) if pipelines is None else pipelines
        return self._plan_again(
            "replay", lambda state, _: rerun.replaying(state, batch, names), allows, repeats=batch
        )

    def _plan_again(
        self,
        kind: BatchKind,
        draft: Callable[[State, Probes], Draft],
        allows: tuple[str, ...],
        repeats: PlannedBatch | None = None,
    ) -> Batch:
        batch_id = self.store.new_batch_id()

        def plan(state: State, probes: Probes) -> tuple[list[str], list[Body]]:
            drafted = draft(state, probes)
            frozen, newer = self._lookups_again(state, drafted.required, repeats, probes)
            planned = Planned(
                batch_id=batch_id,
                batch_seq=state.batch_seq + 1,
                scope=drafted.scope,
                windows=drafted.windows,
                required=drafted.required,
                batch_kind=kind,
                allows=allows,
                lookups=frozen,
            )
            self._refuse_harm(state, planned)
            return newer, [planned]

        probes = Probes(self.store.prober())
        state, newer = commit_plan(self.store.existing(), plan, probes)
        if newer and repeats is not None:
            text = "batch %s has not frozen %s: looked up as it is now"
            log.warning(text, repeats.batch_id, ", ".join(newer))
        self.store.publish()
        return batch_view(state.batches[batch_id], reused=False)

    def _lookups_again(
        self, state: State, pipelines: Iterable[str], repeats: PlannedBatch | None, probes: Probes
    ) -> tuple[tuple[Window, ...], list[str]]:
        """The lookups as they are now; of a replay as the batch that it repeats has frozen them, and
        the names of those that it has not.
        """
        if repeats is None:
            return frozen_lookups(state, pipelines, probes), []
        chosen = [state.pipelines[name] for name in pipelines if name in state.pipelines]
        names = dict.fromkeys(name for each in chosen for name in each.lookups)
        frozen = lookups.as_frozen_by(repeats, [each.name for each in chosen], names)
        newer = [name for name in names if name not in frozen]
        return tuple(frozen.get(name) or probes.frozen_lookup(name) for name in names), newer

    def _refuse_harm(self, state: State, planned: Planned) -> None:
        """Raise FM-SINK-021 or -022 for writes that are known; a run would refuse them later."""
        events = number_events(state, [planned], "", self.store.actor, self.store.clock.now())
        after = fold(events, state, self.store.outside.apply)
        batch = after.batches[planned.batch_id]
        for pipeline in planned.required:
            for spec in self.store.writes.get(pipeline, ()):
                refuse_harm(spec, batch, state, is_planned=False)


def _allowed(duplicates: bool, stale: bool) -> tuple[str, ...]:  # noqa: FBT001 the caller names them
    return (*(("duplicates",) if duplicates else ()), *(("stale",) if stale else ()))


def _probe_again(
    probes: Probes,
    upstream: str,
    after: int,
    mark: Mark | None,
    options: UpstreamOptions,
) -> Probe:
    try:
        return probes.probe_again(upstream, after, mark, options)
    except SourceError as error:
        if error.code == "FM-SOURCE-002":
            raise rerun.range_gone(error) from error
        raise
