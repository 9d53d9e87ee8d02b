"""A Delta log, read directly."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from floodmark.deltalog.bulk import NO_FILES, added_files
from floodmark.deltalog.changes import feed_flag, file_rows, instant, slim, version_facts
from floodmark.deltalog.checkpoint import CheckpointReader
from floodmark.deltalog.commit import Action, Commit, damaged
from floodmark.deltalog.files import feed_files, location, places
from floodmark.deltalog.listing import Listing, commit_name, listing_of
from floodmark.deltalog.schema import fingerprint, schema_of
from floodmark.deltalog.storage import Storage, absolute
from floodmark.errors import PlanError, SourceError
from floodmark.model import SnapshotSize, TableFacts, VersionFacts
from floodmark.next_steps import command

T = TypeVar("T")

FEW_COMMITS = 16
"""Up to so many commits are read one by one before a checksum or checkpoint is tried.

A small commit takes 0.015 ms to read on a local disk, a checkpoint about 1 ms.
"""
LOOKBACK = 1_000
"""How many commits back the add of a removed file is looked for."""


@dataclass(frozen=True, slots=True)
class _Header:
    """The table's description at a version."""

    metadata: Action
    protocol: Action
    schema_json: str
    schema_fingerprint: str


def is_delta_table(path: str | os.PathLike[str], storage: Storage | None = None) -> bool:
    """Whether a path holds a Delta log with a commit or checkpoint in it.

    False for a path that is not there; raises FM-SOURCE-009 if it could not be looked at.
    """
    log = DeltaLog(path, storage)
    try:
        return not log.list().is_empty
    except PlanError:
        return False


