"""Frames: every key, type, size and range that a peer may get wrong ends in a ProtocolError with its code."""

from __future__ import annotations

import tracemalloc
import zlib
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.laws import cbor_values, law

from meshnode.codec import cbor
from meshnode.errors import CloseCode, CodecError, ProtocolError
from meshnode.limits import (
    BATCH_EVENTS,
    CONTROL_FRAME_ITEMS,
    COUNTER_MAX,
    DEFLATED_BYTES,
    EVENT_FRAME_ITEMS,
    FRAME_BYTES,
    FRONTIER_SITES,
    HELLO_BYTES,
    INTRODUCE_BYTES,
)
from meshnode.model import frames
from meshnode.model.frames_untrusted import (
    decode_control_untrusted,
    decode_events_untrusted,
    decode_pairing_untrusted,
)
from meshnode.model.hlc import Hlc

E8, S16, D32, SIG = b"e" * 8, b"s" * 16, b"d" * 32, b"g" * 64
DEFLATE = frozenset({frames.FEATURE_DEFLATE})

HELLO = frames.Hello(
    site=S16,
    name="n" * 128,
    software="",
    incarnation=S16,
    boot=E8,
    wall=2**64 - 1,
    hlc=Hlc(1, 2),
    scope=("*.*", "!main.secret"),
    features=(),
    inbound=frames.Inbound(E8, 1, b""),
    max_hlc={S16: Hlc(0, 2**64 - 1)},
)
CONTROL = [
    HELLO,
    frames.Introduce((b"r",)),
    frames.Ack(E8, 1, D32, Hlc(1, 2), (0, 511), 0, 2**64 - 1),
    frames.Nak(E8, 0, ""),
    frames.Watermarks(frames.After(E8, 0), (frames.WatermarkEntry(S16, "main", "t", 1, 2),)),
    frames.Request(E8, "table", schema="*", table="*"),
    frames.Request(E8, "site", site=S16),
    frames.Bye(10, "é" * 64),
]
EVENTS = [
    frames.Open(E8, 1),
    frames.Batch(E8, 1, {S16: COUNTER_MAX}, [b"", b"x"]),
    frames.Records(E8, 2**63 - 2, []),
    frames.Answered(E8, 1, E8),
]
PAIRING = [
    frames.PairHello(E8, S16),
    frames.PairOpen(S16),
    frames.Pair(D32, "name", D32, SIG),
    frames.Paired(D32, (b"r",), "name"),
]
DECODERS = [(CONTROL, decode_control_untrusted), (EVENTS, decode_events_untrusted), (PAIRING, decode_pairing_untrusted)]
ALL = [pytest.param(frame, decode, id=type(frame).__name__) for group, decode in DECODERS for frame in group]


def plain(frame: frames.Frame) -> dict[str, Any]:
    value = cbor.decode_untrusted(frames.encode_frame(frame))
    assert isinstance(value, dict)
    return value


@pytest.mark.parametrize(("frame", "decode"), ALL)
def test_round_trip(frame: frames.Frame, decode: Any) -> None:
    assert decode(frames.encode_frame(frame)) == frame


@pytest.mark.parametrize(("frame", "decode"), ALL)
def test_a_frame_belongs_to_its_stream(frame: frames.Frame, decode: Any) -> None:
    for _, other in DECODERS:
        if other is not decode:
            with pytest.raises(ProtocolError):
                other(frames.encode_frame(frame))


