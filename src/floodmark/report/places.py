"""Where targets are whose project moved after they were written."""

from __future__ import annotations

from dataclasses import replace

from floodmark.deltalog import DeltaLog, Storage, is_delta_table
from floodmark.model import SinkDone


def located(sink: SinkDone, root: str | None, storage: Storage) -> SinkDone:
    """The write with the place of its table below the project's folder, if nothing is left at the
    old one; a table is known by its id, so no other is taken for it. Else as it is.
    """
    is_path = sink.target.startswith("/") and sink.table_id
    if root is None or not is_path or is_delta_table(sink.target, storage):
        return sink
    parts = sink.target.strip("/").split("/")
    for start in range(1, len(parts)):
        place = "/".join([root, *parts[start:]])
        if is_delta_table(place, storage) and _id_of(place, storage) == sink.table_id:
            return replace(sink, target=place)
    return sink


def _id_of(path: str, storage: Storage) -> str:
    return DeltaLog(path, storage).facts().table_id
