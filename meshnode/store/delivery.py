"""Rows of one sending stream: durable cursor, exact staged frames, earlier epochs (SSP/1 §14.1, NEOTH commit contract).

Every function reads or writes inside the caller's transaction. A row that cannot be read raises CorruptStateError that
names the peer, and is never replaced by an empty one.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NoReturn, Protocol

from meshnode.codec import cbor
from meshnode.codec.digest import DIGEST_BYTES, blake3_256
from meshnode.errors import CodecError, CorruptStateError
from meshnode.model.delivery import OutboundStream, Replaced, Staged, StagedFrame
from meshnode.model.frames import EPOCH_BYTES, REQUEST_ID_BYTES
from meshnode.model.site import short_text
from meshnode.store.database import Tx

PAST_EPOCHS: Final = 64  # earlier epochs kept for one stream
FRAME_FORMAT: Final = 1  # of the frames that this program stages: those of an earlier one are staged again

# What a staged frame carries: the first byte of `items`.
EVENTS: Final = 0  # log positions that follow the cursor
RECORDS: Final = 1  # record positions that follow the record cursor
EVENTS_AGAIN: Final = 2  # events from the re-offer set
RECORDS_AGAIN: Final = 3  # records from the re-offer set
ANSWERED: Final = 4  # the id of a request of the peer
LIVE: Final = 5  # own log positions ahead of the cursor, which comes by them later (feature `live`)
OFFERED: Final = 6  # names of events at log positions that follow the offer cursor (feature `offer`)


class Reads(Protocol):
    """What reading needs: an open transaction, or any connection."""

    def execute(self, sql: str, parameters: Sequence[Any] = ..., /) -> Any:
        """Run one statement and return its cursor."""


@dataclass(frozen=True, slots=True)
class Stream:
    """Which stream: the peer, its number, and the transport path."""

    peer: bytes
    no: int
    path: str

    @property
    def key(self) -> tuple[int, str]:
        """The leading primary-key columns of every delivery table."""
        return (self.no, self.path)

    def unreadable(self, what: str) -> NoReturn:
        """Stop: what is stored of this stream cannot be read."""
        raise CorruptStateError(
            f"{what} for peer {short_text(self.peer)} over {self.path} cannot be read: nothing more moves on that "
            "stream. Restore the database from a backup, or remove the peer's delivery state on purpose"
        )


@dataclass(frozen=True, slots=True)
class Outbound:
    """The durable cursor of a stream."""

    epoch: bytes
    cursor: int = 0
    record_cursor: int = 0
    settled_no: int = 0
    settled_digest: bytes = b""
    rewound_ms: int = 0
    replaces: tuple[Replaced, ...] = ()
    offer_cursor: int | None = None  # of events by others, where they are offered; then `cursor` is of our own


@dataclass(frozen=True, slots=True)
class Items:
    """What a staged frame carries."""

    kind: int
    positions: tuple[int, ...] = ()
    request_id: bytes = b""

    def pack(self) -> bytes:
        """The stored form."""
        return bytes([self.kind]) + struct.pack(f">{len(self.positions)}Q", *self.positions) + self.request_id


@dataclass(frozen=True, slots=True)
class StagedRow:
    """One frame in flight, without its bytes, and what follows it."""

    no: int
    digest: bytes
    cursor_after: int
    record_cursor_after: int
    items: Items
    filter: str
    attempts: int = 0
    expires_ms: int = 0  # from when on an event in it is older than the policy lets out, 0 never
    offer_cursor_after: int | None = None

    @property
    def staged(self) -> Staged:
        """As a session remembers it."""
        kind = self.items.kind
        return Staged(self.no, self.digest, len(self.items.positions), live=kind == LIVE, offers=kind == OFFERED)


def read_outbound(tx: Reads, stream: Stream) -> Outbound | None:
    """The cursor, None for a peer that nothing was ever opened to."""
    row = tx.execute(
        "SELECT epoch, cursor, record_cursor, settled_no, settled_digest, rewound_ms, replaces, offer_cursor"
        " FROM meshnode_outbound WHERE site_no = ? AND path = ?",
        stream.key,
    ).fetchone()
    if row is None:
        return None
    epoch, cursor, record_cursor, settled_no, settled_digest, rewound_ms, packed, offer_cursor = row
    numbers = (cursor, record_cursor, settled_no, rewound_ms, 0 if offer_cursor is None else offer_cursor)
    if (
        not _is_bytes(epoch, EPOCH_BYTES)
        or any(type(number) is not int or number < 0 for number in numbers)
        or not _is_bytes(settled_digest, DIGEST_BYTES if settled_no else 0)
    ):
        stream.unreadable("the delivery cursor")
    replaces = _unpack_replaced(stream, packed)
    return Outbound(epoch, cursor, record_cursor, settled_no, settled_digest, rewound_ms, replaces, offer_cursor)


def write_outbound(tx: Tx, stream: Stream, outbound: Outbound) -> None:
    """Set the cursor."""
    tx.execute(
        "INSERT OR REPLACE INTO meshnode_outbound (site_no, path, epoch, cursor, record_cursor, settled_no,"
        " settled_digest, rewound_ms, replaces, offer_cursor) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            *stream.key,
            outbound.epoch,
            outbound.cursor,
            outbound.record_cursor,
            outbound.settled_no,
            outbound.settled_digest,
            outbound.rewound_ms,
            cbor.encode([[each.epoch, each.no, each.digest] for each in outbound.replaces]),
            outbound.offer_cursor,
        ),
    )


def read_staged(tx: Reads, stream: Stream, outbound: Outbound) -> list[StagedRow]:
    """Every frame in flight, oldest first: contiguous after the last settled one."""
    rows = tx.execute(
        "SELECT no, digest, cursor_after, record_cursor_after, items, filter, attempts, expires_ms, offer_cursor_after"
        " FROM meshnode_staged WHERE site_no = ? AND path = ? ORDER BY no",
        stream.key,
    ).fetchall()
    staged = [
        StagedRow(no, digest, cursor, record_cursor, unpack_items(stream, items), *rest)
        for no, digest, cursor, record_cursor, items, *rest in rows
    ]
    before = StagedRow(
        outbound.settled_no,
        b"",
        outbound.cursor,
        outbound.record_cursor,
        Items(EVENTS),
        "",
        offer_cursor_after=outbound.offer_cursor,
    )
    for each in staged:
        if (
            each.no != before.no + 1
            or not _is_bytes(each.digest, DIGEST_BYTES)
            or type(each.cursor_after) is not int
            or type(each.record_cursor_after) is not int
            or each.cursor_after < before.cursor_after
            or each.record_cursor_after < before.record_cursor_after
            or not _follows(each.offer_cursor_after, before.offer_cursor_after)
            or type(each.filter) is not str
            or type(each.expires_ms) is not int
        ):
            stream.unreadable(f"the staged frame {each.no!r}")
        before = each
    return staged


def read_frames(tx: Tx, stream: Stream, staged: list[StagedRow]) -> list[StagedFrame]:
    """The exact bytes of these staged frames; bytes that are not those that were staged are never sent."""
    frames = []
    for each in staged:
        (cbor,) = tx.execute(
            "SELECT frame FROM meshnode_staged WHERE site_no = ? AND path = ? AND no = ?", (*stream.key, each.no)
        ).fetchone()
        if type(cbor) is not bytes or blake3_256(cbor) != each.digest:
            stream.unreadable(f"the staged frame {each.no}")
        frames.append(StagedFrame(each.staged, cbor))
    return frames


def add_staged(tx: Tx, stream: Stream, row: StagedRow, cbor: bytes) -> None:
    """Keep one more frame in flight."""
    tx.execute(
        "INSERT INTO meshnode_staged"
        " (site_no, path, no, frame, digest, cursor_after, record_cursor_after, items, filter, expires_ms,"
        " offer_cursor_after, format) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            *stream.key,
            row.no,
            cbor,
            row.digest,
            row.cursor_after,
            row.record_cursor_after,
            row.items.pack(),
            row.filter,
            row.expires_ms,
            row.offer_cursor_after,
            FRAME_FORMAT,
        ),
    )


def has_older_frames(tx: Tx, stream: Stream) -> bool:
    """Whether frames in flight are of an earlier format; of a later one, or of none, they cannot be read."""
    rows = tx.execute("SELECT format FROM meshnode_staged WHERE site_no = ? AND path = ?", stream.key)
    formats = {row[0] for row in rows}
    if any(type(each) is not int or not 0 < each <= FRAME_FORMAT for each in formats):
        stream.unreadable("the format of a staged frame")
    return any(each < FRAME_FORMAT for each in formats)


def frame_sizes(tx: Reads, stream: Stream) -> dict[int, int]:
    """Bytes of the frames in flight, by number."""
    rows = tx.execute(
        "SELECT no, length(frame) FROM meshnode_staged WHERE site_no = ? AND path = ? AND typeof(no) = 'integer'",
        stream.key,
    )
    return {no: size or 0 for no, size in rows}


def count_attempt(tx: Tx, stream: Stream, from_no: int) -> None:
    """Note that these frames are sent once more."""
    tx.execute(
        "UPDATE meshnode_staged SET attempts = attempts + 1 WHERE site_no = ? AND path = ? AND no >= ?",
        (*stream.key, from_no),
    )


def remove_staged(tx: Tx, stream: Stream, up_to_no: int | None = None) -> None:
    """Forget the frames up to a settled one, or all."""
    if up_to_no is None:
        tx.execute("DELETE FROM meshnode_staged WHERE site_no = ? AND path = ?", stream.key)
    else:
        tx.execute("DELETE FROM meshnode_staged WHERE site_no = ? AND path = ? AND no <= ?", (*stream.key, up_to_no))


def remember_epoch(tx: Tx, stream: Stream, epoch: bytes, last_no: int) -> None:
    """Keep an epoch that is over, with the number of the last frame staged in it, and the last ones before it."""
    sql = "INSERT INTO meshnode_epochs (site_no, path, epoch, last_no) VALUES (?, ?, ?, ?)"
    tx.execute(sql, (*stream.key, epoch, last_no))
    tx.execute(
        "DELETE FROM meshnode_epochs WHERE no IN (SELECT no FROM meshnode_epochs WHERE site_no = ? AND path = ?"
        " ORDER BY no DESC LIMIT -1 OFFSET ?)",
        (*stream.key, PAST_EPOCHS),
    )


def past_epochs(tx: Reads, stream: Stream) -> dict[bytes, int]:
    """Earlier epochs of this stream, and the number of the last frame staged in each."""
    rows = tx.execute("SELECT epoch, last_no FROM meshnode_epochs WHERE site_no = ? AND path = ?", stream.key)
    past = dict(rows.fetchall())
    if not all(_is_bytes(epoch, EPOCH_BYTES) and type(last_no) is int for epoch, last_no in past.items()):
        stream.unreadable("an earlier epoch")
    return past


def streams(tx: Reads, table: str = "meshnode_outbound") -> list[Stream]:
    """Every stream that has a row in this table, in a stable order."""
    rows = tx.execute(
        f"SELECT DISTINCT s.site, d.site_no, d.path FROM {table} AS d"  # noqa: S608  # our own name
        " JOIN meshnode_sites AS s ON s.no = d.site_no ORDER BY s.site, d.path"
    ).fetchall()
    return [Stream(*row) for row in rows]


def forget_all(tx: Tx) -> None:
    """Every stream, either way, is another site's from now on."""
    sending = ("outbound", "staged", "epochs", "reoffers", "answers", "backfills", "bundles")
    for name in (*sending, "inbound", "acks", "requests"):
        tx.execute(f"DELETE FROM meshnode_{name}")  # noqa: S608  # our own names
    tx.execute("DELETE FROM meshnode_taken")


