"""What the rules of a project find."""

from __future__ import annotations

from dataclasses import dataclass, replace

from floodmark.config.text.places import KeyPath
from floodmark.errors import FloodmarkError

UNKNOWN, CIRCLE, CONFLICT, RISK = "FM-CONFIG-013", "FM-CONFIG-014", "FM-CONFIG-015", "FM-CONFIG-017"
MISSING = "FM-CONFIG-004"
AT_LEAST_ONCE = "FM-CONFIG-018"
OF_STREAM = "FM-CONFIG-024"
UNREAD_SQL, SHARED_TARGET = "FM-CONFIG-028", "FM-CONFIG-029"
UNSAFE_ON_S3 = "FM-CONFIG-041"
OLDER_CSV, SENSITIVE = "FM-CONFIG-039", "FM-CONFIG-042"
DOUBLED = "FM-CONFIG-045"
WARNINGS = (
    *(RISK, AT_LEAST_ONCE, OF_STREAM, UNREAD_SQL, SHARED_TARGET, UNSAFE_ON_S3),
    *(OLDER_CSV, SENSITIVE, DOUBLED),
)


@dataclass(frozen=True)
class Finding:
    """Something that does not go together, with the path of what is to be changed."""

    path: KeyPath
    code: str
    title: str
    found: str = ""
    allowed: str = ""
    is_about_key: bool = False
    """The key is wrong, not its value."""

    @classmethod
    def of(cls, path: KeyPath, error: FloodmarkError) -> Finding:
        """What an error says, as something that a change of the file mends."""
        found = error.found or error.where or ""
        return cls(path, error.code, error.title, found, error.allowed or "")

    @property
    def is_warning(self) -> bool:
        return self.code in WARNINGS

    def below(self, *path: str | int) -> Finding:
        """The same, seen from further up."""
        return replace(self, path=(*path, *self.path))
