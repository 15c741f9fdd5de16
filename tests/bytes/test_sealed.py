"""A sealed stream gives back its bytes, and nothing at all where it was changed, cut, or put together anew."""

from __future__ import annotations

import io

import pytest

from meshnode.codec import sealed
from meshnode.codec.sealed import CHUNK_BYTES, Opening, seal
from meshnode.errors import CodecError

MARK, SALT = b"test 1\n", b"s" * 16
WHOLE = CHUNK_BYTES + 16


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The passphrase's own slowness has its tests with the keys."""
    monkeypatch.setattr(sealed, "passphrase_key", lambda passphrase, salt: (passphrase + salt).ljust(32)[:32])


def sealed_bytes(data: bytes, step: int = 50_000) -> bytes:
    pieces = (data[at : at + step] for at in range(0, len(data), step))
    return b"".join(seal(MARK, pieces, b"open", salt=SALT))


def opened(data: bytes, passphrase: bytes = b"open") -> bytes | None:
    opening = Opening(MARK, io.BytesIO(data).read)
    first = opening.first(passphrase)
    return None if first is None else first + b"".join(opening.rest())


@pytest.mark.parametrize("length", [0, 1, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 3 * CHUNK_BYTES, 200_001])
def test_what_goes_in_comes_out(length: int) -> None:
    data = bytes(at % 251 for at in range(length))
    stream = sealed_bytes(data)
    assert opened(stream) == data
    assert sealed_bytes(data, 7 * CHUNK_BYTES) == stream
    assert data[:16] not in stream or length < 16
    assert opened(stream, b"shut") is None


def test_a_wrong_passphrase_can_be_followed_by_the_right_one() -> None:
    opening = Opening(MARK, io.BytesIO(sealed_bytes(b"x" * 100_000)).read)
    assert opening.first(b"shut") is None
    first = opening.first(b"open")
    assert first is not None
    assert first + b"".join(opening.rest()) == b"x" * 100_000


HEAD = len(MARK) + len(SALT)
CHANGES = {
    "cut at a chunk": lambda data: data[: HEAD + 2 * WHOLE],
    "cut within one": lambda data: data[:-1],
    "extended": lambda data: data + b"x",
    "two changed places": lambda data: (
        data[: HEAD + WHOLE] + data[HEAD + 2 * WHOLE : HEAD + 3 * WHOLE] + data[HEAD + WHOLE :][:WHOLE]
    ),
    "one is there twice": lambda data: data[: HEAD + 2 * WHOLE] + data[HEAD + WHOLE :],
    "a bit": lambda data: (
        data[: HEAD + 2 * WHOLE + 9] + bytes([data[HEAD + 2 * WHOLE + 9] ^ 1]) + data[HEAD + 2 * WHOLE + 10 :]
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_was_changed_does_not_open(change: str) -> None:
    with pytest.raises(CodecError, match="damaged"):
        opened(CHANGES[change](sealed_bytes(b"x" * (3 * CHUNK_BYTES + 5))))


@pytest.mark.parametrize("data", [b"", b"test", b"test 2\n" + bytes(100)])
def test_something_else_is_known_at_once(data: bytes) -> None:
    with pytest.raises(CodecError, match="mark"):
        Opening(MARK, io.BytesIO(data).read)


def test_a_head_alone_opens_to_nothing() -> None:
    assert opened(MARK + SALT) is None
    assert opened(MARK + b"short") is None
