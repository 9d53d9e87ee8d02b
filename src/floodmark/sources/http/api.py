"""Requests to a web API: tried again where that helps, bounded in size and time, never elsewhere."""

from __future__ import annotations

import http.client
import itertools
import logging
import os
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Self
from urllib.error import HTTPError, URLError
from urllib.parse import parse_qsl, urlencode, urljoin, urlsplit, urlunsplit
from urllib.request import (
    HTTPHandler,
    HTTPRedirectHandler,
    HTTPSHandler,
    OpenerDirector,
    Request,
    build_opener,
)

from floodmark.errors import SourceError
from floodmark.model import Clock, SystemClock
from floodmark.secrecy import masked
from floodmark.work import RetryPolicy

log = logging.getLogger("floodmark")

AGAIN = frozenset({408, 425, 429, 500, 502, 503, 504})
"""What a server says that may answer later."""
FIRST_WAIT_SECONDS = 0.5
LONGEST_WAIT_SECONDS = 60.0
SLOW_SECONDS = 3.0
"""Whoever waits longer is told for what."""
MAX_REDIRECTS = 5
CHUNK = 1 << 16
MAX_SHOWN = 200
_NOT_MODIFIED = 304
_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True)
class Reply:
    """What a server answered; `body` is None where it has not changed."""

    url: str
    body: bytes | None
    headers: Mapping[str, str]
    """By small letters."""


class _Later(Exception):
    """The request may be answered later; `seconds` as the server says."""

    def __init__(self, found: str, seconds: float | None = None) -> None:
        super().__init__(found)
        self.seconds = seconds


class _NoRedirects(HTTPRedirectHandler):
    """Redirects are looked at before they are followed: they may lead elsewhere."""

    def redirect_request(self, *_: Any) -> None:
        return None


class _Plain(http.client.HTTPConnection):
    """Tells of its socket, by which it can be ended."""

    limit: _TimeLimit

    def connect(self) -> None:
        super().connect()
        self.limit.hold(self.sock)


class _Secured(http.client.HTTPSConnection, _Plain):
    """The same over TLS: the socket is told before the two greet one another."""


class _TimeLimit:
    """Ends one request when its time is over, however slowly its answer comes.

    A timeout of a socket is for each piece: a server that sends a byte now and then is waited for as
    long as it likes.
    """

    def __init__(self, seconds: float) -> None:
        self._timer = threading.Timer(seconds, self._end)
        self._timer.daemon = True
        self._held: list[socket.socket] = []
        self.is_over = False

    def __enter__(self) -> Self:
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        for held in self._held:
            held.close()

    @property
    def opener(self) -> OpenerDirector:
        """What opens addresses within the limit."""
        plain: Any = type("Plain", (_Plain,), {"limit": self})
        secured: Any = type("Secured", (_Secured,), {"limit": self})

        class Http(HTTPHandler):
            def http_open(self, req: Request) -> http.client.HTTPResponse:
                return self.do_open(plain, req)

        class Https(HTTPSHandler):
            def https_open(self, req: Request) -> http.client.HTTPResponse:
                return self.do_open(secured, req)

        return build_opener(_NoRedirects, Http, Https)

    def hold(self, found: socket.socket) -> None:
        """Remember what is to be ended; a copy, since TLS takes the first one over."""
        self._held.append(socket.socket(fileno=os.dup(found.fileno())))

    def _end(self) -> None:
        self.is_over = True
        for held in self._held:
            with suppress(OSError):
                held.shutdown(socket.SHUT_RDWR)


