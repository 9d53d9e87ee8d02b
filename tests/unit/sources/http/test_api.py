"""Web APIs on a real server: throttled, broken, endless, elsewhere, changed, and too large."""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import stat
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.support.certificates import Authority
from tests.support.web import Asked, Said, WebServer

from floodmark.deltalog import Storage
from floodmark.errors import FloodmarkError, SourceError
from floodmark.model.clock import FrozenClock
from floodmark.model.cursor_marks import CursorMark, ValueMark, decoded
from floodmark.project import Project
from floodmark.secrecy import remember
from floodmark.sources.http import CursorAnswers
from floodmark.sources.http.answers import Answers, Paging, Question
from floodmark.sources.http.api import Api

Answer = Callable[[Asked], Said]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[WebServer]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with WebServer(lambda asked: Said([{"id": 1}])).running() as running:
        yield running


@pytest.fixture
def clock() -> FrozenClock:
    return FrozenClock(datetime(2026, 3, 1, 12, tzinfo=UTC))


def api(server: WebServer, clock: FrozenClock, **more: Any) -> Api:
    return Api(server.url, clock=clock, **more)


def answers(api: Api, folder: Path, **question: Any) -> Answers:
    return Answers(api, Question("rows", **question), "source://x/rows", str(folder), Storage())


def in_turn(*replies: Said) -> Answer:
    """One reply after the other; the last one stays."""
    left = list(replies)
    return lambda asked: left.pop(0) if len(left) > 1 else left[0]


def refusal(call: Callable[..., Any], *arguments: Any) -> SourceError:
    with pytest.raises(SourceError) as caught:
        call(*arguments)
    return caught.value


# Requests -----------------------------------------------------------------------------------------


def test_a_server_that_is_busy_is_asked_again_when_it_says(
    server: WebServer, clock: FrozenClock
) -> None:
    at = (clock.now() + timedelta(seconds=20)).strftime("%a, %d %b %Y %H:%M:%S GMT")
    server.answer = in_turn(
        Said(status=429, headers={"Retry-After": "7"}),
        Said(status=503, headers={"Retry-After": at}),
        Said(status=500),
        Said(b"[]"),
    )

    reply = api(server, clock).get(server.url)

    assert reply.body == b"[]"
    assert clock.elapsed == pytest.approx(7 + 13 + 2)
    assert len(server.asked) == 4


@pytest.mark.parametrize(
    ("said", "times"),
    [
        (Said(status=503), 3),
        (Said(status=429, headers={"Retry-After": "3600"}), 1),
        (Said(b"[1, 2, 3, 4]", breaks_off=True), 3),
    ],
)
def test_no_answer_is_an_error_that_a_retry_may_mend_and_never_no_news(
    said: Said, times: int, server: WebServer, clock: FrozenClock
) -> None:
    server.answer = lambda asked: said

    error = refusal(api(server, clock, attempts=3).get, f"{server.url}/a?key=geheim")

    assert (error.code, error.retryable) == ("FM-SOURCE-050", True)
    assert error.where == f"{server.url}/a"
    assert "geheim" not in str(error)
    assert len(server.asked) == times


def test_a_long_wait_is_told_and_not_waited_for(server: WebServer, clock: FrozenClock) -> None:
    server.answer = lambda asked: Said(status=429, headers={"Retry-After": "3600"})

    error = refusal(api(server, clock).get, server.url)

    assert (error.found or "").endswith("and it wants to be left alone for 3600 s")
    assert clock.elapsed == 0


def test_an_answer_that_broke_off_is_asked_for_again(server: WebServer, clock: FrozenClock) -> None:
    server.answer = in_turn(Said(b"[1, 2]", breaks_off=True), Said(b"[1, 2]"))

    assert api(server, clock).get(server.url).body == b"[1, 2]"


@pytest.mark.parametrize("place", ["http://host:99999/", "http://[::1/", "http://host:x/"])
def test_a_redirect_to_an_address_that_is_none_is_refused(
    place: str, server: WebServer, clock: FrozenClock
) -> None:
    server.answer = lambda asked: Said(status=302, headers={"Location": place})

    assert refusal(api(server, clock).get, server.url).code == "FM-SOURCE-051"


