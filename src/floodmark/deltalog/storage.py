"""A small door to files: local disk, or an object store through delta-rs."""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit
from uuid import uuid4

import pyarrow as pa
import pyarrow.fs as pafs

from floodmark.secrecy import remember_options

_SCHEME = re.compile(r"^([A-Za-z][A-Za-z0-9+.\-]+):/")
_NANOS_PER_MILLI = 1_000_000


@dataclass(frozen=True, slots=True)
class Entry:
    """A file or folder directly inside a listed folder."""

    name: str
    is_folder: bool
    size: int
    modified_ms: int
    """Milliseconds since 1970 in UTC; 0 where the store does not tell, as for folders."""


def is_local(path: str | os.PathLike[str]) -> bool:
    """Whether a path is on a local disk: no scheme, or `file:`."""
    match = _SCHEME.match(os.fspath(path))
    return match is None or match[1].lower() == "file"


def absolute(path: str | os.PathLike[str], base: str | os.PathLike[str] | None = None) -> str:
    """The name under which a path is stored.

    Local: absolute (relative ones against `base`, else the working directory), `.` and `..`
    folded, no trailing slash, `file:` stripped and its percent escapes decoded, symbolic links
    not resolved. Object stores: the URI as given, without trailing slashes.

    >>> absolute("orders/", base="/lake")
    '/lake/orders'
    >>> absolute("file:///lake/new%20orders")
    '/lake/new orders'
    >>> absolute("s3://bucket/orders/")
    's3://bucket/orders'
    """
    text = os.fspath(path)
    if not is_local(text):
        return text.rstrip("/")
    if _SCHEME.match(text):
        text = unquote(urlsplit(text).path)
    elif base is not None:
        root = absolute(base)
        if not is_local(root) and not os.path.isabs(text):
            return f"{root}/{text}".rstrip("/")
        text = os.path.join(root, text)
    return "/" + os.path.abspath(text).lstrip("/")


class _Files(Protocol):
    """What one kind of store can do; every path is absolute.

    A thing that is not there raises FileNotFoundError (or gives None from `entry`); a store that
    could not be asked raises another OSError.
    """

    def names(self, folder: str) -> list[str]: ...
    def entries(self, folder: str) -> list[Entry]: ...
    def entry(self, path: str) -> Entry | None: ...
    def read(self, path: str) -> bytes: ...
    def read_timed(self, path: str) -> tuple[bytes, int]: ...
    def open(self, path: str) -> pa.NativeFile: ...
    def write(self, path: str, data: bytes) -> None: ...
    def delete(self, path: str) -> None: ...
    def delete_dir(self, folder: str) -> None: ...


