"""What a node shows of letting devices in, invites and nearby ones (profile §10)."""

from __future__ import annotations

import msgspec


class PairingView(msgspec.Struct, frozen=True, kw_only=True):
    """Base of these views, as `views.View` is of the others: what a reader does not know it ignores."""


class InviteView(PairingView, frozen=True, kw_only=True):
    """An open invite. `invite` holds a secret: it is shown to the person who asked and goes nowhere else."""

    invite: str
    expires_ms: int
    addresses: list[str] = []
    id: str = ""  # names it without its secret (`Node.invited`)
    confirm: bool = False  # a person is asked about whoever comes with it

    def __repr__(self) -> str:
        return f"InviteView(invite=…, expires_ms={self.expires_ms}, addresses={self.addresses}, id={self.id!r})"


class CandidateView(PairingView, frozen=True, kw_only=True):
    """A device that proved to hold an invite; `name` is what it calls itself."""

    site: str
    short: str
    name: str
    since_ms: int = 0
    expires_ms: int = 0  # until then somebody can say yes


class OpenInviteView(PairingView, frozen=True, kw_only=True):
    """An invite that somebody may still come in by, without what opens it."""

    id: str
    expires_ms: int
    confirm: bool = False
    who: CandidateView | None = None  # who asks by it


class InvitedView(PairingView, frozen=True, kw_only=True):
    """What became of an invite."""

    state: str  # open, asks, joined, denied, withdrawn, burnt (by wrong proofs), expired
    who: CandidateView | None = None  # who asks, or joined, or was denied


class NearbyView(PairingView, frozen=True, kw_only=True):
    """Whether this device lets nearby ones pair without a string, and how far that is (profile §10)."""

    state: str  # closed, open, asks (digits are to be compared), agreed (the other person's word is missing), joined
    until_ms: int = 0  # while open
    addresses: list[str] = []  # where it can be reached for that, while open
    announced: str = ""  # `on`, or why it cannot be found by its name
    code: str = ""  # six digits, to be equal on both screens
    who: CandidateView | None = None  # who wants to join, or joined
    reason: str = ""  # why it is closed and nobody joined


class NearbyDeviceView(PairingView, frozen=True, kw_only=True):
    """A device on this network that was opened to nearby ones; nothing of it is proven."""

    name: str
    site: str
    short: str
    mesh_tag: str
    addresses: list[str]


class JoinView(PairingView, frozen=True, kw_only=True):
    """A mesh that this device just became a member of."""

    site: str
    short: str
    name: str
    mesh_tag: str
    home: str
    inviter: str
    inviter_name: str
