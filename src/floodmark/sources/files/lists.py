"""Lists of files: what is there now, what was processed, and what is new between the two.

A mark of an upstream of files is the list of all that was processed up to there. It is kept beside
the control store under the hash of its content, so a mark stays small however many files it names.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Literal

from floodmark.deltalog import Entry, Storage
from floodmark.errors import PlanError, SourceError
from floodmark.model import AnswerMark, AnyMark, FilesMark, epoch_micros
from floodmark.model.names import short_hash
from floodmark.next_steps import BATCH, command
from floodmark.sources.faults import out_of_reach
from floodmark.sources.frames import HALF_COPIED
from floodmark.sources.scratch import Keeping, Scratch

NewFiles = Literal["list", "modified"]
"""list: files whose path is not on the list yet. modified: also those that changed since."""

FOLDER = "files"
"""Where lists are, below the control store."""
CORRECTIONS = ".corrected.json"
"""Files of a list that were read as they were later, after `--on-lost-range snapshot`."""

_WILD = frozenset("*?[")
_EVERYTHING = "**"


@dataclass(frozen=True, slots=True)
class FileFacts:
    """By what a file is known again."""

    size: int
    modified_ms: int


Files = Mapping[str, FileFacts]
"""Files by path, from the root of their connection on."""


class FileLists:
    """The lists that marks stand for; written once, never changed."""

    def __init__(self, control: str, storage: Storage | Keeping) -> None:
        self._control = control
        self._folder = f"{control}/{FOLDER}"
        self._storage = storage if isinstance(storage, Keeping) else Keeping(storage)

    def with_scratch(self, scratch: Scratch | None) -> FileLists:
        """The same lists for looks that keep nothing; for None these."""
        return (
            self
            if scratch is None
            else FileLists(self._control, self._storage.with_scratch(scratch))
        )

    def keep(self, upstream: str, files: Files) -> FilesMark:
        """Store a list; it is there before the mark that names it can be journaled."""
        lines = {path: [facts.size, facts.modified_ms] for path, facts in sorted(files.items())}
        content = json.dumps(lines, separators=(",", ":"), ensure_ascii=False).encode()
        mark = FilesMark(_id_of(content), len(files))
        self._keep(upstream, content, mark)
        return mark

    def keep_content(self, upstream: str, content: bytes, records: int) -> AnswerMark:
        """Store the records of an answer."""
        mark = AnswerMark(_id_of(content), records)
        self._keep(upstream, content, mark)
        return mark

    def _keep(self, upstream: str, content: bytes, mark: FilesMark | AnswerMark) -> None:
        # Also over one that is there: it is as young again as `sweep` wants it of what a plan needs.
        self._storage.write(self.place(upstream, mark), content)

    def read(self, upstream: str, mark: FilesMark | None) -> dict[str, FileFacts]:
        """The files of a mark, none for the beginning; raises FM-SOURCE-040 if its list is gone."""
        if mark is None:
            return {}
        path = self.place(upstream, mark)
        try:
            lines = json.loads(self._storage.read(path))
        except FileNotFoundError as error:
            raise _list_gone(upstream, path) from error
        lines |= self._corrections(upstream, mark)
        return {name: FileFacts(size, modified) for name, (size, modified) in lines.items()}

    def correct(self, upstream: str, mark: FilesMark, files: Files) -> None:
        """Keep how files of a mark are now, since that is how they are read; twice is once.

        The list itself never changes: it is kept beside it, and goes where the list goes.
        """
        lines = {path: [facts.size, facts.modified_ms] for path, facts in files.items()}
        content = json.dumps({**self._corrections(upstream, mark), **lines}, ensure_ascii=False)
        self._storage.write(self._place_of_corrections(upstream, mark), content.encode())

    def _corrections(self, upstream: str, mark: FilesMark) -> dict[str, list[int]]:
        path = self._place_of_corrections(upstream, mark)
        try:
            corrections: dict[str, list[int]] = json.loads(self._storage.read(path))
        except FileNotFoundError:
            return {}
        return corrections

    def _place_of_corrections(self, upstream: str, mark: FilesMark) -> str:
        return self.place(upstream, mark).removesuffix(".json") + CORRECTIONS

    def sweep(self, marks: Iterable[AnyMark], before: datetime) -> int:
        """Remove the lists that none of these marks is and that are older; returns how many.

        A younger one may belong to a plan that is not journaled yet.
        """
        wanted = {mark.id for mark in marks if isinstance(mark, FilesMark | AnswerMark)}
        latest_ms = epoch_micros(before) // 1000
        old = [
            path
            for path, entry in self._all()
            if entry.name.partition(".")[0] not in wanted and entry.modified_ms < latest_ms
        ]
        for path in old:
            self._storage.delete(f"{self._folder}/{path}")
        return len(old)

    def named(self, marks: Iterable[AnyMark]) -> list[str]:
        """The paths of the lists that these marks are, from the control store on; not of answers."""
        wanted = {mark.id for mark in marks if isinstance(mark, FilesMark)}
        found = self._all() if wanted else ()
        return [
            f"{FOLDER}/{path}" for path, entry in found if entry.name.partition(".")[0] in wanted
        ]

    def _all(self) -> Iterator[tuple[str, Entry]]:
        """Every list, by its path below the folder."""
        for folder in self._storage.list(self._folder):
            for entry in self._storage.list(f"{self._folder}/{folder.name}"):
                yield f"{folder.name}/{entry.name}", entry

    def place(self, upstream: str, mark: FilesMark | AnswerMark) -> str:
        """Where that is which a mark stands for."""
        return f"{self._folder}/{short_hash(upstream)}/{mark.id}.json"


def _id_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:32]


def new_files(found: Files, known: Files, by: NewFiles) -> dict[str, FileFacts]:
    """The files that are there and were not processed."""
    if by == "list":
        return {path: facts for path, facts in found.items() if path not in known}
    return {path: facts for path, facts in found.items() if known.get(path) != facts}


def listed(pattern: str, storage: Storage) -> dict[str, FileFacts]:
    """The files that a path or glob means, with size and time.

    A folder means every file below it. `**` stands for any number of folders. Names that begin with
    _ or . are left out unless the pattern says them, and files that are still being copied. Raises FM-PLAN-001 if the place does not exist,
    FM-SOURCE-009 if it could not be looked at, FM-SOURCE-059 for a name that is not UTF-8.
    """
    root, parts = split_pattern(pattern)
    try:
        entry = storage.entry(root)
        if entry is None:
            raise _no_such_place(pattern, root)
        if not parts and not entry.is_folder:
            return {root: FileFacts(entry.size, entry.modified_ms)}
        return dict(_walked(root, parts or [_EVERYTHING], storage))
    except OSError as error:
        raise out_of_reach(pattern, error) from error


def refuse_no_place(pattern: str, storage: Storage) -> None:
    """Raise FM-PLAN-001 if the place below which a path or glob is looked for does not exist."""
    root, _ = split_pattern(pattern)
    try:
        if storage.entry(root) is None:
            raise _no_such_place(pattern, root)
    except OSError as error:
        raise out_of_reach(pattern, error) from error


def split_pattern(pattern: str) -> tuple[str, list[str]]:
    """Where the search begins, and the parts below it, from the first with a wildcard on.

    >>> split_pattern("/lake/in/2026-*/*.csv")
    ('/lake/in', ['2026-*', '*.csv'])
    """
    parts = pattern.split("/")
    first = next((i for i, part in enumerate(parts) if _WILD & set(part)), len(parts))
    return "/".join(parts[:first]), parts[first:]


def _walked(folder: str, parts: list[str], storage: Storage) -> Iterator[tuple[str, FileFacts]]:
    here, rest = parts[0], parts[1:]
    if here == _EVERYTHING and rest:
        yield from _walked(folder, rest, storage)
    for entry in storage.list(folder):
        path = f"{folder}/{entry.name}"
        if not _matches(entry.name, here):
            continue
        if entry.is_folder:
            below = parts if here == _EVERYTHING else rest or [_EVERYTHING]
            yield from _walked(path, below, storage)
        elif not rest:
            _refuse_unreadable_name(path)
            yield path, FileFacts(entry.size, entry.modified_ms)


def _refuse_unreadable_name(path: str) -> None:
    """Neither a list nor Spark can name a file whose name is not UTF-8."""
    try:
        path.encode()
    except UnicodeEncodeError:
        raise SourceError(
            "FM-SOURCE-059",
            "the name of a file is not UTF-8",
            where=path.encode("utf-8", "backslashreplace").decode(),
            allowed="names in UTF-8; each \\udc.. above is a byte that is none",
            state="nothing was planned or read",
            next="rename the file, or move it away, then run the same command again",
        ) from None


def _matches(name: str, part: str) -> bool:
    is_hidden = name.startswith(("_", ".")) and not part.startswith(name[0])
    is_hidden |= name.endswith(HALF_COPIED)
    return not is_hidden and (part == _EVERYTHING or fnmatchcase(name, part))


def _no_such_place(pattern: str, root: str) -> PlanError:
    return PlanError(
        "FM-PLAN-001",
        f"upstream {pattern} cannot be found",
        found=f"there is no {root}",
        allowed="a file, a folder, or a glob below a folder that exists",
        state="nothing was planned",
        next="check the path",
    )


class ListGone(SourceError):
    """FM-SOURCE-040: nobody knows any more which files a mark stands for."""


def _list_gone(upstream: str, path: str) -> ListGone:
    return ListGone(
        "FM-SOURCE-040",
        "the list of the files that were processed is gone",
        where=upstream,
        found=f"no {path}",
        allowed="the folder of the control store as it was",
        state="nothing was read or written; the committed watermark stays",
        next="put the folder `files` of the control store back from a copy. Without one, a"
        " batch that is open is ended by "
        + command("retry", BATCH, "--on-lost-range", "accept")
        + ", and a reset begins anew: with baseline: latest in the node it leaves out"
        " what is there now, without it reads every file again: "
        + command("state", "reset", "--upstream", upstream, "--yes"),
    )
