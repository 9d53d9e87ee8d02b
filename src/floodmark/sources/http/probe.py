"""What is new in a web API whose answers are taken whole: no Spark."""

from __future__ import annotations

from dataclasses import dataclass

from floodmark.model import AnswerMark, AnswerWindow, TableFacts, TimeFacts
from floodmark.sources.http.answers import PLANNED_SECONDS, Answers
from floodmark.sources.scratch import Scratch
from floodmark.sources.source import LookSpec, facts_without_versions


@dataclass(frozen=True)
class AnswerReader:
    """The whole answer: a window is one, told from the one before by its content."""

    upstream: str
    answers: Answers
    ddl: str | None = None
    cache_seconds: float = 0.0

    def facts(self) -> TableFacts:
        """See `Reader.facts`."""
        return facts_without_versions(self.upstream)

    def look(self, window: AnswerWindow, spec: LookSpec) -> TimeFacts:
        """See `Looker.look`: a new answer, if it differs from the one before; keeps it."""
        answer = self.answers.with_scratch(spec.scratch).ask({}, self.cache_seconds)
        before = window.after_mark
        if before is not None and before.id == answer.mark.id:
            return TimeFacts("files", None, note=answer.note)
        return TimeFacts("files", answer.mark, rows=answer.mark.count, note=answer.note)

    def examine(self, spec: LookSpec) -> None:  # noqa: ARG002 see Reader
        """See `Reader.examine`."""
        self.answers.with_scratch(Scratch()).ask({}, self.cache_seconds)

    def is_gone(self, mark: AnswerMark | None) -> bool:
        """Whether an answer that was looked at is no longer kept."""
        return mark is not None and not self.answers.has(mark)

    def readable(self, window: AnswerWindow, mark: AnswerMark | None) -> AnswerMark | None:
        """The answer as it was planned; raises FM-SOURCE-053 if it is gone and nothing is decided.

        snapshot: as it is now. lost: without it.
        """
        if mark is None or not self.is_gone(mark):
            return mark
        if window.method == "snapshot":
            return self.answers.ask({}, PLANNED_SECONDS).mark
        if window.method == "lost":
            return None
        raise self.answers.gone(mark)