@pytest.mark.parametrize("place", ["http://host:99999/", "http://[::1/"])
def test_a_next_page_at_an_address_that_is_none_is_refused(
    place: str, server: WebServer, clock: FrozenClock, tmp_path: Path
) -> None:
    server.answer = lambda asked: Said({"data": [{"id": 1}], "next": place})
    asking = answers(api(server, clock), tmp_path, records="data", paging=Paging(next="next"))

    assert refusal(asking.ask, {}, 0).code == "FM-SOURCE-052"


@pytest.mark.parametrize(
    "wait", [b"\xb2".decode("latin-1"), "9" * 400, "-1", "Mon, 99 Foo 2026", "soon"]
)
def test_a_wait_that_is_no_number_does_not_end_the_attempts(
    wait: str, server: WebServer, clock: FrozenClock
) -> None:
    server.answer = in_turn(Said(status=429, headers={"Retry-After": wait}), Said(b"[]"))

    try:
        assert api(server, clock).get(server.url).body == b"[]"
    except SourceError as error:
        assert error.code == "FM-SOURCE-050"  # noqa: PT017  (one of the two)


@pytest.mark.parametrize("sign", ["\n", "\r\n", "\u20ac"])
def test_a_header_that_cannot_be_sent_is_refused_without_its_value(
    sign: str, server: WebServer, clock: FrozenClock
) -> None:
    remember(f"s3cr3t-token{sign}")
    headers = {"Authorization": f"Bearer s3cr3t-token{sign}"}

    error = refusal(api(server, clock, headers=lambda: headers).get, f"{server.url}/x")

    assert (error.code, server.asked) == ("FM-SOURCE-051", [])
    assert "s3cr3t" not in str(error)


def test_nobody_there_is_told_as_such(server: WebServer, clock: FrozenClock) -> None:
    server.stop()

    error = refusal(api(server, clock, attempts=2).get, server.url)

    assert error.code == "FM-SOURCE-050"
    assert "ConnectionRefusedError" in (error.found or "")


def test_a_server_that_does_not_answer_in_time_is_given_up(
    server: WebServer, clock: FrozenClock
) -> None:
    done = threading.Event()

    def slow(asked: Asked) -> Said:
        done.wait(10)
        return Said()

    server.answer = slow
    error = refusal(api(server, clock, attempts=1, timeout_seconds=0.1).get, server.url)
    done.set()

    assert error.code == "FM-SOURCE-050"
    assert "imeout" in (error.found or "") or "timed out" in (error.found or "")


ALL_BUT_SLOW = {
    "the answer": b"",
    "headers": b"HTTP/1.1 200 OK\r\nX-Slow: ",
    "a body": b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n",
    "a body without a length": b"HTTP/1.1 200 OK\r\n\r\n",
    "a refusal": b"HTTP/1.1 403 Forbidden\r\nContent-Length: 1000000\r\n\r\n",
}


class Dripping(threading.Thread):
    """A server that says something at once, and a byte now and then for ever."""

    def __init__(self, said: bytes, context: ssl.SSLContext | None = None) -> None:
        super().__init__(daemon=True)
        self.server = socket.create_server(("127.0.0.1", 0))
        self.said, self.context = said, context

    @property
    def url(self) -> str:
        scheme = "http" if self.context is None else "https"
        return f"{scheme}://127.0.0.1:{self.server.getsockname()[1]}"

    def run(self) -> None:
        with contextlib.suppress(OSError):
            connection, _ = self.server.accept()
            if self.context is not None:
                connection = self.context.wrap_socket(connection, server_side=True)
            connection.recv(10_000)
            connection.sendall(self.said)
            while True:
                time.sleep(0.05)
                connection.sendall(b"x")


