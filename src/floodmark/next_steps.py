"""Next steps: texts that know which commands they consist of.

    "correct the write, " + THEN_RETRY
    "restore the topic, or: " + command("stream", "reset", name, "--to", "earliest", "--yes")

A step is text for everybody who shows it or keeps it. Whoever has to decide something asks for its
parts: which commands there are, and what is still blank in them. Nobody reads the words.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Self


class Blank(Enum):
    """A word that the place where an error is raised does not know, and one above it does.

    The value is what stands there until then.
    """

    BATCH = "BATCH"
    STREAM = ""


BATCH, STREAM = Blank.BATCH, Blank.STREAM


@dataclass(frozen=True, slots=True)
class Command:
    """A command of floodmark, without its name."""

    words: tuple[str | Blank, ...]

    @property
    def argv(self) -> list[str]:
        """As a process is started with it."""
        known = (word.value if isinstance(word, Blank) else word for word in self.words)
        return ["floodmark", *filter(None, known)]

    def __str__(self) -> str:
        return " ".join(map(shlex.quote, self.argv))

    def filled(self, blank: Blank, word: str) -> Command:
        """The command with a word in the place of a blank."""
        return Command(tuple(word if each is blank else each for each in self.words))


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement of SQL that is to be copied."""

    text: str
    is_aside: bool = False
    """Whether it stands behind a sentence, where there is room on a line of its own."""

    def __str__(self) -> str:
        return f"; {self.text}" if self.is_aside else self.text


@dataclass(frozen=True, slots=True)
class Repeat:
    """What failed is done once more; by a command, if nobody above knows another way."""

    command: Command
    way: str | None = None

    def __str__(self) -> str:
        return self.way or f"then: {self.command}"


Part = str | Command | Statement | Repeat


class Next(str):
    """What can be done now: a text, and the parts that it was made of."""

    __slots__ = ("parts",)

    parts: tuple[Part, ...]

    def __new__(cls, *parts: Part) -> Self:
        """The text is made here, once; a part that is a step itself gives its parts."""
        step = super().__new__(cls, "".join(map(str, parts)))
        step.parts = tuple(each for part in parts for each in parts_of(part))
        return step

    def __add__(self, other: str) -> Next:
        return Next(self, other)

    def __radd__(self, other: str) -> Next:
        return Next(other, self)

    @property
    def commands(self) -> list[list[str]]:
        """Every command of it, as a process is started with it."""
        return [command.argv for command in self._commands()]

    @property
    def is_to_be_copied(self) -> bool:
        """Whether it begins with a command or a statement."""
        return isinstance(self.parts[0], Command | Statement)

    def _commands(self) -> Iterator[Command]:
        for part in self.parts:
            if isinstance(part, Command):
                yield part
            elif isinstance(part, Repeat) and part.way is None:
                yield part.command


def parts_of(step: Part) -> tuple[Part, ...]:
    """The parts of a step; a text that is no step is one."""
    return step.parts if isinstance(step, Next) else (step,)


def command(*words: str | Blank) -> Next:
    """A command of floodmark as a step, or as a part of one: its words behind the name."""
    return Next(Command(words))


def statement(text: str) -> Next:
    """A statement of SQL as a step, or as a part of one."""
    return Next(Statement(text))


def aside(text: str) -> Next:
    """A statement behind a sentence that can be understood without it."""
    return Next(Statement(text, is_aside=True))


def then_retry(batch: str | Blank) -> Next:
    """`then: floodmark retry`, unless what failed is repeated in another way; see `repeated`."""
    return Next(Repeat(Command(("retry", batch))))


RETRY = command("retry", BATCH)
THEN_RETRY = then_retry(BATCH)


def joined(steps: Sequence[str], between: str) -> Next:
    """Steps one after the other."""
    parts = [part for step in steps for part in (between, step)]
    return Next(*parts[1:])


def filled(step: str, blank: Blank, word: str) -> Next:
    """The step with a word in the place of a blank, wherever a command has it."""
    return Next(*(_filled(part, blank, word) for part in parts_of(step)))


def _filled(part: Part, blank: Blank, word: str) -> Part:
    if isinstance(part, Command):
        return part.filled(blank, word)
    if isinstance(part, Repeat):
        return replace(part, command=part.command.filled(blank, word))
    return part


def repeated(step: str, way: str) -> Next:
    """The step for work that is repeated in another way than by a command."""
    return Next(
        *(replace(part, way=way) if isinstance(part, Repeat) else part for part in parts_of(step))
    )
