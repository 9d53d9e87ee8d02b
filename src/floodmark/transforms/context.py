"""What the function of a Python step gets beside its frame."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from floodmark.transforms import frames, sql

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class Statement:
    """SQL that a step ran."""

    step: int
    text: str
    frames: tuple[str, ...] = ()
    """The frames that were bound to names in it."""


@dataclass(frozen=True)
class StepContext:
    """The session, the other nodes, and SQL that is written down.

    `context.sql` and `context.spark.sql` add what they run to `captured`. SQL that goes round
    them, through `frame.sparkSession`, is not seen.
    """

    session: SparkSession
    step: int
    frames: Mapping[str, DataFrame]
    """`input`, and the nodes that the step may read."""
    captured: list[Statement] = field(default_factory=list)

    @property
    def spark(self) -> SparkSession:
        """The frame's session; its `sql` is captured."""
        return _capturing(self.session, self._capture)

    def sql(self, text: str, **more: DataFrame) -> DataFrame:
        """The rows of a query over `input`, other nodes by name, and frames given here by name.

        Nothing runs before the rows are asked for. Raises what Spark raises.
        """
        known, words = {**self.frames, **more}, sql.words_of(text)
        used = tuple(name for name in known if name.lower() in words)
        self._capture(text, used)
        return frames.query(self.session, text, known) if used else self.session.sql(text)

    def _capture(self, text: str, names: tuple[str, ...] = ()) -> None:
        self.captured.append(Statement(self.step, text, names))


def _capturing(session: SparkSession, capture: Any) -> SparkSession:
    """The same session, in every way but that its `sql` tells what it was asked."""
    kind: Any = type(session)

    class CapturingSession(kind):  # type: ignore[misc]
        def sql(self, sqlQuery: str, *arguments: Any, **keywords: Any) -> DataFrame:  # noqa: N803
            capture(sqlQuery)
            frame: DataFrame = session.sql(sqlQuery, *arguments, **keywords)
            return frame

        def __del__(self) -> None:
            """Whoever made the session closes it."""

    twin: SparkSession = object.__new__(CapturingSession)
    # Everything but `sql` is that of the one session: nothing is started, copied or stopped twice.
    twin.__dict__ = session.__dict__
    return twin