@pytest.mark.parametrize(("frame", "decode"), ALL)
def test_missing_unknown_and_wrong_keys(frame: frames.Frame, decode: Any) -> None:
    value = plain(frame)
    for name in value:
        with pytest.raises(ProtocolError):
            decode(cbor.encode({key: item for key, item in value.items() if key != name}))
        for wrong in (None, True, -1, 1.0, "", b"", [], {}, [None], {"x": 1}, "x" * 129, b"x" * 9):
            if name == "inbound" and wrong is None:
                continue
            if type(wrong) is type(value[name]) and not (name == "t" or type(wrong) in (bool, float)):
                continue
            with pytest.raises(ProtocolError) as raised:
                decode(cbor.encode({**value, name: wrong}))
            assert len(str(raised.value)) < 400
    if isinstance(frame, frames.Hello):
        assert decode(cbor.encode({**value, "later": [1, {"x": None}]})) == frame
    else:
        with pytest.raises(ProtocolError):
            decode(cbor.encode({**value, "later": 1}))
    with pytest.raises(ProtocolError):
        decode(frames.encode_frame(frame) + b"\x00")


BAD_FIELDS: list[tuple[frames.Frame, dict[str, Any]]] = [
    (HELLO, {"site": b"s" * 15}),
    (HELLO, {"name": "n" * 129}),
    (HELLO, {"software": "é" * 65}),
    (HELLO, {"incarnation": b"s" * 17}),
    (HELLO, {"boot": b"s" * 7}),
    (HELLO, {"hlc": [1]}),
    (HELLO, {"hlc": [1, 2, 3]}),
    (HELLO, {"hlc": [1, -1]}),
    (HELLO, {"scope": [1]}),
    (HELLO, {"features": [b"deflate"]}),
    (HELLO, {"inbound": {"epoch": E8, "next": 1}}),
    (HELLO, {"inbound": {"epoch": E8, "next": 0, "digest": b""}}),
    (HELLO, {"inbound": {"epoch": E8, "next": 2, "digest": b"d"}}),
    (HELLO, {"max_hlc": {b"s": [1, 2]}}),
    (HELLO, {"max_hlc": {"s" * 16: [1, 2]}}),
    (CONTROL[1], {"records": [b"", "r"]}),
    (CONTROL[2], {"no": 0}),
    (CONTROL[2], {"epoch": b"e" * 7}),
    (CONTROL[2], {"digest": b""}),
    (CONTROL[2], {"rejected": [0, -1]}),
    (CONTROL[2], {"rejected": [True]}),
    (CONTROL[3], {"reason": "r" * 129}),
    (CONTROL[4], {"after": {"epoch": E8}}),
    (CONTROL[4], {"after": {"epoch": E8, "no": 0, "t": "x"}}),
    (CONTROL[4], {"entries": [[S16, "main", "t", 1]]}),
    (CONTROL[4], {"entries": [[S16, "", "t", 1, 1]]}),
    (CONTROL[4], {"entries": [[S16, "main", "t" * 129, 1, 1]]}),
    (CONTROL[4], {"entries": [[S16, "main", "t", 1, -1]]}),
    (CONTROL[5], {"what": "site"}),
    (CONTROL[5], {"what": "row"}),
    (CONTROL[5], {"site": S16}),
    (CONTROL[5], {"table": ""}),
    (CONTROL[6], {"what": "table"}),
    (CONTROL[7], {"reason": "é" * 65}),
    (EVENTS[0], {"next": 0}),
    (EVENTS[1], {"no": 0}),
    (EVENTS[1], {"events": [b"", "text"]}),
    (EVENTS[1], {"events": [b"", None]}),
    (EVENTS[1], {"events": [[b""]]}),
    (EVENTS[1], {"clock": {b"s" * 15: 1}}),
    (EVENTS[1], {"clock": {S16: -1}}),
    (EVENTS[1], {"deflated": b""}),
    (EVENTS[2], {"records": [1]}),
    (EVENTS[3], {"id": b"i" * 9}),
    (PAIRING[0], {"invite": b"i" * 9}),
    (PAIRING[2], {"sig": b"i" * 63}),
    (PAIRING[2], {"public_key": b"i" * 31}),
]


@pytest.mark.parametrize(("frame", "fields"), BAD_FIELDS, ids=lambda each: repr(each)[:40])
def test_one_bad_field(frame: frames.Frame, fields: dict[str, Any]) -> None:
    decode = next(decode for group, decode in DECODERS if frame in group)
    with pytest.raises(ProtocolError) as raised:
        decode(cbor.encode({**plain(frame), **fields}))
    assert raised.value.code is CloseCode.PROTOCOL_ERROR


