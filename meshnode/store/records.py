"""Rows of stored vouches, roles and retirements, and of the keyring they add up to (profile §9)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from meshnode.store import meta
from meshnode.store.database import Tx

_POSITION: Final = "next_record_position"


class StoredRecord(NamedTuple):
    """One record that is kept, counting or not."""

    record_id: bytes
    data: bytes


class KeyringRow(NamedTuple):
    """One admitted site as the keyring keeps it: its key is a COSE_Key."""

    site: bytes
    cose_key: bytes
    name: str


def is_stored(tx: Tx, record_id: bytes) -> bool:
    """Whether this record is kept, verified or not."""
    return tx.execute("SELECT 1 FROM meshnode_records WHERE record_id = ?", (record_id,)).fetchone() is not None


def insert(tx: Tx, record_id: bytes, signer: bytes, data: bytes, *, verified: bool) -> None:
    """Keep one record at the next position; a position is never used again, not even after a removal."""
    position = meta.read_counter(tx, _POSITION)
    meta.write(tx, _POSITION, position + 1)
    tx.execute(
        "INSERT INTO meshnode_records (position, record_id, signer, verified, counts, record)"
        " VALUES (?, ?, ?, ?, 0, ?)",
        (position, record_id, signer, int(verified), data),
    )


def verified(tx: Tx) -> list[StoredRecord]:
    """Every record whose signature was verified: what the walk goes over."""
    rows = tx.execute("SELECT record_id, record FROM meshnode_records WHERE verified = 1 ORDER BY position")
    return [StoredRecord(*row) for row in rows]


def unverified_by(tx: Tx, signer: bytes) -> list[StoredRecord]:
    """The records of a signer whose key was not known when they came."""
    rows = tx.execute(
        "SELECT record_id, record FROM meshnode_records WHERE signer = ? AND verified = 0 ORDER BY position", (signer,)
    )
    return [StoredRecord(*row) for row in rows]


def unverified_count(tx: Tx) -> int:
    """How many records wait for a key, of all signers together."""
    return int(tx.execute("SELECT count(*) FROM meshnode_records WHERE verified = 0").fetchone()[0])


def unverified_signers(tx: Tx) -> set[bytes]:
    """The signers of the records that wait for a key."""
    return {row[0] for row in tx.execute("SELECT DISTINCT signer FROM meshnode_records WHERE verified = 0")}


def kept_count(tx: Tx, signer: bytes, *, counting: bool) -> int:
    """How many verified records of a signer are stored: those that do not count, or all of them."""
    row = tx.execute(
        "SELECT count(*) FROM meshnode_records WHERE signer = ? AND verified = 1 AND (counts = 0 OR ?)",
        (signer, counting),
    ).fetchone()
    return int(row[0])


def mark_verified(tx: Tx, record_id: bytes) -> None:
    """The signer's key appeared and the signature holds."""
    tx.execute("UPDATE meshnode_records SET verified = 1 WHERE record_id = ?", (record_id,))


def remove(tx: Tx, record_id: bytes) -> None:
    """Forget a record that turned out to be forged; its position stays used."""
    tx.execute("DELETE FROM meshnode_records WHERE record_id = ?", (record_id,))


def mark_counting(tx: Tx, before: frozenset[bytes], now: frozenset[bytes]) -> None:
    """Note which records count since the last walk; ids that are not stored do no harm."""
    tx.executemany("UPDATE meshnode_records SET counts = 0 WHERE record_id = ?", [(each,) for each in before - now])
    tx.executemany("UPDATE meshnode_records SET counts = 1 WHERE record_id = ?", [(each,) for each in now - before])


def counting_first(tx: Tx) -> list[bytes]:
    """The exact bytes of every stored record, those that count before the others, oldest first."""
    return [row[0] for row in tx.execute("SELECT record FROM meshnode_records ORDER BY counts DESC, position")]


def keyring_names(tx: Tx) -> dict[bytes, str]:
    """The admitted sites and their names as the keyring has them."""
    return dict(tx.execute("SELECT site, name FROM meshnode_keyring").fetchall())


def write_keyring(tx: Tx, rows: Iterable[KeyringRow], gone: Iterable[bytes]) -> None:
    """Add or replace the entries that changed and drop those of sites that fell."""
    tx.executemany("DELETE FROM meshnode_keyring WHERE site = ?", [(site,) for site in gone])
    tx.executemany("INSERT OR REPLACE INTO meshnode_keyring (site, cose_key, name) VALUES (?, ?, ?)", rows)


def rename(tx: Tx, site: bytes, name: str) -> None:
    """A later vouch gave an admitted site another name."""
    tx.execute("UPDATE meshnode_keyring SET name = ? WHERE site = ?", (name, site))
