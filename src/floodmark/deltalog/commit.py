"""One commit file: its actions, read whole or only where a name occurs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import islice
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
        yield from self._parsed(line for line in self.data.split(b"\n") if line.strip())

    def may_have(self, quoted_name: bytes) -> bool:
        """False where no action of a name, given with its quotes, can be in the file."""
        return quoted_name in self.data

    def named(self, name: str) -> Iterator[Action]:
        """The actions of one name; lines that cannot hold it are not parsed."""
        lines = self._lines_with(f'"{name}"'.encode())
        return (body for kind, body in self._parsed(lines) if kind == name)

    def committed_ms(self) -> int:
        """The commit time: in-commit where the table has it, else the file's."""
        if b'"inCommitTimestamp"' in self.data:
            for info in self.named("commitInfo"):
                stamp = info.get("inCommitTimestamp")
                if isinstance(stamp, int):
                    return stamp
        return self.modified_ms

    def _lines_with(self, quoted: bytes) -> Iterator[bytes]:
        data = self.data
        at = data.find(quoted)
        while at >= 0:
            end = data.find(b"\n", at)
            end = len(data) if end < 0 else end
            yield data[data.rfind(b"\n", 0, at) + 1 : end]
            at = data.find(quoted, end)

    def _parsed(self, lines: Iterator[bytes]) -> Iterator[tuple[str, Action]]:
        while group := list(islice(lines, LINES_AT_ONCE)):
            for action in self._parsed_at_once(group):
                for name, body in action.items():
                    if isinstance(body, dict):
                        yield name, body

    def _parsed_at_once(self, lines: list[bytes]) -> list[dict[str, Any]]:
        """Lines as one JSON list: a third of the time of one by one."""
        try:
            parsed = _decode(f"[{b','.join(lines).decode()}]")
        except (ValueError, RecursionError):
            parsed = []
        # Two broken lines may make one whole action together.
        if len(parsed) == len(lines) and all(type(action) is dict for action in parsed):
            return parsed  # type: ignore[no-any-return]
        return [self._parsed_alone(line) for line in lines]

    def _parsed_alone(self, line: bytes) -> dict[str, Any]:
        try:
            parsed = _decode(line.decode())
        except (ValueError, RecursionError):
            raise damaged(self.path, f"line {self._number_of(line)} is not JSON") from None
        if not isinstance(parsed, dict):
            raise damaged(self.path, f"line {self._number_of(line)} is not an action")
        return parsed

    def _number_of(self, line: bytes) -> int:
        return self.data.split(b"\n").index(line) + 1


LINES_AT_ONCE = 1_024
"""So many lines are parsed together: half a MB, whatever the size of the file."""
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