@law
@given(cbor_values)
def test_any_value_is_a_frame_or_a_protocol_error(value: Any) -> None:
    for _, decode in DECODERS:
        with pytest.raises(ProtocolError):
            decode(cbor.encode(value))
        with pytest.raises(ProtocolError):
            decode(cbor.encode({"t": value}))


@law
@given(st.binary(max_size=100))
def test_any_bytes_are_a_frame_or_a_protocol_error(data: bytes) -> None:
    for _, decode in DECODERS:
        with pytest.raises(ProtocolError):
            decode(data)


def test_another_version_says_so() -> None:
    with pytest.raises(ProtocolError) as raised:
        decode_control_untrusted(cbor.encode({"t": "hello", "v": 2}))
    assert raised.value.code is CloseCode.VERSION


def introduced(size: int) -> bytes:
    return frames.encode_frame(frames.Introduce((b"x" * size,)))


def padded(size: int) -> bytes:
    return cbor.encode({**plain(HELLO), "pad": b"x" * size})


@pytest.mark.parametrize(("make", "limit"), [(padded, HELLO_BYTES), (introduced, INTRODUCE_BYTES)])
def test_hello_and_introduce_have_their_own_bound(make: Callable[[int], bytes], limit: int) -> None:
    room = limit - (len(make(1024)) - 1024)
    assert len(make(room)) == limit
    decode_control_untrusted(make(room))
    with pytest.raises(ProtocolError) as raised:
        decode_control_untrusted(make(room + 1))
    assert raised.value.code is CloseCode.LIMIT


def test_batch_bounds() -> None:
    full = frames.Batch(E8, 1, {n.to_bytes(16, "big"): n for n in range(FRONTIER_SITES)}, [b"e"] * BATCH_EVENTS)
    assert decode_events_untrusted(frames.encode_frame(full)) == full
    for value in (
        {**plain(full), "events": [b"e"] * (BATCH_EVENTS + 1)},
        {**plain(full), "clock": {n.to_bytes(16, "big"): n for n in range(FRONTIER_SITES + 1)}},
    ):
        with pytest.raises(ProtocolError) as raised:
            decode_events_untrusted(cbor.encode(value))
        assert raised.value.code is CloseCode.LIMIT


def test_counters_saturate() -> None:
    value = {**plain(EVENTS[1]), "clock": {S16: 2**64 - 1}}
    assert decode_events_untrusted(cbor.encode(value)).clock == {S16: COUNTER_MAX}  # type: ignore[union-attr]


def deflated(packed: bytes, **more: Any) -> bytes:
    value = {**plain(EVENTS[1]), "deflated": packed, **more}
    if "events" not in more:
        del value["events"]
    return cbor.encode(value)


def pack(data: bytes) -> bytes:
    deflater = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    return deflater.compress(data) + deflater.flush()


def test_deflate_only_where_it_was_agreed() -> None:
    data = deflated(pack(cbor.encode([b"one", b"two"])))
    assert decode_events_untrusted(data, DEFLATE).events == [b"one", b"two"]  # type: ignore[union-attr]
    with pytest.raises(ProtocolError):
        decode_events_untrusted(data)
    plain_batch = frames.encode_frame(EVENTS[1])
    assert decode_events_untrusted(plain_batch, DEFLATE) == EVENTS[1]


@pytest.mark.parametrize(
    "packed",
    [
        b"",
        b"\xff\xff",
        pack(b"\x80")[:-1],
        pack(b"\x80") + b"\x00",
        pack(b""),
        pack(b"\x81\x60"),
        pack(b"\xa0"),
        pack(b"\x9f\xff"),
        zlib.compress(b"\x80"),
        pack(cbor.encode(b"x" * (DEFLATED_BYTES + 1))),
        "text",
    ],
    ids=range(11),
)
def test_bad_deflate(packed: Any) -> None:
    with pytest.raises(ProtocolError):
        decode_events_untrusted(deflated(packed), DEFLATE)


