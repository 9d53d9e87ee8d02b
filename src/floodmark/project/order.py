"""The order in which pipelines run: those that write a table before those that read it.

Pipelines of one scope that share an upstream are planned as one batch, so they cannot be told apart:
they are a team. Teams stand in levels; a level is planned once the levels above it have run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from floodmark.config import PipelineSettings
from floodmark.config.text import table_name
from floodmark.model import State, pipeline_of

Team = frozenset[str]
"""The names of pipelines that are planned together."""


@dataclass(frozen=True)
class Unit:
    """The chosen pipelines of one scope that are planned and run together."""

    scope: str
    level: int
    chosen: tuple[PipelineSettings, ...]

    @property
    def key(self) -> tuple[int, str]:
        """What tells units apart."""
        return self.level, self.scope

    @property
    def names(self) -> list[str]:
        return [pipeline.pipeline for pipeline in self.chosen]


@dataclass(frozen=True)
class Order:
    """The chosen pipelines in the order in which they run."""

    units: tuple[Unit, ...]
    """From the first level to the last; within a level in the order of the file."""
    parents: Mapping[str, Sequence[str]]
    """The chosen pipelines that write what each one reads."""
    teams: Mapping[str, Team]

    def levels(self, units: Iterable[Unit]) -> list[list[Unit]]:
        """These units, level by level."""
        found: dict[int, list[Unit]] = {}
        for unit in units:
            found.setdefault(unit.level, []).append(unit)
        return [found[level] for level in sorted(found)]

    def without(self, unit: Unit, names: Iterable[str]) -> Unit:
        """A unit without these pipelines, and without those that are planned with them."""
        out = {mate for name in names for mate in self.teams[name]}
        rest = tuple(each for each in unit.chosen if each.pipeline not in out)
        return Unit(unit.scope, unit.level, rest)


def order_of(
    scopes: Mapping[str, Sequence[PipelineSettings]],
    members: Mapping[str, Sequence[PipelineSettings]],
    parents: Mapping[str, Iterable[str]],
) -> Order:
    """The order of the chosen pipelines; `members` are all of each scope, chosen or not.

    Teams that read from one another in a circle are on one level.
    """
    chosen = {each.pipeline for pipelines in scopes.values() for each in pipelines}
    within = {n: [p for p in parents.get(n, ()) if p in chosen and p != n] for n in chosen}
    teams = {name: team for scope in scopes for team in _teams(members[scope]) for name in team}
    level_of = _levels({teams[name] for name in chosen}, teams, within)
    levels = sorted(set(level_of.values()))
    units = [
        Unit(scope, level, tuple(p for p in each if level_of[teams[p.pipeline]] == level))
        for level in levels
        for scope, each in scopes.items()
    ]
    return Order(tuple(unit for unit in units if unit.chosen), within, teams)


def written_so_far(state: State | None) -> dict[str, list[str]]:
    """The pipelines that have written each target, by path and name; functions say it only so."""
    found: dict[str, list[str]] = {}
    for app_id, sink in (state.sinks if state else {}).items():
        for target in (sink.target, sink.table):
            if target:
                found.setdefault(target, []).append(pipeline_of(app_id))
    return found


def _teams(pipelines: Sequence[PipelineSettings]) -> list[Team]:
    """The pipelines of a scope, together with those that they share an upstream with."""
    teams: list[tuple[set[str], set[str]]] = []
    for pipeline in pipelines:
        names, read = {pipeline.pipeline}, {table_name(u) for u in pipeline.upstreams}
        apart = []
        for others, theirs in teams:
            if read & theirs:
                names, read = names | others, read | theirs
            else:
                apart.append((others, theirs))
        teams = [*apart, (names, read)]
    return [frozenset(names) for names, _ in teams]


def _levels(
    chosen: Iterable[Team], teams: Mapping[str, Team], parents: Mapping[str, Sequence[str]]
) -> dict[Team, int]:
    """The length of the longest way to each team; circles count as one."""
    above: dict[Team, set[Team]] = {team: set() for team in chosen}
    for name, before in parents.items():
        above[teams[name]] |= {teams[each] for each in before}
    reach = {team: _all_above(team, above) for team in above}
    circles = {
        team: frozenset(other for other in reach[team] if team in reach[other]) | {team}
        for team in above
    }
    found: dict[Team, int] = {}
    # Whatever comes before a team has fewer teams above it.
    for team in sorted(above, key=lambda each: len(reach[each] | circles[each])):
        earlier = {each for mate in circles[team] for each in above[mate]} - circles[team]
        found[team] = max((found[each] + 1 for each in earlier), default=0)
    return found


def _all_above(team: Team, above: Mapping[Team, set[Team]]) -> set[Team]:
    found: set[Team] = set()
    waiting = list(above[team])
    while waiting:
        each = waiting.pop()
        if each not in found:
            found.add(each)
            waiting.extend(above[each])
    return found
