"""Strict deterministic CBOR over the narrowed data model, by decode, re-encode, compare (profile §2, SSP/1 §2)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, Final, NoReturn, TypeAlias

import cbor2

from meshnode.errors import CodecError
from meshnode.limits import CBOR_DEPTH

Scalar: TypeAlias = "bool | int | float | str | bytes | None"
# A list or dict of values; Any stands for the recursion, which type checkers cannot follow through `list`.
Value: TypeAlias = "bool | int | float | str | bytes | list[Any] | dict[Any, Any] | None"

_UNSIGNED_END: Final = 2**64
_QUOTED: Final = 120  # characters of cbor2's message that are kept: it may quote a key of any size
_ATOMS: Final = frozenset({str, bytes, bool, type(None)})


class _NoTags(Mapping[int, Any]):
    """Refuses every tag by name, so that no decoder of dates, patterns or shared references ever runs on peer bytes."""

    def __getitem__(self, tag: int) -> NoReturn:
        raise ValueError(f"tag {tag} does not exist in this profile")

    def __iter__(self) -> Iterator[int]:
        return iter(())

    def __len__(self) -> int:
        return 1  # an empty mapping would read as none given


_NO_TAGS: Final = _NoTags()


def text_order(text: str) -> tuple[int, str]:
    """The deterministic order of text keys: shorter encodings first, then by code point, as UTF-8 bytes sort."""
    return (len(text) if text.isascii() else len(text.encode()), text)


def _bytes_order(key: bytes) -> tuple[int, bytes]:
    return (len(key), key)


def _ordered_keys(value: dict[Any, Any]) -> list[Any]:
    """The keys of one map in deterministic order; one key type per map makes every rule agree (profile §2)."""
    kinds = set(map(type, value))
    if kinds <= {str}:
        return sorted(value, key=text_order)
    if kinds == {bytes}:
        return sorted(value, key=_bytes_order)
    if kinds == {int} and min(value) >= 0 and max(value) < _UNSIGNED_END:
        return sorted(value)
    raise CodecError("the keys of a map are all text, all byte strings or all unsigned 64-bit integers")


def _checked(value: Any, depth: int) -> bool:
    """Raise unless `value` is in the data model with its keys in order; True where it holds a float."""
    kind = type(value)
    if kind in _ATOMS:
        return False
    if kind is int:
        if not -_UNSIGNED_END <= value < _UNSIGNED_END:
            raise CodecError("an integer has at most 64 bits")
        return False
    if kind is float:
        if not math.isfinite(value):
            raise CodecError("NaN and the infinities have no encoding")
        return True
    if kind is not list and kind is not dict:
        raise CodecError(f"a {kind.__name__} has no encoding")
    if depth == CBOR_DEPTH:
        raise CodecError(f"nested deeper than {CBOR_DEPTH}")
    if kind is dict:
        if len(value) > 0 and _ordered_keys(value) != list(value):
            raise CodecError("map keys are not in deterministic order")
        value = value.values()
    floats = False
    for item in value:
        if type(item) not in _ATOMS:
            floats |= _checked(item, depth + 1)
    return floats


def _sorted(value: Any, depth: int) -> Any:
    """A copy of `value` with every map in deterministic order; what is too deep is left for `_checked` to refuse."""
    if type(value) is list and depth < CBOR_DEPTH:
        return [_sorted(item, depth + 1) for item in value]
    if type(value) is dict and depth < CBOR_DEPTH:
        return {key: _sorted(value[key], depth + 1) for key in _ordered_keys(value)} if value else value
    return value


def dump(value: Value, *, floats: bool) -> bytes:
    """Encode a value already known to be in the data model and in order; `floats` costs the slower, shortest form."""
    try:
        return cbor2.dumps(value, canonical=floats)
    except (cbor2.CBOREncodeError, ValueError) as error:  # a lone surrogate in text is a ValueError
        raise CodecError(f"no deterministic encoding: {str(error)[:_QUOTED]}") from None


def dump_flat(columns: dict[str, Any]) -> bytes:
    """Encode a map of scalars already known to be in order; with floats in it this beats `dump` by half."""
    try:
        pieces = [cbor2.dumps(part, canonical=True) for column in columns.items() for part in column]
    except (cbor2.CBOREncodeError, ValueError) as error:
        raise CodecError(f"no deterministic encoding: {str(error)[:_QUOTED]}") from None
    return head(0xA0, len(columns)) + b"".join(pieces)


def head(major: int, length: int) -> bytes:
    """The shortest head of an item of this major type (in the upper three bits) and length or number of entries."""
    if length < 24:
        return bytes((major | length,))
    if length < 0x100:
        return bytes((major | 24, length))
    if length < 0x1_0000:
        return bytes((major | 25,)) + length.to_bytes(2, "big")
    return bytes((major | 26,)) + length.to_bytes(4, "big")


def load_untrusted(data: bytes) -> Any:
    """Decode without the proof of determinism: no tags, no indefinite lengths, no duplicates, at most 8 deep.

    For callers that check types and order themselves and compare with `dump`, as the event parser does.
    """
    try:
        return cbor2.loads(
            data,
            semantic_decoders=_NO_TAGS,
            max_depth=CBOR_DEPTH,
            allow_indefinite=False,
            allow_duplicate_keys=False,
        )
    except (cbor2.CBORDecodeError, ValueError, TypeError, OverflowError, RecursionError) as error:
        raise CodecError(f"not CBOR of this profile: {str(error)[:_QUOTED]}") from None


def check_items_untrusted(data: bytes, most: int) -> None:
    """CodecError where `data` has more than `most` items: an empty array is one byte here and 70 once decoded."""
    at, items, end = 0, 0, len(data)
    if end <= most:
        return  # every item takes a byte
    while at < end:
        items += 1
        if items > most:
            raise CodecError(f"more than {most} items")
        first = data[at]
        info = first & 0x1F
        at += 1
        if info >= 24:  # from 28 on it is no definite length, which the decoder refuses when it gets here
            width = 1 << (info - 24) if info < 28 else 0
            info = int.from_bytes(data[at : at + width], "big")
            at += width
        if 0x40 <= first < 0x80:  # byte and text strings: their content holds no items
            at += info


def encode(value: Value) -> bytes:
    """The one deterministic encoding of `value`; CodecError where it has none."""
    try:
        ordered = _sorted(value, 0)
        return dump(ordered, floats=_checked(ordered, 0))
    except UnicodeEncodeError:
        raise CodecError("text with a lone surrogate has no encoding") from None


def decode_untrusted(data: bytes) -> Value:
    """The value whose deterministic encoding is exactly `data`; CodecError for any other bytes."""
    value: Value = load_untrusted(data)
    if dump(value, floats=_checked(value, 0)) != data:
        raise CodecError("not the deterministic encoding")
    return value
