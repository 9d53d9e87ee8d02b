"""Small things that are done with Arrow's arrays."""

from __future__ import annotations

import pyarrow as pa
import pytest

from floodmark.engines.arrow_frames import value_bytes

TEXTS = ["a", None, "", "é\0", "last"]


@pytest.mark.parametrize("kind", [pa.string(), pa.binary()])
@pytest.mark.parametrize("start", range(len(TEXTS) + 1))
def test_the_bytes_of_all_values_are_those_of_the_slice(kind: pa.DataType, start: int) -> None:
    for length in range(len(TEXTS) - start + 1):
        part = pa.array(TEXTS).cast(kind).slice(start, length)
        said = [text or "" for text in TEXTS[start : start + length]]
        assert value_bytes(part) == "".join(said).encode()


def test_nothing_has_no_bytes() -> None:
    assert value_bytes(pa.nulls(3, pa.string())) == b""
    assert value_bytes(pa.array([], pa.binary())) == b""
