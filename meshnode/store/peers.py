"""What each peer last said of itself, and the addresses at which it answered (profile §8, §11)."""

from __future__ import annotations

from typing import NamedTuple

from meshnode.limits import ADDRESSES_PER_SITE
from meshnode.store.database import Tx

OFFSET_MAX_MS = 2**62


class PeerRow(NamedTuple):
    """One peer that said hello at least once."""

    site: bytes
    name: str
    software: str
    last_seen_ms: int
    clock_offset_ms: int


def heard(tx: Tx, row: PeerRow) -> None:
    """Keep what a peer's hello said; a clock offset that no column can hold is as wrong as the largest that one can."""
    offset = max(-OFFSET_MAX_MS, min(row.clock_offset_ms, OFFSET_MAX_MS))
    row = row._replace(clock_offset_ms=offset)
    tx.execute("INSERT OR REPLACE INTO meshnode_peers VALUES (?, ?, ?, ?, ?)", row)


def all_heard(tx: Tx) -> dict[bytes, PeerRow]:
    """Every peer that ever said hello."""
    found = tx.execute("SELECT site, name, software, last_seen_ms, clock_offset_ms FROM meshnode_peers")
    return {row[0]: PeerRow(*row) for row in found}


def worked(tx: Tx, site: bytes, address: str, now_ms: int) -> None:
    """An address led to this site: keep it, and only the latest of them (profile §11)."""
    tx.execute("INSERT OR REPLACE INTO meshnode_addresses VALUES (?, ?, ?)", (site, address, now_ms))
    tx.execute(
        "DELETE FROM meshnode_addresses WHERE site = ? AND address NOT IN "
        "(SELECT address FROM meshnode_addresses WHERE site = ? ORDER BY last_ok_ms DESC LIMIT ?)",
        (site, site, ADDRESSES_PER_SITE),
    )


def addresses(tx: Tx) -> dict[bytes, list[str]]:
    """Addresses that worked, per site, the latest first."""
    kept: dict[bytes, list[str]] = {}
    for site, address in tx.execute("SELECT site, address FROM meshnode_addresses ORDER BY last_ok_ms DESC, address"):
        kept.setdefault(site, []).append(address)
    return kept