@pytest.mark.parametrize("part", ALL_BUT_SLOW)
def test_a_server_that_says_little_by_little_is_not_waited_for_longer_than_said(
    part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    server = Dripping(ALL_BUT_SLOW[part])
    server.start()
    began = time.monotonic()

    error = refusal(Api(server.url, attempts=1, timeout_seconds=0.5).get, server.url)

    server.server.close()
    if part == "a refusal":
        assert (error.code, str(error.found)[:14]) == ("FM-SOURCE-051", "403 Forbidden:")
    else:
        assert error.code == "FM-SOURCE-050"
        assert error.found == "timeout: not done after 0.5 s; tried 1 times"
    assert time.monotonic() - began < 10


def test_that_holds_over_tls_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = Authority.new()
    certified = authority.for_loopback()
    (tmp_path / "ca.pem").write_bytes(authority.pem)
    (tmp_path / "server.pem").write_bytes(certified.key + certified.certificate)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server.pem")
    server = Dripping(ALL_BUT_SLOW["headers"], context)
    server.start()

    error = refusal(Api(server.url, attempts=1, timeout_seconds=1).get, server.url)

    server.server.close()
    assert error.found == "timeout: not done after 1 s; tried 1 times"


def test_a_refusal_is_told_without_the_secrets_that_it_repeats(
    server: WebServer, clock: FrozenClock
) -> None:
    server.answer = lambda asked: Said(
        f"no such key {asked.headers['authorization']}".encode(), status=401
    )
    asking = api(
        server,
        clock,
        headers=lambda: {"Authorization": "Bearer geheim"},
    )
    remember("geheim")

    error = refusal(asking.get, server.url)

    assert (error.code, error.retryable) == ("FM-SOURCE-051", False)
    assert error.found == "401 Unauthorized: no such key Bearer ***"
    assert len(server.asked) == 1


def test_an_answer_that_is_too_large_is_not_read_to_its_end(
    server: WebServer, clock: FrozenClock
) -> None:
    server.answer = lambda asked: Said(b"x" * 200_000)

    error = refusal(api(server, clock, max_bytes=1000).get, server.url)

    assert error.code == "FM-SOURCE-052"
    assert error.allowed == "at most 1,000 bytes"


def test_redirects_are_followed_on_the_same_server_alone(
    server: WebServer, clock: FrozenClock
) -> None:
    moved = {"/a": Said(status=302, headers={"Location": "/b"}), "/b": Said(b"[]")}
    server.answer = lambda asked: moved[asked.path]
    asking = api(server, clock, headers=lambda: {"X-Api-Key": "geheim"})
    assert asking.get(f"{server.url}/a").body == b"[]"

    with WebServer(lambda asked: Said(b"[]")).running() as other:
        moved["/a"] = Said(status=302, headers={"Location": f"{other.url}/a"})
        error = refusal(asking.get, f"{server.url}/a")

    assert error.code == "FM-SOURCE-051"
    assert other.asked == []


def test_parameters_of_the_connection_go_with_every_page(
    server: WebServer, clock: FrozenClock, tmp_path: Path
) -> None:
    server.answer = lambda asked: Said(
        {"items": [{"id": 1}], "next": None if "p" in asked.params else "?p=2"}
    )
    asking = api(server, clock, params=lambda: {"key": "geheim"})

    answers(asking, tmp_path, records="items", paging=Paging(next="next")).ask({}, 0)

    assert [asked.params for asked in server.asked] == [
        {"key": "geheim"},
        {"p": "2", "key": "geheim"},
    ]
    assert not any("geheim" in file.read_text() for file in tmp_path.rglob("*.json"))


# Answers ------------------------------------------------------------------------------------------

PAGES = [[{"id": 1}, {"id": 2}], [{"id": 3}], []]


def by_number(asked: Asked) -> Said:
    return Said({"data": {"items": PAGES[int(asked.params["page"]) - 1]}})


def by_link(asked: Asked) -> Said:
    number = int(asked.params.get("at", "0"))
    link = {"Link": f'</rows?at={number + 1}>; rel="next", </>; rel="first"'} if number < 1 else {}
    return Said({"data": {"items": PAGES[number]}}, headers=link)


def by_token(asked: Asked) -> Said:
    number = int(asked.params.get("after", "0"))
    more = {"meta": {"after": str(number + 1)}} if number < 1 else {}
    return Said({"data": {"items": PAGES[number]}, **more})


@pytest.mark.parametrize(
    ("answer", "paging"),
    [
        (by_number, Paging(page="page")),
        (by_link, Paging(next="Link")),
        (by_token, Paging(cursor="after", token="meta.after")),
    ],
)
def test_all_pages_are_one_answer(
    answer: Answer, paging: Paging, server: WebServer, clock: FrozenClock, tmp_path: Path
) -> None:
    server.answer = answer
    asking = answers(api(server, clock), tmp_path, records="data.items", paging=paging)

    found = asking.ask({"since": "2026"}, 0)

    assert asking.lines(found.mark) == [b'{"id":1}', b'{"id":2}', b'{"id":3}']
    assert all(asked.params.get("since") == "2026" for asked in server.asked[:1])


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (Said(b"<html>"), "no JSON"),
        (Said(b'[{"id": NaN}]'), "NaN is no JSON"),
        (Said(b"\xff\xfe"), "UnicodeDecodeError"),
        (Said(b"[" * 100_000), "no JSON"),
        (Said({"data": {"rows": []}}), "no list of records at data.items; the answer has: data"),
        (Said({"data": {"items": [1, 2]}}), "no list of records"),
        (Said({"data": {"items": []}, "next": "http://192.0.2.1/rows"}), "its next page is elsewhere"),
        (Said({"data": {"items": []}, "next": "/rows"}), "its pages do not end"),
    ],
)  # fmt: skip
def test_an_answer_that_cannot_be_used_is_refused_and_nothing_is_kept(
    said: Said, told: str, server: WebServer, clock: FrozenClock, tmp_path: Path
) -> None:
    server.answer = lambda asked: said
    asking = answers(api(server, clock), tmp_path, records="data.items", paging=Paging(next="next"))

    error = refusal(asking.ask, {}, 0)

    assert error.code == "FM-SOURCE-052"
    assert told in (error.found or "")
    assert list(tmp_path.rglob("*.json")) == []


