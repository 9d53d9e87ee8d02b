"""What is shown fits into 80 columns, and what is to be copied is never torn apart."""

from __future__ import annotations

import io

import pytest

from floodmark.cli import screens
from floodmark.cli.call import Call
from floodmark.cli.screen import Screen
from floodmark.model.results import Lag, bad
from floodmark.next_steps import command, statement

LONG = "sql://warehouse_production/sales_department.order_lines"
MARK = '{"type":"timestamp","value":"2026-03-01T08:12:00.000001Z"}'


class _Plain(Call):
    def short(self, upstream: str) -> str:
        return upstream


@pytest.fixture
def call() -> Call:
    return _Plain(None, as_json=False, is_verbose=False)


def test_lag_of_long_names_and_scopes_fits(call: Call) -> None:
    lags = [
        Lag("nightly_order_lines", LONG, None, None, None, 9e5, (), "why", "cursor", MARK, MARK),
        Lag("default", "lake/orders", 5, 3, 2, 10.0, ()),
    ]
    shown = io.StringIO()

    screens.lag(Screen(shown), call, lags)

    lines = shown.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    assert f"{LONG} (nightly_order_lines)" in lines
    assert any("2026-03-01 08:12Z  2026-03-01 08:12Z" in line for line in lines)


def test_advice_is_wrapped_and_its_commands_stay_whole(call: Call) -> None:
    again = command("run", "--full-refresh", "order_lines_of_the_shop")
    advice = "put new rows into a new file; or load every file again: " + again + "; or else"
    upstream = "sql://erp/order_lines"
    backfill = command("backfill", upstream, "--from", "VALUE", "--to", "VALUE")
    shows = command("verify") + " shows which of the two control stores wrote those rows of it"
    altered = f"ALTER TABLE delta.`/{'x' * 90}` SET TBLPROPERTIES ('a' = 'b')"
    shown = io.StringIO()

    found = [
        bad(LONG, "t", advice),
        bad("b", "t", statement(altered)),
        bad("c", "t", "read: " + shows),
    ]
    screens.findings(Screen(shown), call, [*found, bad("d", "t", "read it again: " + backfill)])

    lines = shown.getvalue().splitlines()
    for whole in (again, backfill):
        assert sum(whole in line for line in lines) == 1
    assert max(len(line) for line in lines if "ALTER" not in line) <= 80
    assert f"         next: {altered}" in lines
