"""Whatever is handed to a public call, the error is one of floodmark."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

import floodmark as fm
from floodmark.coordinator import Admin, Look
from floodmark.errors import FloodmarkError, RunError
from floodmark.model.arguments import fits
from floodmark.run.runner import metrics_of

FUNCTIONS = (
    *("deletes", "format", "local_session", "sink", "source", "stream_merge", "transform"),
    "upserts",
)
"""The functions of `fm`."""
STREAM = {
    "pipelineId": "events",
    "extract": {
        "topic": "events",
        "schemaName": "event",
        "connectionParams": {"kafka.bootstrap.servers": "localhost:9092"},
    },
    "load": {
        "table": "public.events",
        "connectionParams": {"host": "localhost", "database": "shop", "user": "writer"},
        "credentialId": "writer",
    },
    "streamingConfigJson": {"triggerMode": "availableNow"},
}


PARTS: Mapping[type, Callable[[fm.Project], Any]] = {
    fm.Project: lambda project: project,
    fm.Coordinator: lambda project: project.coordinator,
    Look: lambda project: project.coordinator.look,
    Admin: lambda project: project.coordinator.admin,
}
KINDS: dict[str, Any] = {cls.__name__: cls for cls in (*PARTS, fm.Stream)}


def public_calls() -> Iterator[tuple[str, str, str, Any]]:
    for cls in (*PARTS, fm.Stream):
        for name, function in inspect.getmembers(cls, callable):
            is_made_by_users = name == "__init__" and hasattr(fm, cls.__name__)
            if (name.startswith("_") and not is_made_by_users) or is_moved(function):
                continue
            yield from parameters(cls.__name__, name, function)
    for name in FUNCTIONS:
        yield from parameters("fm", name, getattr(fm, name))


def parameters(owner: str, name: str, function: Any) -> Iterator[tuple[str, str, str, Any]]:
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name != "self" and str(parameter.annotation) not in ("Any", "object"):
            yield owner, name, parameter.name, parameter


def is_moved(function: Any) -> bool:
    """Whether a name only forwards, with a warning; what it forwards to is called itself."""
    return hasattr(function, "__deprecated__")


CALLS = list(public_calls())


def bound(cls: str, name: str, tmp_path: Path) -> Callable[..., Any]:
    """A public function, or a method of an object that can be called."""
    if cls == "fm":
        function: Callable[..., Any] = getattr(fm, name)
        return function
    kind = KINDS[cls]
    if name == "__init__":
        made: Callable[..., Any] = kind
        return made
    if isinstance(inspect.getattr_static(kind, name), classmethod):
        return getattr(kind, name)  # type: ignore[no-any-return]
    if cls == "Stream":
        (tmp_path / "schemas").mkdir(exist_ok=True)
        (tmp_path / "schemas/event.ddl").write_text("id BIGINT")
        return getattr(fm.Stream.of(STREAM, root=tmp_path), name)  # type: ignore[no-any-return]
    (tmp_path / "floodmark.yaml").write_text("project: x\npipelines: []\n")
    project = fm.Project.load(tmp_path)
    return getattr(PARTS[kind](project), name)  # type: ignore[no-any-return]


def call_with(
    cls: str, name: str, parameter: inspect.Parameter, value: Any, tmp_path: Path
) -> None:
    """Call a function with one wrong argument; nothing else of it may matter."""
    function = bound(cls, name, tmp_path)
    positional: list[Any] = []
    keywords: dict[str, Any] = {}
    for each in inspect.signature(function).parameters.values():
        if each.name == parameter.name:
            if each.kind in (each.VAR_POSITIONAL, each.POSITIONAL_ONLY):
                positional.append(value)
            else:
                keywords[each.name] = value
        elif each.default is each.empty and each.kind not in (
            each.VAR_POSITIONAL,
            each.VAR_KEYWORD,
        ):
            keywords[each.name] = "x" if "str" in str(each.annotation) else None
    function(*positional, **keywords)


@pytest.mark.parametrize(
    ("cls", "name", "_", "parameter"), CALLS, ids=[f"{c}.{n}-{p}" for c, n, p, _ in CALLS]
)
def test_an_object_of_no_use_is_a_typed_error(
    cls: str, name: str, _: str, parameter: inspect.Parameter, tmp_path: Path
) -> None:
    if parameter.kind is parameter.VAR_KEYWORD:
        return
    annotation = str(parameter.annotation)
    wrong: list[Any] = (
        [object()] if "Any" not in annotation and "Callable" not in annotation else []
    )
    if "None" not in annotation and "Any" not in annotation:
        wrong.append(None)
    if any(word in annotation for word in ("Sequence[str", "Iterable[str")):
        wrong += [[None], [["x"]], 3]
    if "str" in annotation and parameter.name != "error" and "Literal" not in annotation:
        wrong += ["a\0b", "\ud800"]
    for value in wrong:
        with pytest.raises(FloodmarkError):
            call_with(cls, name, parameter, value, tmp_path)


def test_public_calls_are_found() -> None:
    assert len(CALLS) > 100
    assert {("Coordinator", "create_batch", "upstreams"), ("fm", "stream_merge", "keys")} <= {
        each[:3] for each in CALLS
    }
    plain = {name for name in fm.__all__ if inspect.isfunction(getattr(fm, name))}
    assert plain == set(FUNCTIONS)


@pytest.mark.parametrize("connectors", ["kafak", ["postgres", "kafak"]])
def test_a_connector_that_there_is_not_is_named(connectors: Any) -> None:
    with pytest.raises(FloodmarkError) as caught:
        fm.local_session(connectors=connectors)

    assert caught.value.allowed == "postgres, kafka; nearest: kafka"


def test_an_argument_too_many_is_a_typed_error(tmp_path: Path) -> None:
    with pytest.raises(FloodmarkError) as caught:
        fm.Coordinator(str(tmp_path / "c")).finalize_batch("a", "b")  # type: ignore[call-arg]

    assert caught.value.code == "FM-CONFIG-007"
    assert caught.value.title.startswith("Coordinator.finalize_batch: ")


def test_what_was_always_taken_is_taken(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path / "orders"), pa.table({"id": [1]}))
    coordinator = fm.Coordinator(tmp_path / "c")
    coordinator.register("p", (str(tmp_path / "orders"),))
    batch = coordinator.create_batch(str(tmp_path / "orders"), max_versions=1)

    assert coordinator.finalize_batch(batch_id=str(batch.batch_id)) == ()
    assert next(coordinator.admin.doctor(name for name in ["x"]).__iter__()).name == "pyspark"


@pytest.mark.parametrize(
    ("value", "annotation", "is_fit"),
    [
        (1, int, True),
        (True, int, False),
        (1, float, True),
        ("x", "str | None", True),
        (None, str | None, True),
        (b"x", str, False),
        ({"a": 1}, Mapping[str, int], True),
        ({"a": None}, Mapping[str, int], False),
        ((1, "a"), tuple[int, str], True),
        ((1, 2), tuple[int, str], False),
        (len, Callable[..., Any], True),
        (3, Callable[..., Any], False),
    ],
)
def test_types_as_annotations_say_them(value: Any, annotation: Any, is_fit: bool) -> None:
    assert fits(value, annotation) is is_fit


class FakeRun:
    pipeline = "p"

    class batch:  # noqa: N801
        batch_id = "b"


def test_a_function_may_return_its_counts_as_a_tuple() -> None:
    run: Any = FakeRun()

    made = metrics_of(run, (7, None, {"late": 2}))

    assert (made.rows_read, made.rows_written, made.metrics) == (7, None, {"late": 2})
    assert metrics_of(run, (1, 2, None)).metrics == {}
    outcomes: list[Any] = [(1, 2), ("1", 2, {}), (1, 2, {}, 3), 5, [1, 2, {}]]
    for wrong in outcomes:
        with pytest.raises(RunError) as caught:
            metrics_of(run, wrong)
        assert caught.value.code == "FM-RUN-002"


@pytest.mark.parametrize(
    "options", [{"name": None}, {"name": 5}, {"time_column": 5}, {"settle": 60}, {"settle": b"1s"}]
)
def test_an_upstream_of_wrong_types_is_a_typed_error(options: dict[str, Any]) -> None:
    with pytest.raises(FloodmarkError) as caught:
        fm.Upstream(**{"name": "lake/a", **options})

    assert caught.value.code == "FM-CONFIG-007"