class Storage:
    """Files by absolute path or URI; each root of an object store is opened once.

    Every method raises FileNotFoundError for what is not there and another OSError where the
    store could not be asked, so that an outage never reads as an answer. Safe to share between
    threads. `storage_options` are those of delta-rs; `open_root` opens `scheme://bucket` in
    another way than through delta-rs.
    """

    def __init__(
        self,
        storage_options: Mapping[str, str] | None = None,
        open_root: Callable[[str, Mapping[str, str]], _Files] | None = None,
    ) -> None:
        self.options = dict(storage_options or {})
        remember_options(self.options)
        self._open_root = open_root or ObjectFiles
        self._local = _LocalFiles()
        self._remote: dict[str, _Files] = {}

    def names(self, folder: str) -> list[str]:
        """The names directly in a folder, in no order; the quickest look.

        An object store has no folders: there an empty listing raises FileNotFoundError.
        """
        return self._files(folder).names(folder)

    def list(self, folder: str) -> list[Entry]:
        """The files and folders directly in a folder with size and time, sorted by name."""
        return sorted(self._files(folder).entries(folder), key=lambda e: e.name)

    def entry(self, path: str) -> Entry | None:
        """Size and time of one file or folder; None where there is nothing."""
        return self._files(path).entry(path)

    def exists(self, path: str) -> bool:
        """Whether a file or folder is there."""
        return self.entry(path) is not None

    def read(self, path: str) -> bytes:
        """The whole content of a file."""
        return self._files(path).read(path)

    def read_timed(self, path: str) -> tuple[bytes, int]:
        """The content of a file and its modification time in milliseconds."""
        return self._files(path).read_timed(path)

    def open(self, path: str) -> pa.NativeFile:
        """A file for random access, as pyarrow reads Parquet from."""
        return self._files(path).open(path)

    def write(self, path: str, data: bytes) -> None:
        """Replace a file so that a reader sees the old or the new content, never a part.

        Locally by a temporary file and a rename, making folders as needed; in an object store by
        one put. Two writers at once: the last one stays.
        """
        self._files(path).write(path, data)

    def delete(self, path: str) -> None:
        """Remove a file; one that is not there is not an error."""
        self._files(path).delete(path)

    def delete_dir(self, folder: str) -> None:
        """Remove a folder and all in it; one that is not there is not an error."""
        self._files(folder).delete_dir(folder)

    def absolute(self, path: str | os.PathLike[str], base: str | None = None) -> str:
        """See `absolute`."""
        return absolute(path, base)

    def is_local(self, path: str | os.PathLike[str]) -> bool:
        """See `is_local`."""
        return is_local(path)

    def _files(self, path: str) -> _Files:
        if path.startswith("/"):
            return self._local
        if is_local(path):
            raise ValueError(f"not an absolute path: {path!r}; use absolute() first")
        parts = urlsplit(path)
        root = f"{parts.scheme}://{parts.netloc}"
        if root not in self._remote:
            self._remote[root] = self._open_root(root, self.options)
        return self._remote[root]


def files_below(folder: str, storage: Storage) -> list[str]:
    """The paths of all files below a folder, from it on; none if it is not there."""
    try:
        found = storage.list(folder)
    except FileNotFoundError:
        return []
    files = [entry.name for entry in found if not entry.is_folder]
    for entry in found:
        if entry.is_folder:
            below = files_below(f"{folder}/{entry.name}", storage)
            files += [f"{entry.name}/{path}" for path in below]
    return files


def write_problem(folder: str) -> OSError | None:
    """Why nothing could be written below a local folder, which may not be there yet.

    Asked before delta-rs is: on a folder that it may not write it prints a panic of its own.
    """
    place = folder
    while not os.path.lexists(place):
        place = os.path.dirname(place)
    if not os.path.isdir(place):
        return NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), place)
    if not os.access(place, os.W_OK | os.X_OK):
        return PermissionError(errno.EACCES, os.strerror(errno.EACCES), place)
    return None


def make_private(folder: str) -> None:
    """Make a local folder that its owner alone may look into; one that is there keeps its mode."""
    os.makedirs(os.path.dirname(folder), exist_ok=True)
    with suppress(FileExistsError):
        os.mkdir(folder, 0o700)


class _LocalFiles:
    """Local disk by system calls: a third of the time of pyarrow.fs for small files."""

    def names(self, folder: str) -> list[str]:
        return os.listdir(folder)

    def entries(self, folder: str) -> list[Entry]:
        with os.scandir(folder) as found:
            return [_local_entry(e.name, e.stat()) for e in found]

    def entry(self, path: str) -> Entry | None:
        try:
            return _local_entry(os.path.basename(path), os.stat(path))
        except (FileNotFoundError, NotADirectoryError):
            return None

    def read(self, path: str) -> bytes:
        return self.read_timed(path)[0]

    def read_timed(self, path: str) -> tuple[bytes, int]:
        handle = os.open(path, os.O_RDONLY)
        try:
            status = os.fstat(handle)
            return _read_all(handle, status.st_size), status.st_mtime_ns // _NANOS_PER_MILLI
        finally:
            os.close(handle)

    def open(self, path: str) -> pa.NativeFile:
        return pa.OSFile(path, "rb")

    def write(self, path: str, data: bytes) -> None:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        temporary = f"{path}.{uuid4().hex}.tmp"
        try:
            with open(temporary, "xb") as file:
                file.write(data)
            os.replace(temporary, path)
        except BaseException:
            self.delete(temporary)
            raise

    def delete(self, path: str) -> None:
        with suppress(FileNotFoundError):
            os.unlink(path)

    def delete_dir(self, folder: str) -> None:
        with suppress(FileNotFoundError):
            shutil.rmtree(folder)


