"""The frames of the control and event streams and of pairing, as frozen values, and their bytes (profile §8, §10).

How a peer's bytes become one of them is in `frames_untrusted.py`.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from meshnode.codec import cbor
from meshnode.codec.digest import blake3_256
from meshnode.model.comparison import TableTold
from meshnode.model.hlc import Hlc

VERSION: Final = 1
EPOCH_BYTES: Final = 8
REQUEST_ID_BYTES: Final = 8
BOOT_BYTES: Final = 8
INCARNATION_BYTES: Final = 16
NONCE_BYTES: Final = 16
INVITE_ID_BYTES: Final = 8
MAC_BYTES: Final = 32

OFFERED_ID_BYTES: Final = 16

FEATURE_DEFLATE: Final = "deflate"
FEATURE_COVERING: Final = "covering"  # a table may be asked for without its history
FEATURE_LIVE: Final = "live"
FEATURE_OFFER: Final = "offer"
FEATURE_VERIFY: Final = "verify"
FEATURES: Final = (FEATURE_DEFLATE, FEATURE_COVERING, FEATURE_LIVE, FEATURE_OFFER, FEATURE_VERIFY)
"""What this implementation lists in its hello."""

WHAT_TABLE: Final = "table"
WHAT_SITE: Final = "site"


class Frame(msgspec.Struct, frozen=True):
    """Base of all frames; `tag` is the value of the key `t`."""


class Inbound(msgspec.Struct, frozen=True):
    """What a side holds of the other's event stream; `digest` is that of frame `next - 1`, empty when `next` is 1."""

    epoch: bytes
    next: int
    digest: bytes


class Hello(Frame, frozen=True, tag="hello"):
    """First on each side's half of the control stream."""

    site: bytes
    name: str
    software: str
    incarnation: bytes
    boot: bytes
    wall: int
    hlc: Hlc
    scope: tuple[str, ...]
    features: tuple[str, ...]
    inbound: Inbound | None
    max_hlc: dict[bytes, Hlc]
    v: int = VERSION


class Ack(Frame, frozen=True, tag="ack"):
    """Frame `no` is on disk; `rejected` are indexes into its events or records that are to be offered again.

    `wanted` are the indexes of an offer whose events are not committed here; None in the ack of any other frame.
    """

    epoch: bytes
    no: int
    digest: bytes
    hlc: Hlc
    rejected: tuple[int, ...]
    held: int
    dropped: int
    wanted: tuple[int, ...] | None = None


class Nak(Frame, frozen=True, tag="nak"):
    """A frame that was not the next one; `expected` 0 where the epoch is not current."""

    epoch: bytes
    expected: int
    reason: str


class After(msgspec.Struct, frozen=True):
    """The last frame that the sender of watermarks had staged; `no` 0: none."""

    epoch: bytes
    no: int


class WatermarkEntry(NamedTuple):
    """The highest HLC applied of one group."""

    site: bytes
    schema: str
    table: str
    physical: int
    logical: int


class Watermarks(Frame, frozen=True, tag="watermarks"):
    """What was seen whole, per group."""

    after: After
    entries: tuple[WatermarkEntry, ...]


class Request(Frame, frozen=True, tag="request"):
    """Asks for the history of a table (`*` for either name) or of a site.

    `covering`: what the states of the table's rows need is enough (feature `covering`).
    """

    id: bytes
    what: str
    schema: str | None = None
    table: str | None = None
    site: bytes | None = None
    covering: bool | None = None


class Links(Frame, frozen=True, tag="links"):
    """The sites that its sender is linked to at present, besides the peer itself (feature `offer`)."""

    sites: tuple[bytes, ...]


class Compare(Frame, frozen=True, tag="compare"):
    """Opens a comparison, and answers to that under the same id: what either side has to compare (feature `verify`)."""

    id: bytes
    nonce: bytes
    hlc: Hlc
    thinned: bool
    tables: tuple[TableTold, ...]


class CompareAsk(Frame, frozen=True, tag="compare-ask"):
    """Number `no` of what the side that opened asks; what `of` holds for each `what` is in `model.comparison`."""

    id: bytes
    no: int
    what: str
    of: tuple[Any, ...]


class CompareTell(Frame, frozen=True, tag="compare-tell"):
    """The answer to it, entry by entry; of what does not fit the first entries alone, but for `tables` and `again`."""

    id: bytes
    no: int
    what: str
    of: tuple[Any, ...]


class CompareEnd(Frame, frozen=True, tag="compare-end"):
    """No more is said in this comparison, by either side."""

    id: bytes
    reason: str


class Bye(Frame, frozen=True, tag="bye"):
    """Why the link is about to close."""

    code: int
    reason: str