@dataclass(frozen=True)
class Api:
    """How a web API is reached. Secrets are looked up with every request, and are never shown."""

    base_url: str
    headers: Callable[[], Mapping[str, str]] = dict
    params: Callable[[], Mapping[str, str]] = dict
    """Of every request."""
    timeout_seconds: float = 30.0
    attempts: int = 5
    max_bytes: int = 100 << 20
    clock: Clock = field(default_factory=SystemClock)

    def url(self, path: str | None, params: Mapping[str, str]) -> str:
        """The address of a path below the API's own, with parameters."""
        base = self.base_url if not path else f"{self.base_url.rstrip('/')}/{path.lstrip('/')}"
        return _with_params(base, params)

    def get(self, url: str, conditions: Mapping[str, str] | None = None) -> Reply:
        """The answer of one address.

        Raises FM-SOURCE-050 if nobody answers, also not later; 051 if the server refuses; 052 for an
        answer that is too large.
        """
        policy = RetryPolicy(FIRST_WAIT_SECONDS, self.attempts, limit_seconds=LONGEST_WAIT_SECONDS)
        for attempt in itertools.count(1):
            try:
                with self._told_if_slow(url, attempt):
                    return self._followed(url, conditions or {})
            except _Later as later:
                wait = policy.wait_seconds(attempt) if later.seconds is None else later.seconds
                if not policy.allows(attempt, wait):
                    found = f"{later}; tried {attempt} times"
                    if wait > policy.limit_seconds:
                        found += f", and it wants to be left alone for {wait:g} s"
                    raise self._no_answer(url, found) from later
                self._tell_wait(url, later, attempt, wait)
                self.clock.sleep(wait)
        raise AssertionError("unreachable")

    @contextmanager
    def _told_if_slow(self, url: str, attempt: int) -> Iterator[None]:
        text = "waiting for an answer of %s: attempt %d of %d, %g s at most"
        said = (shown(url), attempt, self.attempts, self.timeout_seconds)
        timer = threading.Timer(SLOW_SECONDS, log.info, (text, *said))
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _tell_wait(self, url: str, later: _Later, attempt: int, seconds: float) -> None:
        text = "no answer of %s (%s): attempt %d of %d comes in %g s"
        found = masked(str(later))
        log.info(text, shown(url), found, attempt + 1, self.attempts, seconds)

    def is_own(self, url: str) -> bool:
        """Whether an address is on the server of this API: nothing is sent to another one."""
        return _is_same_place(self.base_url, url)

    def _followed(self, url: str, conditions: Mapping[str, str]) -> Reply:
        for _ in range(MAX_REDIRECTS):
            reply = self._once(url, conditions)
            if isinstance(reply, Reply):
                return reply
            if not self.is_own(reply):
                raise self._refused(url, "it sends to another place", "answers of its own place")
            url = reply
        raise self._refused(url, f"more than {MAX_REDIRECTS} redirects", "an address that answers")

    def _once(self, url: str, conditions: Mapping[str, str]) -> Reply | str:
        """The answer, or the address that it sends to."""
        sent = {"Accept": "application/json", "User-Agent": "floodmark", **self.headers()}
        params = self.params()
        limit = _TimeLimit(self.timeout_seconds)
        try:
            request = Request(_with_params(url, params), headers={**sent, **conditions})  # noqa: S310  (http and https alone)
            with limit:
                return self._answered(url, request, limit)
        except _Later as later:
            raise (self._slow() if limit.is_over else later) from later.__cause__
        except (URLError, http.client.HTTPException, OSError) as error:
            reason = error.reason if isinstance(error, URLError) else error
            # Both clocks run for as long: whichever rings first, it is one story.
            if limit.is_over or isinstance(reason, TimeoutError):
                raise self._slow() from error
            raise _Later(f"{type(reason).__name__}: {reason}") from error
        except ValueError as error:
            # The client refuses an address or a header that cannot be sent.
            raise self._refused(url, f"{type(error).__name__}: {error}", "a request") from error

    def _answered(self, url: str, request: Request, limit: _TimeLimit) -> Reply | str:
        deadline = self.clock.monotonic() + self.timeout_seconds
        try:
            with limit.opener.open(request, timeout=self.timeout_seconds) as answer:
                body = self._body(answer, deadline, url)
                if limit.is_over:
                    # Without a length, an answer that was cut off looks like a whole one.
                    raise self._slow()
                return Reply(url, body, _headers(answer.headers))
        except HTTPError as error:
            try:
                return self._not_ok(url, error)
            finally:
                error.close()

    def _slow(self) -> _Later:
        return _Later(f"timeout: not done after {self.timeout_seconds:g} s")

    def _not_ok(self, url: str, error: HTTPError) -> Reply | str:
        if error.code == _NOT_MODIFIED:
            return Reply(url, None, _headers(error.headers))
        if error.code in (301, 302, 303, 307, 308) and error.headers.get("Location"):
            return linked(url, str(error.headers["Location"]))
        said = f"{error.code} {error.reason}"
        if error.code in AGAIN:
            raise _Later(said, self._seconds_to_wait(error.headers.get("Retry-After")))
        text = error.read(MAX_SHOWN).decode("utf-8", "replace")
        raise self._refused(url, f"{said}: {text}" if text else said, "an answer of 200")

    def _seconds_to_wait(self, said: str | None) -> float | None:
        """What Retry-After means: seconds, or a date."""
        if said is None:
            return None
        # "²" is a digit to Python and no number.
        if said.strip().isdecimal():
            return float(said)
        try:
            at = parsedate_to_datetime(said)
        except (ValueError, OverflowError):
            return None
        at = at if at.tzinfo else at.replace(tzinfo=UTC)
        return max(0.0, (at - self.clock.now()).total_seconds())

    def _body(self, answer: http.client.HTTPResponse, deadline: float, url: str) -> bytes:
        parts, size = [], 0
        while chunk := answer.read1(CHUNK):
            size += len(chunk)
            if size > self.max_bytes:
                raise self.unusable(url, "it is too large", f"at most {self.max_bytes:,} bytes")
            if self.clock.monotonic() > deadline:
                raise self._slow()
            parts.append(chunk)
        declared = answer.headers.get("Content-Length")
        if declared is not None and declared.isdecimal() and size < float(declared):
            raise _Later(f"it broke off after {size:,} of {declared} bytes")
        return b"".join(parts)

    # Errors ---------------------------------------------------------------------------------------

    def _no_answer(self, url: str, found: str) -> SourceError:
        return SourceError(
            "FM-SOURCE-050",
            "the web API could not be asked",
            where=shown(url),
            found=found,
            allowed="an answer; this is not taken for no news",
            state="nothing was read or written; the committed watermark stays",
            next="run the same command again, later",
            retryable=True,
        )

    def _refused(self, url: str, found: str, allowed: str) -> SourceError:
        return SourceError(
            "FM-SOURCE-051",
            "the web API refuses the request",
            where=shown(url),
            found=found,
            allowed=allowed,
            state="nothing was read or written; the committed watermark stays",
            next="correct the path, the parameters or the credentials, then run the same command"
            " again",
        )

    def unusable(self, url: str, found: str, allowed: str) -> SourceError:
        """An answer that cannot be used (FM-SOURCE-052)."""
        return SourceError(
            "FM-SOURCE-052",
            "the answer of the web API cannot be used",
            where=shown(url),
            found=found,
            allowed=allowed,
            state="nothing was read or written; the committed watermark stays",
            next="correct read (records, pagination, params) or ask who runs the API, then run the"
            " same command again",
        )


