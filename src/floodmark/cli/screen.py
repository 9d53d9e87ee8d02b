"""Text for people: plain lines, and colour where there is a terminal that wants it."""

from __future__ import annotations

import os
import shutil
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TextIO

from floodmark.next_steps import Command, Next, Part, Repeat, Statement, parts_of
from floodmark.observe import visible

if TYPE_CHECKING:
    from rich.console import Console

Words = str | tuple[str, str]
"""Text, or text with a rich style."""

PLAIN_WIDTH = 80
_GLUE = "\N{WORD JOINER}"
"""Stands for a space at which no line may end."""

STYLES = {
    "SUCCESS": "green",
    "COMPLETED": "green",
    "ok": "green",
    "FAILED": "bold red",
    "REFUSED": "bold red",
    "problem": "bold red",
    "PENDING": "yellow",
    "RUNNING": "yellow",
    "NOOP": "dim",
    "CANCELLED": "dim",
}


@dataclass(frozen=True)
class Row:
    """A row of a table and a remark that belongs below it."""

    cells: Sequence[str]
    note: str | None = None


class Screen:
    """Writes lines to a stream; rich is only loaded where there is a terminal."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._is_tty = stream.isatty()
        is_plain = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
        self.is_terminal = self._is_tty and not is_plain
        """Whether colour and movement are welcome."""
        self._console: Console | None = None

    @property
    def width(self) -> int:
        """The columns there are; 80 where nobody says otherwise."""
        if self._is_tty:
            return shutil.get_terminal_size((PLAIN_WIDTH, 24)).columns
        said = os.environ.get("COLUMNS", "")
        return int(said) if said.isdigit() and int(said) >= 40 else PLAIN_WIDTH

    @property
    def console(self) -> Console:
        """The rich console of the stream."""
        if self._console is None:
            from rich.console import Console

            self._console = Console(file=self._stream, highlight=False, markup=False)
        return self._console

    def line(self, *parts: Words) -> None:
        """One line; control characters in it are written as escapes."""
        pairs = [(part, "") if isinstance(part, str) else part for part in parts]
        safe = [(visible(text), style) for text, style in pairs]
        if not self.is_terminal:
            print("".join(text for text, _ in safe).rstrip(), file=self._stream)
            return
        from rich.text import Text

        self.console.print(Text.assemble(*safe), soft_wrap=True)

    def paragraph(self, text: str, *, indent: int = 0, style: str = "") -> None:
        """Text wrapped to the width; commands and long words (paths, ids) stay whole."""
        wrapped = textwrap.wrap(
            "".join(map(_glued, parts_of(text))),
            max(self.width - indent, 20),
            break_long_words=False,
            break_on_hyphens=False,
        )
        for row in wrapped:
            self.line(" " * indent, (row.replace(_GLUE, " "), style))

    def table(self, header: Sequence[str], rows: Sequence[Row], *, indent: int = 0) -> None:
        """Columns aligned by content: numbers to the right; no cell is ever cut off.

        A first cell that does not fit stands on a line of its own.
        """
        cells = [[visible(cell) for cell in row.cells] for row in rows]
        widths = _widths([list(header), *cells], self.width - indent)
        is_right = [_is_number_column([row[i] for row in cells]) for i in range(len(header))]
        self._cells(header, widths, is_right, indent, "bold")
        for row, texts in zip(rows, cells, strict=True):
            self._cells(texts, widths, is_right, indent, None)
            if row.note:
                self._note(row.note, indent + 2)

    def _note(self, text: str, indent: int) -> None:
        """A remark; a statement to be copied stands on one line of its own."""
        *sentence, last = parts_of(text)
        if not isinstance(last, Statement):
            sentence.append(last)
        self.paragraph(Next(*sentence), indent=indent, style="dim")
        if isinstance(last, Statement):
            self.line(" " * indent, last.text)

    def _cells(
        self,
        cells: Sequence[str],
        widths: Sequence[int],
        is_right: Sequence[bool],
        indent: int,
        style: str | None,
    ) -> None:
        first, parts = cells[0], list[Words]()
        if len(first) > widths[0]:
            self.line(" " * indent, first)
            first = ""
        for text, width, right in zip([first, *cells[1:]], widths, is_right, strict=True):
            padded = text.rjust(width) if right else text.ljust(width)
            parts += [(padded, STYLES.get(text, "") if style is None else style), "  "]
        self.line(" " * indent, *parts[:-1])


def _glued(part: Part) -> str:
    """A part of a paragraph; no line ends inside of a command."""
    text = visible(str(part))
    return text.replace(" ", _GLUE) if isinstance(part, Command | Repeat) else text


def _widths(rows: Sequence[Sequence[str]], room: int) -> list[int]:
    """The widest cell of each column; the first column gives way where the room is short."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    others = sum(widths[1:]) + 2 * (len(widths) - 1)
    widths[0] = min(widths[0], max(room - others, len(rows[0][0])))
    return widths


def _is_number_column(cells: Sequence[str]) -> bool:
    return any(cell[:1].isdigit() for cell in cells) and all(
        cell[:1].isdigit() or cell in ("-", "") for cell in cells
    )


def number(value: int | None) -> str:
    """A count; `-` where it is not known."""
    return "-" if value is None else f"{value:,}"


def size(value: int | None) -> str:
    """Bytes in the unit that reads best."""
    if value is None:
        return "-"
    amount, units = float(value), iter(("B", "kB", "MB", "GB", "TB"))
    unit = next(units)
    while amount >= 999.5 and unit != "TB":
        amount, unit = amount / 1000, next(units)
    return f"{amount:.0f} {unit}" if unit == "B" or amount >= 99.5 else f"{amount:.1f} {unit}"
