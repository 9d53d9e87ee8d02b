"""Who holds the locks that a transaction waits for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from floodmark.postgres.connect import run

if TYPE_CHECKING:
    from floodmark.postgres.connect import Cursor

_HOLDERS = """SELECT DISTINCT a.pid, a.application_name, a.state, a.client_addr::text,
  extract(epoch FROM now() - a.xact_start)::bigint
  FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
  WHERE l.granted AND l.pid <> pg_backend_pid()
  AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND (l.relation = to_regclass($2) AND l.mode <> 'AccessShareLock'
    OR l.locktype = 'advisory' AND l.objsubid = 1
    AND (l.classid::bigint << 32) + l.objid::bigint = hashtextextended($1, 0)) ORDER BY 1"""


def lock_holders(cursor: Cursor, lock_name: str, table: str) -> list[str]:
    """The backends that hold an advisory lock, or lock a quoted table against writers."""
    return [
        f"backend {pid} ({application or 'no name'}, {state or 'state not visible'}, from"
        f" {address or 'this machine'}, in its transaction for {seconds or 0} s)"
        for pid, application, state, address, seconds in run(cursor, _HOLDERS, (lock_name, table))
    ]
