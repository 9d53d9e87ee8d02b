"""Which settings are secret, and how values are shown without giving one away."""

from __future__ import annotations

import re
from typing import Any

from floodmark.config.text.places import KeyPath, shown
from floodmark.secrecy import MASK

__all__ = [
    "MASK",
    "STREAM_PARAMS",
    "has_login",
    "is_secret_key",
    "is_secret_path",
    "masked_values",
    "safely_shown",
]

STREAM_PARAMS = "connectionParams"
"""The key below which a stream says how to reach Kafka and its target."""

_SECRET_WORDS = re.compile(
    r"pass(word|wd|phrase)?$|pwd$|secret|token|credential|api[-_]?key|access[-_]?key$"
    r"|account[-_]?key|private[-_]?key|sas_|authorization|jaas",
    re.IGNORECASE,
)
_NAMES_ONLY = re.compile(
    r"access[-_]?key[-_]?id$|token[-_]?(url|endpoint)$|credential[-_]?id$", re.IGNORECASE
)
_TELLING = re.compile(r"[@:=;]")
_LOGIN = re.compile(r"[@=;]")
_LOGIN_IN_URL = re.compile(
    r"://[^/@\s]*:[^/@\s]+@|(?:password|passwd|pwd|secret|token|api_?key)=[^;&\s]+", re.IGNORECASE
)


def is_secret_key(key: str | int) -> bool:
    """Whether what stands under a key of a connection must not be shown.

    >>> is_secret_key("password"), is_secret_key("aws_secret_access_key"), is_secret_key("user")
    (True, True, False)
    """
    name = str(key)
    return bool(_SECRET_WORDS.search(name)) and not _NAMES_ONLY.search(name)


def is_secret_path(path: KeyPath) -> bool:
    """Whether a path leads to a secret: of a connection or a stream, or sent to a web API."""
    is_sent = path[:1] != ("connections",) and path[-3:-1] == ("read", "params")
    is_param = path[-2:-1] == (STREAM_PARAMS,)
    return any(map(is_secret_key, path[-1:] if is_sent or is_param else _of_connection(path)))


def masked_values(value: Any, path: KeyPath = ()) -> Any:
    """What files say, with every secret masked."""
    if isinstance(value, dict):
        return {key: masked_values(each, (*path, key)) for key, each in value.items()}
    if isinstance(value, list):
        return [masked_values(each, (*path, i)) for i, each in enumerate(value)]
    return MASK if is_secret_path(path) and isinstance(value, str) else value


def _of_connection(path: KeyPath) -> KeyPath:
    return path[2:] if path[:1] == ("connections",) else ()


def has_login(text: str) -> bool:
    """Whether a URL carries a password or token."""
    return bool(_LOGIN_IN_URL.search(text))


def _is_telling(path: KeyPath, text: str) -> bool:
    """Whether text may hold a secret; the addresses of brokers have a colon and hold none."""
    pattern = _TELLING if path[:1] == ("connections",) else _LOGIN
    return pattern.search(text) is not None


def safely_shown(path: KeyPath, value: object) -> str:
    """A value in an error; text of a connection that may hold a secret is only counted."""
    is_text = isinstance(value, str)
    is_of_address = path[:1] == ("connections",) or path[-2:-1] == (STREAM_PARAMS,)
    is_telling = is_text and is_of_address and _is_telling(path, str(value))
    if (is_secret_path(path) and not isinstance(value, list | dict | None)) or is_telling:
        return f"text of {len(str(value))} characters, not shown"
    return shown(value)
