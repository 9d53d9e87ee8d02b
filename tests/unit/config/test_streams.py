"""Streams from JSON and YAML: the seed's example, spellings, schemas, credentials, projects."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import fastjsonschema
import pytest
import yaml

from floodmark.config import load_project
from floodmark.config.project.schema import json_schema
from floodmark.config.stream.credentials import Credentials, variable_of
from floodmark.config.stream.fields import Trigger, interval_seconds
from floodmark.config.stream.files import LoadedStream, load_stream, streams_of
from floodmark.config.stream.schemas import SchemaProblem, from_avro, from_ddl, from_json
from floodmark.config.stream.settings import StreamingSettings, StreamPipeline
from floodmark.config.text.json_document import read_json
from floodmark.config.text.places import Report
from floodmark.errors import ConfigError, ConfigErrors
from floodmark.secrecy import masked

SEED = Path(__file__).parents[2] / "fixtures/streams/production-events.json"
DDL = "event_id BIGINT NOT NULL, event_timestamp TIMESTAMP, kind STRING"


def written(tmp_path: Path, said: dict[str, Any] | str, name: str = "stream.json") -> Path:
    (tmp_path / "schemas").mkdir(exist_ok=True)
    for schema in ("event-schema", "event-table-schema"):
        (tmp_path / "schemas" / f"{schema}.ddl").write_text(DDL)
    path = tmp_path / name
    path.write_text(said if isinstance(said, str) else json.dumps(said, indent=2))
    return path


def seed() -> dict[str, Any]:
    said: dict[str, Any] = json.loads(SEED.read_text())
    return said


# The seed's example -----------------------------------------------------------------------------


def test_the_full_example_of_the_seed_round_trips(tmp_path: Path) -> None:
    loaded = load_stream(written(tmp_path, SEED.read_text()))

    again = load_stream(written(tmp_path, loaded.settings.to_json(), "again.json"))

    assert loaded.settings.to_json() == seed()
    assert again.settings == loaded.settings
    assert again.settings.definition == loaded.settings.definition


def test_every_field_of_the_seed_is_read(tmp_path: Path) -> None:
    stream = load_stream(written(tmp_path, SEED.read_text())).settings

    assert stream.extract.topics == ("production-events",)
    assert stream.extract.bootstrap_servers == "kafka-1:9092,kafka-2:9092,kafka-3:9092"
    assert stream.extract.starting_offsets == "latest"
    assert stream.load.connection_params["port"] == "5432"
    assert stream.load.write_mode == "append"
    run = stream.streaming
    assert run.trigger_mode == Trigger("processingTime", "30 seconds")
    assert run.trigger_mode.seconds == 30
    assert run.watermark
    assert run.watermark.delay_seconds == 3600
    assert run.late_data
    assert run.late_data.strategy == "sendToDLQ"
    assert run.enable_idempotence
    assert run.offsets_in == "checkpoint"
    errors = stream.errors
    assert (errors.retry.max_attempts, errors.retry.max_delay_seconds) == (5, 300)
    assert (errors.circuit_breaker.failure_threshold, errors.dlq.dlq_type) == (10, "kafka")
    assert not errors.fail_fast


def test_of_two_limits_the_smaller_one_rules_with_a_warning(tmp_path: Path) -> None:
    loaded = load_stream(written(tmp_path, SEED.read_text()))

    told = [w for w in loaded.warnings if "limit" in w.title]

    assert loaded.settings.limit == 50_000
    assert [w.code for w in told] == ["FM-CONFIG-024"]
    assert told[0].found == "maxOffsetsPerTrigger 50,000, maxRecordsPerTrigger 100,000"


# Spellings --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("continuous", Trigger("continuous")),
        ("Once", Trigger("once")),
        ("availablenow", Trigger("availableNow")),
        ("AVAILABLE_NOW", Trigger("availableNow")),
        ("processingtime=5 seconds", Trigger("processingTime", "5 seconds")),
        ("ProcessingTime(5 seconds)", Trigger("processingTime", "5 seconds")),
        ("processing_time = 2 minutes", Trigger("processingTime", "2 minutes")),
    ],
)
def test_triggers_are_taken_as_people_spell_them(said: str, meant: Trigger) -> None:
    settings = StreamingSettings.model_validate({"triggerMode": said})

    assert settings.trigger_mode == meant


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("drop", "drop"),
        ("log_and_drop", "logAndDrop"),
        ("LOGDROP", "logAndDrop"),
        ("dlq", "sendToDLQ"),
        ("send-to-dlq", "sendToDLQ"),
        ("separate", "separateStream"),
    ],
)
def test_strategies_are_taken_as_people_spell_them(said: str, meant: str) -> None:
    settings = StreamingSettings.model_validate({"lateDataConfig": {"strategy": said}})

    assert settings.late_data
    assert settings.late_data.strategy == meant


def test_intervals_have_several_parts() -> None:
    assert interval_seconds("1 hour 30 minutes") == 5400
    assert interval_seconds("INTERVAL 2 DAYS") == 172_800
    with pytest.raises(ValueError, match="interval"):
        interval_seconds("")


def snake(said: Any) -> Any:
    if not isinstance(said, dict):
        return said
    return {
        "".join(f"_{c.lower()}" if c.isupper() else c for c in key)
        if "." not in key and key != "connectionParams"
        else key: value if key == "connectionParams" else snake(value)
        for key, value in said.items()
    }


def test_snake_case_keys_mean_the_same(tmp_path: Path) -> None:
    proper = load_stream(written(tmp_path, SEED.read_text()))

    other = load_stream(written(tmp_path, snake(seed()), "snake.json"))

    assert other.settings == proper.settings


def test_numbers_and_flags_may_be_text(tmp_path: Path) -> None:
    said = seed()
    said["streamingConfigJson"] |= {"maxRecordsPerTrigger": "7", "enableIdempotence": "false"}

    stream = load_stream(written(tmp_path, said)).settings

    assert (stream.limit, stream.streaming.enable_idempotence) == (7, False)


def test_yaml_says_the_same_as_json(tmp_path: Path) -> None:
    proper = load_stream(written(tmp_path, SEED.read_text()))

    twin = load_stream(written(tmp_path, yaml.safe_dump(seed()), "twin.yaml"))

    assert twin.settings == proper.settings


# JSON with places -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    ['{"a": [1, -2.5e3, true, null, "x\\u00e9\\ud83d\\ude00"]}', "[]", '\t{\r\n"a" : {} }\n', "12"],
)
def test_json_is_read_as_python_reads_it(text: str) -> None:
    report = Report("f")

    assert read_json(text, report).data == json.loads(text)
    assert report.found == []


def test_json_has_places() -> None:
    document = read_json('{\n  "a": {"b": [1,\n 2]}\n}', Report("f"))

    assert document.place(("a", "b", 1))[:2] == (3, 2)
    assert document.key_place(("a", "b"))[:2] == (2, 9)


@pytest.mark.parametrize("text", ["", "{", '{"a"', "[1 2]", '{"a": 1}}', "NaN", '"x', "[" * 999])
def test_what_is_no_json_is_an_error(text: str) -> None:
    report = Report("f")

    document = read_json(text, report)

    assert document.root is None
    assert [error.code for error in report.errors] == ["FM-CONFIG-002"]


# Schemas ----------------------------------------------------------------------------------------


def test_three_forms_of_a_schema_say_the_same() -> None:
    ddl = from_ddl(
        "id BIGINT NOT NULL, at timestamp COMMENT 'when', price DECIMAL(10, 2),\n"
        "tags ARRAY<STRING>, `odd name` STRUCT<a: INT, b: MAP<STRING, DOUBLE>> -- nested"
    )
    spark = from_json(
        {
            "type": "struct",
            "fields": [
                {"name": "id", "type": "long", "nullable": False, "metadata": {}},
                {"name": "at", "type": "timestamp", "nullable": True},
                {"name": "price", "type": "decimal(10,2)"},
                {"name": "tags", "type": {"type": "array", "elementType": "string"}},
                {
                    "name": "odd name",
                    "type": {
                        "type": "struct",
                        "fields": [
                            {"name": "a", "type": "integer"},
                            {
                                "name": "b",
                                "type": {"type": "map", "keyType": "string", "valueType": "double"},
                            },
                        ],
                    },
                },
            ],
        }
    )
    optional = ["null", {"type": "long", "logicalType": "timestamp-micros"}]
    price = {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}
    inner = {
        "type": "record",
        "name": "o",
        "fields": [
            {"name": "a", "type": "int"},
            {"name": "b", "type": {"type": "map", "values": "double"}},
        ],
    }
    avro = from_avro(
        {
            "type": "record",
            "name": "e",
            "fields": [
                {"name": "id", "type": "long"},
                {"name": "at", "type": optional},
                {"name": "price", "type": ["null", price]},
                {"name": "tags", "type": ["null", {"type": "array", "items": "string"}]},
                {"name": "odd name", "type": ["null", inner]},
            ],
        }
    )

    assert ddl == spark == avro
    assert ddl.ddl.startswith("`id` BIGINT NOT NULL, `at` TIMESTAMP, `price` decimal(10,2)")
    assert ddl.fields[-1].type == "struct<a:int,b:map<string,double>>"


def test_a_json_schema_is_a_schema() -> None:
    found = from_json(
        {
            "type": "object",
            "required": ["id"],
            "properties": {
                "id": {"type": "integer"},
                "at": {"type": ["string", "null"], "format": "date-time"},
                "tags": {"type": "array", "items": {"type": "string"}},
            },
        }
    )

    assert found.ddl == "`id` BIGINT NOT NULL, `at` TIMESTAMP, `tags` array<string>"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "id",
        "id BIGNT",
        "id BIGINT NOT",
        "id BIGINT,",
        "id BIGINT id2 INT",
        "id BIGINT, ID INT",
        "a ARRAY<",
        "a ARRAY<STRING",
        "a DECIMAL(40)",
        "a DECIMAL(4,5)",
        "a VARCHAR",
        "a STRUCT<b>",
        "a MAP<STRING>",
        "1 INT",
        "a INT; DROP TABLE b",
    ],
)
def test_broken_ddl_is_a_typed_error(text: str) -> None:
    with pytest.raises(SchemaProblem):
        from_ddl(text)


@pytest.mark.parametrize(
    ("name", "text", "code"),
    [
        ("event-schema.ddl", "id BIGINT,\n  at TIMSTAMP", "FM-CONFIG-022"),
        ("event-schema.json", '{"fields": [\n {"name": "a"}]}', "FM-CONFIG-022"),
        ("event-schema.json", '{"type": "struct"}', "FM-CONFIG-022"),
        ("event-schema.json", '{"fields": ', "FM-CONFIG-002"),
        ("event-schema.avsc", '{"type": "enum"}', "FM-CONFIG-022"),
        ("event-schema.avsc", '{"type":"record","fields":[{"name":"a","type":"lng"}]}', "FM-CONFIG-022"),
        ("event-schema.ddl", "\udcff", "FM-CONFIG-002"),
    ],
)  # fmt: skip
def test_a_broken_schema_names_its_file(tmp_path: Path, name: str, text: str, code: str) -> None:
    path = written(tmp_path, SEED.read_text())
    (tmp_path / "schemas/event-schema.ddl").unlink()
    (tmp_path / "schemas" / name).write_bytes(text.encode(errors="surrogateescape"))

    with pytest.raises(ConfigError) as caught:
        load_stream(path)

    assert caught.value.code == code
    assert f"schemas/{name}" in (caught.value.where or "")


def test_an_unknown_type_in_ddl_is_shown_at_its_place(tmp_path: Path) -> None:
    path = written(tmp_path, SEED.read_text())
    (tmp_path / "schemas/event-schema.ddl").write_text("id BIGINT,\n  at TIMSTAMP")

    with pytest.raises(ConfigError) as caught:
        load_stream(path)

    assert (caught.value.where or "").endswith("event-schema.ddl:2:6")
    assert "nearest: timestamp" in (caught.value.allowed or "")


# Credentials ------------------------------------------------------------------------------------


def test_credentials_come_from_a_variable_then_a_file_then_a_provider(tmp_path: Path) -> None:
    (tmp_path / "pg").write_text('{"user": "etl", "password": "of-file"}\n')
    (tmp_path / "both").write_text("of-file")
    environ = {
        "FLOODMARK_CREDENTIALS_DIR": str(tmp_path),
        variable_of("both"): "of-variable",
    }
    providers = {"vault": lambda name: {"password": f"vault {name}"} if name == "far" else None}
    credentials = Credentials(environ, providers)

    assert credentials.find("both").password == "of-variable"
    assert credentials.find("pg").user == "etl"
    assert credentials.find("far").password == "vault far"
    assert credentials.find("vault:far").password == "vault far"


@pytest.mark.parametrize(
    ("credential_id", "value"),
    [
        ("nobody", None),
        ("bad", '{"user": '),
        ("bad", '{"usr": "x"}'),
        ("bad", '{"user": 5}'),
        ("keeper:x", None),
    ],
)
def test_a_credential_that_is_not_there_or_not_usable(
    credential_id: str, value: str | None
) -> None:
    environ = {} if value is None else {variable_of(credential_id): value}

    with pytest.raises(ConfigError) as caught:
        Credentials(environ, {}).find(credential_id)

    assert caught.value.code == "FM-CONFIG-023"


def test_neither_text_nor_errors_of_a_credential_hold_its_secret() -> None:
    environ = {variable_of("a"): '{"user": "u", "password": "canary"}', variable_of("b"): "{canary"}
    credentials = Credentials(environ, {})

    found = credentials.find("a")
    with pytest.raises(ConfigError) as caught:
        credentials.find("b")

    assert "canary" not in f"{found} {credentials} {caught.value}"
    assert masked("no canary here") == "no *** here"


def test_a_provider_that_fails_is_named_without_its_text() -> None:
    def failing(_: str) -> str:
        raise RuntimeError("canary")

    with pytest.raises(ConfigError) as caught:
        Credentials({}, {"vault": failing}).find("vault:x")

    assert "canary" not in str(caught.value)
    assert "RuntimeError" in caught.value.title


# In a project -----------------------------------------------------------------------------------

PROJECT = """\
project: shop
connections:
  erp: {type: postgres, host: db, database: shop, user: etl, password: "${env:FM_ERP}"}
  events: {type: kafka, bootstrap_servers: ["k:9092"]}
