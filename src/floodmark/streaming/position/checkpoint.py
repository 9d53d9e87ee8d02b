"""The checkpoint folder of a Structured Streaming query, read without Spark.

    metadata        {"id": "<query id>"}
    offsets/<n>     written before batch n runs: where it ends; it begins where n - 1 ends
    commits/<n>     written after batch n ran
    sources/0/0     where batch 0 begins

A folder that is not there is no checkpoint; one that cannot be looked at, or whose files are not
what Spark writes, is an error: guessing would lose records or bring them twice. Files that Spark
writes beside these (checksums, temporary ones, state) are not looked at.
"""

from __future__ import annotations

import json
import os
import re
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, Protocol, TypeVar
from urllib.parse import unquote, urlsplit

from floodmark.engines.files import write_atomically
from floodmark.errors import StreamError
from floodmark.model.offsets import Offsets
from floodmark.next_steps import command

OFFSETS, COMMITS, METADATA, INITIAL = "offsets", "commits", "metadata", "sources/0/0"
STATE = "floodmark_state"
"""A file of ours: what the state is of."""
VERSIONS: Mapping[str, tuple[int, ...]] = {OFFSETS: (1, 2), COMMITS: (1, 2), INITIAL: (1,)}
"""What each file may say in its first line."""
INCARNATION = "incarnation-"
"""How folders of later checkpoints begin, inside of the first one."""
ANY = "<stream>"
NO_OFFSET = "-"
"""What stands for a source that has no offset yet."""

T = TypeVar("T")

_NUMBER = re.compile(r"0|[1-9][0-9]{0,18}")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What a checkpoint says of its last batches."""

    location: str
    query_id: str
    last_batch: int | None
    """The last batch that was planned; None before the first."""
    last_commit: int | None
    """The last batch that was committed, the last one planned or the one before it; or None."""
    ends: Mapping[int, Offsets]
    """Where the last batches end, the last committed one among them."""
    initial: Offsets | None
    """Where batch 0 begins; None before that is decided."""

    @property
    def pending(self) -> int | None:
        """The batch that was planned and is not committed: Spark runs it again; None without."""
        return None if self.last_batch == self.last_commit else self.last_batch


def read_checkpoint(location: str, stream: str = ANY) -> Checkpoint | None:
    """The checkpoint at a path or URI; None if there is nothing. `stream` names it in commands.

    Raises StreamError: FM-STREAM-030 for a damaged file, 031 for a form that is not known, 032 if
    it could not be looked at.
    """
    folder = _Folder(location, stream)
    said = folder.read(METADATA)
    batches, commits = folder.numbers(OFFSETS), folder.numbers(COMMITS)
    if said is None:
        if batches or commits or folder.read(INITIAL) is not None:
            folder.damaged(METADATA, "it is not there, although batches are")
        return None
    query_id = _query_id(folder, said)
    _check_numbers(folder, batches, commits)
    initial = _initial(folder) if not batches or batches[0] == 0 else None
    if batches and batches[0] == 0 and initial is None:
        folder.damaged(INITIAL, "it is not there, although batch 0 is")
    return Checkpoint(
        location,
        query_id,
        batches[-1] if batches else None,
        commits[-1] if commits else None,
        {number: _end(folder, number) for number in batches[-2:]},
        initial,
    )


def begin_checkpoint(location: str, stream: str = ANY) -> str:
    """Begin an empty checkpoint, and return the id that Spark will give its query.

    So a claim can name the query before Spark plans anything. Called again before Spark runs it
    returns the same id. Raises FM-STREAM-032 if it could not be written, FM-STREAM-030 if there are
    batches already.
    """
    folder = _Folder(location, stream)
    found = read_checkpoint(location, stream)
    if found is None:
        query_id = str(uuid.uuid4())
        folder.write(METADATA, json.dumps({"id": query_id}).encode())
        return query_id
    if found.last_batch is not None or found.initial is not None:
        folder.damaged(OFFSETS, "there are batches where a checkpoint was to begin")
    return found.query_id


def noted_state(location: str, stream: str = ANY) -> str | None:
    """What the state in a checkpoint is of, as `note_state` kept it; None where nobody did."""
    content = _Folder(location, stream).read(STATE)
    return None if content is None else content.decode(errors="replace").strip()


def note_state(location: str, definition: str, stream: str = ANY) -> None:
    """Keep beside Spark's files what their state is of: Spark notices only some differences."""
    _Folder(location, stream).write(STATE, f"{definition}\n".encode())


def is_planned(location: str) -> bool:
    """Whether Spark has planned something there, whatever it is; damaged files are no error."""
    folder = _Folder(location, ANY)
    logs = (*folder.numbers(OFFSETS), *folder.numbers(COMMITS))
    return bool(logs) or folder.read(INITIAL) is not None


def incarnations(location: str) -> list[int]:
    """The numbers of the later checkpoints at a place, in order."""
    return _Folder(location, ANY).numbers("", INCARNATION)


