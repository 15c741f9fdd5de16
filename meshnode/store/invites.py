"""Rows of the invites that this node made (profile §10)."""

from __future__ import annotations

from dataclasses import dataclass, field

from meshnode import limits
from meshnode.store.database import Tx


@dataclass(frozen=True, slots=True)
class StoredInvite:
    """One invite: what it is worth is decided by its time, its tries and who used it."""

    invite_id: bytes
    secret: bytes = field(repr=False)
    expires_ms: int
    tries: int
    consumed_by: bytes | None

    def opens_for(self, public_key: bytes, now_ms: int) -> bool:
        """Whether a joiner with this key may go on; why it may not is nobody's business."""
        alive = now_ms <= self.expires_ms and self.tries < limits.INVITE_TRIES
        return alive and self.consumed_by in (None, public_key)


def add(tx: Tx, invite_id: bytes, secret: bytes, expires_ms: int) -> None:
    """Keep a new invite."""
    tx.execute(
        "INSERT INTO meshnode_invites (invite_id, secret, expires_ms) VALUES (?, ?, ?)", (invite_id, secret, expires_ms)
    )


def get(tx: Tx, invite_id: bytes) -> StoredInvite | None:
    """The invite with this id."""
    row = tx.execute(
        "SELECT invite_id, secret, expires_ms, tries, consumed_by FROM meshnode_invites WHERE invite_id = ?",
        (invite_id,),
    ).fetchone()
    return StoredInvite(*row) if row else None


def burn_try(tx: Tx, invite_id: bytes) -> None:
    """A wrong proof was given for this invite."""
    tx.execute("UPDATE meshnode_invites SET tries = tries + 1 WHERE invite_id = ?", (invite_id,))


def consume(tx: Tx, invite_id: bytes, public_key: bytes) -> None:
    """This joiner used the invite up; nobody else can any more."""
    tx.execute("UPDATE meshnode_invites SET consumed_by = ? WHERE invite_id = ?", (public_key, invite_id))


def remove_expired(tx: Tx, now_ms: int) -> None:
    """Forget invites that are past their time: from outside they look like unknown ones."""
    tx.execute("DELETE FROM meshnode_invites WHERE expires_ms < ?", (now_ms,))


def open_count(tx: Tx, now_ms: int) -> int:
    """How many invites somebody could still use for the first time."""
    row = tx.execute(
        "SELECT count(*) FROM meshnode_invites WHERE expires_ms >= ? AND tries < ? AND consumed_by IS NULL",
        (now_ms, limits.INVITE_TRIES),
    ).fetchone()
    return int(row[0])


def answered_until(tx: Tx) -> int | None:
    """The latest time at which some invite still answers: a new joiner, or the one that used it and lost the reply."""
    row = tx.execute("SELECT max(expires_ms) FROM meshnode_invites WHERE tries < ?", (limits.INVITE_TRIES,)).fetchone()
    return None if row[0] is None else int(row[0])
