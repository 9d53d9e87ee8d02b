"""Generated uses of every transform, each with what plain Python says must come out."""

from __future__ import annotations

import datetime as dt
import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from floodmark.model.names import quoted
from floodmark.transforms import Table

if TYPE_CHECKING:
    from tests.properties.transform_frames import Rows

Draw = Callable[[st.SearchStrategy[Any]], Any]

NAMES = (
    "id", "order", "select", "null", "input", "MiXed", "a b", "a.b", "it's", 'say "x"', "tick`s",
    "Größe", "列", "x;y", "-- c", "{b}", "$x", "1st", " lead", "_row", "%s", "back\\slash",
    "_left", "new\nline", "name", "value", "is_valid", "/* c", "*",
)  # fmt: skip
TEXTS = st.text(st.sampled_from("ab \t'\"\\${}é列\n,-"), max_size=5)
WORDS = st.sampled_from(["", "a", "b", "A", "it's", "${env:HOME}", "back\\slash", "列", "x" * 40])
NUMBERS = st.integers(-3, 3)
DATES = st.dates(dt.date(1900, 1, 1), dt.date(2100, 12, 31))
TIMES = st.datetimes(dt.datetime(1971, 1, 1), dt.datetime(2037, 12, 31)).map(  # noqa: DTZ001
    lambda time: time.replace(fold=0)
)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "int": NUMBERS,
    "bigint": st.integers(-(2**63), 2**63 - 1) | NUMBERS,
    "string": TEXTS | WORDS,
    "boolean": st.booleans(),
    "date": DATES,
    "timestamp_ntz": TIMES,
    "double": st.sampled_from([0.0, 1.5, -2.25, 1e300, float("inf"), float("nan")]),
    "array<int>": st.lists(NUMBERS | st.none(), max_size=3),
    "struct<a:int,b:string>": st.tuples(NUMBERS | st.none(), WORDS | st.none()),
}


@dataclass(frozen=True)
class Case:
    """One use of a transform."""

    params: Any
    given: Table
    columns: Sequence[str]
    rows: Rows
    others: Mapping[str, Table] = field(default_factory=dict)
    in_order: bool = False


STRATEGIES: dict[str, st.SearchStrategy[Case]] = {}