class DeltaLog:
    """The log of the table at a path or URI; holds no handle and can be kept.

    Every method looks at the table anew where it must: `facts` always lists the folder, the others
    list it again where the last look does not cover the question. Common to
    all: FM-PLAN-001 where the path is not there, FM-PLAN-002 where it has no Delta log,
    FM-SOURCE-002 where the log has a hole, FM-SOURCE-008 where a file is damaged, FM-SOURCE-009
    (a retry may help) where the store could not be asked.
    """

    def __init__(self, path: str | os.PathLike[str], storage: Storage | None = None) -> None:
        self.path = absolute(path)
        self.storage = storage or Storage()
        self._folder = f"{self.path}/_delta_log"
        self._seen: Listing | None = None
        self._kept: dict[int, Commit] = {}
        """A few commits read since the last look: the next question is often about the same."""
        self._headers: dict[int, tuple[_Header, Commit | None]] = {}
        """What `_header` found since then: a commit may be large, and it asks every one."""

    def facts(self) -> TableFacts:
        """The table at its newest version."""
        listing = self.list()
        version = listing.latest
        header, newest = self._header(listing, version)
        metadata, protocol = header.metadata, header.protocol
        return TableFacts(
            path=self.path,
            table_id=str(metadata["id"]),
            latest_version=version,
            latest_at=instant(self._committed_ms(listing, newest)),
            earliest_version=listing.earliest,
            feed_enabled=feed_flag(metadata),
            schema_json=header.schema_json,
            schema_fingerprint=header.schema_fingerprint,
            partition_columns=tuple(metadata.get("partitionColumns") or ()),
            properties=dict(metadata.get("configuration") or {}),
            min_reader_version=protocol.get("minReaderVersion") or 1,
            reader_features=tuple(protocol.get("readerFeatures") or ()),
        )

    def versions(self, first: int, last: int) -> list[VersionFacts]:
        """One per commit of the inclusive range, in order; empty where `first` > `last`.

        Raises FM-SOURCE-001 if `last` is beyond the table, FM-SOURCE-002 naming the versions whose
        commit file is gone.
        """
        if first > last:
            return []
        self._check_range(first, last)
        added = _AddedRows()
        return [self._facts_of(self._commit(v), added) for v in range(first, last + 1)]

    def snapshot_size(self, version: int) -> SnapshotSize:
        """Files, bytes and rows of the whole table at a version.

        Raises FM-SOURCE-001 beyond the table, FM-SOURCE-002 where neither the commits from 0 nor a
        checkpoint with the commits after it are there.
        """
        size = self._size_in_columns(version)
        if size is not None:
            return size
        files = self._live_files(version)
        return self._guarded(lambda: _size_of(files.values()))

    def _size_in_columns(self, version: int) -> SnapshotSize | None:
        """The size of a table that a few large commits have made; None for every other one."""
        listing = self._listing_through(version)
        if _floor(listing, version) >= 0 or version >= FEW_COMMITS:
            return None
        self._check_present(listing, 0, version)
        parts = []
        for commit in map(self._commit, range(version + 1)):
            commit.check()
            part = NO_FILES if not commit.may_have(b'"add"') else added_files(commit)
            if part is None or (part is NO_FILES and commit.may_have(b'"remove"')):
                return None
            parts.append(part)
        paths = {path for part in parts for path in part.paths}
        if len(paths) < sum(len(part.paths) for part in parts):
            return None  # a file that is added again replaces its first action
        rows = [part.rows for part in parts]
        return SnapshotSize(
            files=len(paths),
            bytes=sum(part.bytes for part in parts),
            rows=None if None in rows else sum(count or 0 for count in rows),
        )

    def lost_snapshot_files(self, version: int) -> list[str]:
        """Data files of the whole table at a version that are no longer there; asks for each."""
        return self._lost(self._live_files(version).values())

    def lost_feed_files(self, first: int, last: int) -> list[str]:
        """Files that the change feed reads for the inclusive range and that are no longer there.

        Asks the store for each file. Raises like `versions`.
        """
        self._check_range(first, last)
        commits = (self._commit(version) for version in range(first, last + 1))
        return self._lost(file for commit in commits for file in feed_files(commit))

    def _lost(self, files: Iterable[Action]) -> list[str]:
        def look() -> list[str]:
            return [p for p in places(self.path, files) if not self.storage.exists(p)]

        return self._guarded(look)

    def _live_files(self, version: int) -> dict[tuple[str, str], Action]:
        listing = self._listing_through(version)
        floor = _floor(listing, version)
        self._check_present(listing, floor + 1, version)
        files: dict[tuple[str, str], Action] = {}
        if floor >= 0:
            reader = self._reader(listing, floor)
            files = self._guarded(lambda: {_file_key(add): slim(add) for add in reader.adds()})
        for v in range(floor + 1, version + 1):
            self._replay(self._commit(v), files)
        return files

    def schema_at(self, version: int) -> tuple[str, str]:
        """The schema at a version, as Delta writes it, and its fingerprint."""
        header, _ = self._header(self._listing_through(version), version)
        return header.schema_json, header.schema_fingerprint

    def feed_enabled_at(self, version: int) -> bool:
        """Whether the change feed is on at a version."""
        header, _ = self._header(self._listing_through(version), version)
        return feed_flag(header.metadata)

    def transaction_version(self, app_id: str) -> int | None:
        """The newest version that a commit set for an app id; None where there is none."""
        listing = self.list()
        floor = _floor(listing, listing.latest)
        for commit in self._newest_first(listing, listing.latest, floor + 1):
            set_here = _transaction_in(commit, app_id)
            if set_here is not None:
                return set_here
        if floor < 0:
            return None
        return self._guarded(self._reader(listing, floor).transactions).get(app_id)

    def transactions(self) -> dict[str, int]:
        """Every transaction id of the table with its newest version."""
        listing = self.list()
        floor = _floor(listing, listing.latest)
        found: dict[str, int] = {}
        for commit in self._newest_first(listing, listing.latest, floor + 1):
            found = {**self._transactions_in(commit), **found}
        known = {} if floor < 0 else self._guarded(self._reader(listing, floor).transactions)
        return {**known, **found}

    def _transactions_in(self, commit: Commit) -> dict[str, int]:
        try:
            return {txn["appId"]: txn["version"] for txn in commit.named("txn")}
        except (KeyError, TypeError) as error:
            raise damaged(commit.path, f"an action makes no sense: {error!r}") from error

    def find_transaction(self, app_id: str, version: int) -> VersionFacts | None:
        """The commit that set exactly this version for an app id.

        None where there is none, or where its commit file is no longer there. Versions of an app
        id only grow, so the search stops at the first lower one.
        """
        listing = self.list()
        floor = _floor(listing, listing.latest)
        for commit in self._newest_first(listing, listing.latest, 0):
            if commit.version == floor and not self._is_known_at(listing, floor, app_id, version):
                return None
            set_here = _transaction_in(commit, app_id)
            if set_here == version:
                return self._facts_of(commit, _AddedRows())
            if set_here is not None and set_here < version:
                return None
        return None

    def _is_known_at(self, listing: Listing, floor: int, app_id: str, version: int) -> bool:
        """Whether the checkpoint at `floor` has the app id at `version` or later."""
        known = self._guarded(self._reader(listing, floor).transactions).get(app_id)
        return known is not None and known >= version

    def list(self) -> Listing:
        """A new look at the log folder; a hole is looked at twice before it is believed.

        A folder that is listed while commits arrive may show a commit and not the one before it.
        """
        listing = self._look()
        if listing.latest < listing.highest:
            listing = self._look()
        if listing.latest < listing.highest:
            raise self._hole(listing, listing.latest + 1, listing.highest)
        self._seen = listing
        self._kept.clear()
        self._headers.clear()
        return listing

    def _look(self) -> Listing:
        try:
            names = self.storage.names(self._folder)
        except FileNotFoundError:
            names = []
        except NotADirectoryError:
            names = []
        except OSError as error:
            raise _not_seen(self._folder, error) from error
        listing = listing_of(names)
        if listing.is_empty:
            raise self._no_table()
        return listing

    def _no_table(self) -> PlanError:
        try:
            is_there = self.storage.exists(self.path)
        except OSError as error:
            raise _not_seen(self.path, error) from error
        if not is_there:
            return PlanError(
                "FM-PLAN-001",
                f"there is nothing at {self.path}",
                where=self.path,
                allowed="the path or URI of a Delta table",
                state="nothing was planned or read",
                next="correct the path, then run the same command again",
            )
        return PlanError(
            "FM-PLAN-002",
            f"{self.path} is not a Delta table",
            where=self._folder,
            found="no commit in its log folder",
            allowed="a folder whose _delta_log holds commits",
            state="nothing was planned or read",
            next="correct the path, or write the table first",
        )

    def _listing_through(self, version: int) -> Listing:
        """The last look if it reaches `version`, else a new one; FM-SOURCE-001 beyond the table."""
        seen = self._seen
        if seen is None or version > seen.latest:
            seen = self.list()
        if not 0 <= version <= seen.latest:
            raise SourceError(
                "FM-SOURCE-001",
                f"version {version} is beyond the table",
                where=self.path,
                found=f"versions through {seen.latest}",
                allowed=f"a version from 0 through {seen.latest}",
                state="nothing was read or written",
                next="plan again, so that the range ends at the newest version",
                details={"version": str(version), "latest": str(seen.latest)},
            )
        return seen

    def _check_range(self, first: int, last: int) -> None:
        self._listing_through(first)
        self._check_present(self._listing_through(last), first, last)

    def _check_present(self, listing: Listing, first: int, last: int) -> None:
        if listing.missing(first, last):
            raise self._hole(listing, first, last)

    def _hole(self, listing: Listing, first: int, last: int) -> SourceError:
        missing = listing.missing(first, last)
        return SourceError(
            "FM-SOURCE-002",
            f"versions {_ranges(missing)} are gone from the log",
            where=self._folder,
            found=f"commit files from version {listing.earliest} through {listing.latest}",
            allowed=f"every commit file from {first} through {last}",
            state="nothing was read or written; the committed watermark stays",
            next=command("lag") + " shows what is left; restore the files or take a new baseline",
            details={"missing": _ranges(missing)},
        )

    def _commit(self, version: int) -> Commit:
        commit = self._kept.get(version) or self._read(version)
        if len(self._kept) < FEW_COMMITS:
            self._kept[version] = commit
        return commit

    def _read(self, version: int) -> Commit:
        path = f"{self._folder}/{commit_name(version)}"
        try:
            data, modified_ms = self.storage.read_timed(path)
        except FileNotFoundError:
            # Cleaned between the listing and this read.
            listing = self.list()
            if version not in listing.commits:
                raise self._hole(listing, version, version) from None
            raise _not_seen(path, FileNotFoundError(path)) from None
        except OSError as error:
            raise _not_seen(path, error) from error
        return Commit(version, path, data, modified_ms)

    def _newest_first(self, listing: Listing, version: int, down_to: int) -> Iterator[Commit]:
        """Checked commits from `version` down to `down_to`, or to the first that is not there."""
        while version >= down_to and version in listing.commits:
            commit = self._commit(version)
            commit.check()
            yield commit
            version -= 1

    def _header(self, listing: Listing, version: int) -> tuple[_Header, Commit | None]:
        """The newest metaData and protocol at or before `version`, and a commit read for it."""
        found = self._headers.get(version)
        if found is None:
            found = self._headers[version] = self._find_header(listing, version)
        return found

    def _find_header(self, listing: Listing, version: int) -> tuple[_Header, Commit | None]:
        floor = _floor(listing, version)
        self._check_present(listing, floor + 1, version)
        search = _HeaderSearch()
        newest: Commit | None = None
        if version - floor > FEW_COMMITS:
            self._search_checksum(search, version)
        for commit in self._newest_first(listing, version, floor + 1):
            newest = newest or commit
            if not search.is_done:
                search.look_into(commit)
            if search.is_done:
                break
        if not search.is_done and floor >= 0:
            self._search_checkpoint(search, self._reader(listing, floor))
        return search.result(self._folder), newest

    def _search_checksum(self, search: _HeaderSearch, version: int) -> None:
        """Spark writes the table's description beside each commit; it only saves reads."""
        try:
            checksum = json.loads(self.storage.read(f"{self._folder}/{version:020d}.crc"))
        except (OSError, ValueError):
            return  # optional by the protocol: the commits say the same
        if isinstance(checksum, dict):
            search.offer("metaData", checksum.get("metadata"))
            search.offer("protocol", checksum.get("protocol"))

    def _search_checkpoint(self, search: _HeaderSearch, reader: CheckpointReader) -> None:
        search.offer("metaData", self._guarded(lambda: reader.last("metaData")))
        search.offer("protocol", self._guarded(lambda: reader.last("protocol")))

    def _reader(self, listing: Listing, version: int) -> CheckpointReader:
        checkpoint = listing.checkpoint_at(version)
        if checkpoint is None:
            raise self._hole(listing, 0, version)
        return CheckpointReader(self.storage, self._folder, checkpoint)

    def _guarded(self, read: Callable[[], T]) -> T:
        try:
            return read()
        except OSError as error:
            raise _not_seen(self._folder, error) from error
        except (KeyError, TypeError, ValueError) as error:
            raise damaged(self._folder, f"a checkpoint makes no sense: {error!r}") from error

    def _committed_ms(self, listing: Listing, newest: Commit | None) -> int:
        if newest is None and listing.latest in listing.commits:
            newest = self._commit(listing.latest)
            newest.check()
        if newest is not None:
            return newest.committed_ms()
        # A latest version without a commit file is a checkpoint's.
        name = self._reader(listing, listing.latest).checkpoint.names[0]
        entry = self._guarded(lambda: self.storage.entry(f"{self._folder}/{name}"))
        return entry.modified_ms if entry else 0

    def _facts_of(self, commit: Commit, added: _AddedRows) -> VersionFacts:
        def rows_of(paths: set[str], before: int) -> Mapping[str, int | None]:
            return self._rows_added(paths, before, added)

        try:
            return version_facts(commit, rows_of)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise damaged(commit.path, f"an action makes no sense: {error!r}") from error

    def _rows_added(
        self, paths: set[str], before: int, added: _AddedRows
    ) -> Mapping[str, int | None]:
        """Rows of whole files from the adds of older commits; a file not found is left out."""
        listing = self._seen or self.list()
        for version in range(before - 1, max(-1, before - 1 - LOOKBACK), -1):
            if paths <= added.rows.keys() or version not in listing.commits:
                break
            if version not in added.scanned:
                added.scan(self._commit(version))
        return added.rows

    def _replay(self, commit: Commit, files: dict[tuple[str, str], Action]) -> None:
        try:
            added: dict[tuple[str, str], Action] = {}
            for name, file in commit.actions():
                if name == "add":
                    added[_file_key(file)] = slim(file)
                elif name == "remove":
                    files.pop(_file_key(file), None)
            files.update(added)
        except (KeyError, TypeError) as error:
            raise damaged(commit.path, f"an action makes no sense: {error!r}") from error


