"""Whether this copy of a database may offer anything to others (profile §8, "incarnation")."""

from __future__ import annotations

from typing import Final

from meshnode.store import meta
from meshnode.store.database import Tx

TWIN: Final = "twin"  # when somebody saw this site live twice


def may_publish(tx: Tx, beside: bytes | None) -> bool:
    """Whether it is known which copy this is; `beside` is the incarnation kept beside the key."""
    return bool(meta.read(tx, meta.INCARNATION) == beside) and meta.read(tx, TWIN) is None
