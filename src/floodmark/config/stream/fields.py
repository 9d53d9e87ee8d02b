"""The kinds of values that settings of streams have, with the spellings that people use for them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BeforeValidator,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    PlainSerializer,
    WithJsonSchema,
)
from pydantic_core import CoreSchema, core_schema

from floodmark.config.text.fields import refused
from floodmark.config.text.places import choices
from floodmark.model.durations import seconds_of

_TOPIC = re.compile(r"[A-Za-z0-9._\-]{1,249}")
_SERVER = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._\-]+):([0-9]{1,5})")
_PARTS = re.compile(r"\s*([0-9]{1,9}(?:\.[0-9]{1,6})?)\s*([A-Za-z]+)\s*,?")
_PROCESSING_TIME = re.compile(r"processingtime\s*[=(:]\s*([^)]*?)\s*\)?", re.IGNORECASE)
_PART = re.compile(r"[^\W\d][\w$\-]*")
_CREDENTIAL = re.compile(r"([A-Za-z0-9_\-]{1,60}:)?[A-Za-z0-9_][A-Za-z0-9_.\-/]{0,127}")
_MAX_NAME_BYTES = 63
_MAX_SECONDS = 3650 * 86_400.0

INTERVAL_RULE = "a number with a unit: 500 milliseconds, 30 seconds, 10 minutes, 1 hour, 1 day"
TRIGGER_WORDS = ("continuous", "once", "availableNow", "processingTime=<interval>")
SERVERS_RULE = "host:port, one or more, separated by commas"


def folded(word: str) -> str:
    """A spelling without case and separators: `max_records-perTrigger` is maxRecordsPerTrigger.

    >>> folded("Available_Now")
    'availablenow'
    """
    return re.sub(r"[\s_\-.]", "", word).lower()


@dataclass(frozen=True)
class Word:
    """One of some words, in any case, with or without `_` and `-`; other names of a word too."""

    words: tuple[str, ...]
    names: tuple[tuple[str, str], ...] = ()

    def __get_pydantic_core_schema__(self, _: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(
            self._checked,
            handler(str),
            serialization=core_schema.plain_serializer_function_ser_schema(
                _lowered, when_used="json-unless-none"
            ),
        )

    def __get_pydantic_json_schema__(
        self, _: CoreSchema, __: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        spellings = [*self.words, *(word.lower() for word in self.words), *dict(self.names)]
        return {"type": "string", "enum": list(dict.fromkeys(spellings))}

    def _checked(self, value: object) -> object:
        known = {folded(word): word for word in self.words} | dict(self.names)
        found = known.get(folded(value)) if isinstance(value, str) else None
        if found is None:
            title = f"not one of the choices: {str(value)[:60]}"
            raise refused(title, choices(list(self.words), str(value)))
        return found


def _lowered(value: Any) -> Any:
    return value.lower() if isinstance(value, str) else value


def word(*words: str, **names: str) -> Word:
    """The words of a choice; `dlq="sendToDLQ"` accepts another name, folded."""
    return Word(words, tuple(names.items()))


def interval_seconds(text: str) -> float:
    """The seconds of an interval such as `1 hour 30 minutes`; raises ValueError.

    >>> interval_seconds("interval 1 hour 30 minutes"), interval_seconds("5s")
    (5400.0, 5.0)
    """
    rest = re.sub(r"^\s*interval\b", "", text, flags=re.IGNORECASE).strip().strip("'")
    total, at = 0.0, 0
    while at < len(rest):
        part = _PARTS.match(rest, at)
        if part is None:
            raise ValueError(f"not an interval: {text!r}")
        total, at = total + seconds_of(f"{part[1]} {part[2].lower()}"), part.end()
    if not rest:
        raise ValueError("an empty interval")
    return total


def _checked_interval(value: object) -> object:
    try:
        seconds = interval_seconds(value if isinstance(value, str) else "")
    except ValueError:
        raise refused("not an interval", INTERVAL_RULE) from None
    if seconds > _MAX_SECONDS:
        raise refused("the interval is out of range", "at most 3650 days")
    return value


@dataclass(frozen=True)
class Trigger:
    """When the next batch begins."""

    kind: str
    """continuous, once, availableNow or processingTime."""
    interval: str = ""

    @property
    def seconds(self) -> float:
        """The time between the beginnings of two batches; 0 for as soon as there is something."""
        return interval_seconds(self.interval) if self.interval else 0.0

    @property
    def ends(self) -> bool:
        """Whether a run ends by itself."""
        return self.kind in ("once", "availableNow")

    def __str__(self) -> str:
        said = f"={self.interval}" if self.interval else ""
        return f"{self.kind.lower()}{said}"


def _trigger(value: object) -> Trigger:
    if isinstance(value, Trigger):
        return value
    text = value.strip() if isinstance(value, str) else ""
    timed = _PROCESSING_TIME.fullmatch(re.sub(r"(?i)processing[_\- ]time", "processingtime", text))
    if timed is not None:
        return _every(timed[1])
    known = {folded(each): each for each in TRIGGER_WORDS[:3]}
    if folded(text) not in known:
        said = str(value)[:60]
        meant = choices(list(TRIGGER_WORDS), said.split("=")[0])
        raise refused(f"not one of the triggers: {said}", meant)
    return Trigger(known[folded(text)])


def _every(interval: str) -> Trigger:
    try:
        interval_seconds(interval)
    except ValueError:
        title = f'"{interval[:60]}" is not an interval'
        raise refused(title, f"processingTime=<interval>; {INTERVAL_RULE}") from None
    return Trigger("processingTime", interval)


def _whole(value: object) -> object:
    """Numbers that are written as text, as connection parameters are."""
    is_text = isinstance(value, str) and value.strip().isascii() and value.strip().isdigit()
    return int(str(value)) if is_text and len(str(value)) < 20 else value


def _flag(value: object) -> object:
    said = {"true": True, "false": False, "yes": True, "no": False}
    return said.get(value.strip().lower(), value) if isinstance(value, str) else value


def _topic(value: str) -> str:
    if not is_topic(value.strip()):
        raise refused("not a topic", "letters, digits, . _ and -, at most 249")
    return value.strip()


def is_topic(name: str) -> bool:
    """Whether Kafka takes a name for a topic."""
    return _TOPIC.fullmatch(name) is not None and name not in (".", "..")


def _topics(value: object) -> object:
    """One topic, or several separated by commas; a list is taken too."""
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        value = ",".join(value)
    if not isinstance(value, str):
        return value
    for name in value.split(","):
        if not is_topic(name.strip()):
            raise refused(
                f'"{name[:60]}" is not a topic', "letters, digits, . _ and -, at most 249"
            )
    return ",".join(name.strip() for name in value.split(","))


def checked_servers(value: str) -> str:
    """Addresses of brokers; raises the error of a validator."""
    for server in value.split(","):
        found = _SERVER.fullmatch(server.strip())
        if found is None or not 1 <= int(found[2]) <= 65_535:
            raise refused(f'"{server.strip()[:60]}" is no address of a broker', SERVERS_RULE)
    return value


def _table(value: str) -> str:
    parts = value.split(".")
    if len(parts) > 2 or not all(_PART.fullmatch(part) for part in parts):
        raise refused("not a table", "table or schema.table: letters, digits, _ and $")
    if any(len(part.encode()) > _MAX_NAME_BYTES for part in parts):
        raise refused("the name is too long", f"at most {_MAX_NAME_BYTES} bytes each")
    return value


def _credential_id(value: str) -> str:
    if not _CREDENTIAL.fullmatch(value):
        raise refused("not a credentialId", "the name of a credential, or provider:name")
    return value


def _as_servers(value: object) -> object:
    is_list = isinstance(value, list) and all(isinstance(each, str) for each in value)
    return ",".join(value) if is_list and isinstance(value, list) else value


def plain_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters as they are written; a secret by its reference."""
    return {k: str(v.reference) if hasattr(v, "reference") else v for k, v in values.items()}


DIGITS = BeforeValidator(_whole)
"""A whole number may be written as text."""
TEXT_OR_NUMBER = WithJsonSchema({"type": ["integer", "string"]})

Flag = Annotated[bool, BeforeValidator(_flag), WithJsonSchema({"type": ["boolean", "string"]})]
Interval = Annotated[str, BeforeValidator(_checked_interval)]
TriggerMode = Annotated[
    Any,
    BeforeValidator(_trigger),
    PlainSerializer(str),
    WithJsonSchema({"type": "string", "examples": list(TRIGGER_WORDS)}),
]
TargetTable = Annotated[str, AfterValidator(_table)]
CredentialId = Annotated[str, AfterValidator(_credential_id)]
Topic = Annotated[str, AfterValidator(_topic)]
Topics = Annotated[
    str,
    BeforeValidator(_topics),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}),
]
Servers = Annotated[
    str,
    BeforeValidator(_as_servers),
    AfterValidator(checked_servers),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}),
]