def test_pages_that_are_too_large_together_are_refused(
    server: WebServer, clock: FrozenClock, tmp_path: Path
) -> None:
    server.answer = lambda asked: Said([{"text": "x" * 400}])
    asking = answers(api(server, clock, max_bytes=1000), tmp_path, paging=Paging(page="page"))

    assert refusal(asking.ask, {}, 0).found == "3 pages are too large"


def test_numbers_are_kept_as_they_came(
    server: WebServer, clock: FrozenClock, tmp_path: Path
) -> None:
    server.answer = lambda asked: Said(
        '{"a": 0.10000000000000000001, "b": 123456789012345678901, "c": "é\\n", "d": null}'.encode()
    )
    asking = answers(api(server, clock), tmp_path)

    (line,) = asking.lines(asking.ask({}, 0).mark)

    assert (
        line == rb'{"a":0.10000000000000000001,"b":123456789012345678901,"c":"\u00e9\n","d":null}'
    )


def test_an_answer_is_asked_for_again_when_the_cache_is_over(
    server: WebServer, clock: FrozenClock, tmp_path: Path
) -> None:
    asking = answers(api(server, clock), tmp_path)
    first = asking.ask({}, 60)
    clock.sleep(60)

    second = asking.ask({}, 60)

    assert second.note == "from the cache: the answer of 2026-03-01 12:00:00 UTC, 1 records"
    assert second.mark == first.mark
    assert len(server.asked) == 1
    assert asking.ask({"other": "1"}, 60).source == "fetched"
    clock.sleep(1)
    assert asking.ask({}, 60).source == "fetched"


def test_an_answer_that_is_too_old_is_not_used_because_nobody_answers(
    server: WebServer, clock: FrozenClock, tmp_path: Path
) -> None:
    asking = answers(api(server, clock, attempts=1), tmp_path)
    asking.ask({}, 60)
    server.stop()

    assert asking.ask({}, 60).source == "cached"
    clock.sleep(61)
    assert refusal(asking.ask, {}, 60).code == "FM-SOURCE-050"


def test_a_server_may_say_that_nothing_has_changed(
    server: WebServer, clock: FrozenClock, tmp_path: Path
) -> None:
    def answer(asked: Asked) -> Said:
        if asked.headers.get("if-none-match") == '"v1"':
            return Said(status=304)
        return Said([{"id": 1}], headers={"ETag": '"v1"'})

    server.answer = answer
    asking = answers(api(server, clock), tmp_path)
    first = asking.ask({}, 0)
    clock.sleep(5)
    second = asking.ask({}, 0)

    assert second.mark == first.mark
    assert second.note == "1 records at 2026-03-01 12:00:05 UTC, unchanged"