class ObjectFiles:
    """An object store through delta-rs, rooted at `scheme://bucket`.

    Its files are named from `root` on, also where it is reached at another `url`.
    """

    def __init__(self, root: str, options: Mapping[str, str], url: str | None = None) -> None:
        # Imported here: delta-rs takes 60 ms to load, and local tables do not need it.
        from deltalake.fs import DeltaStorageHandler

        self._root = root.rstrip("/")
        self._handler = DeltaStorageHandler(url or root, dict(options))
        self._fs = pafs.PyFileSystem(self._handler)

    def names(self, folder: str) -> list[str]:
        return [e.name for e in self.entries(folder)]

    def entries(self, folder: str) -> list[Entry]:
        found = self._fs.get_file_info(pafs.FileSelector(self._key(folder), allow_not_found=True))
        if not found:
            raise FileNotFoundError(folder)
        return [_remote_entry(info) for info in found]

    def entry(self, path: str) -> Entry | None:
        info = self._fs.get_file_info(self._key(path))
        return None if info.type == pafs.FileType.NotFound else _remote_entry(info)

    def read(self, path: str) -> bytes:
        with self._fs.open_input_file(self._key(path)) as file:
            return bytes(file.read())

    def read_timed(self, path: str) -> tuple[bytes, int]:
        entry = self.entry(path)
        if entry is None:
            raise FileNotFoundError(path)
        return self.read(path), entry.modified_ms

    def open(self, path: str) -> pa.NativeFile:
        return self._fs.open_input_file(self._key(path))

    def write(self, path: str, data: bytes) -> None:
        # Not through PyFileSystem: it hands delta-rs a pyarrow Buffer, which delta-rs refuses.
        raw: Any = self._handler._handler  # noqa: SLF001 - its only way to take plain bytes
        stream = raw.open_output_stream(self._key(path), None)
        stream.write(data)
        stream.close()

    def delete(self, path: str) -> None:
        with suppress(FileNotFoundError):
            self._fs.delete_file(self._key(path))

    def delete_dir(self, folder: str) -> None:
        # One by one: delta-rs's own delete_dir leaves files in place without an error.
        selector = pafs.FileSelector(self._key(folder), allow_not_found=True, recursive=True)
        for info in self._fs.get_file_info(selector):
            if info.type == pafs.FileType.File:
                self._fs.delete_file(info.path)

    def _key(self, path: str) -> str:
        return path.removeprefix(self._root).lstrip("/")


def _read_all(handle: int, size: int) -> bytes:
    data = os.read(handle, size + 1)
    if len(data) == size:
        return data
    # Short reads (network mounts, files over 2 GiB) and files that grow go the long way.
    parts = [data]
    while data:
        data = os.read(handle, 1 << 20)
        parts.append(data)
    return b"".join(parts)


def _local_entry(name: str, status: os.stat_result) -> Entry:
    is_folder = (status.st_mode & 0o170000) == 0o040000
    return Entry(name, is_folder, status.st_size, status.st_mtime_ns // _NANOS_PER_MILLI)


def _remote_entry(info: pafs.FileInfo) -> Entry:
    is_folder = info.type == pafs.FileType.Directory
    modified_ms = (info.mtime_ns or 0) // _NANOS_PER_MILLI
    return Entry(info.base_name, is_folder, info.size or 0, max(modified_ms, 0))
