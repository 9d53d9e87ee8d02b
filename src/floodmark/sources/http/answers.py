"""Answers of a web API: all pages of one question, kept as one, so that nobody mixes two of them.

The records are kept beside the control store under the hash of their content, before a mark can
name them; what was asked, and when, in a folder of its own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from floodmark.deltalog import Storage
from floodmark.errors import SourceError
from floodmark.model import AnswerMark, epoch_micros
from floodmark.model.names import short_hash
from floodmark.next_steps import BATCH, command
from floodmark.sources.files import FileLists
from floodmark.sources.frames import escaped
from floodmark.sources.http.api import Api, Reply, linked, utc_text
from floodmark.sources.scratch import Keeping, Scratch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MAX_PAGES = 10_000
LINK = "Link"
"""Stands for the header of that name."""
PLANNED_SECONDS = 86_400.0
"""So long a run uses the answer that its plan has looked at, instead of asking once more."""
KEPT_SECONDS = 7 * 86_400.0
"""What was asked longer ago is forgotten, unless the cache is to last longer."""
_NEXT = re.compile(r'<([^>]*)>\s*;[^,]*\brel="?next"?', re.IGNORECASE)


@dataclass(frozen=True)
class Paging:
    """How the next page is found; one of `next`, `page` and `cursor` is said."""

    next: str | None = None
    page: str | None = None
    first: int = 1
    cursor: str | None = None
    token: str | None = None


@dataclass(frozen=True)
class Question:
    """What is asked."""

    path: str | None = None
    params: Mapping[str, str] = field(default_factory=dict)
    records: str | None = None
    """Where the list of records is in an answer; None: the answer is the list, or one record."""
    paging: Paging | None = None


@dataclass(frozen=True)
class Answer:
    """All records of an answer, as lines of JSON, under the mark that names them."""

    mark: AnswerMark
    fetched_at: datetime
    pages: int = 1
    tags: Mapping[str, str] = field(default_factory=dict)
    """What the server wants to see to say that nothing has changed."""
    source: str = "fetched"
    """fetched, cached, planned: the one that the plan has looked at; or unchanged: the server was
    asked and says so."""

    @property
    def note(self) -> str:
        """For people: nobody is to take an old answer for a new one."""
        what = f"{self.mark.text} on {self.pages:,} pages" if self.pages > 1 else self.mark.text
        at = utc_text(self.fetched_at)
        if self.source == "cached":
            return f"from the cache: the answer of {at}, {what}"
        more = {"unchanged": ", unchanged", "planned": ", as planned"}
        return f"{what} at {at}{more.get(self.source, '')}"


class Answers:
    """Asks one question of a web API, and keeps what was answered."""

    def __init__(
        self, api: Api, question: Question, upstream: str, control: str, storage: Storage | Keeping
    ) -> None:
        self._api = api
        self._question = question
        self._upstream = upstream
        self._control = control
        self._storage = storage if isinstance(storage, Keeping) else Keeping(storage)
        self._kept = FileLists(control, self._storage)
        self._folder = f"{control}/http/{short_hash(upstream)}"

    def with_scratch(self, scratch: Scratch | None) -> Answers:
        """The same question for looks that keep nothing; for None this one."""
        if scratch is None:
            return self
        storage = self._storage.with_scratch(scratch)
        return Answers(self._api, self._question, self._upstream, self._control, storage)

    def ask(self, more: Mapping[str, str], max_age_seconds: float) -> Answer:
        """The answer, with these parameters too: one that is not older, or a new one.

        Raises FM-SOURCE-050 to -052; then nothing is kept, and what was kept stays.
        """
        params = {**self._question.params, **more}
        key = self._key(more)
        known = self._known(key)
        now = self._api.clock.now()
        if known is not None and (now - known.fetched_at).total_seconds() <= max_age_seconds:
            return replace(known, source="cached")
        answer = self._asked(params, known)
        self._remember(key, answer, max(KEPT_SECONDS, max_age_seconds))
        return answer

    def plan_from(self, answer: Answer, more: Mapping[str, str], what: Sequence[str]) -> None:
        """Keep the answer that something is planned from, apart from what others ask."""
        self._remember(self._key(more, *what), answer, KEPT_SECONDS)

    def planned(
        self, more: Mapping[str, str], what: Sequence[str], max_age_seconds: float
    ) -> Answer | None:
        """The answer that this was planned from, if it is still there and not older."""
        known = self._known(self._key(more, *what))
        if known is None:
            return None
        age = (self._api.clock.now() - known.fetched_at).total_seconds()
        return replace(known, source="planned") if age <= max_age_seconds else None

    def _key(self, more: Mapping[str, str], *what: str) -> str:
        params = {**self._question.params, **more}
        return short_hash(json.dumps([repr(self._question), sorted(params.items()), *what]))

    def lines(self, mark: AnswerMark) -> list[bytes]:
        """The records of an answer, each as JSON; raises FM-SOURCE-053 if they are gone."""
        try:
            return self._storage.read(self.place(mark)).splitlines()
        except FileNotFoundError as error:
            raise self.gone(mark) from error

    def place(self, mark: AnswerMark) -> str:
        """Where the records are."""
        return self._kept.place(self._upstream, mark)

    def has(self, mark: AnswerMark) -> bool:
        """Whether the records are still there."""
        return self._storage.exists(self.place(mark))

    def frame(self, spark: SparkSession, mark: AnswerMark, ddl: str | None) -> DataFrame:
        """The records as rows; raises FM-SOURCE-042 where nothing tells their columns."""
        if not mark.count:
            if ddl is None:
                raise self._no_columns()
            return spark.createDataFrame([], ddl)
        reader = spark.read.option("mode", "FAILFAST")
        return (reader if ddl is None else reader.schema(ddl)).json(escaped(self.place(mark)))

    # What is kept ---------------------------------------------------------------------------------

    def _known(self, key: str) -> Answer | None:
        try:
            said = json.loads(self._storage.read(f"{self._folder}/{key}.json"))
            answer = Answer(
                AnswerMark(said["id"], said["records"]),
                datetime.fromisoformat(said["fetched_at"]),
                said["pages"],
                said["tags"],
            )
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return None  # what cannot be read is asked for again
        return answer if self.has(answer.mark) else None

    def _remember(self, key: str, answer: Answer, keep_seconds: float) -> None:
        said = {
            "id": answer.mark.id,
            "records": answer.mark.count,
            "fetched_at": answer.fetched_at.astimezone(UTC).isoformat(),
            "pages": answer.pages,
            "tags": dict(answer.tags),
        }
        self._storage.write(f"{self._folder}/{key}.json", json.dumps(said).encode())
        oldest_ms = epoch_micros(answer.fetched_at) // 1000 - keep_seconds * 1000
        for entry in self._storage.list(self._folder):
            if entry.name != f"{key}.json" and 0 < entry.modified_ms < oldest_ms:
                self._storage.delete(f"{self._folder}/{entry.name}")

    # Asking ---------------------------------------------------------------------------------------

    def _asked(self, params: Mapping[str, str], known: Answer | None) -> Answer:
        now = self._api.clock.now()
        tags = known.tags if known is not None and known.pages == 1 else {}
        content, count, pages, last = bytearray(), 0, 0, Reply("", b"", {})
        for last, records in self._pages(params, tags):
            if last.body is None and known is not None:
                return replace(known, source="unchanged", fetched_at=now)
            content += "".join(f"{json_text(record)}\n" for record in records).encode()
            count, pages = count + len(records), pages + 1
            if len(content) > self._api.max_bytes:
                allowed = f"at most {self._api.max_bytes:,} bytes: max_megabytes"
                raise self._api.unusable(last.url, f"{pages:,} pages are too large", allowed)
        mark = self._kept.keep_content(self._upstream, bytes(content), count)
        return Answer(mark, now, max(pages, 1), _tags(last) if pages == 1 else {})

    def _pages(
        self, params: Mapping[str, str], tags: Mapping[str, str]
    ) -> Iterator[tuple[Reply, list[Any]]]:
        """The pages of an answer, one after the other; without a body where nothing has changed."""
        paging, number = self._question.paging, 0
        url: str | None = self._url(params, number)
        seen: set[str] = set()
        while url is not None:
            if url in seen or number >= MAX_PAGES:
                raise self._api.unusable(url, "its pages do not end", f"{MAX_PAGES:,} at most")
            seen.add(url)
            reply = self._api.get(url, tags if number == 0 else {})
            if reply.body is None:
                if not tags:
                    raise self._api.unusable(url, "304, though nothing was compared", "an answer")
                yield reply, []
                return
            document = self._parsed(reply)
            records = self._records(document, reply)
            yield reply, records
            number += 1
            url = (
                self._next(params, document, reply, number, is_last=not records) if paging else None
            )

    def _url(self, params: Mapping[str, str], number: int) -> str:
        paging = self._question.paging
        counted = {paging.page: str(paging.first + number)} if paging and paging.page else {}
        return self._api.url(self._question.path, {**params, **counted})

    def _next(
        self,
        params: Mapping[str, str],
        document: Any,
        reply: Reply,
        number: int,
        *,
        is_last: bool,
    ) -> str | None:
        paging = self._question.paging
        assert paging is not None  # noqa: S101  (only paged answers come here)
        if paging.page is not None:
            return None if is_last else self._url(params, number)
        if paging.cursor is not None:
            token = _at(document, str(paging.token))
            more = {**params, paging.cursor: str(token)}
            return self._api.url(self._question.path, more) if token else None
        link = _header_link(reply) if paging.next == LINK else _at(document, str(paging.next))
        return self._linked(reply, link) if link else None

    def _linked(self, reply: Reply, link: object) -> str:
        url = linked(reply.url, str(link))
        if not self._api.is_own(url):
            raise self._api.unusable(reply.url, "its next page is elsewhere", "pages of its own")
        return url

    def _parsed(self, reply: Reply) -> Any:
        try:
            text = (reply.body or b"").decode("utf-8-sig")
            return json.loads(text, parse_float=Decimal, parse_constant=_refuse)
        except (ValueError, RecursionError) as error:
            found = f"no JSON: {type(error).__name__}: {error}"[:300]
            raise self._api.unusable(reply.url, found, "JSON") from error

    def _records(self, document: Any, reply: Reply) -> list[Any]:
        path = self._question.records
        found = document if path is None else _at(document, path)
        records = [found] if isinstance(found, dict) else found
        if isinstance(records, list) and all(isinstance(each, dict) for each in records):
            return records
        keys = ", ".join(map(str, document))[:200] if isinstance(document, dict) else "a list"
        at = f"at {path}; the answer has: {keys}" if path else "in the answer"
        found = f"no list of records {at}"
        raise self._api.unusable(reply.url, found, "records: the path of the list, as data.items")

    # Errors ---------------------------------------------------------------------------------------

    def gone(self, mark: AnswerMark) -> SourceError:
        """The records that a window is are no longer there (FM-SOURCE-053)."""
        return SourceError(
            "FM-SOURCE-053",
            "the answer that was planned is gone",
            where=self._upstream,
            found=f"no {self.place(mark)}",
            allowed="the folder of the control store as it was",
            state="nothing was read or written; the committed watermark stays",
            next="put the folder `files` of the control store back from a copy; or go on with"
            " the answer as it is now: " + command("retry", BATCH, "--on-lost-range", "snapshot"),
        )

    def _no_columns(self) -> SourceError:
        return SourceError(
            "FM-SOURCE-042",
            "the columns of an answer are not known before it has a record",
            where=self._upstream,
            found="no record, and no schema",
            allowed='a schema in the node: read: {schema: "id LONG, name STRING"}',
            state="nothing was read or written",
            next="say the schema, then run the same command again",
        )


def _at(document: Any, path: str) -> Any:
    """What is at a path of keys; None if nothing is."""
    for key in path.split("."):
        document = document.get(key) if isinstance(document, dict) else None
    return document


def _header_link(reply: Reply) -> str | None:
    match = _NEXT.search(reply.headers.get("link", ""))
    return match[1] if match else None


def _tags(reply: Reply) -> dict[str, str]:
    """What to send next time, so that the server may say that nothing has changed."""
    names = {"etag": "If-None-Match", "last-modified": "If-Modified-Since"}
    return {sent: reply.headers[name] for name, sent in names.items() if name in reply.headers}


def _refuse(word: str) -> Any:
    raise ValueError(f"{word} is no JSON")


def json_text(value: Any) -> str:
    """A value as JSON on one line, its numbers exactly as they came.

    >>> json_text({"a": [1, Decimal("0.10"), None, True, "x"]})
    '{"a":[1,0.10,null,true,"x"]}'
    """
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(k)}:{json_text(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(json_text, value)) + "]"
    return str(value) if isinstance(value, Decimal) else json.dumps(value)
