"""What the database remembers of peers when the network starts: whom it met, where, and until when it invites."""

from __future__ import annotations

from dataclasses import dataclass

from meshnode.store import invites, peers
from meshnode.store.database import Tx


@dataclass(frozen=True, slots=True)
class Remembered:
    """As it was when the last run ended."""

    met: frozenset[bytes]
    addresses: dict[bytes, list[str]]
    answer_until: int  # pairing is answered until then


def remembered(tx: Tx) -> Remembered:
    """Read it."""
    return Remembered(frozenset(peers.all_heard(tx)), peers.addresses(tx), invites.answered_until(tx) or 0)