def stream_view(outbound: Outbound, staged: list[StagedRow]) -> OutboundStream:
    """As a session mirrors it."""
    return OutboundStream(
        outbound.epoch,
        outbound.settled_no,
        outbound.settled_digest,
        tuple(each.staged for each in staged),
        outbound.rewound_ms,
        outbound.replaces,
    )


def unpack_items(stream: Stream, packed: object) -> Items:
    """What a stored frame carries; CorruptStateError where that cannot be read."""
    kind, body = (packed[0], packed[1:]) if type(packed) is bytes and packed else (-1, b"")
    if kind == ANSWERED and len(body) == REQUEST_ID_BYTES:
        return Items(kind, (), body)
    if kind not in (EVENTS, RECORDS, EVENTS_AGAIN, RECORDS_AGAIN, LIVE, OFFERED) or len(body) % 8:
        stream.unreadable("the content of a staged frame")
    return Items(kind, struct.unpack(f">{len(body) // 8}Q", body))


def _follows(after: int | None, before: int | None) -> bool:
    """Whether an offer cursor goes on from the one before it; a stream has one in all of its frames or in none."""
    if after is None or before is None:
        return after is before
    return type(after) is int and after >= before


def _unpack_replaced(stream: Stream, packed: object) -> tuple[Replaced, ...]:
    try:
        entries: Any = cbor.decode_untrusted(packed)  # type: ignore[arg-type]
        return tuple(Replaced(*entry) for entry in entries)
    except (CodecError, TypeError):
        stream.unreadable("what the epoch goes on from")


def _is_bytes(value: object, length: int) -> bool:
    return type(value) is bytes and len(value) == length
