"""What a session asks of its driver: frozen values, carried out in the order given (profile §8).

The jobs (`Advance`, `Resend`, `NewEpoch`, `Answer`, `Commit`) are each one store transaction on the writer thread and
are answered by the input named in their docstring. `session` says how a driver runs them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from meshnode.errors import CloseCode
from meshnode.limits import BATCH_EVENTS
from meshnode.model.delivery import Adopt, Received, Settlement
from meshnode.model.frames import CompareFrame, Hello, Request, WatermarkEntry
from meshnode.model.hlc import Hlc
from meshnode.model.scope import Scope

RewindPoint: TypeAlias = Literal["genesis", "settled"]
"""Where a new epoch starts: from the beginning of the log, or at the last settled cursor."""


@dataclass(frozen=True, slots=True)
class SendControl:
    """Length-prefixed bytes for the control stream."""

    data: bytes


@dataclass(frozen=True, slots=True)
class SendEvents:
    """Length-prefixed bytes for our event stream."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Advance:
    """Settle these acks and stage at most `room` further frames of `batch` events, in one transaction.

    Besides, at most `live_room` frames of events beyond `live_after`, ahead of the others. Answer: `advanced`.
    """

    epoch: bytes
    settled: tuple[Settlement, ...]
    known_no: int  # the highest frame number that the session knows
    room: int
    retry: bool  # a new cycle: what the peer rejected is offered again
    watermarks: bool  # tell the watermarks if nothing is left to stage
    batch: int = BATCH_EVENTS
    live_after: int = 0
    live_room: int = 0
    linked: frozenset[bytes] | None = None  # whom the peer says it is linked to; None before it said so
    offer_to: int = 0  # events of others up to this position are to be offered now, whoever wrote them


@dataclass(frozen=True, slots=True)
class Resend:
    """Load the staged frames from this number on, byte for byte. Answer: `resent`."""

    epoch: bytes
    from_no: int


@dataclass(frozen=True, slots=True)
class NewEpoch:
    """Discard what is staged and begin another epoch. Answer: `epoch_opened`."""

    expected: bytes | None  # the epoch that it replaces, None where there is none yet
    at: RewindPoint


@dataclass(frozen=True, slots=True)
class Answer:
    """Queue durably what the peer asked for. Answer: `answer_stored`."""

    request: Request


@dataclass(frozen=True, slots=True)
class Commit:
    """Commit these frames in one transaction, then what the peer claims. Answer: `committed`, once it is on disk."""

    adopt: Adopt | None  # first make this epoch the current one
    epoch: bytes
    frames: tuple[Received, ...]
    claims: tuple[WatermarkEntry, ...] = ()  # watermarks whose frames are all committed with this


@dataclass(frozen=True, slots=True)
class Introduced:
    """A site that is no member yet shows the records that make it one (profile §7)."""

    records: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class PeerHello:
    """The peer's hello was read and holds; HLCs beyond the skew bound are already taken out of it."""

    hello: Hello
    scope: Scope  # what the peer wants: the filter of every sending job on this link
    clock_offset_ms: int  # the peer's wall clock minus ours
    features: frozenset[str] = frozenset()  # agreed: how every sending job on this link sends


@dataclass(frozen=True, slots=True)
class RolledBack:
    """We were restored from an old copy: our own history is to be asked for (profile §8).

    `claimed` is a later event of this very site than we know; None where the peer only holds more of our stream than
    we sent by our own account, which may have been lost without any later event to tell.
    """

    claimed: Hlc | None
    everything: bool = False  # it does not offer us what our lost stream told it that we had: ask for all of it


@dataclass(frozen=True, slots=True)
class PeerWatermarks:
    """How far the peer says it has applied what it knows; evidence only, see `Session.peer_watermarks`."""

    entries: int


@dataclass(frozen=True, slots=True)
class PeerCompares:
    """A frame of a comparison (feature `verify`): it is no part of delivery, and whoever compares reads it."""

    frame: CompareFrame


@dataclass(frozen=True, slots=True)
class PeerBye:
    """The peer is leaving; nothing further is sent to it."""

    code: int
    reason: str


@dataclass(frozen=True, slots=True)
class Notice:
    """A condition to surface under this kind, put down to the peer (profile §6)."""

    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Close:
    """Close the link; always the last effect, and the session is of no further use."""

    code: CloseCode
    reason: str


Effect: TypeAlias = (
    SendControl
    | SendEvents
    | Advance
    | Resend
    | NewEpoch
    | Answer
    | Commit
    | Introduced
    | PeerHello
    | RolledBack
    | PeerWatermarks
    | PeerCompares
    | PeerBye
    | Notice
    | Close
)
