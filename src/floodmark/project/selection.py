"""Selectors of pipelines, in dbt's grammar as far as it applies.

A word is a name or `state:failed`; commas within an argument mean all of them, several arguments
any of them. Graph operators and tags need a graph of pipelines, which this version does not have.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from floodmark.config.places import choices
from floodmark.errors import ConfigError
from floodmark.model.names import PIPELINE_NAME

FAILED = "state:failed"
GRAMMAR = f"names of pipelines and {FAILED}; a comma means both, several arguments mean either"


@dataclass(frozen=True)
class Selection:
    """Which pipelines a command means: those selected, all if none is, without the excluded."""

    selectors: Sequence[str] = ()
    exclude: Sequence[str] = ()

    @property
    def needs_state(self) -> bool:
        """Whether the control store has to be asked."""
        words = [word for text in (*self.selectors, *self.exclude) for word in text.split(",")]
        return FAILED in words

    def names(self, known: Sequence[str], failed: Collection[str]) -> list[str]:
        """The names meant, in the order they were said, else in that of the file.

        Raises FM-CONFIG-008 for an unknown pipeline, FM-CONFIG-007 for other grammar.
        """
        chosen = _union(self.selectors, known, failed) if self.selectors else list(known)
        without = set(_union(self.exclude, known, failed))
        return [name for name in chosen if name not in without]


def _union(selectors: Iterable[str], known: Sequence[str], failed: Collection[str]) -> list[str]:
    found = [_intersection(text, known, failed) for text in selectors]
    return list(dict.fromkeys(name for names in found for name in names))


def _intersection(text: str, known: Sequence[str], failed: Collection[str]) -> list[str]:
    parts = [_matching(word, known, failed) for word in text.split(",")]
    return [name for name in parts[0] if all(name in part for part in parts)]


def _matching(word: str, known: Sequence[str], failed: Collection[str]) -> list[str]:
    if word == FAILED:
        return [name for name in known if name in failed]
    if not PIPELINE_NAME.fullmatch(word):
        raise _other_grammar(word)
    if word not in known:
        raise unknown_pipeline(word, list(known))
    return [word]


def _other_grammar(word: str) -> ConfigError:
    return ConfigError(
        "FM-CONFIG-007",
        f'the selector "{word}" is not possible in this version',
        allowed=GRAMMAR,
        state="nothing was read or written",
        next="name the pipelines one by one",
    )


def unknown_pipeline(name: str, known: list[str]) -> ConfigError:
    return ConfigError(
        "FM-CONFIG-008",
        f"there is no pipeline {name}",
        allowed=choices(known, name),
        state="nothing was read or written",
        next="name one of them, or none for all",
    )
