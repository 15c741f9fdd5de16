"""Frames of the feature `offer`: exact shapes and bounds where it is agreed, unknown where it is not (profile §14)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.laws import cbor_values, law

from meshnode.codec import cbor
from meshnode.errors import CloseCode, ProtocolError
from meshnode.limits import LINKED_SITES, OFFER_EVENTS
from meshnode.model import frames
from meshnode.model.frames_untrusted import NO_FEATURES, decode_control_untrusted, decode_events_untrusted
from meshnode.model.hlc import U64_MAX, Hlc
from meshnode.model.offered import Named, pack, unpack

E8, D32 = b"e" * 8, b"d" * 32
A, B = b"a" * 16, b"b" * 16
ID, LATER_ID = b"i" * 16, b"j" * 16
AGREED = frozenset({frames.FEATURE_OFFER})

OFFER = frames.Offer(E8, 1, {A: (5, 0, ID, 0, 1, ID, 3, 0, ID), B: (U64_MAX, U64_MAX, LATER_ID)})
LINKS = frames.Links((A, B))
ACK = frames.Ack(E8, 1, D32, Hlc(1, 2), (), 0, 0, wanted=(0, 3))
DECODERS = {"offer": decode_events_untrusted, "links": decode_control_untrusted, "ack": decode_control_untrusted}


def decode(data: bytes, features: frozenset[str] = AGREED) -> Any:
    value = cbor.decode_untrusted(data)
    assert isinstance(value, dict)
    return DECODERS[value["t"]](data, features)  # type: ignore[index]


def changed(frame: frames.Frame, **fields: Any) -> bytes:
    value = cbor.decode_untrusted(frames.encode_frame(frame))
    assert isinstance(value, dict)
    return cbor.encode({name: item for name, item in {**value, **fields}.items() if item is not ...})


@pytest.mark.parametrize("frame", [OFFER, LINKS, ACK, frames.Links(()), frames.Ack(E8, 1, D32, Hlc(1, 2), (), 0, 0)])
def test_round_trip_where_it_is_agreed(frame: frames.Frame) -> None:
    assert decode(frames.encode_frame(frame)) == frame


@pytest.mark.parametrize("frame", [OFFER, LINKS, ACK])
def test_unknown_where_it_is_not(frame: frames.Frame) -> None:
    for features in (NO_FEATURES, frozenset({frames.FEATURE_DEFLATE})):
        with pytest.raises(ProtocolError) as raised:
            decode(frames.encode_frame(frame), features)
        assert raised.value.code is CloseCode.PROTOCOL_ERROR


@pytest.mark.parametrize(
    ("frame", "fields"),
    [
        (OFFER, {"events": {}}),
        (OFFER, {"events": []}),
        (OFFER, {"events": {A: []}}),
        (OFFER, {"events": {A: [5, 0]}}),
        (OFFER, {"events": {A: [5, 0, ID, 1]}}),
        (OFFER, {"events": {A: [5, 0, ID[:15]]}}),
        (OFFER, {"events": {A: [5, 0, ID + b"x"]}}),
        (OFFER, {"events": {A: [5, ID, 0]}}),
        (OFFER, {"events": {A: [-1, 0, ID]}}),
        (OFFER, {"events": {A: [5, -1, ID]}}),
        (OFFER, {"events": {A: [True, 0, ID]}}),
        (OFFER, {"events": {A: {0: ID}}}),
        (OFFER, {"events": {A[:15]: [5, 0, ID]}}),
        (OFFER, {"events": {"a" * 16: [5, 0, ID]}}),
        (OFFER, {"events": {A: [5, 0, ID, 0, 0, ID]}}),  # twice the same
        (OFFER, {"events": {A: [5, 0, LATER_ID, 0, 0, ID]}}),  # ids of one clock in their order
        (OFFER, {"events": {A: [5, 1, ID, 0, 0, ID]}}),  # clocks in theirs
        (OFFER, {"events": {A: [U64_MAX, 0, ID, 1, 0, ID]}}),  # beyond what a clock can say
        (OFFER, {"no": 0}),
        (OFFER, {"epoch": b""}),
        (OFFER, {"clock": {}}),
        (OFFER, {"events": ...}),
        (LINKS, {"sites": [B, A]}),
        (LINKS, {"sites": [A, A]}),
        (LINKS, {"sites": [A[:15]]}),
        (LINKS, {"sites": {}}),
        (LINKS, {"sites": ...}),
        (LINKS, {"more": 1}),
        (ACK, {"wanted": [3, 0]}),
        (ACK, {"wanted": [0, 0]}),
        (ACK, {"wanted": [-1]}),
        (ACK, {"wanted": None}),
        (ACK, {"wanted": b""}),
        (ACK, {"more": []}),
        (ACK, {"held": ...}),
    ],
    ids=lambda each: repr(each)[:60],
)
def test_one_bad_field(frame: frames.Frame, fields: dict[str, Any]) -> None:
    with pytest.raises(ProtocolError) as raised:
        decode(changed(frame, **fields))
    assert raised.value.code is CloseCode.PROTOCOL_ERROR


@pytest.mark.parametrize(
    ("frame", "name", "full", "over"),
    [
        (OFFER, "events", {A: [1, 0, ID] * OFFER_EVENTS}, {A: [1, 0, ID] * OFFER_EVENTS, B: [1, 0, ID]}),
        (
            LINKS,
            "sites",
            [bytes(15) + bytes([number]) for number in range(LINKED_SITES)],
            [bytes(15) + bytes([number]) for number in range(LINKED_SITES + 1)],
        ),
        (ACK, "wanted", list(range(OFFER_EVENTS)), list(range(OFFER_EVENTS + 1))),
    ],
    ids=["offer", "links", "ack"],
)
def test_bounds(frame: frames.Frame, name: str, full: Any, over: Any) -> None:
    decode(changed(frame, **{name: full}))
    with pytest.raises(ProtocolError) as raised:
        decode(changed(frame, **{name: over}))
    assert raised.value.code is CloseCode.LIMIT


@law
@given(cbor_values)
def test_any_value_in_place_of_events_is_an_offer_or_a_protocol_error(value: Any) -> None:
    for events in (value, {A: value}, {A: [5, 0, value]}):
        try:
            decode(changed(OFFER, events=events))
        except ProtocolError:
            continue
        assert type(value) is bytes  # an id of the right length
        assert len(value) == 16


_names = st.builds(
    Named,
    st.sampled_from([A, B]),
    st.builds(Hlc, st.integers(0, U64_MAX), st.integers(0, U64_MAX)),
    st.binary(min_size=16, max_size=16),
)


@law
@given(st.sets(_names, min_size=1, max_size=20))
def test_names_are_read_back_in_the_order_in_which_they_are_counted(named: set[Named]) -> None:
    read = decode(frames.encode_frame(frames.Offer(E8, 1, pack(named))))
    assert list(unpack(read.events)) == sorted(named)
