"""Names: of pipelines, of columns as Spark SQL takes them, of tables in a catalog."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from difflib import get_close_matches

PIPELINE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]{0,127}")
_OF_CONNECTION = re.compile(r"([A-Za-z0-9_][A-Za-z0-9_.\-]*):(.+)", re.DOTALL)
_QUOTED = re.compile(r'"(?:[^"]|"")*"')
NOT_RESOLVED = "not resolved yet: run resolves it through Spark"
"""What is shown in the place of facts about a catalog name that nobody has asked for."""
ASK_CATALOG = "only its catalog knows the newest version: planning asks it through Spark"
"""The same for a table whose newest commits are not in its log folder."""
PIPELINE_NAME_RULE = "letters, digits, _ - and ., at most 128, not beginning with - or ."


def is_catalog_name(name: str) -> bool:
    """Whether a name is that of a catalog: neither a path nor a URI.

    >>> is_catalog_name("db.orders"), is_catalog_name("./orders"), is_catalog_name("s3://lake/a")
    (True, False, False)
    """
    return "/" not in name and name not in (".", "..")


def connection_of(name: str) -> str | None:
    """The connection of a table `<connection>:<table>`; None for paths, URIs and catalog names.

    >>> connection_of('erp:sales."a/b"'), connection_of("s3://lake/a"), connection_of("db.orders")
    ('erp', None, None)
    """
    match = _OF_CONNECTION.fullmatch(name)
    is_path = match is not None and "/" in _QUOTED.sub("", match[2])
    return None if match is None or is_path else match[1]


def scheme_of(place: str) -> str:
    """The scheme of a URI, in small letters; empty for a path.

    >>> scheme_of("s3a://lake/orders"), scheme_of("/lake/orders")
    ('s3a', '')
    """
    scheme, separator, _ = place.partition("://")
    return scheme.lower() if separator else ""


def is_on_s3(place: str) -> bool:
    """Whether a place is in S3, by the schemes that Hadoop and delta-rs know it by."""
    return scheme_of(place) in ("s3", "s3a", "s3n")


DATABASE = "sql://"
"""How the stored names of upstreams of databases begin: sql://<connection>/<table>."""


FILES = "files://"
"""How the stored names of upstreams of files begin: files://<connection>/<path or glob>."""


SOURCES = "source://"
"""How the stored names of what web APIs and plug-ins give begin: source://<connection>/<what>."""


def is_of_project(name: str) -> bool:
    """Whether only a project knows how to read an upstream: it is no table."""
    return name.startswith((DATABASE, FILES, SOURCES))


def is_asked(name: str) -> bool:
    """Whether an upstream is a database, a web API or a plug-in, which has to be asked."""
    return name.startswith((DATABASE, SOURCES))


def is_of_source(name: str) -> bool:
    """Whether an upstream is a web API or a plug-in: only planning asks it, never a report."""
    return name.startswith(SOURCES)


def quoted(name: str) -> str:
    """One identifier for Spark SQL, whatever is in it; raises ValueError for empty and NUL.

    >>> quoted("a.b `c`")
    '`a.b ``c```'
    """
    if not name or "\0" in name:
        raise ValueError(f"not a column name: {name!r}")
    return "`" + name.replace("`", "``") + "`"


def matching(name: str, columns: Sequence[str]) -> str | None:
    """The column a name means: exactly, else the only one that differs by case; None without.

    Delta keeps the case of names and ignores it when it compares them.
    """
    if name in columns:
        return name
    alike = [column for column in columns if column.lower() == name.lower()]
    return alike[0] if len(alike) == 1 else None


def nearest(word: str, known: Sequence[str]) -> str | None:
    """The known word that was probably meant."""
    found = get_close_matches(word.lower(), [k.lower() for k in known], n=1, cutoff=0.6)
    return next((k for k in known if found and k.lower() == found[0]), None)


def choices(known: Sequence[str], word: str | None = None) -> str:
    """What is allowed, and the nearest match where there is one."""
    text = ", ".join(known)
    close = nearest(word, known) if word else None
    return f"{text}; nearest: {close}" if close else text


def short_hash(text: str) -> str:
    """A name for a folder, whatever the text has in it."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]