def batch_offsets(location: str, batch: int, stream: str = ANY) -> tuple[Offsets, Offsets]:
    """Where a batch that runs begins and ends, from the offset log.

    Raises as `read_checkpoint` does, and FM-STREAM-030 where the batch was not planned.
    """
    folder = _Folder(location, stream)
    end = _end(folder, batch)
    start = _initial(folder) if batch == 0 else _end(folder, batch - 1)
    if start is None:
        folder.damaged(INITIAL, "it is not there, although batch 0 is")
    if not start <= end:
        folder.damaged(f"{OFFSETS}/{batch}", "the batch ends before it begins")
    return start, end


def batch_watermark_ms(location: str, batch: int, stream: str = ANY) -> int:
    """The event-time watermark of a batch, from the offset log; 0 before the first one.

    Milliseconds since 1970. Raises as `batch_offsets` does.
    """
    if batch < 0:
        return 0
    folder, name = _Folder(location, stream), f"{OFFSETS}/{batch}"
    _version, lines = _versioned(folder, name, OFFSETS)
    said = folder.json(name, lines[0]) if lines else None
    found = said.get("batchWatermarkMs") if isinstance(said, dict) else None
    if not isinstance(found, int):
        folder.damaged(name, "it has no watermark")
    return found


def _check_numbers(folder: _Folder, batches: list[int], commits: list[int]) -> None:
    """Spark removes the oldest files only, and commits a batch before it plans the next one."""
    for part, numbers in ((OFFSETS, batches), (COMMITS, commits)):
        if numbers and numbers != list(range(numbers[0], numbers[-1] + 1)):
            absent = sorted(set(range(numbers[0], numbers[-1])) - set(numbers))
            folder.damaged(f"{part}/{absent[0]}", "it is not there, although later ones are")
    if not batches:
        if commits:
            folder.damaged(OFFSETS, "no batch was planned, although batches are committed")
        return
    last = commits[-1] if commits else -1
    if last not in (batches[-1], batches[-1] - 1):
        folder.damaged(
            COMMITS, f"the last is {last if commits else 'none'}, the last planned {batches[-1]}"
        )
    if commits and last < batches[0]:
        folder.damaged(f"{OFFSETS}/{last}", "it is not there, although its commit is")
    if commits:
        _commit(folder, last)


def _query_id(folder: _Folder, content: bytes) -> str:
    said = folder.json(METADATA, folder.text(METADATA, content))
    found = said.get("id") if isinstance(said, dict) else None
    if not isinstance(found, str) or not found.strip():
        folder.damaged(METADATA, "it names no query")
    return found


def _commit(folder: _Folder, number: int) -> None:
    name = f"{COMMITS}/{number}"
    _version, lines = _versioned(folder, name, COMMITS)
    if len(lines) != 1 or not isinstance(folder.json(name, lines[0]), dict):
        folder.damaged(name, "it is not the version and one object")


def _initial(folder: _Folder) -> Offsets | None:
    content = folder.read(INITIAL)
    if content is None:
        return None
    # Spark writes a zero byte first, for readers of its version 2.1.
    if content[:1] != b"\0":
        folder.damaged(INITIAL, "it does not begin with a zero byte")
    _version, lines = _versioned(folder, INITIAL, INITIAL, content[1:])
    if len(lines) != 1:
        folder.damaged(INITIAL, f"it has {len(lines)} lines behind the version, not 1")
    return _offsets(folder, INITIAL, lines[0])


def _end(folder: _Folder, number: int) -> Offsets:
    name = f"{OFFSETS}/{number}"
    version, lines = _versioned(folder, name, OFFSETS)
    if not lines or not isinstance(folder.json(name, lines[0]), dict):
        folder.damaged(name, "its second line is not an object")
    sources = lines[1:] if version == 1 else _without_names(folder, name, lines[1:])
    if len(sources) != 1:
        folder.unknown(name, f"{len(sources)} sources", "one source")
    if sources[0] == NO_OFFSET:
        folder.damaged(name, "it has no offsets")
    return _offsets(folder, name, sources[0])


def _without_names(folder: _Folder, name: str, lines: list[str]) -> list[str]:
    """The offsets of version 2, in which every source has a name: `0:{"orders":{"0":12}}`."""
    parts = [line.partition(":") for line in lines]
    if any(not source or not colon for source, colon, _ in parts):
        folder.damaged(name, "a line does not name its source")
    return [offsets for _, _, offsets in parts]


def _versioned(
    folder: _Folder, name: str, part: str, content: bytes | None = None
) -> tuple[int, list[str]]:
    """The version in the first line, and the lines behind it."""
    content = folder.read(name) if content is None else content
    if content is None:
        folder.damaged(name, "it is not there")
    first, *lines = folder.text(name, content).split("\n")
    if not re.fullmatch(r"v[1-9][0-9]{0,3}", first):
        folder.damaged(name, f"it begins with {first[:40]!r}, not with a version")
    version = int(first[1:])
    if version not in VERSIONS[part]:
        known = " or ".join(f"v{each}" for each in VERSIONS[part])
        folder.unknown(name, first, known)
    return version, lines


