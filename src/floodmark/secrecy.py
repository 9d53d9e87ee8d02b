"""The one place that takes secrets out of text of others.

Whatever reveals a secret tells it here. Errors, tracebacks, log lines, the journal and dead letters
show text of drivers, servers and user code only as `masked` leaves it.
"""

from __future__ import annotations

import html
import json
import logging
import os
import re
from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
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
_SECRET_OPTION = re.compile(
    "secret|token$|password|sas_key|account_key|storage_key|private_key|credential_json|^access_key$",
    re.IGNORECASE,
)
"""Options of object stores that are secrets; an id of a key is none."""

_NAMED = {"&": "amp", "<": "lt", ">": "gt", '"': "quot", "'": "apos"}
"""The characters that XML has names for."""
_WHITE = r"(?:\s|\+|\\+[nrtfvu0-9a-fx]{1,5}|%(?:25)*[02][09adAD]|&(?:amp;)*#x?\d{1,4};)+"
"""White space, however much of it, as it is and as others write it."""
_SHORTEST_BASE64 = 8

# Of the whole process: what one project reveals may come up in a thread or a driver of another.
_secrets: set[str] = set()
_revealed: set[str] = set()
"""The same in every form."""


def remember(secret: str) -> None:
    """Keep a secret out of every text from here on, in each form in which it is sent or quoted."""
    _secrets.add(secret)
    _revealed.update(_forms(secret))


def remember_options(options: Mapping[str, str]) -> None:
    """The same for the secrets among options that code hands over, such as those of delta-rs."""
    for name, value in options.items():
        if _SECRET_OPTION.search(name):
            remember(str(value))


def forget() -> None:
    """Forget what was revealed: for tests, whose secrets are words that others show."""
    _secrets.clear()
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
    for secret in {*_secrets, *_read_by_libraries()}:
        for needle, pattern in _patterns(secret):
            if needle in text:
                text = pattern.sub(MASK, text)
    return _without_cut_off(text, forms)


def _read_by_libraries() -> list[str]:
    found = (os.environ.get(name) for name in _OF_LIBRARIES)
    return [secret for secret in found if secret]


def _of_libraries() -> Iterator[str]:
    for secret in _read_by_libraries():
        yield from _forms(secret)


def _forms(secret: str) -> Iterator[str]:
    """A secret as it is, encoded for addresses and headers, and as quotes and reports escape it."""
    for text in _texts(secret):
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


def _texts(secret: str) -> set[str]:
    """The secret, and what of it is secret by itself."""
    whole = {secret, secret.strip(), " ".join(secret.split()), *secret.splitlines()}
    return {*whole, *_parts(secret)}


@lru_cache(maxsize=1024)
def _patterns(secret: str) -> tuple[tuple[str, re.Pattern[str]], ...]:
    """What finds a secret in any mixture of spellings, each with a piece that all of them have.

    Every encoder leaves other characters as they are, so no list of forms is complete.
    """
    texts = [text for text in _texts(secret) if len(text) >= SHORTEST]
    found = [each for text in texts for each in _in_base64(text.encode("utf-8", "surrogatepass"))]
    for text in {re.sub(r"\\+", r"\\", " ".join(text.split())) for text in texts}:
        needle = max(re.findall(r"[A-Za-z0-9]*", text), key=len)
        found.append((needle, re.compile("".join(map(_spelled, text)))))
    return tuple(found)


def _spelled(character: str) -> str:
    """A pattern for a character as addresses, JSON, XML, SQL, Java and Python write it."""
    if character.isascii() and character.isalnum():
        return character
    if character == " ":
        return _WHITE
    plain, number = re.escape(character), ord(character)
    raw = character.encode("utf-8", "surrogatepass")
    units = character.encode("utf-16-be", "surrogatepass")
    codes = [f"{(high << 8) + low:04x}" for high, low in zip(units[::2], units[1::2], strict=True)]
    ways = [
        # A quote in quotes is written twice by SQL and CSV; escapes come through several hands.
        rf"\\*{plain}{plain}?" if character in "\"'" else rf"\\*{plain}",
        "".join(rf"%(?:25)*{byte:02x}" for byte in raw),
        "".join(rf"\\+u{code}" for code in codes),
        "".join(rf"\\+x{byte:02x}" for byte in raw),
        rf"&(?:amp;)*#(?:0*{number}|x0*{number:x});",
    ]
    if number <= 0xFF:
        ways.append(rf"\\+x{number:02x}")
    if number > 0xFFFF:
        ways.append(rf"\\+U{number:08x}")
    if character in _NAMED:
        ways.append(f"&(?:amp;)*{_NAMED[character]};")
    if character != "\\":
        return f"(?i:{'|'.join(ways)})"
    # However many there are: each hand doubles them.
    ways[0] = plain
    return f"(?i:{'|'.join(ways)})+"


def _in_base64(raw: bytes) -> Iterator[tuple[str, re.Pattern[str]]]:
    """The same within something longer in base64, by the characters that are of it alone."""
    for before in range(3):
        whole = b64encode(bytes(before) + raw).decode()
        ends = (before + len(raw)) % 3
        core = whole[(0, 2, 3)[before] : len(whole) - (0, 3, 2)[ends]]
        if len(core) >= _SHORTEST_BASE64:
            for found in {core, core.replace("+", "-").replace("/", "_")}:
                yield found, re.compile(rf"[\w+/-]?{re.escape(found)}[\w+/-]?=*")


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
        if form[:SHORTEST_PART] not in body[-len(form) :]:
            continue
        for length in range(min(len(form) - 1, len(body)), SHORTEST_PART - 1, -1):
            if body.endswith(form[:length]):
                return body[:-length] + MASK
    return text


# Logs ---------------------------------------------------------------------------------------------


class _Masking(logging.Filter):
    """Masks records before any handler sees them: that of a host knows nothing of secrets."""

    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        hidden = masked(text)
        if hidden != text:
            record.msg, record.args = hidden, ()
        return True


for _name in ("floodmark", "floodmark.stages", "floodmark.streaming"):
    # A filter of a logger is not asked for the records of those below it.
    logging.getLogger(_name).addFilter(_Masking())
