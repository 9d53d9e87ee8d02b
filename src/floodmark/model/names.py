"""What names may look like."""

from __future__ import annotations

import re

PIPELINE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]{0,127}")
PIPELINE_NAME_RULE = "letters, digits, _ - and ., at most 128, not beginning with - or ."
