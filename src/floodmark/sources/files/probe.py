"""What is new in a folder or glob of files, by lists: no Spark.

A window is the files that are on its end's list and not on its start's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from floodmark.deltalog import Storage
from floodmark.errors import SourceError
from floodmark.model import Caution, FilesMark, FilesWindow, TableFacts, TimeFacts
from floodmark.next_steps import BATCH, THEN_RETRY, command
from floodmark.sources.faults import out_of_reach
from floodmark.sources.files.csv import DEFAULTS_VERSION, DELIMITED
from floodmark.sources.files.folders import Folders
from floodmark.sources.files.lists import (
    FileFacts,
    FileLists,
    Files,
    NewFiles,
    listed,
    new_files,
    refuse_no_place,
    split_pattern,
)
from floodmark.sources.source import LookSpec, facts_without_versions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ReadWith = Callable[["SparkSession", list[str], Mapping[str, Any], str | None], "DataFrame"]
"""Session, absolute paths, options and declared columns in, rows out."""


@dataclass(frozen=True)
class FileReader:
    """What one upstream of files is, and how they are read.

    Nothing of it is stored: format and options may be edited between two windows.
    """

    upstream: str
    root: str
    """The folder of the connection: an absolute path or URI; lists name files from there on."""
    pattern: str
    """A path or glob below it."""
    format: str
    lists: FileLists
    storage: Storage
    ddl: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    """Of Spark's reader, as text; of a plug-in's, as they are said."""
    new_files: NewFiles = "list"
    file_column: str | None = None
    """A column with the path of the file that a row came from."""
    read_with: ReadWith | None = None
    """What reads a format that Spark does not know."""
    settle: float = 0.0
    """A file that is younger, in seconds, may still be written: it waits."""
    pipeline: str = ""
    """Whose node reads them."""
    hides_values: bool = False
    """Whether no value may be shown: a column is sensitive, and a header may be none but values."""
    takes_new_columns: bool = False
    """Whether files may have other columns than one another: every write of the rows says so."""

    def facts(self) -> TableFacts:
        """What is known without a look: a folder has no versions."""
        return facts_without_versions(self.upstream)

    def examine(self, spec: LookSpec) -> None:  # noqa: ARG002 see Reader
        """Raise FM-PLAN-001 if there is no place to look for files, as planning would."""
        refuse_no_place(self.absolute(self.pattern), self.storage)

    def look(self, window: FilesWindow, spec: LookSpec) -> TimeFacts:
        """See `Looker.look`; keeps the list that the end of the window is."""
        lists = self.lists.with_scratch(spec.scratch)
        processed = lists.read(self.upstream, window.after_mark)
        files = self.files_there()
        new = new_files(files, processed, self.new_files)
        taken = {path: facts for path, facts in new.items() if self._is_settled(facts, spec.now)}
        nothing_yet = TimeFacts(
            "files",
            None,
            waiting=len(new) - len(taken) or None,
            warning=self._caution(files, processed) if self.new_files == "list" else None,
        )
        if not taken:
            return nothing_yet
        mark = lists.keep(self.upstream, {**processed, **taken})
        again = sum(path in processed for path in taken)
        mark = replace(mark, defaults=self._defaults_after(window.after_mark), again=again)
        oldest_ms = min(facts.modified_ms for facts in taken.values())
        return replace(
            nothing_yet,
            newest=mark,
            bytes=sum(facts.size for facts in taken.values()),
            items=len(taken),
            since=datetime.fromtimestamp(oldest_ms / 1000, UTC) if oldest_ms else None,
        )

    def _caution(self, files: Files, processed: Files) -> Caution | None:
        """Files that changed after they were read: nobody reads what was added to them."""
        old = {path: facts for path, facts in files.items() if path in processed}
        changed = [
            _change(path, processed[path], now)
            for path, now in new_files(old, processed, "modified").items()
        ]
        if not changed:
            return None
        more = f"; so were {len(changed) - 1:,} more files" if len(changed) > 1 else ""
        again = command("run", "--full-refresh", *filter(None, [self.pipeline]))
        return Caution(
            f"{changed[0]}{more}: what was added or changed there is not read",
            "put new rows into a new file; or load every file again: "
            + again
            + "; or say new_files: modified, with a merge, in the node: files that change are then"
            " read again as a whole",
        )

    def _defaults_after(self, start: FilesMark | None) -> int:
        """By which defaults all files up to a mark were read: the oldest of them."""
        mine = DEFAULTS_VERSION if self.format in DELIMITED else 0
        return mine if start is None else min(mine, start.defaults)

    def _is_settled(self, facts: FileFacts, now: datetime) -> bool:
        return not self.settle or facts.modified_ms <= (now.timestamp() - self.settle) * 1000

    def files_there(self) -> dict[str, FileFacts]:
        """The files that are there now."""
        files = listed(self.absolute(self.pattern), self.storage)
        return {path.removeprefix(f"{self.root}/"): facts for path, facts in files.items()}

    def absolute(self, path: str) -> str:
        """A path of a list, from where its storage begins."""
        return f"{self.root}/{path}"

    @property
    def base(self) -> str:
        """Where the search for files begins: folders below it may be columns."""
        return split_pattern(self.absolute(self.pattern))[0]

    def folders(self, path: str) -> Folders:
        """The folders of a file, whose path is an absolute one."""
        return Folders.of(path.removeprefix(self.base).lstrip("/"))

    def files_of(self, window: FilesWindow) -> dict[str, FileFacts]:
        """The files of a window."""
        before = self.lists.read(self.upstream, window.after_mark)
        after = self.lists.read(self.upstream, window.through_mark)
        return new_files(after, before, "modified")

    def on_list(self, mark: FilesMark | None) -> Files:
        """The files of a mark."""
        return self.lists.read(self.upstream, mark)

    def readable(self, window: FilesWindow, files: Files) -> dict[str, FileFacts]:
        """Of `files` those that the window reads; raises FM-SOURCE-041 where that is not decided."""
        changed = self.changed(files)
        gone = [path for path, facts in changed.items() if facts is None]
        if changed and window.method == "query":
            raise _changed(window, {path: changed[path] for path in (gone or list(changed))[:1]})
        if gone and window.method == "snapshot":
            raise _changed(window, {gone[0]: None})
        if window.method == "lost":
            return {path: facts for path, facts in files.items() if path not in changed}
        return {path: changed.get(path) or facts for path, facts in files.items()}

    def changed(self, files: Files) -> dict[str, FileFacts | None]:
        """The files that are not as planned, as they are now; None for one that is gone."""
        now = {path: self._now(path) for path in files}
        return {path: facts for path, facts in now.items() if facts != files[path]}

    def _now(self, path: str) -> FileFacts | None:
        try:
            entry = self.storage.entry(self.absolute(path))
        except OSError as error:
            raise out_of_reach(path, error) from error
        return None if entry is None else FileFacts(entry.size, entry.modified_ms)

    def correct(self, window: FilesWindow, changed: Mapping[str, FileFacts | None]) -> None:
        """Remember how the files of a window are now: later windows do not take them for changed."""
        mark = window.through_mark
        now = {path: facts for path, facts in changed.items() if facts is not None}
        if mark is not None and now:
            self.lists.correct(self.upstream, mark, now)


def _change(path: str, read: FileFacts, now: FileFacts) -> str:
    if read.size == now.size:
        return f"{path} was written again after it was read, with {now.size:,} bytes as before"
    return f"{path} was changed after it was read: from {read.size:,} to {now.size:,} bytes"


def _changed(window: FilesWindow, files: Mapping[str, FileFacts | None]) -> SourceError:
    ((path, now),) = files.items()
    return SourceError(
        "FM-SOURCE-041",
        f"{path.rpartition('/')[2]} was in this batch and has been"
        f" {'deleted' if now is None else 'changed'} since",
        where=f"{window.upstream}: {path}",
        found="it is gone" if now is None else "it was written again",
        allowed="files that stay as they are once they are there",
        state="nothing was read; the committed watermark stays",
        next="put the file back, "
        + THEN_RETRY
        + "; or go on with what is there now: "
        + command("retry", BATCH, "--on-lost-range", "snapshot")
        + " (files as they are now) or accept (without those that are not as planned)",
    )