def test_deflate_in_place_of_events_not_beside_them() -> None:
    with pytest.raises(ProtocolError):
        decode_events_untrusted(deflated(pack(b"\x80"), events=[]), DEFLATE)


def test_a_deflate_bomb_costs_its_bound() -> None:
    bomb = deflated(pack(b"\x00" * (4 * DEFLATED_BYTES)))
    with pytest.raises(ProtocolError) as raised:
        decode_events_untrusted(bomb, DEFLATE)
    assert raised.value.code is CloseCode.LIMIT


@pytest.mark.parametrize(
    ("frame", "decode", "limit"),
    [
        (frames.Watermarks(frames.After(E8, 0), ()), decode_control_untrusted, CONTROL_FRAME_ITEMS),
        (frames.Records(E8, 1, []), decode_events_untrusted, EVENT_FRAME_ITEMS),
    ],
)
def test_items_of_a_frame_are_bounded(frame: frames.Frame, decode: Any, limit: int) -> None:
    # Both end in the head of an empty array: put one with any number of empty arrays in its place.
    opening = frames.encode_frame(frame)[:-1]
    around = 1 + 2 * len(plain(frame)) + 4 * isinstance(frame, frames.Watermarks)

    def crowd(entries: int) -> bytes:
        return opening + cbor.head(0x80, entries) + b"\x80" * entries

    for entries, why in ((limit - around, "not "), (limit - around + 1, "items")):
        with pytest.raises(ProtocolError, match=why):
            decode(crowd(entries))


@pytest.mark.parametrize("decode", [decode for _, decode in DECODERS])
@pytest.mark.parametrize("nested", [b"\x80", b"\xa0", b"\x81\x01"])
def test_a_crowded_frame_costs_little(nested: bytes, decode: Any) -> None:
    count = FRAME_BYTES // len(nested) - 1024
    data = b"\x9a" + count.to_bytes(4, "big") + nested * count
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError):
            decode(data)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


def test_crowded_deflate() -> None:
    for count, why in ((EVENT_FRAME_ITEMS - 1, "events"), (EVENT_FRAME_ITEMS, "items")):
        with pytest.raises(ProtocolError, match=why):
            decode_events_untrusted(deflated(pack(cbor.head(0x80, count) + b"\x80" * count)), DEFLATE)


@law
@given(cbor_values)
def test_items_are_counted_as_they_nest(value: Any) -> None:
    def items(each: Any) -> int:
        if isinstance(each, list):
            return 1 + sum(map(items, each))
        if isinstance(each, dict):
            return 1 + len(each) + sum(map(items, each.values()))
        return 1

    data = cbor.encode(value)
    cbor.check_items_untrusted(data, items(value))
    with pytest.raises(CodecError):
        cbor.check_items_untrusted(data, items(value) - 1)


COVERING = frozenset({frames.FEATURE_COVERING})


def test_covering_is_a_key_of_its_feature_alone() -> None:
    asked = frames.Request(E8, "table", schema="*", table="t", covering=True)
    data = frames.encode_frame(asked)
    assert decode_control_untrusted(data, COVERING) == asked
    with pytest.raises(ProtocolError, match="other keys"):
        decode_control_untrusted(data)
    bare = frames.Request(E8, "table", schema="*", table="t")
    assert decode_control_untrusted(frames.encode_frame(bare), COVERING) == bare
    site = {"t": "request", "id": E8, "what": "site", "site": S16}
    table = {"t": "request", "id": E8, "what": "table", "schema": "*", "table": "t"}
    for wrong in ({**site, "covering": True}, *({**table, "covering": each} for each in (False, 1, "x", [], {}, b""))):
        with pytest.raises(ProtocolError):
            decode_control_untrusted(cbor.encode(wrong), COVERING)
