"""Plans of a project, scope by scope: shown, or frozen as batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from floodmark.config import PipelineSettings
from floodmark.coordinator import Probes
from floodmark.errors import FloodmarkError
from floodmark.model import Batch, Settlement
from floodmark.project import naming
from floodmark.project.advice import advised
from floodmark.project.checks import strays
from floodmark.project.definitions import Definitions
from floodmark.project.followers import with_followers
from floodmark.project.outcomes import NullWatcher, ScopePlan, Watcher
from floodmark.project.session import Session
from floodmark.sources import Scratch


class ScopePlanning:
    """Plans the pipelines of a project."""

    def __init__(self, definitions: Definitions, session: Session) -> None:
        self.definitions = definitions
        self.session = session

    def plan_scopes(
        self,
        selectors: Sequence[str] = (),
        *,
        exclude: Sequence[str] = (),
        max_versions: int | None = None,
        on_lost_range: Settlement | None = None,
        freeze: bool = False,
        watcher: Watcher | None = None,
    ) -> list[ScopePlan]:
        """The plan of each scope, or its error: one bad scope hides no other.

        Writes nothing unless `freeze` is said; then Spark is started if catalog names have to be
        asked for. Raises FM-CONTROL-016 for a copied or moved project.
        """
        scopes = self.definitions.to_run(selectors, exclude)
        self.definitions.refuse_elsewhere()
        if not freeze:
            preview = partial(self.preview_scope, on_lost_range=on_lost_range, scratch=Scratch())
            plans = [self._plan_scope(preview, *scope, max_versions) for scope in scopes.items()]
            plans = with_followers(plans, scopes, self.definitions.parents())
            name_of = self.definitions.coordinator.look.stored_name
            return [advised(each, self.definitions.resolved(each.scope), name_of) for each in plans]
        self.session.connect_names(scopes, watcher or NullWatcher())
        freezing = partial(self.freeze_scope, on_lost_range=on_lost_range)
        with self.definitions.coordinator.store.coalesce():
            return [self._plan_scope(freezing, *scope, max_versions) for scope in scopes.items()]

    def _plan_scope(
        self,
        make: Callable[..., Batch],
        scope: str,
        chosen: Sequence[PipelineSettings],
        max_versions: int | None,
    ) -> ScopePlan:
        found = strays(
            self.definitions.coordinator.look.state_if_any(), scope, self.definitions.members(scope)
        )
        try:
            return ScopePlan(scope, batch=make(scope, chosen, max_versions), strays=found)
        except FloodmarkError as error:
            return ScopePlan(scope, error=error, strays=found)

    def preview_scope(
        self,
        scope: str,
        chosen: Sequence[PipelineSettings],
        max_versions: int | None,
        on_lost_range: Settlement | None = None,
        *,
        scratch: Scratch | None = None,
        probes: Probes | None = None,
    ) -> Batch:
        """What freezing a scope for these pipelines would give; writes nothing.

        Catalog names that only Spark could tell of are left out, and named, while it is not there.
        For `scratch` see `Coordinator.preview`; `probes` remember what was seen.
        """
        members = self.definitions.members(scope)
        unknown = [] if self.session.has_started else self.definitions.unresolved([scope])
        seen = naming.without(members, unknown) if unknown else members
        names = [pipeline.pipeline for pipeline in chosen]
        batch = naming.nothing_known(scope)
        if any(name in seen for name in names):
            batch = self.definitions.coordinator.planning.preview(
                pipelines=[name for name in names if name in seen],
                scope=scope,
                max_versions=max_versions,
                on_lost_range=on_lost_range,
                register=seen,
                scratch=scratch,
                probes=probes,
            )
        if not unknown:
            return batch
        readers = [name for name in naming.readers_of(members, unknown) if name in names]
        return naming.with_unresolved(batch, unknown, readers)

    def freeze_scope(
        self,
        scope: str,
        chosen: Sequence[PipelineSettings],
        max_versions: int | None,
        on_lost_range: Settlement | None = None,
        *,
        probes: Probes | None = None,
    ) -> Batch:
        """Register every pipeline of the scope, and freeze what is new for the chosen ones.

        With the `probes` of a preview it freezes what that showed, as far as no end has moved.
        """
        planning = self.definitions.coordinator.planning
        fresh = planning.probes() if probes is None else probes.asking(planning.store.prober())
        for name, upstreams in self.definitions.members(scope).items():
            planning.register(name, upstreams, scope, probes=fresh)
        return planning.create_batch(
            pipelines=[pipeline.pipeline for pipeline in chosen],
            scope=scope,
            max_versions=max_versions,
            on_lost_range=on_lost_range,
            probes=fresh,
        )
