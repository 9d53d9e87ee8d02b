"""`${env:NAME}`, `${env:NAME:-default}`, `${file:path}`, `${secret:scope/key}`.

In ordinary text env and file are put in when a project is loaded. A secret is never: `Secret` holds
its reference, and `Vault.reveal` looks it up at the moment it is needed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic_core import CoreSchema, core_schema

from floodmark.config.text.fields import refused
from floodmark.config.text.places import NOTHING_DONE, choices
from floodmark.config.text.safety import MASK
from floodmark.errors import ConfigError
from floodmark.secrecy import remember

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler

KINDS = ("env", "file", "secret")
ALLOWED = "${env:NAME}, ${env:NAME:-default}, ${file:path} or ${secret:scope/key}"
SECRET_ALLOWED = "${env:NAME}, ${file:path} or ${secret:scope/key}, and nothing beside it"  # noqa: S105  (a rule, not a password)
ENTRY_POINTS = "floodmark.secrets"
MAX_FILE_BYTES = 64 << 10

_REFERENCE = re.compile(r"\$\$\{|\$\{(?P<inner>[^{}]*)\}|\$\{")
_ENV = re.compile(r"(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>.*))?", re.DOTALL)
_SECRET = re.compile(r"(?P<scope>[A-Za-z0-9_.\-]+)/(?P<key>.+)")

Provider = Callable[[str, str], str]
"""Gives the value of a secret for its scope and key; raises if it has none."""


class ReferenceProblem(ValueError):
    """A reference that is not one, or leads nowhere; `allowed` says what would do."""

    def __init__(self, title: str, allowed: str, code: str = "FM-CONFIG-012") -> None:
        super().__init__(title)
        self.title, self.allowed, self.code = title, allowed, code


@dataclass(frozen=True, slots=True)
class Reference:
    """One `${...}`."""

    kind: str
    name: str
    default: str | None = None

    def __str__(self) -> str:
        default = "" if self.default is None else f":-{self.default}"
        return f"${{{self.kind}:{self.name}{default}}}"


def parse_reference(inner: str) -> Reference:
    """The reference between `${` and `}`; raises ReferenceProblem."""
    kind, colon, rest = inner.partition(":")
    if not colon or kind not in KINDS:
        known = choices(list(KINDS), kind)
        title = f'"${{{kind}" begins no reference; write $${{ where the text itself is meant'
        raise ReferenceProblem(title, f"{ALLOWED}; kinds: {known}", "FM-CONFIG-004")
    if kind == "env" and (match := _ENV.fullmatch(rest)):
        return Reference("env", match["name"], match["default"])
    if (kind == "file" and rest.strip()) or (kind == "secret" and _SECRET.fullmatch(rest)):
        return Reference(kind, rest)
    raise ReferenceProblem(f'"${{{inner}}}" is no reference', ALLOWED, "FM-CONFIG-004")


def filled(text: str, vault: Vault) -> str:
    """The text with the values of its references; raises ReferenceProblem.

    `$${` stands for `${`. A secret is refused: ordinary text is shown in plans and reports.
    """

    def value(match: re.Match[str]) -> str:
        if match[0] == "$${":
            return "${"
        if match["inner"] is None:
            raise ReferenceProblem('"${" is never closed', ALLOWED, "FM-CONFIG-004")
        reference = parse_reference(match["inner"])
        if reference.kind == "secret":
            title = "a secret does not belong into text that is shown"
            raise ReferenceProblem(
                title, "${secret:...} as a password, token or key", "FM-CONFIG-011"
            )
        return vault.value_of(reference)

    return _REFERENCE.sub(value, text)


class Secret:
    """A secret by its reference; neither text nor JSON of it ever holds the value."""

    __slots__ = ("reference",)

    def __init__(self, text: str) -> None:
        match = _REFERENCE.fullmatch(text)
        if match is None or match["inner"] is None:
            raise ReferenceProblem(
                "a secret is written in the file", SECRET_ALLOWED, "FM-CONFIG-011"
            )
        self.reference = parse_reference(match["inner"])
        if self.reference.default:
            title = "the default of a secret is a secret written in the file"
            raise ReferenceProblem(title, SECRET_ALLOWED, "FM-CONFIG-011")
        if self.reference.kind == "env":
            # Code of the user can read the variable too, and tell it in an error of its own.
            remember(os.environ.get(self.reference.name, ""))

    def __str__(self) -> str:
        return MASK

    def __repr__(self) -> str:
        return f"Secret({str(self.reference)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self.reference == other.reference

    def __hash__(self) -> int:
        return hash(self.reference)

    @classmethod
    def __get_pydantic_core_schema__(cls, _: Any, __: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            _secret, serialization=core_schema.plain_serializer_function_ser_schema(_reference_text)
        )

    @classmethod
    def __get_pydantic_json_schema__(
        cls, _: CoreSchema, __: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {"type": "string", "pattern": r"^\$\{(env|file|secret):[^{}]+\}$"}


def _secret(value: object) -> Secret:
    if isinstance(value, Secret):
        return value
    if not isinstance(value, str):
        raise refused("a secret is written in the file", SECRET_ALLOWED, code="FM-CONFIG-011")
    try:
        return Secret(value)
    except ReferenceProblem as problem:
        raise refused(problem.title, problem.allowed, code=problem.code) from None


def _reference_text(secret: Secret) -> str:
    return str(secret.reference)


@dataclass
class Vault:
    """Where references lead: environment variables, files below a root, providers of secrets.

    What it reveals is kept out of every text from then on: see `floodmark.secrecy`.
    """

    root: Path
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)
    providers: Mapping[str, Provider] | None = field(default=None, repr=False)
    """By scope; None: those of the entry points `floodmark.secrets`, whose names are the scopes."""

    def reveal(self, secret: Secret) -> str:
        """The value of a secret, looked up anew; raises ConfigError FM-CONFIG-012."""
        try:
            value = self._value(secret.reference, anywhere=True)
        except ReferenceProblem as problem:
            raise unresolved(problem, None) from None
        remember(value)
        return value

    def value_of(self, reference: Reference) -> str:
        """What a reference in ordinary text stands for; raises ReferenceProblem."""
        return self._value(reference, anywhere=False)

    def _value(self, reference: Reference, *, anywhere: bool) -> str:
        if reference.kind == "env":
            return self._variable(reference, is_secret=anywhere)
        if reference.kind == "secret":
            return self._provided(reference)
        if not anywhere and not self._is_below(reference.name):
            title = f"the file {reference.name} is outside of the project's folder"
            raise ReferenceProblem(title, "a file below it; only a secret may be elsewhere")
        return self._file(reference)

    def _is_below(self, name: str) -> bool:
        """Whether a file is the project's own: what is put into text may be shown."""
        return (self.root / name).resolve().is_relative_to(self.root.resolve())

    def _variable(self, reference: Reference, *, is_secret: bool) -> str:
        value = self.environ.get(reference.name)
        if value is None or (not value and reference.default is not None):
            value = reference.default
        if value is None:
            title = f"the environment variable {reference.name} is not set"
            default = "" if is_secret else f", or ${{env:{reference.name}:-default}}"
            raise ReferenceProblem(title, f"a value for it{default}")
        return value

    def _file(self, reference: Reference) -> str:
        path = self.root / reference.name
        try:
            with path.open("rb") as stream:
                data = stream.read(MAX_FILE_BYTES + 1)
            if len(data) > MAX_FILE_BYTES:
                raise ReferenceProblem(
                    f"the file {reference.name} is too large", f"at most {MAX_FILE_BYTES:,} bytes"
                )
            return data.decode("utf-8").rstrip("\r\n")
        except OSError as error:
            why = error.strerror or type(error).__name__
            title = f"the file {reference.name} cannot be read: {why}"
            raise ReferenceProblem(title, "a file that can be read") from None
        except UnicodeDecodeError:
            raise ReferenceProblem(f"the file {reference.name} is not text", "UTF-8") from None

    def _provided(self, reference: Reference) -> str:
        scope, _, key = reference.name.partition("/")
        provider = self._provider(scope)
        try:
            value = provider(scope, key)
        # The boundary to a plug-in: its text could hold what it was asked for, its class cannot.
        except Exception as error:  # noqa: BLE001
            title = f"the provider of {scope} did not give {key}: {type(error).__name__}"
            raise ReferenceProblem(title, "a secret that the provider has") from None
        if not isinstance(value, str):
            title = f"the provider of {scope} gave a {type(value).__name__} for {key}"
            raise ReferenceProblem(title, "text")
        return value

    def _provider(self, scope: str) -> Provider:
        known = dict(self.providers) if self.providers is not None else None
        if known is not None and scope in known:
            return known[scope]
        installed = _installed() if known is None else {}
        if scope in installed:
            provider: Provider = installed[scope].load()
            return provider
        names = choices(sorted(known or installed), scope) or "none is installed"
        title = f"there is no provider of secrets {scope}"
        raise ReferenceProblem(title, f"entry points {ENTRY_POINTS}: {names}")


def _installed() -> dict[str, Any]:
    from importlib.metadata import entry_points

    return {point.name: point for point in entry_points(group=ENTRY_POINTS)}


def unresolved(problem: ReferenceProblem, where: str | None) -> ConfigError:
    """A reference that leads nowhere, as an error of its own."""
    return ConfigError(
        "FM-CONFIG-012",
        problem.title,
        where=where,
        allowed=problem.allowed,
        state=NOTHING_DONE,
        next="set it, then repeat the command",
    )
