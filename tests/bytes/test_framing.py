"""Length-prefixed frames: any cut of the stream gives the same frames, and memory follows what was received."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.laws import law

from meshnode.codec.framing import FrameReader, frame
from meshnode.errors import CloseCode, ProtocolError
from meshnode.limits import FRAME_BYTES


@law
@given(st.lists(st.binary(max_size=50), max_size=6), st.lists(st.integers(1, 9), min_size=1))
def test_any_cut_gives_the_same_frames(bodies: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(map(frame, bodies))
    reader, got, at, turn = FrameReader(), [], 0, 0
    while at < len(stream):
        size = cuts[turn % len(cuts)]
        got += reader.feed(stream[at : at + size])
        at, turn = at + size, turn + 1
    assert got == bodies
    assert reader.pending_bytes == 0


def test_the_limit_is_inclusive_and_seen_in_the_prefix() -> None:
    reader = FrameReader()
    body = b"x" * FRAME_BYTES
    assert reader.feed(frame(body)) == [body]
    with pytest.raises(ProtocolError) as raised:
        reader.feed((FRAME_BYTES + 1).to_bytes(4, "big"))
    assert raised.value.code is CloseCode.LIMIT
    with pytest.raises(ProtocolError):
        frame(body + b"x")


def test_a_declared_length_reserves_nothing() -> None:
    reader = FrameReader()
    assert reader.feed(FRAME_BYTES.to_bytes(4, "big") + b"x" * 10) == []
    assert reader.pending_bytes == 14


def test_the_limit_can_be_moved_between_frames() -> None:
    reader = FrameReader(10)
    assert reader.feed(frame(b"x" * 10)) == [b"x" * 10]
    reader.set_limit(20)
    assert reader.feed(frame(b"x" * 20)) == [b"x" * 20]
    reader.set_limit(5)
    with pytest.raises(ProtocolError):
        reader.feed(frame(b"x" * 6))


def test_an_empty_frame_is_a_frame() -> None:
    assert FrameReader().feed(b"\x00" * 8) == [b"", b""]
