"""A peer's frame bytes to frozen frames: exact keys, types, sizes and ranges (profile §8, §10, §12).

Everything here takes what a peer sent and raises ProtocolError alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any, Final

from msgspec import structs

from meshnode.codec import cbor
from meshnode.codec.digest import DIGEST_BYTES
from meshnode.codec.ed25519 import PUBLIC_KEY_BYTES, SIGNATURE_BYTES
from meshnode.codec.framing import FrameReader
from meshnode.errors import CloseCode, CodecError, ProtocolError
from meshnode.limits import (
    BATCH_EVENTS,
    CONTROL_FRAME_ITEMS,
    COUNTER_MAX,
    EVENT_FRAME_ITEMS,
    FRAME_NUMBER_MAX,
    FRONTIER_SITES,
    HELLO_BYTES,
    INTRODUCE_BYTES,
    LABEL_BYTES,
    LINKED_SITES,
    NAME_BYTES,
    OFFER_EVENTS,
)
from meshnode.model import frame_fields_untrusted as fields
from meshnode.model import frames, nearby
from meshnode.model.compare_untrusted import COMPARE_FRAMES
from meshnode.model.deflate import inflate_untrusted
from meshnode.model.frame_fields_untrusted import Read
from meshnode.model.offered import offered_untrusted
from meshnode.model.site import SITE_BYTES

NO_FEATURES: Final[frozenset[str]] = frozenset()


def _events(value: Any) -> list[bytes]:
    events = fields.byte_strings(value)
    if len(events) > BATCH_EVENTS:
        raise ProtocolError(f"a batch of {len(events)} events is larger than {BATCH_EVENTS}", CloseCode.LIMIT)
    return events


_NUMBER: Final = fields.unsigned(1, FRAME_NUMBER_MAX)
_SITE: Final = fields.byte_string(SITE_BYTES)
_EPOCH: Final = fields.byte_string(frames.EPOCH_BYTES)
_DIGEST: Final = fields.byte_string(DIGEST_BYTES)
_REQUEST_ID: Final = fields.byte_string(frames.REQUEST_ID_BYTES)
_NONCE: Final = fields.byte_string(frames.NONCE_BYTES)
_MAC: Final = fields.byte_string(frames.MAC_BYTES)
_LABEL: Final = fields.text(LABEL_BYTES)
_NAME: Final = fields.text(NAME_BYTES, 1)


def _watermark(value: Any) -> frames.WatermarkEntry:
    if type(value) is not list or len(value) != 5:
        raise ProtocolError("not a site, schema, table, physical and logical time")
    site, schema, table, physical, logical = value
    return frames.WatermarkEntry(_SITE(site), _NAME(schema), _NAME(table), fields.u64(physical), fields.u64(logical))


# `next` and `digest` of an inbound are only ever compared with what the sender knows, so a mismatch is no error.
_INBOUND: Final = fields.struct(
    frames.Inbound, {"epoch": _EPOCH, "next": _NUMBER, "digest": fields.byte_string(0, DIGEST_BYTES)}, open_ended=True
)
_AFTER: Final = fields.struct(frames.After, {"epoch": _EPOCH, "no": fields.u64})
_HELLO: Final = fields.struct(
    frames.Hello,
    {
        "site": _SITE,
        "name": _LABEL,
        "software": _LABEL,
        "incarnation": fields.byte_string(frames.INCARNATION_BYTES),
        "boot": fields.byte_string(frames.BOOT_BYTES),
        "wall": fields.u64,
        "hlc": fields.hlc,
        "scope": fields.array(fields.text(HELLO_BYTES)),  # parsed by parse_scope_untrusted
        "features": fields.array(fields.text(HELLO_BYTES)),
        "inbound": fields.optional(_INBOUND),
        "max_hlc": fields.mapping(_SITE, fields.hlc),
    },
    open_ended=True,
)
_TABLE_REQUEST: Final = fields.struct(
    frames.Request, {"id": _REQUEST_ID, "what": _NAME, "schema": _NAME, "table": _NAME}
)
_SITE_REQUEST: Final = fields.struct(frames.Request, {"id": _REQUEST_ID, "what": _NAME, "site": _SITE})
_CLOCK: Final = fields.mapping(_SITE, lambda value: min(fields.u64(value), COUNTER_MAX), FRONTIER_SITES)


def _hello(value: dict[str, Any]) -> frames.Hello:
    # Read before anything else: a later version may have other keys, and deserves to be told so.
    version = fields.u64(value.pop("v", None))
    if version != frames.VERSION:
        raise ProtocolError(f"the peer speaks version {version}, this node {frames.VERSION}", CloseCode.VERSION)
    hello: frames.Hello = _HELLO(value)
    return hello


def _request(value: dict[str, Any]) -> frames.Request:
    what = value.get("what")
    if what != frames.WHAT_TABLE and what != frames.WHAT_SITE:
        raise ProtocolError("a request asks for a table or a site")
    request: frames.Request = (_TABLE_REQUEST if what == frames.WHAT_TABLE else _SITE_REQUEST)(value)
    return request


def _covering_request(value: dict[str, Any]) -> frames.Request:
    """Feature `covering`: a request for a table may have one more key, which is true."""
    covering = value.pop("covering", None)
    if covering is not None and (covering is not True or value.get("what") != frames.WHAT_TABLE):
        raise ProtocolError("covering is true, in a request for a table")
    return structs.replace(_request(value), covering=covering)


def _ascending(read_item: Read, most: int) -> Read:
    """An array in strictly ascending order."""
    read_array = fields.array(read_item)

    def read(value: Any) -> tuple[Any, ...]:
        items: tuple[Any, ...] = read_array(value)
        if len(items) > most:
            raise ProtocolError(f"more than {most} entries", CloseCode.LIMIT)
        if any(after <= before for before, after in pairwise(items)):
            raise ProtocolError("entries are not in ascending order")
        return items

    return read


_BATCH: Final[Mapping[str, Read]] = {"epoch": _EPOCH, "no": _NUMBER, "clock": _CLOCK, "events": _events}
_ACK_FIELDS: Final[Mapping[str, Read]] = {
    "epoch": _EPOCH,
    "no": _NUMBER,
    "digest": _DIGEST,
    "hlc": fields.hlc,
    "rejected": fields.array(fields.u64),
    "held": fields.u64,
    "dropped": fields.u64,
}
_ACK: Final = fields.struct(frames.Ack, _ACK_FIELDS)
_OFFER_ACK: Final = fields.struct(frames.Ack, {**_ACK_FIELDS, "wanted": _ascending(fields.u64, OFFER_EVENTS)})


def _ack(value: dict[str, Any]) -> frames.Ack:
    ack: frames.Ack = (_OFFER_ACK if "wanted" in value else _ACK)(value)
    return ack


_CONTROL: Final[Mapping[str, Read]] = {
    "introduce": fields.struct(frames.Introduce, {"records": lambda value: tuple(fields.byte_strings(value))}),
    "hello": _hello,
    "ack": _ACK,
    "nak": fields.struct(frames.Nak, {"epoch": _EPOCH, "expected": fields.u64, "reason": _LABEL}),
    "watermarks": fields.struct(frames.Watermarks, {"after": _AFTER, "entries": fields.array(_watermark)}),
    "request": _request,
    "bye": fields.struct(frames.Bye, {"code": fields.u64, "reason": _LABEL}),
}
_CONTROL_OF: Final[Mapping[str, Mapping[str, Read]]] = {
    frames.FEATURE_COVERING: {"request": _covering_request},
    frames.FEATURE_OFFER: {
        "ack": _ack,
        "links": fields.struct(frames.Links, {"sites": _ascending(_SITE, LINKED_SITES)}),
    },
    frames.FEATURE_VERIFY: COMPARE_FRAMES,
}
_EVENTS: Final[Mapping[str, Read]] = {
    "open": fields.struct(frames.Open, {"epoch": _EPOCH, "next": _NUMBER}),
    "batch": fields.struct(frames.Batch, _BATCH),
    "records": fields.struct(frames.Records, {"epoch": _EPOCH, "no": _NUMBER, "records": fields.byte_strings}),
    "answered": fields.struct(frames.Answered, {"epoch": _EPOCH, "no": _NUMBER, "id": _REQUEST_ID}),
}
_EVENTS_OF: Final[Mapping[str, Mapping[str, Read]]] = {
    frames.FEATURE_LIVE: {"live": fields.struct(frames.Live, _BATCH)},
    frames.FEATURE_OFFER: {
        "offer": fields.struct(frames.Offer, {"epoch": _EPOCH, "no": _NUMBER, "events": offered_untrusted})
    },
}
_PAIRING: Final[Mapping[str, Read]] = {
    "pair-hello": fields.struct(
        frames.PairHello,
        {"invite": fields.byte_string(frames.INVITE_ID_BYTES), "nonce": _NONCE},
    ),
    "pair-open": fields.struct(frames.PairOpen, {"nonce": _NONCE}),
    "pair": fields.struct(
        frames.Pair,
        {
            "public_key": fields.byte_string(PUBLIC_KEY_BYTES),
            "name": _LABEL,
            "mac": _MAC,
            "sig": fields.byte_string(SIGNATURE_BYTES),
        },
    ),
    "paired": fields.struct(
        frames.Paired,
        {
            "mac": _MAC,
            "records": lambda value: tuple(fields.byte_strings(value)),
            "name": _LABEL,
        },
    ),
}
_COMMITTED: Final[Mapping[str, Read]] = {"commit": fields.byte_string(DIGEST_BYTES), "name": _LABEL}
_NEARBY: Final[Mapping[str, Read]] = {
    "near-hello": fields.struct(frames.NearHello, _COMMITTED),
    "near-open": fields.struct(frames.NearOpen, _COMMITTED),
    "near-reveal": fields.struct(frames.NearReveal, {"nonce": fields.byte_string(nearby.NONCE_BYTES)}),
    "near-yes": fields.struct(frames.NearYes, {}),
    "near-welcome": fields.struct(
        frames.NearWelcome,
        {
            "mesh": fields.byte_string(len(nearby.NO_MESH)),
            "founder": fields.byte_string(PUBLIC_KEY_BYTES),
            "records": lambda value: tuple(fields.byte_strings(value)),
            "port": fields.unsigned(1, 65535),
        },
    ),
}
_BYTES_OF: Final[Mapping[str, int]] = {"hello": HELLO_BYTES, "introduce": INTRODUCE_BYTES}


def _with(
    plain: Mapping[str, Read], more: Mapping[str, Mapping[str, Read]], features: frozenset[str]
) -> Mapping[str, Read]:
    """The frames of a stream where these features were agreed."""
    reads = dict(plain)
    for feature in features:
        reads.update(more.get(feature, {}))
    return reads


def _open(data: bytes, reads: Mapping[str, Read], items: int) -> tuple[str, dict[str, Any]]:
    """The tag of one frame and the rest of its map."""
    try:
        cbor.check_items_untrusted(data, items)
        value = cbor.decode_untrusted(data)
    except CodecError as error:
        raise ProtocolError(f"a frame is not deterministic CBOR: {error}") from None
    if type(value) is not dict:
        raise ProtocolError("a frame is a map")
    tag = value.pop("t", None)
    if type(tag) is not str or tag not in reads:
        raise ProtocolError(f"no frame of this stream: {tag[:32]!r}" if type(tag) is str else "a frame's t is text")
    if len(data) > _BYTES_OF.get(tag, len(data)):
        raise ProtocolError(f"{tag}: {len(data)} bytes are more than {_BYTES_OF[tag]}", CloseCode.LIMIT)
    return tag, value


def _read(tag: str, value: dict[str, Any], reads: Mapping[str, Read]) -> Any:
    try:
        return reads[tag](value)
    except ProtocolError as error:
        raise ProtocolError(f"{tag}: {error}", error.code) from None


def _inflated(value: dict[str, Any]) -> None:
    """Put `events` in the place of `deflated`: a bounded inflate of one CBOR array (feature `deflate`)."""
    packed = value.pop("deflated")
    if type(packed) is not bytes or "events" in value:
        raise ProtocolError("deflated is a byte string in place of events")
    unpacked = inflate_untrusted(packed)
    try:
        cbor.check_items_untrusted(unpacked, EVENT_FRAME_ITEMS)
        value["events"] = cbor.decode_untrusted(unpacked)
    except CodecError as error:
        raise ProtocolError(f"deflated holds no deterministic CBOR: {error}") from None


def decode_control_untrusted(data: bytes, features: frozenset[str] = NO_FEATURES) -> frames.ControlFrame:
    """One frame of the control stream; `features` are those that both sides agreed on."""
    reads = _with(_CONTROL, _CONTROL_OF, features)
    tag, value = _open(data, reads, CONTROL_FRAME_ITEMS)
    frame: frames.ControlFrame = _read(tag, value, reads)
    return frame


def boot_in_untrusted(control: bytes) -> bytes | None:
    """The boot id in the hello with which the bytes of a control stream begin, an introduce aside; None without one."""
    try:
        for data in FrameReader(INTRODUCE_BYTES).feed(control):
            frame = decode_control_untrusted(data)
            if isinstance(frame, frames.Hello):
                return frame.boot
    except ProtocolError:
        return None
    return None


def decode_events_untrusted(data: bytes, features: frozenset[str] = NO_FEATURES) -> frames.EventFrame:
    """One frame of an event stream; `features` are those that both sides agreed on."""
    reads = _with(_EVENTS, _EVENTS_OF, features)
    tag, value = _open(data, reads, EVENT_FRAME_ITEMS)
    if tag == "batch" and frames.FEATURE_DEFLATE in features and "deflated" in value:
        _inflated(value)
    frame: frames.EventFrame = _read(tag, value, reads)
    return frame


def decode_pairing_untrusted(data: bytes) -> frames.PairingFrame:
    """One frame of a pairing stream."""
    tag, value = _open(data, _PAIRING, EVENT_FRAME_ITEMS)
    frame: frames.PairingFrame = _read(tag, value, _PAIRING)
    return frame


def decode_nearby_untrusted(data: bytes) -> frames.NearbyFrame:
    """One frame of a nearby pairing stream."""
    tag, value = _open(data, _NEARBY, EVENT_FRAME_ITEMS)
    frame: frames.NearbyFrame = _read(tag, value, _NEARBY)
    return frame
