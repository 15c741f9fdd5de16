"""What a peer's acks tell of our own events is kept, as far as the conflict ledger needs it (`model/taken.py`).

An event that the peer rejected or did not keep was not seen there. An ack does not name what was dropped, so a frame of
which anything was tells nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from meshnode.engine.context import Context
from meshnode.model.delivery import Settlement
from meshnode.model.hlc import Hlc, beyond_skew
from meshnode.model.taken import AGAIN, LIVE, MERGED, ORDERED, SENT, Taken
from meshnode.store import backfills, delivery, reoffers, taken
from meshnode.store.database import Tx
from meshnode.store.delivery import Outbound, StagedRow, Stream

_CARRYING: Final = (delivery.EVENTS, delivery.EVENTS_AGAIN, delivery.LIVE, delivery.ANSWERED)


def note_acks(
    context: Context,
    tx: Tx,
    stream: Stream,
    before: Outbound,
    settled: Sequence[tuple[StagedRow, Settlement]],
    *,
    idle: bool,
) -> list[Taken]:
    """Keep what the acks of these frames tell, oldest first; returns the ranges of which they told something.

    `idle` where nothing else is in flight. If then nothing is owed to the peer either, it has all that came before the
    frames which are known: so it is after acks began to be kept, and after what was known had to be forgotten.
    """
    if all(row.items.kind not in _CARRYING for row, _ in settled):
        return []
    now_ms = context.env.wall_ms()
    low, end = taken.bounds_of(tx, stream) or (before.cursor + 1, before.cursor)
    ranges: list[Taken] = []
    for row, ack in settled:
        hlc = _told(ack, now_ms)
        whole = None if ack.rejected or ack.dropped else hlc
        if row.items.kind == delivery.EVENTS and row.cursor_after > end:
            ranges.append(Taken(end + 1, row.cursor_after, whole, ORDERED))
            end = row.cursor_after
        elif row.items.kind == delivery.LIVE and whole is not None:
            ranges.append(Taken(row.items.positions[0], row.items.positions[-1], whole, LIVE))
        elif row.items.kind == delivery.EVENTS_AGAIN and hlc is not None and not ack.dropped:
            ranges += _again(tx, stream, row, ack, hlc)
    last = _told(settled[-1][1], now_ms)
    if low > 1 and idle and last is not None and not _is_owed(tx, stream):
        ranges.append(Taken(1, low - 1, last, MERGED))
    taken.add(tx, stream, ranges, (settled[0][0].no, settled[-1][0].no))
    return [each for each in ranges if each.hlc is not None]


def _is_owed(tx: Tx, stream: Stream) -> bool:
    """Whether anything is still to be sent once more."""
    return reoffers.count(tx, stream)[0] > 0 or backfills.any_pending(tx, stream)


def _told(ack: Settlement, now_ms: int) -> Hlc | None:
    """The clock in an ack; one that is too far ahead is treated as absent (profile §8)."""
    return None if ack.hlc is None or beyond_skew(ack.hlc.physical, now_ms) else ack.hlc


def _again(tx: Tx, stream: Stream, row: StagedRow, ack: Settlement, hlc: Hlc) -> list[Taken]:
    """Events that were sent once more, where no ack had told of them before."""
    known = taken.of_peer(tx, stream.no)
    untold = [each for each in known if each.hlc is None and each.kind != SENT]
    rejected = set(ack.rejected)
    return [
        Taken(position, position, hlc, AGAIN)
        for index, position in enumerate(row.items.positions)
        if index not in rejected and any(each.first <= position <= each.last for each in untold)
    ]
