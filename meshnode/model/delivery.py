"""What the delivery store and a session tell each other: streams, staged frames, acks as plain values (profile §8)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from meshnode.limits import BATCH_BYTES, BATCH_EVENTS
from meshnode.model.frames import Answered, Batch, Live, Offer, Records, WatermarkEntry
from meshnode.model.hlc import ZERO, Hlc

PATH: Final = "quic"
"""The transport path of every link so far; cursors are kept per (peer, path) (SSP/1 §14.1)."""

Content: TypeAlias = Batch | Live | Offer | Records | Answered
"""A numbered frame of the event stream."""


GroupName: TypeAlias = tuple[bytes, str, str]
"""Authoring site, schema and table: the unit of watermarks (profile §1)."""


class Told(NamedTuple):
    """How far a peer said that it has applied a group, and when it said so."""

    hlc: Hlc
    told_ms: int


_LOAD_BYTES: Final = BATCH_BYTES // BATCH_EVENTS


def load_of(items: int, size: int) -> int:
    """What a frame of so many events and bytes costs to take in, in events of ordinary size."""
    return max(items, size // _LOAD_BYTES, 1)


@dataclass(frozen=True, slots=True)
class Staged:
    """A frame in flight as the sender remembers it; its bytes stay in the store."""

    no: int
    digest: bytes
    items: int  # how many events or records it carries or offers: what an index in its ack may name
    live: bool = False  # a frame that went ahead of a backlog (feature `live`)
    offers: bool = False  # whether it only offers them


@dataclass(frozen=True, slots=True)
class Replaced:
    """Where a peer may stand in an earlier epoch for the current one to go on: its last frame there, 0 none."""

    epoch: bytes
    no: int
    digest: bytes


@dataclass(frozen=True, slots=True)
class StagedFrame:
    """A frame in flight with its exact CBOR bytes."""

    staged: Staged
    cbor: bytes

    @property
    def load(self) -> int:
        """What it costs the peer to take in, in events."""
        return load_of(self.staged.items, len(self.cbor))


@dataclass(frozen=True, slots=True)
class OutboundStream:
    """One delivery stream to a peer as it is on disk."""

    epoch: bytes
    settled_no: int
    settled_digest: bytes  # of the last settled frame, empty while there is none
    staged: tuple[Staged, ...]  # unsettled, in order
    rewound_ms: int  # wall clock of the last rewind to genesis, 0 never
    replaces: tuple[Replaced, ...] = ()  # earlier epochs that this one went on from, while nothing of it is settled


@dataclass(frozen=True, slots=True)
class Settlement:
    """An ack that matched: this frame is settled, and these of its items are to be sent again, or first."""

    no: int
    digest: bytes
    rejected: tuple[int, ...]
    wanted: tuple[int, ...] = ()
    hlc: Hlc | None = None  # the peer's clock after it committed the frame
    dropped: int = 0  # events of the frame that it did not keep


@dataclass(frozen=True, slots=True)
class Advanced:
    """What settling and staging left behind."""

    settled_no: int
    frames: tuple[StagedFrame, ...]  # every staged frame that the session did not know yet
    more: bool  # there is more to stage than there was room
    watermarks: tuple[WatermarkEntry, ...] | None = None  # where asked for and nothing is left to stage
    live_after: int = 0  # log position up to which events went ahead of the backlog, or are left to it
    seen_to: int = 0  # end of the log, where the stream offers
    waiting: bool = False  # whether events of others wait to be offered


@dataclass(frozen=True, slots=True)
class StoredAck:
    """The recorded digest of a committed frame and the ack that answered it, byte for byte."""

    no: int
    digest: bytes
    cbor: bytes


@dataclass(frozen=True, slots=True)
class InboundStream:
    """What this node holds of a peer's stream; `digest` is that of frame `next - 1`, None where it is not known."""

    epoch: bytes
    next: int
    digest: bytes | None
    acks: tuple[StoredAck, ...] = ()
    link: int = 0  # the link that adopted the epoch


@dataclass(frozen=True, slots=True)
class Adopt:
    """The peer opened another epoch: it becomes the current one (profile §8)."""

    epoch: bytes
    next: int
    link: int = 0  # `LinkState.link`: work of an older link that comes late must not undo what a newer one adopted


@dataclass(frozen=True, slots=True)
class Received:
    """A numbered frame accepted in order, with the digest of its exact bytes."""

    no: int
    digest: bytes
    content: Content

    @property
    def load(self) -> int:
        """What it costs to take in, in events."""
        match self.content:
            case Batch(events=data) | Live(events=data) | Records(records=data):
                return load_of(len(data), sum(map(len, data)))
        return 1


@dataclass(frozen=True, slots=True)
class Committed:
    """What one receiving transaction left on disk; the acks may be sent now."""

    epoch: bytes
    next: int
    acks: tuple[StoredAck, ...]
    added: bool = False  # whether log, records or watermarks grew: other peers' sessions want to know
    offered: bool = False  # whether the peer offered anything: what it has needs no offer of ours
    claimed: bool = False  # whether watermarks rose to what the peer told
    membership_changed: bool = False
    answered: tuple[bytes, ...] = ()  # ids of requests of ours that the peer answered
    own_ahead: Hlc | None = None  # a later event of this node's own than it knows, by what the peer claims
    own_newest: Hlc = ZERO  # of this node's own events, where the peer answered anything


@dataclass(frozen=True, slots=True)
class LinkState:
    """All that a new session needs of the store, read in one transaction."""

    outbound: OutboundStream | None
    inbound: InboundStream | None
    past_epochs: Mapping[bytes, int] = field(default_factory=dict)  # earlier epochs of ours, the last frame of each
    requests: tuple[bytes, ...] = ()  # CBOR of what this node still asks of the peer
    incarnation: bytes = bytes(16)
    hlc: Hlc = ZERO
    max_hlc: tuple[tuple[bytes, Hlc], ...] = ()
    own_newest: Hlc = ZERO  # of this very node's events, those that it keeps to itself too
    link: int = 0  # links of this node, counted
    outbound_fault: str | None = None  # why our stream to this peer is stopped (NEOTH commit contract)
