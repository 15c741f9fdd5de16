"""How values of Python are kept: what is written comes back, and the order of texts is that of times (SSP/1 §2)."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshnode.node.fieldtypes import KINDS, kept

ZONES = st.integers(-23 * 60, 23 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
TIMES = st.datetimes(datetime(2, 1, 1), datetime(9998, 12, 30), timezones=ZONES)  # noqa: DTZ001
VALUES: dict[type, st.SearchStrategy[Any]] = {
    bool: st.booleans(),
    int: st.integers(-(2**63), 2**63 - 1),
    float: st.floats(allow_nan=False, allow_infinity=False),
    str: st.text(st.characters(exclude_categories=["Cs"])),
    bytes: st.binary(),
    datetime: TIMES,
    Decimal: st.decimals(allow_nan=False, allow_infinity=False),
}


@given(st.sampled_from(list(VALUES)).flatmap(lambda kind: st.tuples(st.just(kind), VALUES[kind])))
def test_what_is_written_comes_back(pair: tuple[type, Any]) -> None:
    kind, value = pair
    stored = KINDS[kind].write(value)
    back = KINDS[kind].read(stored)
    assert (type(back), back) == (kind, value)
    assert kind is not Decimal or str(back) == str(value)
    assert kind is not float or math.copysign(1, back) == math.copysign(1, value)
    assert kept(value) == stored


@given(TIMES, st.sampled_from([0, 1, 500_000, 999_999, 1_000_000]), ZONES)
def test_the_order_of_texts_is_that_of_times(time: datetime, later_us: int, zone: timezone) -> None:
    one = time.replace(microsecond=0)
    other = (one + timedelta(microseconds=later_us)).astimezone(zone)
    first, second = KINDS[datetime].write(one), KINDS[datetime].write(other)
    assert (str(first) < str(second), first == second) == (one < other, one == other)
    assert str(first).endswith("Z")


@pytest.mark.parametrize(
    ("kind", "stored", "value"),
    [
        (datetime, "2026-12-01T12:00:00Z", datetime(2026, 12, 1, 12, tzinfo=UTC)),
        (datetime, "2026-12-01T12:00:00.5+01:00", datetime(2026, 12, 1, 11, 0, 0, 500_000, UTC)),
        (datetime, "2026-12-01T12:00:00", None),
        (datetime, "0001-01-01T00:00:00+23:00", None),
        (datetime, "soon", None),
        (datetime, 5, None),
        (Decimal, "1E+2", Decimal(100)),
        (Decimal, 7, Decimal(7)),
        (Decimal, "NaN", None),
        (Decimal, "1_0", None),
        (Decimal, "", None),
        (Decimal, 1.5, None),
        (bool, 1, True),
        (bool, 2, None),
        (int, 1.0, None),
        (float, 3, 3.0),
        (float, "Infinity", None),
        (str, b"\xff", None),
        (bytes, "text", None),
    ],
    ids=range(19),
)
def test_what_others_wrote_is_read_or_refused(kind: type, stored: Any, value: Any) -> None:
    if value is None:
        with pytest.raises(ValueError, match="is no"):
            KINDS[kind].read(stored)
    else:
        assert KINDS[kind].read(stored) == value
        assert type(KINDS[kind].read(stored)) is kind
