"""Rows of the invites that this node made (profile §10)."""

from __future__ import annotations

from dataclasses import dataclass, field

from meshnode import limits
from meshnode.store.database import Tx

_WITHDRAWN = limits.INVITE_TRIES + 1  # tries: wrong proofs never get there, since a burnt invite takes no more of them
_COLUMNS = "invite_id, secret, expires_ms, tries, consumed_by, confirm, candidate, candidate_name, candidate_ms"


@dataclass(frozen=True, slots=True)
class StoredInvite:
    """One invite: what it is worth is decided by its time, its tries and who used it.

    With `confirm`, the first joiner that proved to hold it is its `candidate` until a person decided.
    """

    invite_id: bytes
    secret: bytes = field(repr=False)
    expires_ms: int
    tries: int
    consumed_by: bytes | None
    confirm: bool
    candidate: bytes | None
    candidate_name: str
    candidate_ms: int

    def alive(self, now_ms: int) -> bool:
        """Whether it still answers anybody: in its time, not burnt by wrong proofs, its candidate not turned away."""
        return now_ms <= self.expires_ms and self.tries < limits.INVITE_TRIES

    def opens_for(self, public_key: bytes, now_ms: int) -> bool:
        """Whether a joiner with this key may go on; why it may not is nobody's business."""
        taken_by_another = self.consumed_by not in (None, public_key) or self.candidate not in (None, public_key)
        return self.alive(now_ms) and not taken_by_another

    def open(self, now_ms: int) -> bool:
        """Whether somebody can still come in by it for the first time."""
        return self.alive(now_ms) and self.consumed_by is None

    @property
    def withdrawn(self) -> bool:
        """Whether a person here took it back."""
        return self.tries >= _WITHDRAWN

    def asks(self, now_ms: int) -> bool:
        """Whether its candidate waits for a person."""
        return self.open(now_ms) and self.candidate is not None


def add(tx: Tx, invite_id: bytes, secret: bytes, expires_ms: int, *, confirm: bool = False) -> None:
    """Keep a new invite."""
    tx.execute(
        "INSERT INTO meshnode_invites (invite_id, secret, expires_ms, confirm) VALUES (?, ?, ?, ?)",
        (invite_id, secret, expires_ms, confirm),
    )


def get(tx: Tx, invite_id: bytes) -> StoredInvite | None:
    """The invite with this id."""
    row = tx.execute(f"SELECT {_COLUMNS} FROM meshnode_invites WHERE invite_id = ?", (invite_id,)).fetchone()  # noqa: S608
    return StoredInvite(*row) if row else None


def burn_try(tx: Tx, invite_id: bytes) -> None:
    """A wrong proof was given for this invite."""
    tx.execute("UPDATE meshnode_invites SET tries = tries + 1 WHERE invite_id = ?", (invite_id,))


def burn(tx: Tx, invite_id: bytes) -> None:
    """This invite lets nobody in any more."""
    tx.execute("UPDATE meshnode_invites SET tries = ? WHERE invite_id = ?", (limits.INVITE_TRIES, invite_id))


def withdraw(tx: Tx, invite_id: bytes) -> None:
    """This invite lets nobody in any more, since a person here said so."""
    tx.execute("UPDATE meshnode_invites SET tries = ? WHERE invite_id = ?", (_WITHDRAWN, invite_id))


def every_open(tx: Tx, now_ms: int) -> list[StoredInvite]:
    """Those that somebody could still use for the first time, the next to expire first."""
    rows = tx.execute(f"SELECT {_COLUMNS} FROM meshnode_invites ORDER BY expires_ms, invite_id").fetchall()  # noqa: S608
    return [invite for invite in (StoredInvite(*row) for row in rows) if invite.open(now_ms)]


def ask(tx: Tx, invite_id: bytes, public_key: bytes, name: str, now_ms: int) -> None:
    """This joiner proved to hold the invite: a person decides about it, and it is nobody else's meanwhile."""
    tx.execute(
        "UPDATE meshnode_invites SET candidate = ?, candidate_name = ?, candidate_ms = ? WHERE invite_id = ?",
        (public_key, name, now_ms, invite_id),
    )


def asking(tx: Tx, now_ms: int) -> list[StoredInvite]:
    """Those whose candidate waits for a person, the oldest first."""
    rows = tx.execute(
        f"SELECT {_COLUMNS} FROM meshnode_invites WHERE candidate IS NOT NULL ORDER BY candidate_ms, invite_id"  # noqa: S608
    ).fetchall()
    return [invite for invite in (StoredInvite(*row) for row in rows) if invite.asks(now_ms)]


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


def expired_count(tx: Tx, now_ms: int) -> int:
    """How many invites are still kept that expired before anybody used them."""
    row = tx.execute(
        "SELECT count(*) FROM meshnode_invites WHERE expires_ms < ? AND consumed_by IS NULL", (now_ms,)
    ).fetchone()
    return int(row[0])


def answered_until(tx: Tx) -> int | None:
    """The latest time at which some invite still answers: a new joiner, or the one that used it and lost the reply."""
    row = tx.execute("SELECT max(expires_ms) FROM meshnode_invites WHERE tries < ?", (limits.INVITE_TRIES,)).fetchone()
    return None if row[0] is None else int(row[0])