class Introduce(Frame, frozen=True, tag="introduce"):
    """The records that make its sender a member (profile §7)."""

    records: tuple[bytes, ...]


class Open(Frame, frozen=True, tag="open"):
    """Names the epoch of the event stream, and the number of the frame that follows."""

    epoch: bytes
    next: int


class Batch(Frame, frozen=True, tag="batch"):
    """Events in log order, with the sender's causal frontier."""

    epoch: bytes
    no: int
    clock: dict[bytes, int]
    events: list[bytes]


class DeflatedBatch(Frame, frozen=True, tag="batch"):
    """A batch as it is sent where `deflate` was agreed; it is read as a `Batch`."""

    epoch: bytes
    no: int
    clock: dict[bytes, int]
    deflated: bytes


class Live(Frame, frozen=True, tag="live"):
    """The sender's own newest events, ahead of a backlog that brings them again in log order (feature `live`)."""

    epoch: bytes
    no: int
    clock: dict[bytes, int]
    events: list[bytes]


class Offer(Frame, frozen=True, tag="offer"):
    """Events that the receiver may have (feature `offer`); how they are named is in `model.offered`."""

    epoch: bytes
    no: int
    events: dict[bytes, tuple[int | bytes, ...]]


class Records(Frame, frozen=True, tag="records"):
    """Vouches, roles and retirements."""

    epoch: bytes
    no: int
    records: list[bytes]


class Answered(Frame, frozen=True, tag="answered"):
    """Everything that request `id` asked for was staged before this frame."""

    epoch: bytes
    no: int
    id: bytes


class PairHello(Frame, frozen=True, tag="pair-hello"):
    """Pairing, step 1: joiner to inviter (profile §10)."""

    invite: bytes
    nonce: bytes


class PairOpen(Frame, frozen=True, tag="pair-open"):
    """Pairing, step 2: inviter to joiner."""

    nonce: bytes


class Pair(Frame, frozen=True, tag="pair"):
    """Pairing, step 3: joiner to inviter."""

    public_key: bytes
    name: str
    mac: bytes
    sig: bytes


class Paired(Frame, frozen=True, tag="paired"):
    """Pairing, step 4: inviter to joiner."""

    mac: bytes
    records: tuple[bytes, ...]
    name: str


class NearHello(Frame, frozen=True, tag="near-hello"):
    """Nearby pairing, step 1: guest to host, bound to a nonce (profile §10, §13)."""

    commit: bytes
    name: str


class NearOpen(Frame, frozen=True, tag="near-open"):
    """Nearby pairing, step 2: host to guest, bound to a nonce."""

    commit: bytes
    name: str


class NearReveal(Frame, frozen=True, tag="near-reveal"):
    """Nearby pairing, step 3, guest to host, and step 4, host to guest: the nonce."""

    nonce: bytes


class NearYes(Frame, frozen=True, tag="near-yes"):
    """Nearby pairing, step 5: the person at the guest said that the digits are equal."""


class NearWelcome(Frame, frozen=True, tag="near-welcome"):
    """Nearby pairing, step 6: the one at the host said so too; `port` is where the host listens for `ssp/1`."""

    mesh: bytes
    founder: bytes
    records: tuple[bytes, ...]
    port: int


CompareFrame: TypeAlias = Compare | CompareAsk | CompareTell | CompareEnd
ControlFrame: TypeAlias = Introduce | Hello | Ack | Nak | Watermarks | Links | Request | CompareFrame | Bye
EventFrame: TypeAlias = Open | Batch | Live | Offer | Records | Answered
PairingFrame: TypeAlias = PairHello | PairOpen | Pair | Paired
NearbyFrame: TypeAlias = NearHello | NearOpen | NearReveal | NearYes | NearWelcome


def tag_of(frame: Frame | type[Frame]) -> str:
    """The value of a frame's key `t`."""
    return str(frame.__struct_config__.tag)


def _plain(value: Any) -> Any:
    """A field as the CBOR data model has it."""
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, msgspec.Struct):
        return {name: _plain(getattr(value, name)) for name in value.__struct_fields__}
    return value


def encode_frame(frame: Frame) -> bytes:
    """The deterministic CBOR of a frame, without its length prefix; CodecError for values that have none."""
    fields: dict[str, Any] = {"t": tag_of(frame)}
    for name in frame.__struct_fields__:
        value = getattr(frame, name)
        if value is None and isinstance(frame, Request | Ack):
            continue  # the keys of the other kind of request are absent, and `wanted` but in the ack of an offer
        fields[name] = value if type(value) in (bytes, str, int) else _plain(value)
    return cbor.encode(fields)


def digest(cbor_bytes: bytes) -> bytes:
    """The digest of a frame: BLAKE3-256 over its CBOR bytes (profile §8)."""
    return blake3_256(cbor_bytes)
