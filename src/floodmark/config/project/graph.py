"""The graph of a pipeline's nodes: who comes first, what can go side by side, and circles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from floodmark.config.project.nodes import NodeSettings


@dataclass(frozen=True)
class Graph:
    """Nodes in the order of the file, each with the nodes that come before it."""

    parents: Mapping[str, tuple[str, ...]]

    def order(self) -> list[str]:
        """Every node after those it depends on; nodes of a circle are left out."""
        return [name for level in self.levels() for name in level]

    def levels(self) -> list[list[str]]:
        """Groups of nodes: those of one group can go side by side once the groups before are done."""
        waiting = {name: set(parents) for name, parents in self.parents.items()}
        found: list[list[str]] = []
        while ready := [name for name, parents in waiting.items() if not parents]:
            found.append(ready)
            for name in ready:
                del waiting[name]
            for parents in waiting.values():
                parents.difference_update(ready)
        return found

    def cycles(self) -> list[list[str]]:
        """The circles, each from its first node in the file back to it."""
        stuck = set(self.parents) - set(self.order())
        found: list[list[str]] = []
        seen: set[str] = set()
        for start in self.parents:
            way: list[str] = []
            name = start
            while name in stuck and name not in seen:
                seen.add(name)
                way.append(name)
                name = next(parent for parent in self.parents[name] if parent in stuck)
            if name in way:
                circle = way[way.index(name) :]
                found.append([*circle, circle[0]])
        return found

    def children(self, name: str) -> list[str]:
        """The nodes that depend on a node directly."""
        return [child for child, parents in self.parents.items() if name in parents]


def graph_of(nodes: Sequence[NodeSettings]) -> Graph:
    """The graph of the nodes; dependencies that are no nodes are left out."""
    names = frozenset(node.name for node in nodes)
    return Graph(
        {
            node.name: tuple(dict.fromkeys(n for n, _ in node.dependencies(names) if n in names))
            for node in nodes
        }
    )
