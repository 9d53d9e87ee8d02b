"""Files that others read while they are written."""

from __future__ import annotations

import os
from pathlib import Path
from uuid import uuid4


def write_whole(path: Path, text: str) -> None:
    """Replace a file: a reader sees the old content or the new one, never a part.

    Raises OSError, and then leaves what was there. The name of the temporary file beside it ends
    in `.tmp`, so that whoever collects files by their ending passes it over.
    """
    temporary = path.with_name(f".{path.name}.{uuid4().hex}.tmp")
    try:
        temporary.write_text(text, encoding="utf-8")
        os.replace(temporary, path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