def cases(name: str, count: int) -> list[Case]:
    """Some generated uses of a transform: drawn one by one, to be evaluated together."""
    found: list[Case] = []

    @settings(
        max_examples=count,
        database=None,
        phases=[Phase.generate],
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(STRATEGIES[name])
    def collect(case: Case) -> None:
        found.append(case)

    collect()
    return found


def case(function: Callable[[Draw], Case]) -> Callable[[Draw], Case]:
    """The generator of the transform whose name the function has."""
    STRATEGIES[function.__name__] = st.composite(function)()
    return function


def table(draw: Draw, *kinds: str, rows: int = 6, taken: Sequence[str] = ()) -> Table:
    """A table with columns of these kinds, oddly named, with NULLs, sometimes empty."""
    free = [n for n in NAMES if n.lower() not in {t.lower() for t in taken}]
    names = draw(st.permutations(free))[: len(kinds)]
    cells = [st.none() | VALUES[kind] for kind in kinds]
    return Table(
        dict(zip(names, kinds, strict=True)), draw(st.lists(st.tuples(*cells), max_size=rows))
    )


def names_of(given: Table) -> list[str]:
    return list(given.columns)


def new_name(draw: Draw, *tables: Table) -> str:
    taken = {name.lower() for each in tables for name in each.columns}
    return str(draw(st.sampled_from([n for n in NAMES if n.lower() not in taken])))


def called(draw: Draw, name: str) -> str:
    """The name as a user may write it: Spark does not care about case."""
    return name.swapcase() if name.isascii() and draw(st.booleans()) else name


def added(given: Table, name: str, values: Sequence[Any]) -> tuple[list[str], Rows]:
    rows = [(*row, value) for row, value in zip(given.rows, values, strict=True)]
    return [*given.columns, name], rows


def nulls_first(value: Any) -> tuple[bool, Any]:
    return (value is not None, value)


def descending(value: Any) -> tuple[bool, Any]:
    """A key that sorts numbers from large to small, NULLs last."""
    return (value is None, -value if value is not None else 0)


def case_of(given: Table, params: Any, out: tuple[Sequence[str], Rows], **more: Any) -> Case:
    return Case(params, given, out[0], out[1], **more)


# Columns


@case
def select(draw: Draw) -> Case:
    given = table(draw, "int", "string", "date", "array<int>")
    places = draw(st.lists(st.integers(0, 3), min_size=1, unique=True))
    names = names_of(given)
    rows = [tuple(row[p] for p in places) for row in given.rows]
    return Case([called(draw, names[p]) for p in places], given, [names[p] for p in places], rows)


@case
def rename(draw: Draw) -> Case:
    given = table(draw, "int", "string", "double")
    names = names_of(given)
    new = [new_name(draw, given), names[2], names[1]]
    params = {"columns": {called(draw, old): to for old, to in zip(names, new, strict=True)}}
    return case_of(given, params, (new, list(given.rows)))


@case
def drop(draw: Draw) -> Case:
    given = table(draw, "int", "string", "boolean")
    gone = draw(st.lists(st.integers(0, 2), min_size=1, max_size=2, unique=True))
    names = names_of(given)
    left = [p for p in range(3) if p not in gone]
    rows = [tuple(row[p] for p in left) for row in given.rows]
    params = {"columns": [*(names[p] for p in gone), "none of them"], "missing": "ignore"}
    return case_of(given, params, ([names[p] for p in left], rows))


@case
def derive_columns(draw: Draw) -> Case:
    given = table(draw, "int", "string")
    number, text = names_of(given)
    word, new = draw(WORDS.filter(lambda w: "$" not in w)), new_name(draw, given)
    literal = word.replace("\\", "\\\\").replace("'", "\\'")
    params = {
        "columns": {
            new: f"concat({quoted(text)}, '{literal}') -- note",
            text: f"{quoted(number)} + 1",
        }
    }
    rows = [
        (n, None if n is None else n + 1, None if t is None else t + word) for n, t in given.rows
    ]
    return case_of(given, params, ([number, text, new], rows))


@case
def cast_columns(draw: Draw) -> Case:
    given = table(draw, "string", "bigint", "date")
    numbers = [(draw(st.sampled_from(["1", "-7", "x", "", None])), *row[1:]) for row in given.rows]
    given = Table(given.columns, numbers)
    names = names_of(given)
    params = {
        "columns": dict(zip(names, ["int", "string", "string"], strict=True)),
        "on_error": "null",
    }
    rows = [
        (
            int(t) if t in ("1", "-7") else None,
            None if n is None else str(n),
            None if d is None else d.isoformat(),
        )
        for t, n, d in given.rows
    ]
    return case_of(given, params, (names, rows))


@case
def fill_nulls(draw: Draw) -> Case:
    given = table(draw, "bigint", "string", "date", "boolean", "double")
    values = [draw(VALUES[kind]) for kind in given.columns.values()]
    params = {"columns": dict(zip(given.columns, values, strict=True))}
    rows = [
        tuple(v if v is not None else w for v, w in zip(row, values, strict=True))
        for row in given.rows
    ]
    return case_of(given, params, (names_of(given), rows))


@case
def case_when(draw: Draw) -> Case:
    given = table(draw, "int", "string")
    (number, _), into = names_of(given), new_name(draw, given)
    words = [draw(WORDS) for _ in range(3)]
    params = {
        "into": into,
        "cases": [
            {"when": f"{quoted(number)} > 1", "then": words[0]},
            {"when": f"{quoted(number)} >= 0", "then": words[1]},
        ],
        "otherwise": words[2],
    }
    found = [
        words[2] if n is None or n < 0 else words[0] if n > 1 else words[1] for n, _ in given.rows
    ]
    return case_of(given, params, added(given, into, found))


@case
def dict_based_mapping(draw: Draw) -> Case:
    kind = draw(st.sampled_from(["string", "int"]))
    given = table(draw, kind, "int")
    keys = st.none() | (WORDS if kind == "string" else NUMBERS)
    mapping = draw(st.dictionaries(keys, WORDS, min_size=1, max_size=4))
    keep, into = draw(st.booleans()), new_name(draw, given)
    params: dict[str, Any] = {"column": names_of(given)[0], "mapping": mapping, "into": into}
    params |= {"keep_unmapped": True} if keep else {"default": draw(st.none() | WORDS)}

    def mapped(value: Any) -> Any:
        own = None if value is None else str(value)
        return mapping.get(value, own if keep else params["default"])

    return case_of(given, params, added(given, into, [mapped(row[0]) for row in given.rows]))


@case
def hash_columns(draw: Draw) -> Case:
    given = table(draw, "string", "int", "date")
    algorithm, into = draw(st.sampled_from(["md5", "sha256", "sha512"])), new_name(draw, given)
    params = {"columns": names_of(given), "into": into, "algorithm": algorithm}

    def digest(row: tuple[Any, ...]) -> str:
        parts = ("-" if v is None else f"{len(str(v))}:{v}" for v in row)
        return hashlib.new(algorithm, "".join(parts).encode()).hexdigest()

    return case_of(given, params, added(given, into, [digest(row) for row in given.rows]))


# Rows


@case
def filter_rows(draw: Draw) -> Case:
    given = table(draw, "int", "string", rows=10)
    edge, name = draw(NUMBERS), names_of(given)[0]
    rows = [row for row in given.rows if row[0] is not None and row[0] > edge]
    return case_of(given, f"input.{quoted(name)} > {edge} /* c */", (names_of(given), rows))


@case
def sort(draw: Draw) -> Case:
    given = table(draw, "int", "string", rows=10)
    number, text = names_of(given)
    by: list[Any] = [f"{number} desc", {"column": text, "nulls": "last"}]
    rows = sorted(given.rows, key=lambda r: (descending(r[0]), (r[1] is None, r[1] or "")))
    return case_of(given, {"by": by}, ([number, text], rows), in_order=True)


@case
def limit(draw: Draw) -> Case:
    given = table(draw, "int", "string", rows=10)
    count = draw(st.integers(0, 5))
    params = {"rows": count, "order_by": f"{names_of(given)[0]} desc"}
    rows = sorted(given.rows, key=lambda r: (descending(r[0]), nulls_first(r[1])))
    return case_of(given, params, (names_of(given), rows[:count]))


@case
def sample(draw: Draw) -> Case:
    given = table(draw, "int", "string", "array<int>", "struct<a:int,b:string>")
    fraction = draw(st.sampled_from([0.0, 1.0]))
    rows = list(given.rows) if fraction else []
    params = {"fraction": fraction, "seed": draw(NUMBERS)}
    return case_of(given, params, (names_of(given), rows))


@case
def deduplicate(draw: Draw) -> Case:
    given = table(draw, "int", "int", "string", rows=12)
    key, order, _ = names_of(given)
    params = {"keys": called(draw, key), "order_by": f"{order} desc"}
    ranked = sorted(
        given.rows, key=lambda r: (nulls_first(r[0]), descending(r[1]), nulls_first(r[2]))
    )
    rows = [next(group) for _, group in groupby(ranked, key=lambda row: row[0])]
    return case_of(given, params, (names_of(given), rows))


# Text


@case
def clean_text(draw: Draw) -> Case:
    given = table(draw, "string", "int")
    flags = {key: draw(st.booleans()) for key in ("trim", "collapse_spaces", "empty_to_null")}
    letters = draw(st.sampled_from([None, "lower", "upper"]))
    params = {"columns": names_of(given)[:1], "case": letters, **flags}

    def cleaned(text: str | None) -> str | None:
        if text is None:
            return None
        text = text.strip(" \t\n") if flags["trim"] else text
        text = re.sub(r"[ \t\n]+", " ", text) if flags["collapse_spaces"] else text
        text = getattr(text, letters)() if letters else text
        return None if flags["empty_to_null"] and text == "" else text

    rows = [(cleaned(text), number) for text, number in given.rows]
    return case_of(given, params, (names_of(given), rows))


@case
def split_part(draw: Draw) -> Case:
    given = table(draw, "string")
    delimiter = draw(st.sampled_from([",", "a", "${", "\\", "ab"]))
    part, into = draw(st.sampled_from([1, 2, 3, -1, -2])), new_name(draw, given)
    params = {"column": names_of(given)[0], "delimiter": delimiter, "part": part, "into": into}

    def found(text: str | None) -> str | None:
        if text is None:
            return None
        parts = text.split(delimiter)
        return parts[part - (part > 0)] if len(parts) >= abs(part) else ""

    return case_of(given, params, added(given, into, [found(row[0]) for row in given.rows]))


@case
def regex_replace(draw: Draw) -> Case:
    given = table(draw, "string", "int")
    uses = [("a+", "x", "x"), ("(a)(b)", "$2$1", r"\2\1"), (r"\s", "", ""), (r"\$\{", r"\$", "$")]
    uses += [("(?<n>a)", "<${n}>", r"<\1>"), ("['\"]", "`", "`"), ("[^ab]", "\\\\", r"\\")]
    pattern, java, python = draw(st.sampled_from(uses))
    params = {"column": names_of(given)[0], "pattern": pattern, "replacement": java}
    ours = pattern.replace("(?<n>", "(?P<n>")
    rows = [(None if t is None else re.sub(ours, python, t), n) for t, n in given.rows]
    return case_of(given, params, (names_of(given), rows))


# Dates


@case
def extract_date_parts(draw: Draw) -> Case:
    given = table(draw, draw(st.sampled_from(["date", "timestamp_ntz"])))
    (name,) = names_of(given)
    asked: dict[str, Callable[[Any], int]] = {
        "year": lambda d: d.year,
        "quarter": lambda d: (d.month + 2) // 3,
        "month": lambda d: d.month,
        "week": lambda d: d.isocalendar()[1],
        "week_year": lambda d: d.isocalendar()[0],
        "day": lambda d: d.day,
        "day_of_week": lambda d: d.isoweekday(),
        "day_of_year": lambda d: d.timetuple().tm_yday,
        "hour": lambda d: getattr(d, "hour", 0),
        "minute": lambda d: getattr(d, "minute", 0),
        "second": lambda d: getattr(d, "second", 0),
    }
    params = {"column": name, "parts": list(asked), "prefix": "part "}
    rows = [
        (d, *(None if d is None else part(d) for part in asked.values())) for (d,) in given.rows
    ]
    return case_of(given, params, ([name, *(f"part {part}" for part in asked)], rows))


def months_later(day: Any, months: int) -> Any:
    year, month = divmod(day.year * 12 + day.month - 1 + months, 12)
    last = (dt.date(year + month // 11, (month + 1) % 12 + 1, 1) - dt.timedelta(1)).day
    return day.replace(year=year, month=month + 1, day=min(day.day, last))


MONTHS = {"year": 12, "quarter": 3, "month": 1}
SPANS = {
    "week": dt.timedelta(weeks=1), "day": dt.timedelta(1), "hour": dt.timedelta(hours=1),
    "minute": dt.timedelta(minutes=1), "second": dt.timedelta(seconds=1),
}  # fmt: skip


@case
def date_add(draw: Draw) -> Case:
    kind = draw(st.sampled_from(["date", "timestamp_ntz"]))
    units = [*MONTHS, "week", "day", *(["hour", "minute", "second"] if kind != "date" else [])]
    given, unit, amount = (
        table(draw, kind),
        draw(st.sampled_from(units)),
        draw(st.integers(-50, 50)),
    )
    into = new_name(draw, given)
    params = {"column": names_of(given)[0], "amount": amount, "unit": unit, "into": into}

    def moved(value: Any) -> Any:
        if value is None:
            return None
        if unit in MONTHS:
            return months_later(value, amount * MONTHS[unit])
        return value + amount * SPANS[unit]

    return case_of(given, params, added(given, into, [moved(row[0]) for row in given.rows]))


@case
def date_trunc(draw: Draw) -> Case:
    kind = draw(st.sampled_from(["date", "timestamp_ntz"]))
    units = [*MONTHS, "week", "day", *(["hour", "minute", "second"] if kind != "date" else [])]
    given, unit = table(draw, kind), draw(st.sampled_from(units))
    rows = [(None if value is None else cut(value, unit),) for (value,) in given.rows]
    return case_of(given, {"column": names_of(given)[0], "unit": unit}, (names_of(given), rows))


def cut(value: Any, unit: str) -> Any:
    small = ["second", "minute", "hour"]
    if unit in small:
        zero = dict.fromkeys(small[: small.index(unit)], 0)
        return value.replace(microsecond=0, **zero)
    if isinstance(value, dt.datetime):
        value = value.replace(hour=0, minute=0, second=0, microsecond=0)
    if unit == "week":
        return value - dt.timedelta(value.isoweekday() - 1)
    if unit in MONTHS:
        size = MONTHS[unit]
        return value.replace(month=(value.month - 1) // size * size + 1, day=1)
    return value


@case
def date_diff(draw: Draw) -> Case:
    given = table(draw, "timestamp_ntz", "timestamp_ntz")
    start, end = names_of(given)
    unit, into = draw(st.sampled_from([*MONTHS, *SPANS])), new_name(draw, given)
    params = {"start": start, "end": end, "unit": unit, "into": into}
    return case_of(given, params, added(given, into, [between(a, b, unit) for a, b in given.rows]))


def between(start: Any, end: Any, unit: str) -> int | None:
    if start is None or end is None:
        return None
    if start > end:
        return -(between(end, start, unit) or 0)
    if unit in SPANS:
        return int((end - start) // SPANS[unit])
    months = (end.year - start.year) * 12 + end.month - start.month
    is_short = (end.day, end.time()) < (start.day, start.time())
    return int((months - is_short) // MONTHS[unit])


@case
def convert_timezone(draw: Draw) -> Case:
    given = table(draw, "timestamp_ntz")
    zones = st.sampled_from(
        ["UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Pacific/Apia"]
    )
    source, target, into = draw(zones), draw(zones), new_name(draw, given)
    params = {"column": names_of(given)[0], "from": source, "to": target, "into": into}

    def shown(value: Any) -> Any:
        if value is None:
            return None
        there = value.replace(tzinfo=ZoneInfo(source)).astimezone(dt.UTC)
        return there.astimezone(ZoneInfo(target)).replace(tzinfo=None)

    return case_of(given, params, added(given, into, [shown(row[0]) for row in given.rows]))


# Several frames


@case
def join(draw: Draw) -> Case:
    left = table(draw, "int", "string")
    right = table(draw, "int", "string", taken=names_of(left)[1:])
    how = draw(st.sampled_from(["inner", "left", "right", "full", "semi", "anti"]))
    nulls = draw(st.booleans())
    (key, text), (their, more) = names_of(left), names_of(right)
    if key.lower() == their.lower():
        right = Table({f"{their}2": "int", more: "string"}, right.rows)
        their += "2"
    more_name = f"{more}_other" if more.lower() == key.lower() else more
    params = {
        "with": "the other",
        "on": {key: their},
        "how": how,
        "nulls_match": nulls,
        "suffix": "_other",
    }
    if their.lower() in (text.lower(), key.lower()):
        their += "_other"
    columns = [key, text] if how in ("semi", "anti") else [key, text, their, more_name]
    rows = joined(left.rows, right.rows, how, lambda a, b: a == b and (nulls or a is not None))
    return Case(params, left, columns, rows, others={"the other": right})


def joined(
    left: Sequence[Any], right: Sequence[Any], how: str, match: Callable[[Any, Any], bool]
) -> Rows:
    pairs = [(a, b) for a in left for b in right if match(a[0], b[0])]
    alone = [a for a in left if not any(match(a[0], b[0]) for b in right)]
    if how == "semi":
        return [a for a in left if any(match(a[0], b[0]) for b in right)]
    if how == "anti":
        return alone
    rows = [(*a, *b) for a, b in pairs]
    rows += [(*a, None, None) for a in alone] if how in ("left", "full") else []
    lonely = [b for b in right if not any(match(a[0], b[0]) for a in left)]
    return rows + ([(None, None, *b) for b in lonely] if how in ("right", "full") else [])


@case
def union(draw: Draw) -> Case:
    given = table(draw, "int", "string")
    number, text = names_of(given)
    extra = new_name(draw, given)
    rows = draw(st.lists(st.tuples(st.none() | DATES, st.none() | NUMBERS), max_size=4))
    other = Table({extra: "date", number: "int"}, rows)
    params = {"with": "left", "missing": "null", "distinct": draw(st.booleans())}
    found = [(*row, None) for row in given.rows] + [(n, None, d) for d, n in rows]
    found = list(dict.fromkeys(found)) if params["distinct"] else found
    return Case(params, given, [number, text, extra], found, others={"left": other})


# Groups and shapes


def groups(rows: Sequence[Any]) -> list[tuple[Any, list[Any]]]:
    ranked = sorted(rows, key=lambda row: nulls_first(row[0]))
    return [(key, list(group)) for key, group in groupby(ranked, key=lambda row: row[0])]


def total(values: Sequence[int | None]) -> int | None:
    there = [value for value in values if value is not None]
    return sum(there) if there else None


@case
def aggregate(draw: Draw) -> Case:
    given = table(draw, "int", "int", "string", rows=12)
    key, number, _ = names_of(given)
    one, two = "how many", "total"
    columns = {one: "count(*)", two: f"sum({quoted(number)})"}
    if draw(st.booleans()):
        rows = [(k, len(g), total([r[1] for r in g])) for k, g in groups(given.rows)]
        return case_of(given, {"by": key, "columns": columns}, ([key, one, two], rows))
    whole = [(len(given.rows), total([r[1] for r in given.rows]))]
    return case_of(given, {"columns": columns}, ([one, two], whole))


@case
def window_calculation(draw: Draw) -> Case:
    given = table(draw, "int", "int", "int", rows=10)
    numbered = [(row[0], place, row[2]) for place, row in enumerate(given.rows)]
    given = Table(given.columns, numbered)
    key, order, number = names_of(given)
    params: dict[str, Any] = {
        "columns": {"number it": "row_number()", "so far": f"sum({quoted(number)})"},
        "partition_by": key,
        "order_by": order,
    }
    if draw(st.booleans()):
        params |= {
            "columns": {"number it": f"count({quoted(order)})", "so far": f"sum({quoted(number)})"}
        }
        params |= {"rows": [None, 0]}
    rows = [
        (*row, place + 1, total([r[2] for r in group[: place + 1]]))
        for _, group in groups(given.rows)
        for place, row in enumerate(group)
    ]
    return case_of(given, params, ([key, order, number, "number it", "so far"], rows))


@case
def pivot(draw: Draw) -> Case:
    given = table(draw, "int", "string", "int", rows=12)
    key, column, number = names_of(given)
    values = draw(
        st.lists(st.none() | st.sampled_from(["", "a", "b", "it's"]), min_size=1, unique=True)
    )
    params = {"by": key, "column": column, "values": values, "of": number, "prefix": "p "}
    rows = [
        (k, *(total([r[2] for r in group if r[1] == value]) for value in values))
        for k, group in groups(given.rows)
    ]
    names = [key, *(f"p {'null' if value is None else value}" for value in values)]
    return case_of(given, params, (names, rows))


@case
def unpivot(draw: Draw) -> Case:
    given = table(draw, "string", "int", "int")
    rest, *turned = names_of(given)
    drop_nulls = draw(st.booleans())
    params = {
        "columns": turned,
        "name_into": "the name",
        "value_into": "the value",
        "drop_nulls": drop_nulls,
    }
    rows = [
        (row[0], name, value)
        for row in given.rows
        for name, value in zip(turned, row[1:], strict=True)
        if value is not None or not drop_nulls
    ]
    return case_of(given, params, ([rest, "the name", "the value"], rows))


@case
def explode_list_column(draw: Draw) -> Case:
    given = table(draw, "array<int>", "string")
    name, rest = names_of(given)
    keep = draw(st.booleans())
    params = {"column": name, "position_into": "at", "keep_empty": keep}
    rows = [
        (text, *pair)
        for values, text in given.rows
        for pair in (enumerate(values) if values else [(None, None)] if keep else [])
    ]
    return case_of(given, params, ([rest, "at", name], rows))


@case
def unpack_struct(draw: Draw) -> Case:
    given = table(draw, "int", "struct<a:int,b:string>")
    number, name = names_of(given)
    keep = draw(st.booleans())
    params = {"column": called(draw, name), "prefix": f"{name} ", "keep": keep}
    columns = [number, *([name] if keep else []), f"{name} a", f"{name} b"]
    rows = [(n, *([v] if keep else []), *(v or (None, None))) for n, v in given.rows]
    return case_of(given, params, (columns, rows))


@case
def validate_and_flag(draw: Draw) -> Case:
    given = table(draw, "int", "string", taken=["is_valid"])
    number, text = names_of(given)
    word = draw(WORDS)
    params = {
        "rules": {"positive": f"{quoted(number)} > 0", word + "!": f"{quoted(text)} is not null"},
        "failed_into": "why",
    }

    def broken(n: int | None, t: str | None) -> list[str]:
        return (["positive"] if n is None or n <= 0 else []) + ([word + "!"] if t is None else [])

    rows = [(n, t, not broken(n, t), broken(n, t)) for n, t in given.rows]
    return case_of(given, params, ([number, text, "is_valid", "why"], rows))
