"""What each peer last said of itself, and the addresses at which it answered (profile §8, §11)."""

from __future__ import annotations

from typing import NamedTuple

from meshnode.codec import cbor
from meshnode.errors import CodecError, CorruptStateError, ProtocolError
from meshnode.limits import ADDRESSES_PER_SITE
from meshnode.model.scope import Scope, parse_scope_untrusted
from meshnode.model.site import short_text
from meshnode.store.database import Tx

OFFSET_MAX_MS = 2**62


class PeerRow(NamedTuple):
    """One peer that said hello at least once."""

    site: bytes
    name: str
    software: str
    last_seen_ms: int
    clock_offset_ms: int


def heard(tx: Tx, row: PeerRow, scope: Scope) -> None:
    """Keep what a peer's hello said; a clock offset that no column can hold is as wrong as the largest that one can."""
    offset = max(-OFFSET_MAX_MS, min(row.clock_offset_ms, OFFSET_MAX_MS))
    tx.execute(
        "INSERT OR REPLACE INTO meshnode_peers (site, name, software, last_seen_ms, clock_offset_ms, scope)"
        " VALUES (?, ?, ?, ?, ?, ?)",
        (*row[:4], offset, cbor.encode(list(scope.patterns))),
    )


def wrote(tx: Tx, row: PeerRow, scope: Scope) -> None:
    """Keep what a bundle of a peer said; of one that ever linked, that link tells when it was seen, and its clock."""
    tx.execute(
        "INSERT INTO meshnode_peers (site, name, software, last_seen_ms, clock_offset_ms, scope)"
        " VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (site) DO UPDATE SET"
        " name = excluded.name, software = excluded.software, scope = excluded.scope",
        (*row, cbor.encode(list(scope.patterns))),
    )


def seen(tx: Tx, site: bytes, now_ms: int) -> None:
    """A link to a peer that had said hello ended."""
    tx.execute("UPDATE meshnode_peers SET last_seen_ms = ? WHERE site = ?", (now_ms, site))


def all_heard(tx: Tx) -> dict[bytes, PeerRow]:
    """Every peer that ever said hello."""
    found = tx.execute("SELECT site, name, software, last_seen_ms, clock_offset_ms FROM meshnode_peers")
    return {row[0]: PeerRow(*row) for row in found}


def scope_of(tx: Tx, site: bytes) -> Scope:
    """What a peer wants, as its last hello said it; everything while it never did."""
    row = tx.execute("SELECT scope FROM meshnode_peers WHERE site = ?", (site,)).fetchone()
    if row is None:
        return Scope()
    try:
        patterns = cbor.decode_untrusted(row[0])
        return parse_scope_untrusted(patterns if isinstance(patterns, list) else [patterns])
    except (CodecError, ProtocolError) as error:
        raise CorruptStateError(
            f"what peer {short_text(site)} wants cannot be read ({error}): it is kept anew when the peer links again"
        ) from error


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
