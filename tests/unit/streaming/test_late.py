"""Which records are late, and how the watermark moves."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from floodmark.streaming.records.late import LateRule

RULE = LateRule("at", timedelta(hours=1))
TIMES = st.datetimes(timezones=st.just(UTC)) | st.none()


@given(st.lists(TIMES))
def test_a_watermark_never_goes_back(newest: list[datetime | None]) -> None:
    reached: datetime | None = None
    for time in newest:
        after = RULE.watermark_after(reached, time)

        assert reached is None or (after is not None and after >= reached)
        reached = after


def test_the_watermark_is_the_newest_event_less_the_delay() -> None:
    newest = datetime(2026, 1, 1, 12, tzinfo=UTC)

    assert RULE.watermark_after(None, newest) == datetime(2026, 1, 1, 11, tzinfo=UTC)
    assert RULE.watermark_after(None, None) is None
    assert RULE.watermark_after(newest, newest.replace(tzinfo=None)) == newest
