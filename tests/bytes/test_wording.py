"""Keys, clocks and counts as people read them."""

from __future__ import annotations

from datetime import UTC, datetime
from random import Random

from meshnode.model.wording import clock_text, counted_text, key_text, nearest, time_text


def test_a_time_is_that_of_the_calendar() -> None:
    pick = Random(7)
    known = [0, -1, -62_135_596_800_000, 253_402_300_799_999, 951_782_400_000, 1_709_164_799_999]
    for ms in known + [pick.randrange(-62_135_596_800_000, 253_402_300_800_000) for _ in range(2000)]:
        time = datetime.fromtimestamp(ms // 1000, UTC).replace(microsecond=ms % 1000 * 1000)
        assert time_text(ms) == time.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    assert (time_text(2**63), time_text(-(2**60))) == (str(2**63), str(-(2**60)))


def test_keys_clocks_and_counts_have_one_form() -> None:
    assert key_text({"id": 'a"b', "n": 5, "b": b"\x0a"}) == 'id="a\\"b", n=5, b=x\'0a\''
    assert (clock_text((5, 0)), clock_text((5, 6))) == ("1970-01-01T00:00:00.005Z", "1970-01-01T00:00:00.005Z/6")
    assert (counted_text(1, "event"), counted_text(1200, "event")) == ("1 event", "1,200 events")
    assert (nearest("DESK", ["desk", "lap"]), nearest("zzz", ["desk"])) == (", did you mean 'desk'?", "")
