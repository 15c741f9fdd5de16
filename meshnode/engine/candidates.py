"""Joiners that hold an invite and wait for a person: who they are, and what was decided (profile §10, §13)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from meshnode.errors import CloseCode, NotFoundError, PairingError, UsageError
from meshnode.model.site import short_text, site_id_of, site_text
from meshnode.model.wording import quoted
from meshnode.store import invites
from meshnode.store.database import Tx
from meshnode.store.invites import StoredInvite

if TYPE_CHECKING:  # of no use to who only reads
    from meshnode.engine.context import Context


@dataclass(frozen=True, slots=True)
class Candidate:
    """Who proved to hold an invite; the name is what it calls itself."""

    invite_id: bytes
    public_key: bytes
    site: bytes
    name: str
    since_ms: int
    expires_ms: int

    @classmethod
    def of(cls, invite: StoredInvite) -> Candidate | None:
        """The candidate of an invite, decided about or not."""
        key = invite.candidate
        if key is None:
            return None
        name, since_ms = invite.candidate_name, invite.candidate_ms
        return cls(invite.invite_id, key, site_id_of(key), name, since_ms, invite.expires_ms)


def candidates(tx: Tx, now_ms: int) -> list[Candidate]:
    """Those that wait, the oldest first."""
    return [each for each in map(Candidate.of, invites.asking(tx, now_ms)) if each is not None]


def decide(context: Context, tx: Tx, named: str, *, approve: bool) -> Candidate:
    """A person said yes or no to the one of this site id, short id or name, in one transaction.

    Yes consumes the invite and vouches. No ends the invite: who holds it that should not could come again.
    """
    from meshnode.engine.invites import cannot_admit, consume  # of no use to who only reads

    candidate = _named(candidates(tx, context.env.wall_ms()), named)
    if not approve:
        invites.burn(tx, candidate.invite_id)
        return candidate
    cannot = cannot_admit(context, candidate.public_key)
    if cannot is not None:
        why = "it was retired from the mesh" if cannot is CloseCode.RETIRED else "this device may not let others in now"
        raise PairingError(f"{short_text(candidate.site)} cannot be let in: {why}")
    consume(context, tx, candidate.invite_id, candidate.public_key, candidate.name)
    return candidate


def _named(waiting: list[Candidate], named: str) -> Candidate:
    # Names are the joiners' own choice: one that looks like another's id must not stand in its way.
    found = [each for each in waiting if named in (short_text(each.site), site_text(each.site))]
    found = found or [each for each in waiting if each.name == named]
    if len({each.site for each in found}) > 1:
        raise UsageError(f"several that wait are called {quoted(named)}: say which by its site id")
    if not found:
        raise NotFoundError(f"nobody called {quoted(named)} waits to be let in: `meshnode status` shows who does")
    return found[0]
