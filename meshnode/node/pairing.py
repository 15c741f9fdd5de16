"""The pairing ceremony as two small state machines: frames in, frames or results out (profile §10)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto
from typing import TypeAlias

from meshnode.errors import CloseCode, PairingError, ProtocolError
from meshnode.limits import LABEL_BYTES, SKEW_MS
from meshnode.model.frames import Pair, Paired, PairHello, PairOpen, encode_frame
from meshnode.model.frames_untrusted import decode_pairing_untrusted
from meshnode.model.hlc import beyond_skew
from meshnode.model.introduction import walk_untrusted
from meshnode.model.invite import Invite
from meshnode.model.membership import Membership
from meshnode.model.pairing import Ends, Proof, inviter_proof_holds, joiner_mac, joiner_signature, transcript
from meshnode.model.site import SiteKey


@dataclass(frozen=True, slots=True)
class Named:
    """The joiner named an invite: may it go on?"""

    invite_id: bytes


@dataclass(frozen=True, slots=True)
class Claimed:
    """The joiner gave its proof: check it, consume the invite and store the vouch in one transaction."""

    invite_id: bytes
    proof: Proof
    name: str


@dataclass(frozen=True, slots=True)
class Joined:
    """The joiner is a member: what its store begins with."""

    records: tuple[bytes, ...]
    membership: Membership
    inviter_name: str


InviterStep: TypeAlias = Named | Claimed


class _Inviting(Enum):
    HELLO = auto()  # waits for pair-hello
    NAMED = auto()  # the invite is being looked up
    PAIR = auto()  # waits for pair
    CLAIMED = auto()  # the proof is being settled
    DONE = auto()


class Inviter:
    """The inviter's side. Everything it is told of the link comes from TLS, everything of invites from the store."""

    def __init__(self, ends: Ends, nonce: bytes) -> None:
        self._ends = ends
        self._nonce = nonce
        self._state = _Inviting.HELLO
        self._joiner_nonce = b""
        self._invite_id = b""

    def receive_untrusted(self, cbor: bytes) -> InviterStep:
        """One frame of the joiner's; ProtocolError where it is not the one that is due."""
        frame = decode_pairing_untrusted(cbor)
        if self._state is _Inviting.HELLO and isinstance(frame, PairHello):
            self._state = _Inviting.NAMED
            self._joiner_nonce, self._invite_id = frame.nonce, frame.invite
            return Named(frame.invite)
        if self._state is _Inviting.PAIR and isinstance(frame, Pair):
            self._state = _Inviting.CLAIMED
            t = transcript(self._ends, self._nonce, self._joiner_nonce)
            proof = Proof(self._ends, t, frame.public_key, frame.mac, frame.sig)
            return Claimed(self._invite_id, proof, frame.name)
        raise ProtocolError("a pairing frame that is not due")

    def opened(self) -> bytes:
        """The invite may be tried: `pair-open`."""
        self._advance(_Inviting.NAMED, _Inviting.PAIR)
        return encode_frame(PairOpen(nonce=self._nonce))

    def paired(self, mac: bytes, records: tuple[bytes, ...], name: str) -> bytes:
        """The vouch is on disk: `paired`."""
        self._advance(_Inviting.CLAIMED, _Inviting.DONE)
        return encode_frame(Paired(mac=mac, records=records, name=name))

    def _advance(self, expected: _Inviting, following: _Inviting) -> None:
        assert self._state is expected
        self._state = following


class _Joining(Enum):
    START = auto()
    OPEN = auto()  # waits for pair-open
    PAIRED = auto()  # waits for paired
    DONE = auto()


class Joiner:
    """The joiner's side. It believes `paired` only with the inviter's proof, and only if the records admit it."""

    def __init__(self, invite: Invite, ends: Ends, key: SiteKey, name: str, nonce: bytes) -> None:
        if len(name.encode()) > LABEL_BYTES:
            raise PairingError(f"a device name has at most {LABEL_BYTES} bytes")
        self._invite = invite
        self._ends = ends
        self._key = key
        self._name = name
        self._nonce = nonce
        self._transcript = b""
        self._state = _Joining.START

    def hello(self) -> bytes:
        """The first frame: which invite this is about."""
        assert self._state is _Joining.START
        self._state = _Joining.OPEN
        return encode_frame(PairHello(invite=self._invite.invite_id, nonce=self._nonce))

    def receive_untrusted(self, cbor: bytes, now_ms: int) -> bytes | Joined:
        """One frame of the inviter's: the next frame to send, or the result. ProtocolError or PairingError."""
        frame = decode_pairing_untrusted(cbor)
        if self._state is _Joining.OPEN and isinstance(frame, PairOpen):
            self._state = _Joining.PAIRED
            return self._pair(frame.nonce)
        if self._state is _Joining.PAIRED and isinstance(frame, Paired):
            self._state = _Joining.DONE
            return self._joined_untrusted(frame, now_ms)
        raise ProtocolError("a pairing frame that is not due")

    def _pair(self, nonce_i: bytes) -> bytes:
        self._transcript = transcript(self._ends, nonce_i, self._nonce)
        mac = joiner_mac(self._invite.secret, self._transcript)
        sig = joiner_signature(self._key, self._transcript)
        return encode_frame(Pair(public_key=self._key.public_key, name=self._name, mac=mac, sig=sig))

    def _joined_untrusted(self, frame: Paired, now_ms: int) -> Joined:
        if not inviter_proof_holds(self._invite.secret, self._transcript, frame.mac):
            raise PairingError("the other device does not know this invite's secret: nothing was accepted from it")
        membership = admitting_untrusted(
            frame.records, self._invite.mesh_id, self._invite.founder, self._key.site, now_ms
        )
        return Joined(tuple(frame.records), membership, frame.name)


def admitting_untrusted(
    records: Iterable[bytes], mesh_id: bytes, founder: bytes, own_site: bytes, now_ms: int
) -> Membership:
    """The membership that the records amount to; PairingError unless this device is a member by it, and can write."""
    membership = walk_untrusted(records, mesh_id=mesh_id, founder_key=founder)
    own = membership.by_site.get(own_site)
    if own is None or own.cutoff is not None:
        raise PairingError("the inviter's records do not make this device a member: ask for an invite by another one")
    if beyond_skew(own.vouched_at.physical, now_ms):
        behind_s = (own.vouched_at.physical - now_ms) // 1000
        raise PairingError(
            f"this device's clock is {behind_s} s behind the mesh's, more than the {SKEW_MS // 1000} s that are "
            "accepted: set it, then do the same again"
        )
    return membership


REFUSED = {
    CloseCode.NOT_AUTHENTICATED: "the inviter refused: the invite is used, expired or not for this mesh; "
    "make a new one there with `meshnode invite`",
    CloseCode.RETIRED: "this device was retired from the mesh and cannot come back with its old key: "
    "start with a new home folder",
}
"""What to tell the person at the joiner when the inviter closed with a code; it never learns more than that."""
SAID_NO = "the inviter refused: somebody said no there, or the invite was used or expired meanwhile; ask for a new one"
"""The same where somebody there was asked."""
