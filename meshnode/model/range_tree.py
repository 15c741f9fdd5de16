"""Digests of a set of items by ranges: a tree of fixed fan-out over their first bytes (profile §15). Pure.

The sum of a range is the XOR of its items beside their number. Items are keyed hashes, so ranges that differ have the
same sum with probability 2^-128. Memory does not grow with the set: one sum for each of 2^16 ranges, and those above.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterable, Sequence
from typing import Final

from meshnode.model.comparison import ITEM_BYTES, Range, Total

DEPTH: Final = 4
FANOUT: Final = 16
LEAVES: Final = FANOUT**DEPTH
_BITS: Final = 4
_TOTAL: Final = struct.Struct(f">Q{ITEM_BYTES}s")
TOTAL_BYTES: Final = _TOTAL.size
CHILDREN_BYTES: Final = FANOUT * TOTAL_BYTES


class RangeTree:
    """Made once from the sums and sizes of the smallest ranges."""

    __slots__ = ("_counts", "_sums")

    def __init__(self, sums: Sequence[int], counts: Sequence[int]) -> None:
        levels, numbers = [list(sums)], [array("Q", counts)]
        while len(levels[-1]) > 1:
            below, sizes = levels[-1], numbers[-1]
            starts = range(0, len(below), FANOUT)
            levels.append([_xor(below[at : at + FANOUT]) for at in starts])
            numbers.append(array("Q", [sum(sizes[at : at + FANOUT]) for at in starts]))
        self._sums = [b"".join(each.to_bytes(ITEM_BYTES, "big") for each in level) for level in reversed(levels)]
        self._counts = numbers[::-1]

    @classmethod
    def empty(cls) -> RangeTree:
        """The tree of no items, which costs nothing."""
        tree = cls.__new__(cls)
        sizes = [FANOUT**depth for depth in range(DEPTH + 1)]
        tree._sums = [bytes(ITEM_BYTES * size) for size in sizes]
        tree._counts = [array("Q", bytes(8 * size)) for size in sizes]
        return tree

    @classmethod
    def of(cls, items: Iterable[bytes]) -> RangeTree:
        """The tree of a set that is at hand."""
        sums, counts = [0] * LEAVES, [0] * LEAVES
        for item in items:
            leaf = leaf_of(item)
            sums[leaf] ^= int.from_bytes(item, "big")
            counts[leaf] += 1
        return cls(sums, counts)

    def total(self, wanted: Range) -> Total:
        """The sum and size of one range."""
        at = wanted.prefix * ITEM_BYTES
        return Total(self._counts[wanted.depth][wanted.prefix], self._sums[wanted.depth][at : at + ITEM_BYTES])

    def children(self, wanted: Range) -> bytes:
        """Those of the ranges that it is divided into, packed."""
        return b"".join(pack_total(self.total(each)) for each in divided(wanted))


def leaf_of(item: bytes) -> int:
    """The smallest range that an item lies in."""
    return int.from_bytes(item[:2], "big")


def divided(wanted: Range) -> list[Range]:
    """The ranges one level deeper."""
    first = wanted.prefix * FANOUT
    return [Range(wanted.set, wanted.depth + 1, first + each) for each in range(FANOUT)]


def leaves_of(wanted: Range) -> range:
    """The smallest ranges within one."""
    shift = _BITS * (DEPTH - wanted.depth)
    return range(wanted.prefix << shift, (wanted.prefix + 1) << shift)


def pack_total(total: Total) -> bytes:
    """A sum and size as they travel."""
    return _TOTAL.pack(*total)


def unpack_totals(packed: bytes) -> list[Total]:
    """Any number of them."""
    return [Total(*each) for each in _TOTAL.iter_unpack(packed)]


def _xor(values: Sequence[int]) -> int:
    result = 0
    for value in values:
        result ^= value
    return result
