"""Transforms of other people: modules of a project, entry points of a package, and clashes."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from floodmark.errors import TransformError
from floodmark.transforms import (
    Built,
    Column,
    Registry,
    Relation,
    parse_steps,
    standard,
    trace,
    transform,
)

PACKAGE = """
    from floodmark.transforms import Output, Params, sql, transform

    class TwiceParams(Params):
        column: str

    @transform
    def twice(input, params: TwiceParams):
        column = input.column(params.column)
        return input.built(input.with_outputs([Output("twice", sql.func("REPEAT", column.sql, sql.literal(2)))]))

    @transform
    def newest(input, by: str, count: int = 1):
        return f"SELECT * FROM input ORDER BY {by} DESC LIMIT {count}"
"""


class Times(BaseModel):
    times: int = 2


@pytest.fixture
def on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for modules and packages; what was imported from it is forgotten."""
    before = set(sys.modules)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def installed(folder: Path, name: str, module: str, entry: str) -> None:
    """What pip leaves of a package with one module and one entry point."""
    (folder / f"{name}.py").write_text(textwrap.dedent(module), encoding="utf-8")
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[floodmark.transforms]\n{name} = {entry}\n")


def refusal(call: Any, *arguments: Any) -> TransformError:
    with pytest.raises(TransformError) as caught:
        call(*arguments)
    return caught.value


def test_an_entry_point_of_a_package_adds_its_transforms(on_path: Path) -> None:
    installed(on_path, "acme_transforms", PACKAGE, "acme_transforms")

    registry = standard().with_packages()

    assert set(registry) - set(standard()) == {"twice", "newest"}
    steps = parse_steps([{"twice": {"column": "NAME"}}, {"newest": {"by": "name"}}], registry)
    found = trace(steps, [Column("name", "string")])
    assert found.columns is not None
    assert [column.name for column in found.columns] == ["name", "twice"]
    assert [lineage.level for lineage in found.lineage] == ["column", "column"]


def test_an_entry_point_may_be_one_transform(on_path: Path) -> None:
    installed(on_path, "acme_one", PACKAGE, "acme_one:newest")

    assert set(standard().with_packages()) - set(standard()) == {"newest"}


def test_a_module_of_the_project_adds_its_transforms(on_path: Path) -> None:
    (on_path / "jobs").mkdir()
    (on_path / "jobs" / "steps.py").write_text(textwrap.dedent(PACKAGE), encoding="utf-8")

    registry = standard().with_modules(on_path, ["jobs.steps", "jobs.steps"])

    assert set(registry) - set(standard()) == {"twice", "newest"}


@pytest.mark.parametrize(
    ("module", "entry", "code", "told"),
    [
        (PACKAGE.replace("def twice", "def join"), "{}", "FM-TRANSFORM-012", 'two transforms are called "join"'),
        ("x = 1", "{}", "FM-TRANSFORM-013", "there is no transform in"),
        ("1 / 0", "{}", "FM-TRANSFORM-013", "ZeroDivisionError"),
        (PACKAGE.replace("column: str", "column: Output"), "{}", "FM-TRANSFORM-013", "PydanticSchema"),
        (PACKAGE, "{}:nothing", "FM-TRANSFORM-013", "AttributeError"),
        (PACKAGE, "{}:TwiceParams", "FM-TRANSFORM-013", "there is no transform in"),
    ],
)  # fmt: skip
def test_a_package_that_cannot_be_used_is_named(
    module: str, entry: str, code: str, told: str, on_path: Path
) -> None:
    installed(on_path, "acme_bad", module, entry.format("acme_bad"))

    error = refusal(standard().with_packages)

    assert error.code == code
    assert told in str(error)
    assert "acme_bad" in str(error)


def test_a_module_that_is_not_there_is_named(on_path: Path) -> None:
    error = refusal(standard().with_modules, on_path, ["jobs.missing"])

    assert error.code == "FM-TRANSFORM-013"
    assert "jobs.missing" in str(error)


def test_parameters_come_from_a_model_or_from_annotations() -> None:
    @transform
    def by_model(frame: Any, params: Times) -> Any:
        return frame * params.times

    @transform(name="other_name")
    def by_signature(frame: Any, context: Any, *, times: int, word: str = "x") -> Any:
        return frame * times, context, word

    assert by_model.on_frame(by_model.parse({"times": 3}))("ab", None) == "ababab"
    assert by_signature.name == "other_name"
    assert by_signature.on_frame(by_signature.parse({"times": 1}))("a", "c") == ("a", "c", "x")
    assert refusal(by_signature.parse, {"times": "1"}).code == "FM-TRANSFORM-002"
    assert "nearest: times" in str(refusal(by_signature.parse, {"time": 1}))


def test_a_decorated_function_can_still_be_called() -> None:
    @transform
    def everything(input: Relation) -> Built:
        return input.built(input.kept())

    assert everything(Relation((Column("a"),))).sql() == "SELECT `a` FROM input"


def test_functions_that_cannot_be_transforms_are_refused() -> None:
    def nothing() -> None: ...
    def data(data: Any) -> None: ...
    def untyped(input, column): ...  # type: ignore[no-untyped-def]
    def rest(input: Any, **more: int) -> None: ...
    def sql(input: Any) -> None: ...
    def Upper(input: Any) -> None: ...  # noqa: N802

    def unknown(input: Any, size: Unheard) -> None: ...  # type: ignore[name-defined]  # noqa: F821

    for function in (nothing, data, untyped, rest, sql, Upper, unknown):
        assert refusal(transform, function).code == "FM-TRANSFORM-013", function


def test_the_same_transform_twice_is_no_clash() -> None:
    join = standard()["join"]

    assert len(standard().plus([join])) == len(standard())
    assert (
        refusal(Registry, [join, transform(name="join")(join.function)]).code == "FM-TRANSFORM-012"
    )


def test_the_standard_transforms_are_those_of_the_requirement() -> None:
    wanted = """filter_rows derive_columns cast_columns clean_text split_part case_when
        extract_date_parts date_add date_trunc date_diff convert_timezone join union pivot unpivot
        explode_list_column deduplicate window_calculation dict_based_mapping regex_replace
        validate_and_flag unpack_struct hash_columns select rename drop fill_nulls sort limit sample
        aggregate"""
    assert set(standard()) == set(wanted.split())
    for name, each in standard().items():
        assert each.text, name
        assert all(text for _, _, text in described(each.params)), name


def described(model: type[BaseModel]) -> list[tuple[str, str, str]]:
    from floodmark.transforms.params import described as of

    return list(of(model))


def test_reading_steps_needs_no_spark() -> None:
    code = (
        "import sys, floodmark; assert 'sqlglot' not in sys.modules\n"
        "from floodmark.transforms import parse_steps, trace, Column\n"
        "trace(parse_steps([{'limit': 1}]), [Column('a')])\n"
        "assert 'pyspark' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