streams:
  - pipelineId: events
    extract: {topic: events, schemaName: event-schema, connection: events}
    load:
      table: events
      connection: erp
    streaming:
      triggerMode: availableNow
"""


def project(tmp_path: Path, text: str = PROJECT, **files: str) -> Path:
    written(tmp_path, SEED.read_text(), "unused.json")
    (tmp_path / "floodmark.yaml").write_text(text)
    for name, said in files.items():
        (tmp_path / "streams").mkdir(exist_ok=True)
        (tmp_path / "streams" / name.replace("__", ".")).write_text(said)
    return tmp_path / "floodmark.yaml"


def test_a_project_may_consist_of_streams(tmp_path: Path) -> None:
    file = load_project(project(tmp_path))

    assert file.settings.pipelines == []
    assert list(streams_of(file)) == ["events"]
    assert streams_of(file)["events"].settings.streaming.offsets_in == "database"


@pytest.mark.parametrize(
    ("option", "code"),
    [
        ("sasl.jaas.config: x", "FM-CONFIG-025"),
        ("bootstrap.servers: 'x:1'", "FM-CONFIG-003"),
        ("startingOffsets: earliest", "FM-CONFIG-003"),
        ("ssl.key.password: literal", "FM-CONFIG-011"),
    ],
)
def test_a_connection_says_to_kafka_only_what_a_stream_may(
    tmp_path: Path, option: str, code: str
) -> None:
    kafka = '{type: kafka, bootstrap_servers: ["k:9092"]}'
    text = PROJECT.replace(kafka, f"{kafka[:-1]}, options: {{{option}}}}}")

    with pytest.raises(ConfigError) as caught:
        load_project(project(tmp_path, text))

    assert caught.value.code == code


def test_files_of_streams_add_to_the_project(tmp_path: Path) -> None:
    path = project(tmp_path, json__json=SEED.read_text(), yaml__yaml=yaml.safe_dump(
        {"streams": [{**seed(), "pipelineId": "second"}]}
    ))  # fmt: skip

    found = streams_of(load_project(path))

    assert sorted(found) == ["events", "production-events-pipeline", "second"]
    assert isinstance(found["second"], LoadedStream)


def test_errors_of_streams_are_those_of_their_files(tmp_path: Path) -> None:
    broken = {**seed(), "pipelineId": "events"}
    broken["load"]["writeMode"] = "upsrt"
    path = project(
        tmp_path,
        PROJECT.replace("connection: erp", "connection: erpp").replace("availableNow", "later"),
        a__json=json.dumps(broken, indent=1),
    )

    with pytest.raises(ConfigErrors) as caught:
        load_project(path)

    told = {(e.code, (e.where or "").split(": ")[-1]) for e in caught.value.errors}
    assert ("FM-CONFIG-005", "streams[1].pipelineId (stream events)") in told
    assert ("FM-CONFIG-004", "streams[1].load.writeMode (stream events)") in told
    assert (
        "FM-CONFIG-004",
        "streams[0].streamingConfigJson.triggerMode (stream events)",
    ) in told


def test_a_connection_of_the_wrong_type_is_refused(tmp_path: Path) -> None:
    path = project(tmp_path, PROJECT.replace("connection: erp", "connection: events"))

    with pytest.raises(ConfigError) as caught:
        load_project(path)

    assert caught.value.code == "FM-CONFIG-015"
    assert "type kafka" in caught.value.title


def test_an_overlay_changes_a_stream_by_its_id(tmp_path: Path) -> None:
    path = project(tmp_path)
    (tmp_path / "env.dev.yaml").write_text(
        "streams:\n  - pipeline_id: events\n    load: {table: events_dev}\n"
    )

    stream = load_project(path, "dev").settings.streams[0]

    assert (stream.load.table, stream.load.connection) == ("events_dev", "erp")


def test_a_project_with_neither_pipelines_nor_streams_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_project(project(tmp_path, "project: shop\n"))

    assert caught.value.title == 'key "pipelines" is missing'


# For editors ------------------------------------------------------------------------------------


def test_the_schema_for_editors_accepts_the_seed_and_shows_mistakes() -> None:
    check = fastjsonschema.compile(json_schema("stream"), use_default=False)
    wrong = seed()
    wrong["load"]["writeMod"] = "append"

    check(seed())
    with pytest.raises(fastjsonschema.JsonSchemaValueException):
        check(wrong)


def test_the_schema_of_a_project_knows_streams() -> None:
    check = fastjsonschema.compile(json_schema("project"), use_default=False)

    check(yaml.safe_load(PROJECT.replace("streaming:", "streamingConfigJson:")))


def test_a_stream_built_in_python_is_the_same_model() -> None:
    assert StreamPipeline.model_validate(seed()).to_json() == seed()
