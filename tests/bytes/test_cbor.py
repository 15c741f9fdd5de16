"""Laws of the strict decoder: exactly the deterministic bytes, one error, and little cost whatever a peer declares."""

from __future__ import annotations

import struct
import tracemalloc
from typing import Any

import cbor2
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.laws import cbor_values, law

from meshnode.codec import cbor
from meshnode.errors import CodecError


@law
@given(cbor_values)
def test_round_trip(value: Any) -> None:
    data = cbor.encode(value)
    decoded = cbor.decode_untrusted(data)
    assert repr(_ordered(decoded)) == repr(_ordered(value))  # repr tells 1 from True, 1.0 and -0.0 from 0.0
    assert cbor.encode(decoded) == data


@law
@given(cbor_values)
def test_bytes_are_those_of_an_independent_canonical_encoder(value: Any) -> None:
    assert cbor.encode(value) == cbor2.dumps(value, canonical=True)


@law
@given(st.binary(max_size=60))
@example(bytes.fromhex("a1f97e0001"))
@example(bytes.fromhex("a201f5f501"))
def test_any_bytes_decode_exactly_or_raise_the_one_error(data: bytes) -> None:
    try:
        value = cbor.decode_untrusted(data)
    except CodecError:
        return
    assert cbor.encode(value) == data


@law
@given(cbor_values, st.data())
def test_one_changed_byte_is_another_value_or_an_error(value: Any, data: st.DataObject) -> None:
    encoded = bytearray(cbor.encode(value))
    at = data.draw(st.integers(0, len(encoded) - 1))
    encoded[at] ^= data.draw(st.integers(1, 255))
    try:
        other = cbor.decode_untrusted(bytes(encoded))
    except CodecError:
        return
    assert cbor.encode(other) == bytes(encoded)
    assert repr(_ordered(other)) != repr(_ordered(value))


TAGS = (0, 1, 2, 3, 4, 5, 25, 28, 29, 30, 35, 36, 37, 100, 256, 258, 260, 261, 1004, 43000, 55799, 65535, 2**64 - 1)


@pytest.mark.parametrize("tag", TAGS)
@pytest.mark.parametrize("content", ["00", "80", "4101", "6161", "8201820102", "1bffffffffffffffff", "f97e00"])
def test_no_tag_is_ever_interpreted(tag: int, content: str) -> None:
    head = cbor2.dumps(cbor2.CBORTag(tag, 0))[:-1]
    for wrapped in (head, b"\x81" + head, b"\xa1" + head, b"\xa1\x01" + head):
        with pytest.raises(CodecError):
            cbor.decode_untrusted(wrapped + bytes.fromhex(content) + b"\x00" * (wrapped[0] == 0xA1))


def test_shared_references_cannot_multiply() -> None:
    # Each level names the one before ten times: a decoder that follows them would walk 10^7 values.
    data = bytes.fromhex("88") + b"".join(
        bytes.fromhex("d81c8a") + (bytes.fromhex("d81d") + bytes([level - 1]) if level else b"\x00") * 10
        for level in range(8)
    )
    with pytest.raises(CodecError, match="tag"):
        cbor.decode_untrusted(data)


@pytest.mark.parametrize("major", ["5", "7", "9", "b"])
@pytest.mark.parametrize(
    "length", ["a7fffffff", "affffffff", "b0000000100000000", "b7fffffffffffffff", "bffffffffffffffff"]
)
def test_a_declared_length_reserves_nothing(major: str, length: str) -> None:
    data = bytes.fromhex(major + length) + b"\x00" * 64
    tracemalloc.start()
    try:
        with pytest.raises(CodecError):
            cbor.decode_untrusted(data)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("bits", [0x7FF8000000000001, 0xFFF8000000000000, 0x7FF0000000000001, 0x7FF0000000000000])
def test_no_payload_of_nan_and_no_infinity(bits: int) -> None:
    for data in (b"\xfb" + struct.pack(">Q", bits), b"\x81\xfb" + struct.pack(">Q", bits)):
        with pytest.raises(CodecError):
            cbor.decode_untrusted(data)


@pytest.mark.parametrize(
    "value",
    [
        {1: 0, "a": 0},
        {True: 0},
        {1.0: 0},
        {None: 0},
        {-1: 0},
        {2**64: 0},
        {(): 0},
        {b"a": 0, "a": 0},
        "\ud800",
        {"\ud800": 1, "b": 2},
        ["\udfff"],
        (1, 2),
        {1},
        bytearray(b"a"),
        1j,
        object(),
        2**64,
        -(2**64) - 1,
        float("nan"),
    ],
)
def test_values_outside_the_model_have_no_encoding(value: Any) -> None:
    with pytest.raises(CodecError):
        cbor.encode(value)


def test_depth_is_inclusive_and_a_cycle_ends() -> None:
    value: Any = 1
    for _ in range(8):
        value = [value]
    assert cbor.decode_untrusted(cbor.encode(value)) == value
    with pytest.raises(CodecError, match="deep"):
        cbor.encode([value])
    cycle: list[Any] = []
    cycle.append(cycle)
    with pytest.raises(CodecError):
        cbor.encode(cycle)


def test_encoding_sorts_and_leaves_its_argument_alone() -> None:
    value = {"bb": [{"z": 1, "a": 2}], "c": 0}
    assert cbor.encode(value) == cbor2.dumps(value, canonical=True)
    assert list(value) == ["bb", "c"]


def _ordered(value: Any) -> Any:
    if isinstance(value, list):
        return [_ordered(item) for item in value]
    if isinstance(value, dict):
        return [(key, _ordered(value[key])) for key in sorted(value, key=lambda key: (str(type(key)), key))]
    return value
