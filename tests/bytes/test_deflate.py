"""Events as raw DEFLATE: from which size on, only where it helps, and back to the same bytes (profile §8, §13)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from support.laws import law

from meshnode.codec import cbor
from meshnode.codec.digest import derive_key
from meshnode.limits import DEFLATE_FROM_BYTES
from meshnode.model.deflate import deflated_events, inflate_untrusted


def test_it_is_tried_from_a_number_of_bytes_on() -> None:
    half = b"x" * (DEFLATE_FROM_BYTES // 2)
    assert deflated_events([half, half[:-1]]) is None
    assert deflated_events([half, half]) is not None


def test_what_would_not_shrink_is_left_alone() -> None:
    noise = derive_key("meshnode tests", b"noise", 4 * DEFLATE_FROM_BYTES)
    assert deflated_events([noise]) is None
    assert deflated_events([noise, noise]) is not None


@law
@given(st.lists(st.binary(max_size=3_000), max_size=20))
def test_it_comes_back_as_it_was_and_smaller(events: list[bytes]) -> None:
    packed = deflated_events(events)
    if packed is not None:
        plain = cbor.encode(list(events))
        assert inflate_untrusted(packed) == plain
        assert len(cbor.encode({"deflated": packed})) < len(cbor.encode({"events": events}))
