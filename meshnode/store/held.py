"""What each site holds of our disk for tables that do not exist, and what was ignored or forgotten (profile §6)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from meshnode.codec.digest import blake3_256
from meshnode.limits import IGNORED_COLUMNS_PER_TABLE
from meshnode.store.database import Tx

OTHER_COLUMNS: Final = ""
"""The shared name of ignored columns past the bound; no event can name it."""


def held_bytes(tx: Tx, site_no: int) -> int:
    """Bytes of events that a site has held here."""
    row = tx.execute("SELECT sum(bytes) FROM meshnode_held WHERE site_no = ?", (site_no,)).fetchone()
    return int(row[0] or 0)


def has_held(tx: Tx, site_no: int, table_no: int) -> bool:
    """Whether any event of the group is held."""
    row = tx.execute(
        "SELECT 1 FROM meshnode_held WHERE site_no = ? AND table_no = ? AND events > 0", (site_no, table_no)
    ).fetchone()
    return row is not None


def add_held(tx: Tx, amounts: Mapping[tuple[int, int], tuple[int, int]]) -> None:
    """Add `(events, bytes)` per (site, table)."""
    tx.executemany(
        "INSERT INTO meshnode_held VALUES (?, ?, ?, ?) "
        "ON CONFLICT (site_no, table_no) DO UPDATE "
        "SET events = events + excluded.events, bytes = bytes + excluded.bytes",
        [(site_no, table_no, events, size) for (site_no, table_no), (events, size) in amounts.items()],
    )


def remove_held(tx: Tx, site_no: int, table_no: int, events: int, size: int) -> None:
    """Some of what a site had held here was removed."""
    tx.execute(
        "UPDATE meshnode_held SET events = max(events - ?, 0), bytes = max(bytes - ?, 0) "
        "WHERE site_no = ? AND table_no = ?",
        (events, size, site_no, table_no),
    )


def meter_again(tx: Tx) -> None:
    """Forget what was metered of held events, and count all of them."""
    tx.execute("DELETE FROM meshnode_held")
    tx.execute(
        "INSERT INTO meshnode_held (site_no, table_no, events, bytes)"
        " SELECT site_no, table_no, count(*), sum(length(event)) FROM meshnode_log WHERE state = 1 GROUP BY 1, 2"
    )


def release_table(tx: Tx, table_no: int) -> None:
    """Nothing of the table is held any more."""
    tx.execute("DELETE FROM meshnode_held WHERE table_no = ?", (table_no,))


def meter_ignored(tx: Tx, counts: Mapping[tuple[int, str], int], now_ms: int) -> None:
    """Count payload columns that no column took (SSP/1 §13.6); names past the bound share one row."""
    known: dict[int, set[str]] = {}
    folded: Counter[tuple[int, str]] = Counter()
    for (table_no, name), count in counts.items():
        names = known.get(table_no)
        if names is None:
            found = tx.execute("SELECT column_name FROM meshnode_ignored WHERE table_no = ?", (table_no,))
            names = known[table_no] = {row[0] for row in found}
        if name not in names and len(names) >= IGNORED_COLUMNS_PER_TABLE:
            name = OTHER_COLUMNS
        names.add(name)
        folded[(table_no, name)] += count
    tx.executemany(
        "INSERT INTO meshnode_ignored VALUES (?, ?, ?, ?, ?) "
        "ON CONFLICT (table_no, column_name) DO UPDATE SET count = count + excluded.count, last_ms = excluded.last_ms",
        [(table_no, name, count, now_ms, now_ms) for (table_no, name), count in folded.items()],
    )


def ignored_since(tx: Tx, table_no: int, first_ms: int, last_ms: int) -> list[str]:
    """The columns of a table that were ignored at `last_ms`, and already at `first_ms` or before."""
    found = tx.execute(
        "SELECT column_name FROM meshnode_ignored WHERE table_no = ? AND first_ms <= ? AND last_ms >= ? ORDER BY 1",
        (table_no, first_ms, last_ms),
    )
    return [name or "(others)" for (name,) in found]


def is_forgotten(tx: Tx, table_no: int, key_bytes: bytes) -> bool:
    """Whether this row was forgotten here (NEOTH content and privacy)."""
    row = tx.execute(
        "SELECT 1 FROM meshnode_forgotten WHERE table_no = ? AND key = ?", (table_no, blake3_256(key_bytes))
    ).fetchone()
    return row is not None


def forget(tx: Tx, table_no: int, key_bytes: bytes) -> None:
    """Note that events of this row are dropped from now on; the key itself is not kept."""
    tx.execute("INSERT OR IGNORE INTO meshnode_forgotten VALUES (?, ?)", (table_no, blake3_256(key_bytes)))


def unforget(tx: Tx, table_no: int, key_bytes: bytes) -> bool:
    """Events of this row are applied again from now on; whether it had been forgotten.

    A receipt does not say whose row it is of, so all of them go: an offer (profile §14) that one declined would never
    bring the event. Those of rows that stay forgotten are made again when their events come once more.
    """
    sql = "DELETE FROM meshnode_forgotten WHERE table_no = ? AND key = ?"
    if not tx.execute(sql, (table_no, blake3_256(key_bytes))).rowcount:
        return False
    tx.execute("DELETE FROM meshnode_receipts")
    return True


def any_forgotten(tx: Tx, table_no: int) -> bool:
    """Whether any row of the table is forgotten."""
    sql = "SELECT 1 FROM meshnode_forgotten WHERE table_no = ? LIMIT 1"
    return tx.execute(sql, (table_no,)).fetchone() is not None


def keep_receipts(tx: Tx, event_ids: Iterable[bytes]) -> None:
    """Keep the ids of dropped events of forgotten rows, nothing else of them."""
    tx.executemany("INSERT OR IGNORE INTO meshnode_receipts VALUES (?)", [(each,) for each in event_ids])


def has_receipt(tx: Tx, short_id: bytes) -> bool:
    """Whether an event whose id begins so was forgotten here."""
    row = tx.execute(
        "SELECT event_id FROM meshnode_receipts WHERE event_id >= ? ORDER BY event_id LIMIT 1", (short_id,)
    ).fetchone()
    return row is not None and bytes(row[0]).startswith(short_id)
