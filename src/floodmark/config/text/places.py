"""Where things are in a project file, and the report of what is wrong there."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from floodmark.errors import ConfigError, ConfigErrors
from floodmark.model import names
from floodmark.next_steps import Next, command

KeyPath = tuple[str | int, ...]
"""The way to a value: keys of mappings and positions in lists, as pydantic's `loc`."""

choices, nearest = names.choices, names.nearest

NOTHING_DONE = "nothing was read or written"
MAX_SHOWN = 60


class Place(NamedTuple):
    """A position in a file, counted from 1 as editors do."""

    line: int = 1
    column: int = 1
    file: str = ""
    """Empty for the file that a report is about."""


def place_of(text: str, position: int) -> Place:
    """The line and column of a character of a text."""
    before = text[:position]
    return Place(before.count("\n") + 1, position - (before.rfind("\n") + 1) + 1)


def key_name(path: KeyPath) -> str:
    """A path as people write it.

    >>> key_name(("pipelines", 0, "upstreams", 1))
    'pipelines[0].upstreams[1]'
    """
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def shown(value: object) -> str:
    """A value in an error: its kind and its beginning.

    >>> shown(None), shown(True), shown("x"), shown([1])
    ('nothing', 'the boolean true', 'the text "x"', 'a list of 1')
    """
    if value is None:
        return "nothing"
    if isinstance(value, str):
        return f'the text "{value[:MAX_SHOWN]}{"…" if len(value) > MAX_SHOWN else ""}"'
    if isinstance(value, list | dict):
        return f"a {'list' if isinstance(value, list) else 'mapping'} of {len(value)}"
    kind = "boolean" if isinstance(value, bool) else "number"
    return f"the {kind} {str(value).lower()[:MAX_SHOWN]}"


_VALIDATE = command("validate")


@dataclass
class Report:
    """Collects what is wrong in the files of a project, so that all of it is said at once."""

    file: str
    found: list[tuple[Place, ConfigError]] = field(default_factory=list)
    warnings: list[ConfigError] = field(default_factory=list)
    """What is allowed and yet probably not meant."""
    command: Next = _VALIDATE
    """What to type once a file is corrected."""

    @property
    def errors(self) -> list[ConfigError]:
        """What is wrong, from the top of each file to its end, the report's own file first."""
        return [error for _, error in sorted(self.found, key=lambda pair: self._rank(pair[0]))]

    def _rank(self, place: Place) -> tuple[bool, str, int, int]:
        is_other = place.file not in ("", self.file)
        return is_other, place.file if is_other else "", place.line, place.column

    def add(
        self,
        code: str,
        title: str,
        place: Place,
        *,
        key: str = "",
        found: str | None = None,
        allowed: str | None = None,
        details: dict[str, str] | None = None,
    ) -> None:
        """Note one error and go on."""
        where = self.where(place, key)
        error = self._correctable(
            code, title, where=where, found=found, allowed=allowed, details=details
        )
        self.found.append((place, error))

    def warn(
        self, code: str, title: str, place: Place, *, key: str, found: str, allowed: str
    ) -> None:
        """Note something that is no error."""
        where = self.where(place, key)
        warning = self._correctable(code, title, where=where, found=found, allowed=allowed)
        self.warnings.append(warning)

    def where(self, place: Place, key: str = "") -> str:
        """A place as editors and terminals understand it."""
        at = place.file or self.file
        if place.line:  # there is none where a project is built in Python
            at += f":{place.line}:{place.column}"
        return f"{at}: {key}" if key else at

    def _correctable(self, code: str, title: str, **fields: Any) -> ConfigError:
        """An error that a change of the file mends."""
        next_step = "correct the file, then: " + self.command
        return ConfigError(code, title, state=NOTHING_DONE, next=next_step, **fields)

    def raise_if_any(self) -> None:
        """Raise what was found: the error itself if it is one, all of them together if more."""
        errors = self.errors
        if len(errors) == 1:
            raise errors[0]
        if errors:
            files = {place.file or self.file for place, _ in self.found}
            raise ConfigErrors(min(files) if len(files) == 1 else f"{len(files)} files", errors)