def shown(url: str) -> str:
    """An address without its parameters, which may be secret."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc, parts.path, "", ""))


def linked(base: str, link: str) -> str:
    """The address that a link means; one that cannot be read stays as it is, and is nobody's."""
    try:
        return urljoin(base, link)
    except ValueError:
        return link


def _with_params(url: str, params: Mapping[str, str]) -> str:
    """An address with parameters in the place of those of the same name."""
    if not params:
        return url
    parts = urlsplit(url)
    kept = [(n, v) for n, v in parse_qsl(parts.query, keep_blank_values=True) if n not in params]
    query = urlencode([*kept, *params.items()])
    return urlunsplit((parts.scheme, parts.netloc, parts.path, query, ""))


def _is_same_place(one: str, other: str) -> bool:
    """The same host and port; what is asked by https is not asked by http instead."""
    try:
        a, b = urlsplit(one), urlsplit(other)
        asked, answering = a.port, b.port
    except ValueError:
        # A port beyond 65,535, or a broken address in brackets: nobody's place.
        return False
    if b.scheme not in _PORTS or (a.scheme == "https" and b.scheme != "https"):
        return False
    ports = [asked or _PORTS[a.scheme], answering or _PORTS[b.scheme]]
    is_upgrade = (a.scheme, b.scheme) == ("http", "https") and ports == [80, 443]
    return a.hostname == b.hostname and (ports[0] == ports[1] or is_upgrade)


def _headers(found: Any) -> dict[str, str]:
    return {name.lower(): value for name, value in found.items()}


def utc_text(at: datetime) -> str:
    """An instant for people."""
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
