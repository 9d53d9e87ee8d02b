"""`credentialId`: who we are to Kafka and to a database, from a provider and never from the file.

Looked for in this order: the environment variable FLOODMARK_CREDENTIAL_<ID>, the file <id> in the
folder that FLOODMARK_CREDENTIALS_DIR names, and the installed providers (entry points
`floodmark.credentials`, functions of the id that return a value or None). `provider:id` asks that
provider alone. The value is text (the password), or JSON with `user`, `password` and more.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from floodmark.config.text.places import NOTHING_DONE, choices
from floodmark.errors import ConfigError
from floodmark.secrecy import remember

ENTRY_POINTS = "floodmark.credentials"
FOLDER_VARIABLE = "FLOODMARK_CREDENTIALS_DIR"
MAX_BYTES = 64 << 10
_CODE = "FM-CONFIG-023"
_KEYS = {"user": "user", "username": "user", "password": "password"}
_OF_CLIENT = (
    "security.protocol",
    "sasl.mechanism",
    "ssl.ca.location",
    "ssl.truststore.location",
    "ssl.truststore.type",
    "ssl.truststore.password",
    "ssl.keystore.location",
    "ssl.keystore.type",
    "ssl.keystore.password",
    "ssl.key.password",
    "sslmode",
    "sslrootcert",
    "sslcert",
    "sslkey",
)

CredentialProvider = Callable[[str], "str | Mapping[str, str] | None"]
"""Gives a credential for its id; None where it has none."""


@dataclass(frozen=True)
class Credential:
    """Who we are; neither text nor representation holds the password."""

    user: str | None = None
    password: str | None = field(default=None, repr=False)
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Settings that go with it, such as security.protocol."""

    @property
    def secrets(self) -> list[str]:
        """The password and other secrets of the credential."""
        more = [value for key, value in self.options.items() if "password" in key]
        return [*([self.password] if self.password else []), *more]


@dataclass(frozen=True)
class Credentials:
    """Where credentials come from."""

    environ: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)
    providers: Mapping[str, CredentialProvider] | None = field(default=None, repr=False)
    """By name; None: those of the entry points."""

    def find(self, credential_id: str) -> Credential:
        """The credential of an id, looked up anew; raises ConfigError FM-CONFIG-023."""
        provider, colon, name = credential_id.partition(":")
        if colon:
            value = self._asked(provider, name)
        else:
            value = self._variable(credential_id) or self._file(credential_id)
            value = value or self._first(credential_id)
        if value is None:
            raise self._absent(credential_id)
        credential = parsed(credential_id, value)
        for secret in credential.secrets:
            remember(secret)
        return credential

    def _variable(self, credential_id: str) -> str | None:
        return self.environ.get(variable_of(credential_id)) or None

    def _file(self, credential_id: str) -> str | None:
        folder = self.environ.get(FOLDER_VARIABLE)
        if not folder or "/" in credential_id or credential_id.startswith("."):
            return None
        path = Path(folder) / credential_id
        try:
            with path.open("rb") as stream:
                data = stream.read(MAX_BYTES + 1)
        except FileNotFoundError:
            return None
        except OSError as error:
            why = error.strerror or type(error).__name__
            raise _problem(credential_id, f"the file of it cannot be read: {why}") from None
        if len(data) > MAX_BYTES:
            raise _problem(credential_id, f"the file of it has more than {MAX_BYTES:,} bytes")
        return data.decode("utf-8", errors="strict").rstrip("\r\n") or None

    def _first(self, credential_id: str) -> str | Mapping[str, str] | None:
        for name in sorted(self._known()):
            value = self._asked(name, credential_id)
            if value is not None:
                return value
        return None

    def _asked(self, provider: str, name: str) -> str | Mapping[str, str] | None:
        known = self._known()
        if provider not in known:
            found = choices(sorted(known), provider) or "none is installed"
            raise _problem(name, f"there is no provider {provider}", f"{ENTRY_POINTS}: {found}")
        try:
            return known[provider](name)
        # The boundary to a plug-in: its text could hold what it was asked for, its class cannot.
        except Exception as error:  # noqa: BLE001
            title = f"the provider {provider} failed: {type(error).__name__}"
            raise _problem(name, title) from None

    def _known(self) -> Mapping[str, CredentialProvider]:
        if self.providers is not None:
            return self.providers
        from importlib.metadata import entry_points

        return {point.name: point.load() for point in entry_points(group=ENTRY_POINTS)}

    def _absent(self, credential_id: str) -> ConfigError:
        names = ", ".join(sorted(self._known())) or "none is installed"
        folder = self.environ.get(FOLDER_VARIABLE) or f"the folder that {FOLDER_VARIABLE} names"
        allowed = (
            f"the environment variable {variable_of(credential_id)}, a file {credential_id} in "
            f"{folder}, or a provider ({ENTRY_POINTS}: {names})"
        )
        return _problem(credential_id, "nobody has it", allowed)


def variable_of(credential_id: str) -> str:
    """The environment variable of a credential.

    >>> variable_of("kafka-prod-sasl")
    'FLOODMARK_CREDENTIAL_KAFKA_PROD_SASL'
    """
    return "FLOODMARK_CREDENTIAL_" + re.sub(r"[^A-Za-z0-9]", "_", credential_id).upper()


def parsed(credential_id: str, value: str | Mapping[str, str]) -> Credential:
    """The credential of a value: text is the password; raises FM-CONFIG-023, never showing it."""
    said: Any = value
    if isinstance(value, str):
        if not value.lstrip().startswith("{"):
            return Credential(password=value)
        try:
            said = json.loads(value)
        except ValueError:
            raise _problem(credential_id, "it begins with { and is no JSON") from None
    if not isinstance(said, Mapping) or not all(isinstance(v, str) for v in said.values()):
        raise _problem(credential_id, "it is no mapping of text", "user, password")
    unknown = [key for key in said if key not in _KEYS and key not in _OF_CLIENT]
    if unknown:
        known = choices([*_KEYS, *_OF_CLIENT], unknown[0])
        raise _problem(credential_id, f'unknown key "{unknown[0][:60]}"', known)
    login = {_KEYS[key]: text for key, text in said.items() if key in _KEYS}
    options = {key: text for key, text in said.items() if key in _OF_CLIENT}
    return Credential(login.get("user"), login.get("password"), options)


def _problem(credential_id: str, title: str, allowed: str | None = None) -> ConfigError:
    return ConfigError(
        _CODE,
        f"credential {credential_id}: {title}",
        allowed=allowed,
        state=NOTHING_DONE,
        next="set it, then repeat the command",
    )
