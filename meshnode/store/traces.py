"""Where a row leaves traces besides its table, its state and the log: frames in flight, changes, notices (NEOTH).

And, once all of them are deleted, in free pages of the database file and in its WAL: what is still to be done about
those is noted with the forgetting itself.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from typing import Final

from meshnode.codec import cbor
from meshnode.errors import ProtocolError
from meshnode.model.frames import FEATURE_DEFLATE, Batch
from meshnode.model.frames_untrusted import decode_events_untrusted
from meshnode.store import changes, meta
from meshnode.store.database import Tx
from meshnode.store.delivery import Stream, unpack_items
from meshnode.store.notices import OTHER_TABLES
from meshnode.store.reoffers import EVENT, kind_of

_DEFLATED: Final = cbor.encode("deflated")
BLANKED = "(removed: a row was forgotten)"

REWRITE: Final = "rewrite"  # the file is to be written anew, and then the WAL to be emptied
EMPTY_WAL: Final = "empty the WAL"  # what is deleted is in old pages only, which the WAL is to be put over

_ERASURE: Final = "erasure"


def erasure_due(tx: Tx) -> str | None:
    """What is to be done until no file holds a trace of a forgotten row: `REWRITE`, `EMPTY_WAL`, or nothing."""
    due: str | None = meta.read(tx, _ERASURE)
    return due


def note_erasure(tx: Tx, due: str) -> None:
    """Keep what is still to be done."""
    meta.write(tx, _ERASURE, due)


def erasure_done(tx: Tx) -> None:
    """Nothing is left in any file."""
    meta.remove(tx, _ERASURE)


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
        carries = kind_of(items) == EVENT and any(each in positions for each in items.positions)
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
        "SELECT no, kind, table_name, sample FROM meshnode_notices WHERE table_name IN (?, ?, '')",
        (table, OTHER_TABLES),
    )
    named = [
        (BLANKED, no)
        for no, kind, name, sample in found
        # What is wrong with the table itself tells of no row, unless by chance.
        if (name == table and kind != "table-unusable") or any(word in sample for word in words)
    ]
    tx.executemany("UPDATE meshnode_notices SET sample = ? WHERE no = ?", named)
