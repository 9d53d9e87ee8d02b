"""One commit file: its actions, read whole or only where a name occurs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from floodmark.errors import SourceError

Action = Mapping[str, Any]


class Commit(NamedTuple):
    """The bytes of a commit file and when it was written."""

    version: int
    path: str
    data: bytes
    modified_ms: int

    def check(self) -> None:
        """Raise FM-SOURCE-008 where the file is empty, cut off or not text; cheap."""
        data = self.data
        if data[:1] == b"{" and (data[-1:] == b"}" or data[-2:] == b"}\n"):
            return
        stripped = data.strip()
        if not (stripped[:1] == b"{" and stripped[-1:] == b"}"):
            found = "an empty file" if not stripped else "a file that is not whole JSON lines"
            raise damaged(self.path, found)

    def actions(self) -> Iterator[tuple[str, Action]]:
        """Every action with its name, in file order; raises FM-SOURCE-008 on a damaged line."""
        self.check()
        for number, line in enumerate(self.data.splitlines(), start=1):
            if line and not line.isspace():
                yield from self._parsed(line, number)

    def may_have(self, quoted_name: bytes) -> bool:
        """False where no action of a name, given with its quotes, can be in the file."""
        return quoted_name in self.data

    def named(self, name: str) -> Iterator[Action]:
        """The actions of one name; lines that cannot hold it are not parsed."""
        quoted = f'"{name}"'.encode()
        if quoted not in self.data:
            return
        for number, line in enumerate(self.data.splitlines(), start=1):
            if quoted in line:
                yield from (body for kind, body in self._parsed(line, number) if kind == name)

    def committed_ms(self) -> int:
        """The commit time: in-commit where the table has it, else the file's."""
        if b'"inCommitTimestamp"' in self.data:
            for info in self.named("commitInfo"):
                stamp = info.get("inCommitTimestamp")
                if isinstance(stamp, int):
                    return stamp
        return self.modified_ms

    def _parsed(self, line: bytes, number: int) -> list[tuple[str, Action]]:
        try:
            parsed = _decode(line.decode())
        except (ValueError, RecursionError):
            raise damaged(self.path, f"line {number} is not JSON") from None
        if not isinstance(parsed, dict):
            raise damaged(self.path, f"line {number} is not an action")
        return [(name, body) for name, body in parsed.items() if isinstance(body, dict)]


_decode = json.JSONDecoder().decode
"""As json.loads, without its guessing of encodings: a log is UTF-8."""


def damaged(path: str, found: str) -> SourceError:
    """The error for a log file that is there and makes no sense."""
    return SourceError(
        "FM-SOURCE-008",
        "a file of the table's log is damaged",
        where=path,
        found=found,
        allowed="the file as the writer of the table committed it",
        state="nothing was read or written; the committed watermark stays",
        next="restore the file from a copy of the table, then run the same command again",
    )
