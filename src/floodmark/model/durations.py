"""Durations as people write them: 60s, 15 minutes, 2h."""

from __future__ import annotations

import re

_UNITS = {
    0.001: ("ms", "millisecond", "milliseconds"),
    1.0: ("s", "sec", "second", "seconds"),
    60.0: ("m", "min", "minute", "minutes"),
    3_600.0: ("h", "hour", "hours"),
    86_400.0: ("d", "day", "days"),
}
_SECONDS = {name: seconds for seconds, names in _UNITS.items() for name in names}
_DURATION = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,6})?) ?([a-z]+)")

ALLOWED = "a number with a unit: 500ms, 60s, 15 minutes, 2h, 1d"


def seconds_of(text: str) -> float:
    """The seconds of a duration; raises ValueError where it is none.

    >>> seconds_of("60s"), seconds_of("15 minutes"), seconds_of("1.5h")
    (60.0, 900.0, 5400.0)
    """
    match = _DURATION.fullmatch(text.strip())
    if match is None or match[2] not in _SECONDS:
        raise ValueError(f"not a duration: {text!r}")
    return float(match[1]) * _SECONDS[match[2]]


def shown(seconds: float | None) -> str:
    """Seconds in the units that read best; `-` where they are not known.

    >>> shown(0.42), shown(420), shown(7_260)
    ('0.4 s', '7 min 0 s', '2 h 1 min')
    """
    if seconds is None:
        return "-"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days} d {hours} h"
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"
