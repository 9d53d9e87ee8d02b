"""The one place that takes secrets out of text of others.

Whatever reveals a secret tells it here. Errors, tracebacks, log lines, the journal and dead letters
show text of drivers, servers and user code only as `masked` leaves it.
"""

from __future__ import annotations

import html
import json
import os
import re
from base64 import b64encode
from collections.abc import Iterator
from contextlib import suppress
from urllib.parse import parse_qsl, quote, quote_plus

MASK = "***"
SHORTEST = 4
"""A shorter secret is no secret, and to mask it would garble every text."""
SHORTEST_PART = 6
"""So many characters of a secret that a bounded text cut off are masked too."""

_OF_LIBRARIES = (
    "PGPASSWORD",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AZURE_STORAGE_ACCOUNT_KEY",
    "AZURE_CLIENT_SECRET",
)
"""Environment variables that drivers read by themselves."""

_SECRET_NAME = re.compile("key|secret|token|pass", re.IGNORECASE)

# Of the whole process: what one project reveals may come up in a thread or a driver of another.
_revealed: set[str] = set()


def remember(secret: str) -> None:
    """Keep a secret out of every text from here on, in each form in which it is sent or quoted."""
    _revealed.update(_forms(secret))


def forget() -> None:
    """Forget what was revealed: for tests, whose secrets are words that others show."""
    _revealed.clear()


def masked(text: str) -> str:
    r"""The text without secrets that were revealed, also where it was cut off within one.

    Halves of characters, as names of files have them that are not UTF-8, become escapes: no screen,
    file or table takes them.

    >>> masked("caf\udce9.csv")
    'caf\\udce9.csv'
    """
    if not text.isascii():
        text = text.encode("utf-8", "backslashreplace").decode("utf-8")
    forms = sorted({*_revealed, *_of_libraries()}, key=len, reverse=True)
    for form in forms:
        if form in text:
            text = text.replace(form, MASK)
    return _without_cut_off(text, forms)


def _of_libraries() -> Iterator[str]:
    for name in _OF_LIBRARIES:
        secret = os.environ.get(name)
        if secret:
            yield from _forms(secret)


def _forms(secret: str) -> Iterator[str]:
    """A secret as it is, encoded for addresses and headers, and as quotes and reports escape it."""
    whole = {secret, secret.strip(), " ".join(secret.split()), *secret.splitlines()}
    for text in {*whole, *_parts(secret)}:
        escaped = text.replace("\\", "\\\\")
        forms = {
            text,
            quote(text, safe=""),
            quote_plus(text),
            repr(text)[1:-1],
            json.dumps(text)[1:-1],
            json.dumps(text, ensure_ascii=False)[1:-1],
            escaped.replace("'", "\\'"),
            escaped.replace('"', '\\"'),
            html.escape(text),
            b64encode(text.encode("utf-8", "surrogatepass")).decode(),
        }
        yield from (form for form in forms if len(text) >= SHORTEST and len(form) >= SHORTEST)


def _parts(secret: str) -> Iterator[str]:
    """What is secret in a key file in JSON, or in a signed address: it is told by itself."""
    if secret.lstrip().startswith("{"):
        with suppress(ValueError):
            entries = json.loads(secret)
            for name, value in entries.items() if isinstance(entries, dict) else ():
                if isinstance(value, str) and _SECRET_NAME.search(name):
                    yield from (value, *value.splitlines())
    yield from (value for name, value in parse_qsl(secret) if name.lower() == "sig")


def _without_cut_off(text: str, forms: list[str]) -> str:
    """Texts are bounded before they come here: their end may be the beginning of a secret."""
    body = text.rstrip("…")
    for form in forms:
        for length in range(min(len(form) - 1, len(body)), SHORTEST_PART - 1, -1):
            if body.endswith(form[:length]):
                return body[:-length] + MASK
    return text
