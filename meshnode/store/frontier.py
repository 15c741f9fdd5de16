"""Rows of the causal frontier: one bounded counter per site seen as an authenticated peer (NEOTH; profile §8).

Evidence only: it decides nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

from meshnode.errors import CorruptStateError
from meshnode.limits import COUNTER_MAX, FRONTIER_SITES
from meshnode.store.database import Tx


def read(tx: Tx) -> dict[bytes, int]:
    """Every slot."""
    slots: dict[bytes, int] = dict(tx.execute("SELECT site, counter FROM meshnode_frontier").fetchall())
    if any(type(counter) is not int or counter < 0 for counter in slots.values()):
        raise CorruptStateError("the causal frontier in the database cannot be read")
    return slots


def admit(tx: Tx, local: bytes, peer: bytes) -> bool:
    """Give an authenticated peer its slot; False where all are taken. The local one is always reserved."""
    slots = read(tx)
    if peer in slots or peer == local:
        return True
    if len(slots) + (local not in slots) >= FRONTIER_SITES:
        return False
    tx.execute("INSERT INTO meshnode_frontier (site, counter) VALUES (?, 0)", (peer,))
    return True


def tick(slots: dict[bytes, int], local: bytes) -> dict[bytes, int]:
    """Count one newly staged batch; returns the clock that goes into it."""
    slots[local] = min(slots.get(local, 0) + 1, COUNTER_MAX)
    return {site: counter for site, counter in slots.items() if counter}


def write_local(tx: Tx, slots: Mapping[bytes, int], local: bytes) -> None:
    """Save what was counted."""
    tx.execute("INSERT OR REPLACE INTO meshnode_frontier (site, counter) VALUES (?, ?)", (local, slots[local]))


def merge(tx: Tx, local: bytes, clock: Mapping[bytes, int]) -> None:
    """Take what a committed batch knows of other sites; the local slot and sites never met are left alone."""
    if any(site != local for site in clock):
        tx.executemany(
            "UPDATE meshnode_frontier SET counter = max(counter, ?) WHERE site = ?",
            [(min(counter, COUNTER_MAX), site) for site, counter in clock.items() if site != local],
        )