# Cursors ------------------------------------------------------------------------------------------


def rows(asking: Answers, **more: Any) -> CursorAnswers:
    return CursorAnswers("source://x/rows", asking, "at", "at TIMESTAMP", **more)


def test_the_newest_value_is_found_and_the_server_told_where_to_begin(
    server: WebServer, clock: FrozenClock, tmp_path: Path
) -> None:
    server.answer = lambda asked: Said(
        [{"at": "2026-02-01T10:00:00+02:00"}, {"at": "2026-02-01T09:00:00Z"}]
    )
    found = rows(answers(api(server, clock), tmp_path), parameter="since")
    low = decoded('{"type":"timestamp","value":"2026-01-31T00:00:00.000000Z"}')

    newest = found.newest(low, None)

    assert newest is not None
    assert newest.text == "2026-02-01T09:00:00.000000Z"
    assert server.asked[-1].params == {"since": "2026-01-31T00:00:00.000000Z"}
    ceiling = decoded('{"type":"timestamp","value":"2026-02-01T08:30:00.000000Z"}')
    below = found.newest(low, ceiling)
    assert below is not None
    assert below.text == "2026-02-01T08:00:00.000000Z"
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    ("value", "kind", "mark"),
    [
        (7, None, ValueMark("int", 7)),
        ("2026-01-01", "date", decoded('{"type":"date","value":"2026-01-01"}')),
        ("b", "string", ValueMark("string", "b", "binary")),
    ],
)
def test_cursors_are_typed(
    value: Any, kind: str | None, mark: CursorMark, server: WebServer, tmp_path: Path
) -> None:
    server.answer = lambda asked: Said([{"at": value}])

    found = rows(answers(Api(server.url), tmp_path), kind=kind).newest(None, None)

    assert found == mark


@pytest.mark.parametrize(
    ("records", "code"),
    [
        ([{"at": "soon"}], "FM-SOURCE-033"),
        ([{"at": True}], "FM-SOURCE-033"),
        ([{"at": {"x": 1}}], "FM-SOURCE-033"),
        ([{"at": 1}, {"at": "2026-01-01"}], "FM-SOURCE-033"),
        ([{"at": 1}, {"at": None}], "FM-SOURCE-032"),
        ([{"id": 1}], "FM-SOURCE-032"),
    ],
)
def test_values_that_are_no_marks_are_refused(
    records: Any, code: str, server: WebServer, clock: FrozenClock, tmp_path: Path
) -> None:
    server.answer = lambda asked: Said(records)

    error = refusal(rows(answers(api(server, clock), tmp_path)).newest, None, None)

    assert error.code == code


def test_each_scope_reads_the_answer_that_it_was_planned_from(
    server: WebServer, clock: FrozenClock, tmp_path: Path
) -> None:
    """An API that shows a sliding part: what a later plan of another scope saw is not the same."""
    shown = [{"at": f"2026-02-0{day}T00:00:00Z"} for day in (1, 2, 3)]
    server.answer = lambda asked: Said(shown)
    one, other = (rows(answers(api(server, clock), tmp_path), scope=name) for name in "ab")
    first = one.newest(None, None)
    assert first is not None
    clock.sleep(1)
    shown.pop(0)
    assert other.newest(None, None) == first

    spark = Frames()
    one.frame(spark, None, first)  # type: ignore[arg-type]  # no Spark is needed for the claim
    other.frame(spark, None, first)  # type: ignore[arg-type]

    assert [len(Path(path).read_text().splitlines()) for path in spark.paths] == [3, 2]
    assert len(server.asked) == 2


class Frames:
    """Notes which file of records a frame is made of."""

    def __init__(self) -> None:
        self.paths: list[str] = []
        self.read = self

    def option(self, *_: Any) -> Frames:
        return self

    schema = option

    def json(self, path: str) -> None:
        self.paths.append(path)


def test_no_record_is_no_news(server: WebServer, clock: FrozenClock, tmp_path: Path) -> None:
    server.answer = lambda asked: Said([])

    assert rows(answers(api(server, clock), tmp_path)).newest(None, None) is None


