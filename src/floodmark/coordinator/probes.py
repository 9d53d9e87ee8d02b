"""Looks that are remembered: planning asks the upstreams before it decides, and decides from memory.

A look is remembered by everything that it was asked with: the committed end that it starts at, the
options and the pipelines that it is for. So a look that is older than the committed end, or was
made for another table, is no answer: the upstream is looked at again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from floodmark.control.events import Body
from floodmark.control.journal import Journal, too_busy
from floodmark.coordinator.probing import Prober
from floodmark.model import AnyMark, Mark, Probe, State, UpstreamOptions, Window

T = TypeVar("T")
Asked = tuple[Any, ...]
"""What a look was asked with."""

LOOKS = 100
"""How often a plan is made anew because others move the ends that it starts at."""


class NotProbed(Exception):  # an outcome, as CommitConflict is
    """A decision needs a look that nobody has taken yet; nothing was journaled."""


class Probes:
    """Asks a prober each question once."""

    def __init__(
        self,
        prober: Prober,
        pipelines: Sequence[str] = (),
        memory: dict[tuple[str, str], list[tuple[Asked, Any]]] | None = None,
        *,
        asks: bool = True,
    ) -> None:
        self._prober = prober
        self._pipelines = tuple(pipelines)
        self._memory = {} if memory is None else memory
        self.asks = asks
        """Whether what is not remembered is asked of the upstream."""

    def of(self, pipelines: Iterable[str]) -> Probes:
        """The same for a look on behalf of these pipelines; see `Prober.of`."""
        names = tuple(pipelines)
        return Probes(self._prober.of(names), names, self._memory, asks=self.asks)

    def asking(self, prober: Prober) -> Probes:
        """The same memory; what is not remembered is asked of another prober."""
        return Probes(prober, self._pipelines, self._memory)

    def as_seen(self) -> Probes:
        """The same without asking: raises NotProbed for what was not looked at."""
        return Probes(self._prober, self._pipelines, self._memory, asks=False)

    def newest_version(self, upstream: str) -> int:
        """The newest version of an upstream that has versions."""
        return self._once(
            "version",
            upstream,
            (),
            lambda: self._prober.log(upstream).facts().latest_version,
        )

    def newest_mark(self, upstream: str, options: UpstreamOptions) -> AnyMark | None:
        """The newest mark of an upstream without versions; None if only a run can tell."""

        def look() -> AnyMark | None:
            facts = self._prober.look(upstream, None, options)
            return None if facts is None else facts.newest

        return self._once("mark", upstream, (self._pipelines, options), look)

    def probe(
        self,
        upstream: str,
        mark: Mark | None,
        options: UpstreamOptions,
        max_versions: int | None,
    ) -> Probe:
        """See `Prober.probe`."""
        return self._once(
            "news",
            upstream,
            (self._pipelines, mark, options, max_versions),
            lambda: self._prober.probe(upstream, mark, options, max_versions),
        )

    def probe_again(
        self, upstream: str, after: int, mark: Mark | None, options: UpstreamOptions
    ) -> Probe:
        """See `Prober.probe_again`."""
        return self._once(
            "again",
            upstream,
            (self._pipelines, after, mark, options),
            lambda: self._prober.probe_again(upstream, after, mark, options),
        )

    def frozen_lookup(self, upstream: str) -> Window:
        """See `Prober.frozen_lookup`."""
        return self._once(
            "lookup", upstream, (self._pipelines,), lambda: self._prober.frozen_lookup(upstream)
        )

    def _once(self, kind: str, upstream: str, asked: Asked, look: Callable[[], T]) -> T:
        answers = self._memory.setdefault((kind, upstream), [])
        for before, answer in answers:
            if is_same_look(before, asked):
                found: T = answer
                return found
        if not self.asks:
            raise NotProbed(upstream)
        answer = look()
        answers.append((asked, answer))
        return answer


def is_same_look(before: Asked, asked: Asked) -> bool:
    """Whether an answer holds for what is asked now."""
    return before == asked


def commit_plan(
    journal: Journal, plan: Callable[[State, Probes], tuple[T, list[Body]]], probes: Probes
) -> tuple[State, T]:
    """Journal what a plan decides: it looks outside of the journal's lock, and decides inside.

    If others commit in between, it decides again on the new state. What that needs and nobody has
    seen, because an end has moved, is looked at first, outside again.
    """
    outcome: list[T] = []

    def decide(state: State) -> list[Body]:
        result, bodies = plan(state, probes.as_seen())
        outcome[:] = [result]
        return bodies

    for _ in range(LOOKS):
        plan(journal.state(), probes)
        with suppress(NotProbed):
            return journal.commit(decide), outcome[0]
    raise too_busy(LOOKS)


def frozen_lookups(state: State, pipelines: Iterable[str], probes: Probes) -> tuple[Window, ...]:
    """The lookups of these pipelines, as they are now; raises FM-PLAN-032 for one that is absent."""
    readers = [state.pipelines[name] for name in pipelines if name in state.pipelines]
    names = dict.fromkeys(lookup for pipeline in readers for lookup in pipeline.lookups)
    probes = probes.of(reader.name for reader in readers)
    return tuple(map(probes.frozen_lookup, names))
