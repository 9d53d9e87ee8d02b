"""Steps of a node: read from plain mappings, checked, traced and applied."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from floodmark.config.plugins import load_function
from floodmark.errors import ConfigError, TransformError
from floodmark.model import Lineage
from floodmark.transforms import faults, frames, sql
from floodmark.transforms.context import Statement, StepContext
from floodmark.transforms.registry import Registry, Transform, standard
from floodmark.transforms.relation import INPUT, Built, Column, Relation

if TYPE_CHECKING:
    from pydantic import BaseModel
    from pyspark.sql import DataFrame

_ONE_STEP = "one step: the name of a transform with its parameters, sql or python"


@dataclass(frozen=True)
class NamedStep:
    """A transform with its parameters."""

    number: int
    transform: Transform
    params: BaseModel

    @property
    def name(self) -> str:
        """As it is written in the list."""
        return self.transform.name


@dataclass(frozen=True)
class SqlStep:
    """A query of the user over `input` and other nodes."""

    number: int
    text: str
    name: str = "sql"


@dataclass(frozen=True)
class PythonStep:
    """A function of the project: `function(frame, context, **params)`."""

    number: int
    function: str
    params: Mapping[str, Any] = field(default_factory=dict)
    name: str = "python"


Step = NamedStep | SqlStep | PythonStep


@dataclass(frozen=True)
class Traced:
    """What is known of a list of steps without Spark."""

    columns: tuple[Column, ...] | None
    """Of the result; None where only Spark can tell."""
    lineage: tuple[Lineage, ...]
    """One for each step."""


@dataclass(frozen=True)
class Applied:
    """The result of a list of steps: a frame that has not run, and how it is made."""

    frame: DataFrame
    statements: tuple[Statement, ...]
    """The SQL of every step, and what Python steps ran through their context."""
    lineage: tuple[Lineage, ...]
    """One for each step."""


def parse_steps(raw: Sequence[Any], registry: Registry | None = None) -> tuple[Step, ...]:
    """Steps from what a file says; raises the first error of `problems`."""
    known = standard() if registry is None else registry
    return tuple(_step(number, item, known) for number, item in enumerate(raw, 1))


def problems(raw: Sequence[Any], registry: Registry | None = None) -> list[TransformError]:
    """What is wrong in a list of steps whatever the columns are, at most one for each step.

    FM-TRANSFORM-001 for unknown transforms, 002 for parameters, 006 for SQL.
    """
    known = standard() if registry is None else registry
    found = []
    for number, item in enumerate(raw, 1):
        try:
            _step(number, item, known)
        except TransformError as error:
            found.append(error)
    return found


def trace(
    steps: Sequence[Step],
    columns: Sequence[Column],
    others: Mapping[str, Sequence[Column]] | None = None,
) -> Traced:
    """Check steps against the columns of their input, and follow the columns through; no Spark.

    Raises TransformError for the first step that does not fit. Where only Spark can tell what
    the columns are, the following steps are not checked and their lineage is that of tables.
    """
    known = {name: _relation(their, name) for name, their in (others or {}).items()}
    now: tuple[Column, ...] | None = tuple(columns)
    lineage = []
    for step in steps:
        with _at(step):
            now, its = _traced(step, now, known)
        lineage.append(its)
    return Traced(now, tuple(lineage))


def apply_steps(
    steps: Sequence[Step],
    frame: DataFrame,
    *,
    others: Mapping[str, DataFrame] | None = None,
    root: Path | None = None,
) -> Applied:
    """Apply steps to a frame, in the frame's session; no Spark job runs.

    `others` are frames that joins, unions, SQL and Python steps may name; functions of Python
    steps are looked for below `root`. Raises TransformError that names the step.
    """
    statements: list[Statement] = []
    lineage = []
    for step in steps:
        known = {**(others or {}), INPUT: frame}
        with _at(step):
            frame, its = _applied(step, known, root or Path.cwd(), statements)
        lineage.append(its)
    return Applied(frame, tuple(statements), tuple(lineage))


# Reading


def _step(number: int, item: Any, registry: Registry) -> Step:
    name, params = _named(item)
    with _at(number, name):
        if name is None:
            raise faults.wrong_parameters(f"{str(item)[:200]}", _ONE_STEP)
        if name == "sql":
            return SqlStep(number, _sql_text(params))
        if name == "python":
            return _python(number, params)
        transform = registry.find(name)
        return NamedStep(number, transform, transform.parse(params))


def _named(item: Any) -> tuple[str | None, Any]:
    if isinstance(item, str):
        return item, None
    if isinstance(item, Mapping) and len(item) == 1:
        ((name, params),) = item.items()
        return str(name), params
    return None, None


def _sql_text(params: Any) -> str:
    if not isinstance(params, str):
        raise faults.wrong_parameters(f"{params!r}"[:200], "a query over input")
    return faults.parsed(sql.one_query, params, "sql")


def _python(number: int, params: Any) -> PythonStep:
    given = {"function": params} if isinstance(params, str) else params
    is_known = isinstance(given, Mapping) and set(given) <= {"function", "params"}
    function = given.get("function") if is_known else None
    arguments = given.get("params") or {} if is_known else {}
    if not isinstance(function, str) or ":" not in function or not isinstance(arguments, Mapping):
        allowed = "module.path:name, or a mapping with function and params"
        raise faults.wrong_parameters(f"{params!r}"[:200], allowed)
    return PythonStep(number, function, dict(arguments))


@contextmanager
def _at(step: Step | int, name: str | None = None) -> Iterator[None]:
    """Errors inside name the step."""
    number = step if isinstance(step, int) else step.number
    name = name if isinstance(step, int) else step.name
    try:
        yield
    except TransformError as error:
        error.step, error.transform = number, name
        error.where = f"step {number}, {name}" if name else f"step {number}"
        raise


# Tracing


def _relation(columns: Sequence[Column], name: str, **more: Any) -> Relation:
    return Relation(tuple(replace(column, frame=name) for column in columns), name, **more)


def _traced(
    step: Step, columns: tuple[Column, ...] | None, others: Mapping[str, Relation]
) -> tuple[tuple[Column, ...] | None, Lineage]:
    if columns is None:
        return None, _by_table(step, others, "the columns before this step are not known")
    relation = _relation(columns, INPUT, others=others)
    if isinstance(step, NamedStep) and step.transform.takes == "relation":
        try:
            built = step.transform.build(relation, step.params)
        except faults.NotYetKnownError as unknown:
            return None, _by_table(step, others, f"{unknown} are known only to Spark")
        return _outcome(built, relation)
    if isinstance(step, SqlStep):
        return _outcome(step.text, relation)
    return None, _by_table(step, others, "Python is not read for lineage")


def _outcome(built: Built | str, relation: Relation) -> tuple[tuple[Column, ...] | None, Lineage]:
    if isinstance(built, Built):
        return built.columns, built.lineage
    lineage = sql_lineage(built, relation)
    names = lineage.columns if lineage.level == "column" else None
    return (tuple(Column(name) for name in names) if names is not None else None), lineage


def sql_lineage(text: str, relation: Relation) -> Lineage:
    """The lineage of a query over `input` and other frames; by table where it cannot be read."""
    words, read = sql.words_of(text), sql.tables_of(text)
    used = (name for name in relation.others if name.lower() in words)
    known = {relation.name: relation, **{name: relation.others[name] for name in used}}
    schemas = {
        name: {column.name: column.type or "string" for column in each.columns}
        for name, each in known.items()
    }
    try:
        columns = sql.sources_of_query(text, schemas)
    except sql.NotSqlError as error:
        return Lineage("table", frames=read, note=f"the SQL could not be read: {error}")
    return Lineage("column", columns, frames=read)


def _by_table(step: Step, others: Mapping[str, Any], note: str) -> Lineage:
    if isinstance(step, SqlStep):
        return Lineage("table", frames=sql.tables_of(step.text), note=note)
    named = getattr(step.params, "other", None) if isinstance(step, NamedStep) else None
    more = [named] if isinstance(named, str) else getattr(step.params, "others", [])
    return Lineage("table", frames=(INPUT, *(n for n in more if n in others)), note=note)


# Applying


def _applied(
    step: Step, known: Mapping[str, DataFrame], root: Path, statements: list[Statement]
) -> tuple[DataFrame, Lineage]:
    if isinstance(step, SqlStep):
        return _queried(step, step.text, known, statements)
    if isinstance(step, NamedStep) and step.transform.takes == "relation":
        built = step.transform.build(_relation_of(known), step.params)
        return _queried(step, built, known, statements)
    return _called(step, known, root, statements)


def _relation_of(known: Mapping[str, DataFrame]) -> Relation:
    others = {name: frame for name, frame in known.items() if name != INPUT}
    return frames.relation_of(known[INPUT], others=frames.Relations(others))


def _queried(
    step: Step, built: Built | str, known: Mapping[str, DataFrame], statements: list[Statement]
) -> tuple[DataFrame, Lineage]:
    text = built if isinstance(built, str) else built.sql()
    try:
        frame = frames.query(known[INPUT].sparkSession, text, known)
    # The boundary to Spark: what it refuses becomes an error of the step, the rest is raised on.
    except Exception as error:
        raise frames.refused_by_spark(error, text) from error
    names = sql.words_of(text)
    statements.append(Statement(step.number, text, tuple(n for n in known if n.lower() in names)))
    return frame, built.lineage if isinstance(built, Built) else _lineage_of(text, known)


def _lineage_of(text: str, known: Mapping[str, DataFrame]) -> Lineage:
    try:
        return sql_lineage(text, _relation_of(known))
    except TransformError as error:
        # Spark takes frames with doubled names; only lineage cannot tell their columns apart.
        return Lineage("table", frames=sql.tables_of(text), note=error.title)


def _called(
    step: Step, known: Mapping[str, DataFrame], root: Path, statements: list[Statement]
) -> tuple[DataFrame, Lineage]:
    frame = known[INPUT]
    context = StepContext(frame.sparkSession, step.number, known)
    result = _call(step, frame, context, root)
    statements.extend(context.captured)
    if not hasattr(result, "sparkSession") or not hasattr(result, "schema"):
        raise faults.fault(
            "FM-TRANSFORM-011",
            "the function returned no frame",
            found=f"a {type(result).__name__}",
            allowed="a Spark frame: return the frame that the next step gets",
        )
    used = (name for statement in context.captured for name in statement.frames)
    read = tuple(dict.fromkeys([INPUT, *used]))
    return result, Lineage("table", frames=read, note="Python is not read for lineage")


def _call(step: Step, frame: DataFrame, context: StepContext, root: Path) -> Any:
    call = _function(step, root)
    try:
        return call(frame, context)
    except TransformError:
        raise
    # The boundary to the user's function: whatever it raises is told with the step's number.
    except Exception as error:
        raise faults.fault(
            "FM-TRANSFORM-010",
            "the function of this step raised an error",
            found=f"{type(error).__name__}: {faults.without_plan(str(error))}"[:1000],
            next="correct the function; the error it raised is the cause of this one",
        ) from error


def _function(step: Step, root: Path) -> Any:
    if isinstance(step, NamedStep):
        return step.transform.on_frame(step.params)
    assert isinstance(step, PythonStep)  # noqa: S101  # the two kinds that call a function
    try:
        function = load_function(root, step.function)
    except ConfigError as error:
        raise faults.fault(
            "FM-TRANSFORM-009",
            error.title,
            found=error.found,
            allowed="module.path:name of a function(frame, context) that returns a frame",
            details=error.details,
        ) from error
    return lambda frame, context: function(frame, context, **step.params)
