"""The hybrid logical clock with time as an argument, and the sort keys made of it (SSP/1 §5, profile §1, §4)."""

from __future__ import annotations

import struct
from typing import Final, NamedTuple, TypeAlias

from meshnode.errors import ClockExhaustedError
from meshnode.limits import SKEW_MS

U64_MAX: Final = 2**64 - 1
CLOCK_BYTES: Final = 32  # physical, logical, site
RANK_BYTES: Final = 64  # clock, event id
_PAIR: Final = struct.Struct(">QQ")

Rank: TypeAlias = bytes


class Hlc(NamedTuple):
    """One reading; pairs compare as the clock does, the site breaks ties only in a clock or rank."""

    physical: int
    logical: int


ZERO: Final = Hlc(0, 0)


def _carried(physical: int, logical: int) -> Hlc:
    """Carry a logical overflow into the physical part; past that there is no next reading (profile §4)."""
    if logical > U64_MAX:
        physical, logical = physical + 1, 0
    if physical > U64_MAX:
        raise ClockExhaustedError("the clock is at its end: no later event can be authored")
    return Hlc(physical, logical)


def tick(last: Hlc, now_ms: int) -> Hlc:
    """The reading that stamps a local event (SSP/1 §5)."""
    if now_ms > last.physical:
        return _carried(now_ms, 0)
    return _carried(last.physical, last.logical + 1)


def observe(last: Hlc, remote: Hlc, now_ms: int) -> Hlc:
    """The local clock after it saw `remote` (SSP/1 §5)."""
    physical = max(last.physical, remote.physical, now_ms)
    logical = -1
    if last.physical == physical:
        logical = last.logical
    if remote.physical == physical:
        logical = max(logical, remote.logical)
    return _carried(physical, logical + 1)


def beyond_skew(physical: int, now_ms: int) -> bool:
    """Whether a peer's reading is too far ahead; exactly the bound is accepted (SSP/1 §5.1, profile §6)."""
    return physical > now_ms + SKEW_MS


def clock_bytes(hlc: Hlc, site: bytes) -> bytes:
    """The 32-byte sort key of an event's time: bytewise order is the total order of SSP/1 §5."""
    return _PAIR.pack(*hlc) + site


def rank_bytes(hlc: Hlc, site: bytes, event_id: bytes) -> Rank:
    """What every stored winner keeps and every comparison of events uses (profile §1)."""
    return _PAIR.pack(*hlc) + site + event_id


def hlc_of_rank(rank: Rank) -> Hlc:
    """The reading inside a rank or a clock."""
    return Hlc(*_PAIR.unpack_from(rank))
