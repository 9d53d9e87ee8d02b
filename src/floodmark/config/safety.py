"""Which settings are secret, and how values are shown without giving one away."""

from __future__ import annotations

import re

from floodmark.config.places import KeyPath, shown

MASK = "***"

_SECRET_WORDS = re.compile(
    r"pass(word|wd|phrase)?$|pwd$|secret|token|credential|api_?key|access_?key$|account_?key"
    r"|private_?key|sas_|authorization|jaas",
    re.IGNORECASE,
)
_NAMES_ONLY = re.compile(r"access_?key_?id$|token_?(url|endpoint)$", re.IGNORECASE)
_TELLING = re.compile(r"[@:=;]")
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
    """Whether a path leads to a secret: below a connection, under a key that says so."""
    return path[:1] == ("connections",) and any(map(is_secret_key, path[2:]))


def has_login(text: str) -> bool:
    """Whether a URL carries a password or token."""
    return bool(_LOGIN_IN_URL.search(text))


def safely_shown(path: KeyPath, value: object) -> str:
    """A value in an error; text of a connection that may hold a secret is only counted."""
    is_text = isinstance(value, str)
    is_telling = is_text and path[:1] == ("connections",) and _TELLING.search(str(value))
    if (is_secret_path(path) and not isinstance(value, list | dict | None)) or is_telling:
        return f"text of {len(str(value))} characters, not shown"
    return shown(value)
