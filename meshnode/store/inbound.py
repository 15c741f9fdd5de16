"""Rows of one receiving stream: high-water mark, stored acks, our unanswered requests (profile §8, "Receiver")."""

from __future__ import annotations

from meshnode.codec.digest import DIGEST_BYTES
from meshnode.errors import ProtocolError
from meshnode.limits import STORED_ACK_WINDOWS, WINDOW_FRAMES
from meshnode.model.delivery import Adopt, InboundStream, StoredAck
from meshnode.model.frames import EPOCH_BYTES, FEATURE_COVERING, FEATURE_OFFER, Ack, Request
from meshnode.model.frames_untrusted import decode_control_untrusted
from meshnode.store.database import Tx
from meshnode.store.delivery import Reads, Stream

ACKS_KEPT = STORED_ACK_WINDOWS * WINDOW_FRAMES
# What stored requests and acks may have in them; a session leaves out of a request what it may not say.
_STORED = frozenset({FEATURE_COVERING, FEATURE_OFFER})


def read_inbound(tx: Reads, stream: Stream) -> InboundStream | None:
    """What is held of the peer's stream with the acks that may have to be repeated; None before it opened one."""
    row = tx.execute(
        "SELECT epoch, next, link FROM meshnode_inbound WHERE site_no = ? AND path = ?", stream.key
    ).fetchone()
    if row is None:
        return None
    epoch, next_no, link = row
    if type(epoch) is not bytes or len(epoch) != EPOCH_BYTES or type(next_no) is not int or next_no < 1:
        stream.unreadable("the inbound high-water mark")
    rows = tx.execute(
        "SELECT no, digest, ack FROM meshnode_acks WHERE site_no = ? AND path = ? ORDER BY no", stream.key
    ).fetchall()
    acks = tuple(StoredAck(*each) for each in rows if each[2])
    if any(type(ack.digest) is not bytes or len(ack.digest) != DIGEST_BYTES for ack in acks):
        stream.unreadable("a stored ack")
    if next_no == 1:
        return InboundStream(epoch, next_no, b"", (), link)
    if not rows or rows[-1][0] != next_no - 1:
        stream.unreadable("the last stored ack")
    return InboundStream(epoch, next_no, rows[-1][1] or None, acks, link)


def read_checked(tx: Tx, stream: Stream) -> InboundStream | None:
    """The same, and every stored ack is one of the frame that it is stored for: it may be answered byte for byte."""
    held = read_inbound(tx, stream)
    for stored in held.acks if held else ():
        try:
            ack = decode_control_untrusted(stored.cbor, _STORED)
        except (ProtocolError, TypeError):
            stream.unreadable(f"the stored ack {stored.no}")
        if not isinstance(ack, Ack) or (ack.no, ack.digest) != (stored.no, stored.digest):
            stream.unreadable(f"the stored ack {stored.no}")
    return held


def adopt(tx: Tx, stream: Stream, opened: Adopt) -> None:
    """The peer opened another epoch; what was stored of the one before is over."""
    tx.execute(
        "INSERT OR REPLACE INTO meshnode_inbound (site_no, path, epoch, next, first, link) VALUES (?, ?, ?, ?, ?, ?)",
        (*stream.key, opened.epoch, opened.next, opened.next, opened.link),
    )
    tx.execute("DELETE FROM meshnode_acks WHERE site_no = ? AND path = ?", stream.key)
    if opened.next > 1:
        # Opened in the middle: there is a frame before, of which nothing is known.
        tx.execute(
            "INSERT INTO meshnode_acks (site_no, path, no, digest, ack) VALUES (?, ?, ?, x'', x'')",
            (*stream.key, opened.next - 1),
        )


def record(tx: Tx, stream: Stream, acks: list[StoredAck]) -> None:
    """Move the high-water mark past these frames and keep their acks, and the last ones before them."""
    tx.executemany(
        "INSERT INTO meshnode_acks (site_no, path, no, digest, ack) VALUES (?, ?, ?, ?, ?)",
        [(*stream.key, ack.no, ack.digest, ack.cbor) for ack in acks],
    )
    last = acks[-1].no
    tx.execute("DELETE FROM meshnode_acks WHERE site_no = ? AND path = ? AND no <= ?", (*stream.key, last - ACKS_KEPT))
    tx.execute("UPDATE meshnode_inbound SET next = ? WHERE site_no = ? AND path = ?", (last + 1, *stream.key))


def is_met(tx: Tx, stream: Stream) -> bool:
    """Whether the peer ever opened a stream to this node."""
    row = tx.execute("SELECT 1 FROM meshnode_inbound WHERE site_no = ? AND path = ?", stream.key).fetchone()
    return row is not None


def is_whole(tx: Tx, stream: Stream) -> bool:
    """Whether every frame of the current epoch came, from the first on."""
    row = tx.execute("SELECT first FROM meshnode_inbound WHERE site_no = ? AND path = ?", stream.key).fetchone()
    return row is not None and row[0] == 1


def requests(tx: Tx, stream: Stream) -> tuple[bytes, ...]:
    """CBOR of the request frames that the peer has not answered."""
    rows = tx.execute("SELECT body FROM meshnode_requests WHERE site_no = ? ORDER BY request_id", (stream.no,))
    bodies = [row[0] for row in rows.fetchall()]
    if any(read_request(body) is None for body in bodies):
        stream.unreadable("a request of this node")
    return tuple(bodies)


def doubts(tx: Tx, stream: Stream) -> list[tuple[Request | None, bool]]:
    """What the peer was asked for, None where that cannot be read; and whether only events by others may be missing."""
    rows = tx.execute("SELECT body, restored FROM meshnode_requests WHERE site_no = ?", (stream.no,))
    return [(read_request(body), bool(restored)) for body, restored in rows.fetchall()]


def read_request(body: object) -> Request | None:
    """A stored request of this node's, None where it cannot be read."""
    try:
        request = decode_control_untrusted(body, _STORED) if type(body) is bytes else None
    except ProtocolError:
        return None
    return request if isinstance(request, Request) else None


def remove_request(tx: Tx, stream: Stream, request_id: bytes) -> bool:
    """The peer answered; whether this node had asked."""
    cursor = tx.execute("DELETE FROM meshnode_requests WHERE site_no = ? AND request_id = ?", (stream.no, request_id))
    return bool(cursor.rowcount)