# From a project -----------------------------------------------------------------------------------

PROJECT = """\
project: money
connections:
  rates: {type: http, base_url: BASE, attempts: 1, user: me, password: "${env:FM_RATES}"}
  lake: {type: lake, root: lake}
pipelines:
  - pipeline: rates
    nodes:
      - name: load
        read: {connection: rates, path: rows}
        write: {connection: lake, path: rates, mode: overwrite}
"""


@pytest.fixture
def folder(tmp_path: Path, server: WebServer, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FM_RATES", "geheim-45")
    (tmp_path / "floodmark.yaml").write_text(PROJECT.replace("BASE", server.url))
    return tmp_path


@pytest.mark.parametrize("sign", ["\n", "\r", "\u20ac"])
def test_a_secret_with_a_line_break_is_refused_without_being_shown(
    sign: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mounted secrets often end with a line break: as a header it would be sent, or shown."""
    file = folder / "floodmark.yaml"
    token = 'token: "${env:FM_TOKEN}"'
    file.write_text(file.read_text().replace('user: me, password: "${env:FM_RATES}"', token))
    monkeypatch.setenv("FM_TOKEN", f"s3cr3t-token{sign}")

    with pytest.raises(FloodmarkError) as caught:
        Project.load(folder).plan()

    assert caught.value.code == "FM-CONFIG-012"
    assert "s3cr3t" not in f"{caught.value} {caught.value.as_dict()}"


def test_a_plan_shows_a_new_answer_without_spark(folder: Path) -> None:
    (batch,) = Project.load(folder).plan()

    assert [w.upstream for w in batch.windows] == ["source://rates/rows"]
    assert batch.windows[0].reason.startswith("a new answer, 1 records; 1 records at")
    assert batch.windows[0].rows == 1


def test_a_new_control_store_is_for_its_owner_alone(folder: Path) -> None:
    """Below it are landed rows, answers, and errors: of everybody's data."""
    before = os.umask(0o022)
    try:
        Project.load(folder).freeze()
    finally:
        os.umask(before)

    control = folder / "lake/_control"
    assert (control / "files").is_dir()
    assert stat.S_IMODE(control.stat().st_mode) == 0o700


def test_a_control_folder_that_was_made_for_a_group_keeps_its_mode(folder: Path) -> None:
    control = folder / "lake/_control"
    control.mkdir(parents=True)
    control.chmod(0o2770)

    Project.load(folder).freeze()

    assert stat.S_IMODE(control.stat().st_mode) == 0o2770


def test_validate_asks_only_if_it_is_told_to(folder: Path, server: WebServer) -> None:
    server.answer = lambda asked: Said(asked.headers["authorization"].encode(), status=403)

    Project.check(folder)
    assert server.asked == []
    with pytest.raises(FloodmarkError) as caught:
        Project.check(folder, connect=True)

    assert caught.value.code == "FM-SOURCE-051"
    assert "floodmark.yaml:9:15" in (caught.value.where or "")
    assert caught.value.found == "403 Forbidden: Basic ***"


@pytest.mark.parametrize(
    ("more", "key"),
    [
        ("options: {a: 1}", "options"),
        ("table: t", "table"),
        ("format: csv", "format"),
        ("method: snapshot", "method"),
        ("baseline: latest", "baseline"),
        ("file_column: f", "file_column"),
    ],
)
def test_what_a_web_api_does_not_have_is_refused_by_its_key(
    more: str, key: str, folder: Path
) -> None:
    file = folder / "floodmark.yaml"
    file.write_text(file.read_text().replace("path: rows}", f"path: rows, {more}}}"))

    with pytest.raises(FloodmarkError) as caught:
        Project.load(folder).plan()

    assert caught.value.code == "FM-CONFIG-016"
    assert f"read.{key}" in (caught.value.where or "")


def test_two_readings_of_one_path_are_refused(folder: Path) -> None:
    file = folder / "floodmark.yaml"
    other = "      - {name: two, read: {connection: rates, path: rows, records: items}}\n"
    file.write_text(file.read_text() + other)

    with pytest.raises(FloodmarkError) as caught:
        Project.load(folder).plan()

    assert caught.value.code == "FM-CONFIG-016"
