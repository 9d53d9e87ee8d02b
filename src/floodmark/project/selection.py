"""Selectors of pipelines, in dbt's grammar.

A word is a name, which may hold the wildcards `*` and `?`, or `tag:x`, or `state:failed`. Commas
within an argument mean all of them, several arguments any of them. `+name` adds what the pipelines
depend on through tables, `name+` what depends on them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from floodmark.config import ResolvedPipeline
from floodmark.config.project import parents_of
from floodmark.config.text import choices
from floodmark.errors import ConfigError
from floodmark.model.names import PIPELINE_NAME

FAILED = "state:failed"
GRAMMAR = (
    f"names of pipelines, also with * and ?, tag:x and {FAILED}, with + before or after for what "
    "comes before or after through tables; a comma means both, several arguments mean either"
)

_WORD = re.compile(r"(?P<up>\+?)(?P<core>[^+]+)(?P<down>\+?)")
_PATTERN = re.compile(r"[A-Za-z0-9_.\-*?]{1,128}")


@dataclass(frozen=True)
class Choice:
    """What can be chosen from: pipelines in the order of the file, their tags and parents."""

    names: Sequence[str]
    tags: Mapping[str, Collection[str]] = field(default_factory=dict)
    parents: Mapping[str, Collection[str]] = field(default_factory=dict)

    def tagged(self, tag: str) -> list[str]:
        """The pipelines with a tag."""
        return [name for name in self.names if tag in self.tags.get(name, ())]

    def with_ancestors(self, names: Iterable[str]) -> list[str]:
        """The pipelines and everything they depend on, in the order of the file."""
        return self._closure(names, lambda name: self.parents.get(name, ()))

    def with_descendants(self, names: Iterable[str]) -> list[str]:
        """The pipelines and everything that depends on them, in the order of the file."""
        return self._closure(
            names, lambda name: [n for n in self.names if name in self.parents.get(n, ())]
        )

    def _closure(self, names: Iterable[str], near: Callable[[str], Iterable[str]]) -> list[str]:
        found: set[str] = set()
        waiting = list(names)
        while waiting:
            name = waiting.pop()
            if name not in found:
                found.add(name)
                waiting.extend(near(name))
        return [name for name in self.names if name in found]


def chosen_from(pipelines: Sequence[ResolvedPipeline]) -> Choice:
    """The pipelines of a project with their tags, chained through the tables they write."""
    return Choice(
        [pipeline.name for pipeline in pipelines],
        {pipeline.name: pipeline.settings.all_tags for pipeline in pipelines},
        parents_of(pipelines),
    )


@dataclass(frozen=True)
class Selection:
    """Which pipelines a command means: those selected, all if none is, without the excluded."""

    selectors: Sequence[str] = ()
    exclude: Sequence[str] = ()

    @property
    def needs_state(self) -> bool:
        """Whether the control store has to be asked."""
        texts = [part for text in (*self.selectors, *self.exclude) for part in text.split()]
        return any(word.strip("+") == FAILED for text in texts for word in text.split(","))

    def names(self, known: Choice, failed: Collection[str]) -> list[str]:
        """The names meant, in the order they were said, else in that of the file.

        Raises FM-CONFIG-008 for an unknown pipeline or tag, FM-CONFIG-007 for other grammar.
        """
        chosen = _union(self.selectors, known, failed) if self.selectors else list(known.names)
        without = set(_union(self.exclude, known, failed))
        return [name for name in chosen if name not in without]


def _union(selectors: Iterable[str], known: Choice, failed: Collection[str]) -> list[str]:
    texts = [part for text in selectors for part in text.split() or [text]]
    found = [_intersection(text, known, failed) for text in texts]
    return list(dict.fromkeys(name for names in found for name in names))


def _intersection(text: str, known: Choice, failed: Collection[str]) -> list[str]:
    parts = [_matching(word, known, failed) for word in text.split(",")]
    return [name for name in parts[0] if all(name in part for part in parts)]


def _matching(word: str, known: Choice, failed: Collection[str]) -> list[str]:
    match = _WORD.fullmatch(word)
    if match is None:
        raise _other_grammar(word)
    core = _core(match["core"], word, known, failed)
    before = known.with_ancestors(core) if match["up"] else []
    after = known.with_descendants(core) if match["down"] else []
    return list(dict.fromkeys([*before, *core, *after]))


def _core(core: str, word: str, known: Choice, failed: Collection[str]) -> list[str]:
    if core == FAILED:
        return [name for name in known.names if name in failed]
    if core.startswith("tag:") and PIPELINE_NAME.fullmatch(core[4:]):
        return known.tagged(core[4:]) or _no_match(core, known)
    if core in known.names:
        return [core]
    if not _PATTERN.fullmatch(core):
        raise _other_grammar(word)
    if {"*", "?"} & set(core):
        return [n for n in known.names if fnmatchcase(n, core)] or _no_match(core, known)
    if not PIPELINE_NAME.fullmatch(core):
        raise _other_grammar(word)
    raise unknown_pipeline(core, list(known.names))


def _no_match(core: str, known: Choice) -> list[str]:
    tags = sorted({tag for each in known.tags.values() for tag in each})
    is_tag = core.startswith("tag:")
    raise ConfigError(
        "FM-CONFIG-008",
        f"no pipeline has the tag {core[4:]}" if is_tag else f"no pipeline matches {core}",
        allowed=choices(tags if is_tag else list(known.names), core[4:] if is_tag else core)
        or "there are no tags",
        state="nothing was read or written",
        next="name one of them, or none for all",
    )


def _other_grammar(word: str) -> ConfigError:
    return ConfigError(
        "FM-CONFIG-007",
        f'the selector "{word}" cannot be understood',
        rule="selector",
        allowed=GRAMMAR,
        state="nothing was read or written",
        next="correct the selector, or name the pipelines one by one",
    )


def unknown_pipeline(name: str, known: list[str]) -> ConfigError:
    return ConfigError(
        "FM-CONFIG-008",
        f"there is no pipeline {name}",
        allowed=choices(known, name),
        state="nothing was read or written",
        next="name one of them, or none for all",
    )
