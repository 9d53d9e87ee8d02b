"""Web APIs: whole answers, and what is new in them."""

from __future__ import annotations

from floodmark.sources.http.answers import Answers, Paging, Question
from floodmark.sources.http.api import Api
from floodmark.sources.http.cursor import CursorAnswers
from floodmark.sources.http.probe import AnswerReader

__all__ = [
    "AnswerReader",
    "Answers",
    "Api",
    "CursorAnswers",
    "Paging",
    "Question",
]
