"""Text from data and paths, made safe for terminals and logs."""

from __future__ import annotations

import unicodedata

# Controls, formats (among them the ones that turn the direction of writing), surrogates of
# undecodable bytes, and separators that some terminals take for a new line.
_HIDDEN = {"Cc", "Cf", "Cs", "Zl", "Zp"}


def visible(text: str, *, keep_lines: bool = False) -> str:
    r"""The text with whatever could steer a terminal written as an escape.

    >>> visible("a\x1b[31mb")
    'a\\x1b[31mb'
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(_shown(character, keep_lines=keep_lines) for character in text)


def _shown(character: str, *, keep_lines: bool) -> str:
    if unicodedata.category(character) not in _HIDDEN or (keep_lines and character == "\n"):
        return character
    code = ord(character)
    return {"\n": "\\n", "\t": "\\t", "\r": "\\r"}.get(character) or (
        f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}" if code < 65536 else f"\\U{code:08x}"
    )