_HEADER_NAMES = (("metaData", b'"metaData"'), ("protocol", b'"protocol"'))


class _HeaderSearch:
    """The newest metaData and protocol among actions offered newest first."""

    def __init__(self) -> None:
        self._found: dict[str, Action] = {}

    @property
    def is_done(self) -> bool:
        return len(self._found) == 2

    def look_into(self, commit: Commit) -> None:
        for name, quoted in _HEADER_NAMES:
            if commit.may_have(quoted) and name not in self._found:
                for action in commit.named(name):
                    self._found[name] = action

    def offer(self, name: str, action: Action | None) -> None:
        if action is not None:
            self._found.setdefault(name, action)

    def result(self, folder: str) -> _Header:
        metadata = self._found.get("metaData")
        if metadata is None or "id" not in metadata:
            raise damaged(folder, "no complete metaData action in commits or checkpoint")
        protocol = self._found.get("protocol")
        if protocol is None:
            raise damaged(folder, "no protocol action in commits or checkpoint")
        schema = schema_of(metadata)
        try:
            return _Header(metadata, protocol, schema, fingerprint(schema))
        except (ValueError, TypeError, RecursionError):
            raise damaged(folder, "the newest metaData action has no readable schema") from None


def _floor(listing: Listing, version: int) -> int:
    """The version at and below which a checkpoint is read instead of commits; -1 for none.

    A few commits from the very first one are read sooner than a checkpoint.
    """
    checkpoint = listing.checkpoint_at(version)
    if checkpoint is None or (version < FEW_COMMITS and not listing.missing(0, version)):
        return -1
    return checkpoint.version


