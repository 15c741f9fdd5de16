"""Where a row leaves traces besides its table, its state and the log: frames in flight, changes, notices (NEOTH)."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence

from meshnode.codec import cbor
from meshnode.errors import ProtocolError
from meshnode.model.frames import FEATURE_DEFLATE, Batch
from meshnode.model.frames_untrusted import decode_events_untrusted
from meshnode.store import changes
from meshnode.store.database import Tx
from meshnode.store.delivery import EVENTS, EVENTS_AGAIN, OFFERED, Stream, unpack_items
from meshnode.store.notices import OTHER_TABLES

_CARRY_EVENTS = (EVENTS, EVENTS_AGAIN, OFFERED)
_DEFLATED = cbor.encode("deflated")
BLANKED = "(removed: a row was forgotten)"


def events_about(tx: Tx, table_no: int, key_bytes: bytes) -> Iterator[tuple[int, int, int, bytes]]:
    """`(position, site number, state, bytes)` of the table's events that hold these key bytes, and perhaps others."""
    found = tx.execute(
        "SELECT position, site_no, state, event FROM meshnode_log WHERE table_no = ? AND instr(event, ?) > 0",
        (table_no, key_bytes),
    )
    yield from found


def streams_in_flight(tx: Tx, positions: Container[int], key_bytes: bytes) -> list[Stream]:
    """The streams with a frame in flight that carries one of these positions, or holds these key bytes."""
    found = tx.execute(
        "SELECT s.site, f.site_no, f.path, f.items, instr(f.frame, ?) > 0,"
        " CASE WHEN instr(f.frame, ?) > 0 THEN f.frame END"
        " FROM meshnode_staged AS f JOIN meshnode_sites AS s ON s.no = f.site_no",
        (key_bytes, _DEFLATED),
    )
    streams = {}
    for site, site_no, path, packed, holds, deflated in found:
        stream = Stream(site, site_no, path)
        items = unpack_items(stream, packed)
        carries = items.kind in _CARRY_EVENTS and any(each in positions for each in items.positions)
        if holds or carries or (deflated is not None and _holds(deflated, key_bytes)):
            streams[stream.key] = stream
    return list(streams.values())


def _holds(frame: bytes, key_bytes: bytes) -> bool:
    """Whether a deflated batch of ours has these bytes in an event."""
    try:
        batch = decode_events_untrusted(frame, frozenset({FEATURE_DEFLATE}))
    except ProtocolError:
        return True  # it cannot be read, so it cannot be said to be clean
    return isinstance(batch, Batch) and any(key_bytes in event for event in batch.events)


def remove_changes(tx: Tx, table_no: int, key_bytes: bytes) -> None:
    """The change sequence says nothing of the row any more."""
    found = tx.execute(
        "SELECT seq, change FROM meshnode_changes WHERE table_no = ? AND instr(change, ?) > 0", (table_no, key_bytes)
    )
    gone = [(seq,) for seq, change in found if changes.unpack(change).key_bytes == key_bytes]
    tx.executemany("DELETE FROM meshnode_changes WHERE seq = ?", gone)


def blank_notices(tx: Tx, table: str, words: Sequence[str]) -> None:
    """Samples of the table's notices go, and shared ones that hold any of these words."""
    found = tx.execute(
        "SELECT no, table_name, sample FROM meshnode_notices WHERE table_name IN (?, ?, '')", (table, OTHER_TABLES)
    )
    named = [(BLANKED, no) for no, name, sample in found if name == table or any(word in sample for word in words)]
    tx.executemany("UPDATE meshnode_notices SET sample = ? WHERE no = ?", named)
