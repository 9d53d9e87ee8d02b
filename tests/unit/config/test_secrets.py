"""References and secrets: late, typed, and never shown."""

from __future__ import annotations

import json
import pickle
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from floodmark.config import load_project
from floodmark.config.checks.faults import by_key
from floodmark.config.project.connections import (
    FilesConnection,
    HttpConnection,
    JdbcConnection,
    KafkaConnection,
    LakeConnection,
    PostgresConnection,
)
from floodmark.config.project.origins import origins
from floodmark.config.text.references import Secret, Vault
from floodmark.config.text.safety import is_secret_key
from floodmark.errors import ConfigError
from floodmark.secrecy import masked

if TYPE_CHECKING:
    from pydantic import BaseModel

VALUE = "hunter2-very-secret"
PROJECT = """\
project: shop
connections:
  erp: {type: postgres, host: "${env:FM_HOST:-db}", database: d, password: "${env:FM_PASSWORD}"}
  api: {type: http, base_url: "https://example.org", token: "${file:secrets/token}"}
  crm: {type: mysql, host: h, password: "${secret:vault/crm/password}"}
  lake: {type: lake, root: "s3://b", storage_options: {aws_secret_access_key: "${env:FM_PASSWORD}"}}
pipelines:
  - {pipeline: a, upstreams: ["${env:FM_ROOT:-lake}/a"], function: "jobs:f"}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "floodmark.yaml"
    path.write_text(PROJECT)
    return path


def password(path: Path, connection: str = "erp", key: str = "password") -> Secret:
    found = getattr(load_project(path).settings.connections[connection], key)
    assert isinstance(found, Secret)
    return found


def test_a_project_loads_without_its_secrets(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FM_PASSWORD", raising=False)

    secret = password(file)

    with pytest.raises(ConfigError, match="FM_PASSWORD") as caught:
        Vault(file.parent).reveal(secret)
    assert caught.value.code == "FM-CONFIG-012"


def test_a_secret_is_looked_up_each_time_it_is_revealed(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret, vault = password(file), Vault(file.parent)

    for value in ("old", "new"):
        monkeypatch.setenv("FM_PASSWORD", value)
        assert vault.reveal(secret) == value


def test_a_file_is_read_below_the_project_without_its_line_break(file: Path) -> None:
    (file.parent / "secrets").mkdir()
    (file.parent / "secrets/token").write_text(f"{VALUE}\n")

    assert Vault(file.parent).reveal(password(file, "api", "token")) == VALUE


def test_a_provider_is_asked_for_the_key_of_its_scope(file: Path) -> None:
    asked: list[tuple[str, str]] = []

    def provider(scope: str, key: str) -> str:
        asked.append((scope, key))
        return VALUE

    vault = Vault(file.parent, providers={"vault": provider})

    assert vault.reveal(password(file, "crm")) == VALUE
    assert asked == [("vault", "crm/password")]


def provided(scope: str, key: str) -> str:
    return f"{scope} gave {key}"


def test_providers_are_found_by_entry_point(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("vault", f"{__name__}:provided", "floodmark.secrets")
    monkeypatch.setattr(EntryPoint, "load", lambda self: provided)
    monkeypatch.setattr(
        "importlib.metadata.entry_points",
        lambda group: EntryPoints([point] if group == "floodmark.secrets" else []),
    )

    assert Vault(file.parent).reveal(password(file, "crm")) == "vault gave crm/password"


def test_a_scope_without_provider_names_those_there_are(file: Path) -> None:
    vault = Vault(file.parent, providers={"valt": provided})

    with pytest.raises(ConfigError) as caught:
        vault.reveal(password(file, "crm"))

    assert caught.value.code == "FM-CONFIG-012"
    assert "valt" in (caught.value.allowed or "")


def test_what_a_provider_raises_is_not_repeated(file: Path) -> None:
    def leaky(scope: str, key: str) -> str:
        raise LookupError(f"tried with {VALUE}")

    with pytest.raises(ConfigError) as caught:
        Vault(file.parent, providers={"vault": leaky}).reveal(password(file, "crm"))

    assert VALUE not in str(caught.value)
    assert "LookupError" in caught.value.title


def test_no_view_of_the_settings_holds_a_value(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FM_PASSWORD", VALUE)
    loaded = load_project(file)
    Vault(file.parent).reveal(password(file))

    views = [
        str(loaded.settings),
        repr(loaded),
        loaded.settings.model_dump_json(),
        json.dumps(loaded.merged_values()),
        repr(origins(loaded)),
        f"{password(file)} {password(file)!r}",
    ]

    assert all(VALUE not in view for view in views)
    assert VALUE.encode() not in pickle.dumps(loaded.settings.connections["api"].model_dump_json())
    assert str(password(file)) == "***"


def test_what_a_vault_revealed_is_taken_out_of_any_text(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FM_PASSWORD", VALUE)
    vault = Vault(file.parent)

    vault.reveal(password(file))

    assert masked(f"login with {VALUE} failed") == "login with *** failed"
    assert VALUE not in repr(vault)


def test_ordinary_text_is_filled_when_the_project_is_loaded(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FM_ROOT", "s3://bucket")

    settings = load_project(file).settings

    assert settings.pipelines[0].upstreams == ["s3://bucket/a"]
    assert settings.connections["erp"].model_dump()["host"] == "db"


def test_what_an_environment_variable_holds_is_not_shown_in_an_error(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FM_ROOT", f"ftp://{VALUE}")

    with pytest.raises(ConfigError) as caught:
        load_project(file)

    assert VALUE not in str(caught.value)
    assert "${env:FM_ROOT:-lake}/a" in str(caught.value)


def test_a_dollar_sign_can_be_written(tmp_path: Path) -> None:
    path = tmp_path / "floodmark.yaml"
    path.write_text(PROJECT.replace("${env:FM_ROOT:-lake}/a", "$${x}/$a"))

    assert load_project(path).settings.pipelines[0].upstreams == ["${x}/$a"]


def test_every_secret_of_a_model_has_a_name_that_says_so() -> None:
    """The loader leaves references alone by the name of their key: it must know all of them."""
    models: list[type[BaseModel]] = [
        FilesConnection, HttpConnection, JdbcConnection, KafkaConnection, LakeConnection,
        PostgresConnection,
    ]  # fmt: skip
    fields = {key: str(field.annotation) for m in models for key, field in by_key(m).items()}

    assert {key for key, kind in fields.items() if "Secret" in kind} == {
        key for key in fields if is_secret_key(key)
    }


@pytest.mark.parametrize(
    ("key", "is_secret"),
    [
        ("password", True), ("PWD", True), ("aws_secret_access_key", True), ("token", True),
        ("azure_storage_account_key", True), ("sasl.jaas.config", True), ("api-key", True),
        ("api_key", True), ("user", False), ("aws_access_key_id", False), ("tokenizer", True),
        ("token_url", False), ("bypass", True), ("passenger", False), ("keys", False),
    ],
)  # fmt: skip
def test_keys_that_say_they_are_secret(key: str, is_secret: bool) -> None:
    assert is_secret_key(key) is is_secret


def test_a_secret_may_be_in_any_file_and_ordinary_text_only_in_the_project_s(
    file: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    outside = tmp_path_factory.mktemp("run") / "secret"
    outside.write_text(VALUE)
    file.write_text(PROJECT.replace("secrets/token", str(outside)))
    assert Vault(file.parent).reveal(password(file, "api", "token")) == VALUE

    file.write_text(
        PROJECT.replace("${env:FM_ROOT:-lake}", f"${{file:../{outside.parent.name}/secret}}")
    )
    with pytest.raises(ConfigError, match="outside of the project's folder") as caught:
        load_project(file)
    assert VALUE not in str(caught.value)


NODE = """\
project: shop
connections:
  api: {type: http, base_url: "https://example.org"HEADERS}
  lake: {type: lake, root: lake}
pipelines:
  - pipeline: a
    nodes:
      - name: n
        read: {connection: api, path: events, params: {PARAM: hunter2}}
        write: {connection: lake, path: events, mode: overwrite}
"""


@pytest.mark.parametrize(
    ("headers", "param"),
    [(', headers: {X-Api-Key: "hunter2"}', "status"), ("", "access_token")],
)
def test_a_secret_that_is_sent_to_an_api_is_not_written_in_the_file(
    tmp_path: Path, headers: str, param: str
) -> None:
    path = tmp_path / "floodmark.yaml"
    path.write_text(NODE.replace("HEADERS", headers).replace("PARAM", param))

    with pytest.raises(ConfigError) as caught:
        load_project(path)

    assert caught.value.code == "FM-CONFIG-011"
    assert "hunter2" not in str(caught.value)


def test_a_secret_that_is_not_set_is_not_offered_a_default_that_would_be_refused(
    tmp_path: Path,
) -> None:
    with pytest.raises(ConfigError) as caught:
        Vault(tmp_path, environ={}).reveal(Secret("${env:FM_NOWHERE}"))

    assert caught.value.code == "FM-CONFIG-012"
    assert caught.value.allowed == "a value for it"