class _AddedRows:
    """Rows of the whole files that commits brought; each commit is looked through once."""

    def __init__(self) -> None:
        self.rows: dict[str, int | None] = {}
        """None for a file whose add has no statistics."""
        self.scanned: set[int] = set()

    def scan(self, commit: Commit) -> None:
        self.scanned.add(commit.version)
        for add in commit.named("add"):
            whole = {k: v for k, v in add.items() if k != "deletionVector"}
            rows = file_rows(whole)
            path = location(add["path"])
            if rows is not None or path not in self.rows:
                self.rows[path] = rows


def _transaction_in(commit: Commit, app_id: str) -> int | None:
    if not commit.may_have(b'"txn"'):
        return None
    set_here = [t["version"] for t in commit.named("txn") if t.get("appId") == app_id]
    return set_here[-1] if set_here else None


def _file_key(file: Action) -> tuple[str, str]:
    """A data file's identity in the log: its path and its deletion vector."""
    vector: Mapping[str, Any] | None = file.get("deletionVector")
    if not vector:
        return location(file["path"]), ""
    parts = (
        vector.get("storageType"),
        vector.get("pathOrInlineDv"),
        vector.get("offset"),
    )
    return location(file["path"]), json.dumps(parts)


def _size_of(files: Any) -> SnapshotSize:
    count, size, rows = 0, 0, 0
    is_known = True
    for file in files:
        count += 1
        size += int(file.get("size") or 0)
        live = file_rows(file)
        is_known = is_known and live is not None
        rows += live or 0
    return SnapshotSize(files=count, bytes=size, rows=rows if is_known else None)


def _ranges(versions: list[int]) -> str:
    """Versions for people: "3, 5-9"; the first twenty runs."""
    runs: list[list[int]] = []
    for version in versions:
        if runs and runs[-1][1] == version - 1:
            runs[-1][1] = version
        else:
            runs.append([version, version])
    shown = [str(a) if a == b else f"{a}-{b}" for a, b in runs[:20]]
    return ", ".join(shown) + (" ..." if len(runs) > 20 else "")


def _not_seen(path: str, error: OSError) -> SourceError:
    return SourceError(
        "FM-SOURCE-009",
        "a table's log could not be looked at",
        where=path,
        found=f"{type(error).__name__}: {error.strerror or error}",
        state="nothing was read or written; the committed watermark stays",
        next="make the place readable, then run the same command again",
        retryable=True,
    )