def _offsets(folder: _Folder, name: str, text: str) -> Offsets:
    try:
        found = Offsets.parse(text)
    except ValueError as error:
        folder.damaged(name, str(error)[:200])
    if not found:
        folder.damaged(name, "it names no partition")
    return found


class _Folder:
    """Files of one checkpoint; "not there" and "could not be looked at" are different answers."""

    def __init__(self, location: str, stream: str) -> None:
        self.location = location
        self._leave = (
            command("stream", "rewind", stream) + " (leaves it, goes on at the target's end)"
        )
        self._files = self._looked("", lambda _: _files_of(location))

    def read(self, name: str) -> bytes | None:
        """The content of a file; None if it is not there."""
        return self._looked(name, self._files.read)

    def write(self, name: str, content: bytes) -> None:
        """Make a file, whole or not at all."""
        self._looked(name, lambda name: self._files.write(name, content))

    def numbers(self, part: str, prefix: str = "") -> list[int]:
        """The numbers behind a prefix, in order, as the batches of a log; none if it is not there."""
        names = [name for name in self._looked(part, self._files.names) if name.startswith(prefix)]
        numbers = [name.removeprefix(prefix) for name in names]
        return sorted(int(number) for number in numbers if _NUMBER.fullmatch(number))

    def text(self, name: str, content: bytes) -> str:
        try:
            return content.decode()
        except UnicodeDecodeError:
            self.damaged(name, "it is not UTF-8")

    def json(self, name: str, text: str) -> Any:
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            self.damaged(name, f"it is not JSON: {text[:80]!r}")

    def damaged(self, name: str, found: str) -> NoReturn:
        raise StreamError(
            "FM-STREAM-030",
            "a file of a checkpoint is damaged",
            where=f"{self.location}/{name}",
            found=found,
            state="nothing was read or written; the target's own offsets are not affected",
            next=self._leave,
        )

    def unknown(self, name: str, found: str, allowed: str) -> NoReturn:
        raise StreamError(
            "FM-STREAM-031",
            "a checkpoint was written in a form that floodmark does not know",
            where=f"{self.location}/{name}",
            found=found,
            allowed=allowed,
            state="nothing was read or written; the target's own offsets are not affected",
            next=self._leave,
        )

    def _looked(self, name: str, look: Callable[[str], T]) -> T:
        try:
            return look(name)
        except OSError as error:
            raise StreamError(
                "FM-STREAM-032",
                "a checkpoint could not be looked at",
                where=f"{self.location}/{name}",
                found=str(error),
                state="nothing was read or written",
                next="mend the access to the folder, then run the same command again",
                retryable=True,
            ) from error


class _Files(Protocol):
    """Reads below one folder; raises OSError where it could not look."""

    def read(self, name: str) -> bytes | None: ...

    def names(self, part: str) -> list[str]: ...

    def write(self, name: str, content: bytes) -> None: ...


class _LocalFiles:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read(self, name: str) -> bytes | None:
        try:
            return (self._folder / name).read_bytes()
        except FileNotFoundError:
            return None

    def names(self, part: str) -> list[str]:
        try:
            return os.listdir(self._folder / part)
        except FileNotFoundError:
            return []

    def write(self, name: str, content: bytes) -> None:
        write_atomically(self._folder / name, content)


class _StoredFiles:
    """Files of an object store, through pyarrow."""

    def __init__(self, uri: str) -> None:
        from pyarrow import ArrowInvalid
        from pyarrow.fs import FileSystem

        try:
            self._store, self._folder = FileSystem.from_uri(uri)
        except ArrowInvalid as error:
            raise OSError(str(error)) from error

    def read(self, name: str) -> bytes | None:
        try:
            with self._store.open_input_stream(f"{self._folder}/{name}") as stream:
                return bytes(stream.read())
        except FileNotFoundError:
            return None

    def names(self, part: str) -> list[str]:
        from pyarrow.fs import FileSelector

        selector = FileSelector(f"{self._folder}/{part}".rstrip("/"), allow_not_found=True)
        return [info.base_name for info in self._store.get_file_info(selector)]

    def write(self, name: str, content: bytes) -> None:
        with self._store.open_output_stream(f"{self._folder}/{name}") as stream:
            stream.write(content)


def _files_of(location: str) -> _Files:
    scheme, _, rest = location.partition("://")
    if not rest:
        path = location.removeprefix("file:") if location.startswith("file:/") else location
        return _LocalFiles(Path(path))
    if scheme == "file":
        return _LocalFiles(Path(unquote(urlsplit(location).path)))
    # Hadoop's names of the store that others call s3.
    return _StoredFiles(f"s3://{rest}" if scheme in ("s3a", "s3n") else location)
