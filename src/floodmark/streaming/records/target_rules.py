"""What a Delta table asks of its rows: a record that does not pass it becomes a dead letter.

Delta refuses the whole write for one such row, so a stream would end at it for good.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from floodmark.deltalog import DeltaLog, Storage, is_delta_table
from floodmark.model.names import matching, quoted
from floodmark.streaming.records.read import BAD, BAD_COLUMN, CHECK, KEY, NULL, VALUE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import Column, DataFrame

_CONSTRAINT = "delta.constraints."
_LENGTH = "__CHAR_VARCHAR_TYPE_STRING"
_SIZED = re.compile(r"(?:var)?char\((\d+)\)", re.IGNORECASE)
_BROKEN = "_fm_broken"


@dataclass(frozen=True)
class TargetRules:
    """The rules of a table as its log tells them now."""

    required: tuple[str, ...] = ()
    """Columns that are NOT NULL."""
    checks: tuple[tuple[str, str], ...] = ()
    """CHECK constraints: name and condition."""
    lengths: tuple[tuple[str, int], ...] = ()
    """How many characters a text may have, by column."""
    columns: tuple[str, ...] = field(default=(), compare=False)
    """Of the rows that are judged by them."""

    @classmethod
    def of(cls, path: str, storage: Storage, columns: Sequence[str]) -> Self:
        """Those of a table that rows with these columns can break; none where there is no table."""
        if not is_delta_table(path, storage):
            return cls()
        facts = DeltaLog(path, storage).facts()
        fields = [
            each
            for each in json.loads(facts.schema_json)["fields"]
            if matching(each["name"], columns) is not None
        ]
        sizes = [
            (str(each["name"]), _SIZED.fullmatch(str(each.get("metadata", {}).get(_LENGTH, ""))))
            for each in fields
        ]
        return cls(
            tuple(str(each["name"]) for each in fields if not each.get("nullable", True)),
            tuple(
                (key.removeprefix(_CONSTRAINT), condition)
                for key, condition in sorted(facts.properties.items())
                if key.startswith(_CONSTRAINT)
            ),
            tuple((name, int(size[1])) for name, size in sizes if size is not None),
            tuple(columns),
        )

    def __bool__(self) -> bool:
        return bool(self.required or self.checks or self.lengths)

    def applied(self, records: DataFrame) -> DataFrame:
        """The same records, with those judged that the table would refuse.

        `records` are judged, and have the bytes of all of them: those of rows are taken out.
        """
        from pyspark.sql import functions as f

        broken = f.when(f.col(BAD).isNull(), self._broken(records))
        judged = records.withColumn(_BROKEN, broken)
        bad = f.coalesce(BAD, f.col(f"{_BROKEN}.reason"))
        found = {
            BAD: bad,
            BAD_COLUMN: f.coalesce(BAD_COLUMN, f.col(f"{_BROKEN}.name")),
            KEY: f.when(bad.isNotNull(), f.col(KEY)),
            VALUE: f.when(bad.isNotNull(), f.col(VALUE)),
        }
        return judged.select(
            *(
                found[name].alias(name) if name in found else quoted(name)
                for name in records.columns
            )
        )

    def first_broken(self, rows: DataFrame) -> tuple[str, str] | None:
        """The first rule that one of these rows breaks, and what it is of; None if none does."""
        from pyspark.sql import functions as f

        broken = rows.select(self._broken(rows).alias(_BROKEN)).where(f.col(_BROKEN).isNotNull())
        for row in broken.select(f"{_BROKEN}.*").limit(1).collect():
            return row["reason"], row["name"]
        return None

    def _broken(self, rows: DataFrame) -> Column:
        """The reason, and what the rule is of; null for a row that the table takes."""
        from pyspark.sql import functions as f

        broken = f.lit(None).cast("struct<reason: string, name: string>")
        for condition, reason, name in reversed([*self._conditions(rows)]):
            told = f.struct(f.lit(reason).alias("reason"), f.lit(name).alias("name"))
            broken = f.when(condition, told).otherwise(broken)
        return broken

    def _conditions(self, rows: DataFrame) -> Iterator[tuple[Column, str, str]]:
        """When a row breaks which rule."""
        from pyspark.errors import AnalysisException
        from pyspark.sql import functions as f

        judged = rows.select(*map(quoted, self.columns))
        for name in self.required:
            yield f.col(quoted(name)).isNull(), NULL, name
        for name, size in self.lengths:
            # Delta counts spaces at the end too, other than an INSERT by SQL, which cuts them off.
            yield f.length(f.col(quoted(name))) > size, CHECK, name
        for name, condition in self.checks:
            holds = f.coalesce(f.expr(condition), f.lit(False))  # noqa: FBT003  (a value)
            try:
                judged.select(holds)
            except AnalysisException:
                # Of columns that these rows do not have: the table itself judges it.
                continue
            yield ~holds, CHECK, name
