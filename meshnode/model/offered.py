"""How an offer names events: by author, clock and the first half of the event id (profile §14, feature `offer`).

The clock lets a receiver look in the order in which it keeps its log. Only an event of the same author at the same
clock matches a name, and nobody but the author can sign one: no member can have the events of another declined. Two
events that their author gave one clock are told apart by 128 bits of their ids; to find two that agree in these takes
2^64 tries, and reaches that one of the two misses some devices.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from meshnode.errors import CloseCode, ProtocolError
from meshnode.limits import OFFER_EVENTS
from meshnode.model import frame_fields_untrusted as fields
from meshnode.model.frames import OFFERED_ID_BYTES
from meshnode.model.hlc import U64_MAX, Hlc
from meshnode.model.site import SITE_BYTES

_STEP: Final = 3  # physical, logical, id: what the list of one author has for each event
_SITE: Final = fields.byte_string(SITE_BYTES)
_SHORT_ID: Final = fields.byte_string(OFFERED_ID_BYTES)


class Named(NamedTuple):
    """One event as an offer names it; in this order they are counted."""

    site: bytes
    hlc: Hlc
    short_id: bytes


def pack(named: Iterable[Named]) -> dict[bytes, tuple[int | bytes, ...]]:
    """As the frame has it: per author, the physical time of an event after the first as what it is above the last."""
    packed: dict[bytes, list[int | bytes]] = {}
    before: dict[bytes, int] = {}
    for site, (physical, logical), short_id in sorted(named):
        packed.setdefault(site, []).extend((physical - before.get(site, 0), logical, short_id))
        before[site] = physical
    return {site: tuple(entries) for site, entries in packed.items()}


def unpack(events: Mapping[bytes, tuple[Any, ...]]) -> Iterator[Named]:
    """The events of a frame, in the order in which `wanted` counts them."""
    for site in sorted(events):
        physical = 0
        entries = events[site]
        for start in range(0, len(entries), _STEP):
            above, logical, short_id = entries[start : start + _STEP]
            physical += above
            yield Named(site, Hlc(physical, logical), short_id)


def offered_untrusted(value: Any) -> dict[bytes, tuple[Any, ...]]:
    """The `events` of an offer: at least one, at most `OFFER_EVENTS`, each author's in strictly ascending order."""
    if type(value) is not dict or not value:
        raise ProtocolError("not a map of authors to events")
    if sum(len(entries) for entries in value.values() if type(entries) is list) > OFFER_EVENTS * _STEP:
        raise ProtocolError(f"more than {OFFER_EVENTS} events", CloseCode.LIMIT)
    return {_SITE(site): _entries(entries) for site, entries in value.items()}


def _entries(value: Any) -> tuple[Any, ...]:
    if type(value) is not list or not value or len(value) % _STEP:
        raise ProtocolError("not a list of physical time, logical time and id for each event")
    physical, last = 0, None
    for start in range(0, len(value), _STEP):
        physical += fields.u64(value[start])
        named = (physical, fields.u64(value[start + 1]), _SHORT_ID(value[start + 2]))
        if physical > U64_MAX or (last is not None and named <= last):
            raise ProtocolError("events of one author are not in ascending order")
        last = named
    return tuple(value)
