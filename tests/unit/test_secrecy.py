"""A secret is masked in every spelling: encoders agree on no list of characters."""

from __future__ import annotations

import html
import json
import logging
import re
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import floodmark
from floodmark import secrecy
from floodmark.deltalog import Storage
from floodmark.engines.postgres import connector
from floodmark.errors import SourceError

SIGNS = "\"'\\%&<>/+ =:;,@#?!$*()[]{}|~^`äß漢😀"
SECRETS = st.lists(
    st.one_of(st.sampled_from(SIGNS), st.sampled_from("abXY09")), min_size=4, max_size=16
).map(lambda found: f"qZ7{''.join(found)}w")


def in_bytes(text: str) -> str:
    return repr(text.encode())[2:-1]


def with_small_digits(text: str) -> str:
    first, *rest = quote(text, safe="").split("%")
    return "%".join([first, *(part[:2].lower() + part[2:] for part in rest)])


SPELLINGS: dict[str, Callable[[str], str]] = {
    "as it is": str,
    "address": lambda text: quote(text, safe=""),
    "address with slashes": quote,
    "address with small digits": with_small_digits,
    "address in an address": lambda text: quote(quote(text)),
    "address that keeps more": lambda text: quote(text, safe="/:@!$'()*,;=+"),
    "bytes of Python": in_bytes,
    "text of Python": lambda text: repr(text)[1:-1],
    "ASCII of Python": lambda text: ascii(text)[1:-1],
    "JSON": lambda text: json.dumps(text)[1:-1],
    "JSON in JSON": lambda text: json.dumps(json.dumps(text))[3:-3],
    "quoted for SQL": lambda text: text.replace("'", "''"),
    "quoted for CSV": lambda text: text.replace('"', '""'),
    "XML": html.escape,
    "XML by number": lambda text: "".join(c if c.isalnum() else f"&#{ord(c)};" for c in text),
}


@pytest.mark.parametrize("name", SPELLINGS)
@settings(max_examples=25, deadline=None)
@given(secret=SECRETS)
def test_no_spelling_of_a_secret_is_left(name: str, secret: str) -> None:
    secrecy.forget()
    secrecy.remember(secret)
    spelled = SPELLINGS[name](secret)

    assert secrecy.masked(f"before {spelled} behind") == "before *** behind"


@settings(max_examples=100, deadline=None)
@given(secret=SECRETS, before=st.binary(max_size=5), behind=st.binary(max_size=5))
def test_a_secret_within_something_longer_in_base64_is_masked(
    secret: str, before: bytes, behind: bytes
) -> None:
    secrecy.forget()
    secrecy.remember(secret)
    whole = before + secret.encode() + behind

    for encoded in (b64encode(whole), urlsafe_b64encode(whole)):
        masked = secrecy.masked(f"Basic {encoded.decode()}")

        assert "***" in masked
        assert len(masked) <= len("Basic ***") + 2 * len(before) + 2 * len(behind) + 6


def test_what_is_put_into_an_error_later_is_masked_when_it_is_shown() -> None:
    error = SourceError("FM-SOURCE-050", "no answer", found="as Kanarienvogel", where="here")
    error.details["at"] = "job.py:3 in run: login('Kanarienvogel')"
    secrecy.remember("Kanarienvogel")
    error.where = "Kanarienvogel@host"

    views = [str(error), str(error.as_dict()), error.in_one_line()]

    assert [view for view in views if "vogel" in view] == []
    assert "login('***')" in str(error)


@pytest.mark.parametrize(
    "name",
    [
        "AWS_SECRET_ACCESS_KEY",
        "aws_session_token",
        "azure_storage_account_key",
        "sas_token",
        "token",
    ],
)
def test_secrets_that_code_hands_over_as_options_are_masked(name: str) -> None:
    Storage({name: "Kanarienvogel", "AWS_REGION": "eu-central-1", "AWS_ACCESS_KEY_ID": "AKIA"})

    masked = secrecy.masked("AKIA in eu-central-1 with Kanarienvogel")

    assert masked == "AKIA in eu-central-1 with ***"


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://me:Kanarien%2Fvogel@127.0.0.1:1/d",
        "host=127.0.0.1 port=1 dbname=d user=me password=Kanarien/vogel",
    ],
)
def test_the_password_of_an_address_that_code_hands_over_is_masked(address: str) -> None:
    with pytest.raises(psycopg.OperationalError):
        connector(address)()

    assert secrecy.masked("no login with Kanarien/vogel") == "no login with ***"


def test_every_logger_masks_for_the_handlers_of_a_host_too(
    caplog: pytest.LogCaptureFixture,
) -> None:
    secrecy.remember("Kanarienvogel")
    texts = [path.read_text() for path in Path(floodmark.__file__).parent.rglob("*.py")]
    names = {name for text in texts for name in re.findall(r'getLogger\("(\w[^"]*)"\)', text)}

    for name in names:
        with caplog.at_level(logging.INFO, name):
            logging.getLogger(name).warning("no login with %s at %s", "Kanarienvogel", 7)

    assert {"floodmark", "floodmark.streaming"} <= names
    assert [r.getMessage() for r in caplog.records] == ["no login with *** at 7"] * len(names)
