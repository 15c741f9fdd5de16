"""A bundle's own frames from its bytes: exact keys, types, sizes, and the signature over all of it (`model.bundle`).

Everything here takes what somebody put into a file and raises ProtocolError alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from meshnode.codec import cbor, cose
from meshnode.codec.digest import DIGEST_BYTES
from meshnode.codec.ed25519 import PUBLIC_KEY_BYTES
from meshnode.errors import CloseCode, CodecError, EnvelopeError, ProtocolError
from meshnode.limits import (
    BUNDLE_STANDS,
    CONTROL_FRAME_ITEMS,
    FRAME_NUMBER_MAX,
    FRONTIER_SITES,
    HELLO_BYTES,
    LABEL_BYTES,
    REQUESTS_PER_PEER,
)
from meshnode.model import frame_fields_untrusted as fields
from meshnode.model.bundle import BUNDLE_VERSION, SEAL_TYPE, Asks, Bundle, Seal
from meshnode.model.frame_fields_untrusted import Read
from meshnode.model.frames import EPOCH_BYTES, FEATURE_DEFLATE, EventFrame, Inbound, Introduce, Watermarks
from meshnode.model.frames_untrusted import decode_control_untrusted, decode_events_untrusted
from meshnode.model.site import MESH_TAG_BYTES, SITE_BYTES, site_id_of

FEATURES: Final = frozenset({FEATURE_DEFLATE})
"""What the frames of a bundle may have beyond the plain profile."""

Part: TypeAlias = Introduce | Asks | EventFrame | Watermarks

_SITE: Final = fields.byte_string(SITE_BYTES)
_EPOCH: Final = fields.byte_string(EPOCH_BYTES)
_LABEL: Final = fields.text(LABEL_BYTES)


def _few(read_array: Read, most: int) -> Read:
    def read(value: Any) -> Any:
        if type(value) is list and len(value) > most:
            raise ProtocolError(f"more than {most} entries", CloseCode.LIMIT)
        return read_array(value)

    return read


def _stand(value: Any) -> tuple[bytes, int]:
    if type(value) is not list or len(value) != 2:
        raise ProtocolError("not an epoch and a frame number")
    return _EPOCH(value[0]), fields.unsigned(0, FRAME_NUMBER_MAX)(value[1])


_HELD: Final = fields.struct(
    Inbound,
    {"epoch": _EPOCH, "next": fields.unsigned(1, FRAME_NUMBER_MAX), "digest": fields.byte_string(0, DIGEST_BYTES)},
)
_READS: Final[Mapping[str, Read]] = {
    "bundle": fields.struct(
        Bundle,
        {
            "tag": fields.byte_string(MESH_TAG_BYTES),
            "site": _SITE,
            "public_key": fields.byte_string(PUBLIC_KEY_BYTES),
            "to": fields.optional(_SITE),
            "name": _LABEL,
            "software": _LABEL,
            "scope": fields.array(fields.text(HELLO_BYTES)),
            "after": fields.optional(_few(fields.array(_stand), BUNDLE_STANDS)),
            "holds": fields.mapping(_SITE, _HELD, FRONTIER_SITES),
        },
    ),
    "asks": fields.struct(
        Asks, {"site": _SITE, "requests": _few(lambda value: tuple(fields.byte_strings(value)), REQUESTS_PER_PEER)}
    ),
    "seal": fields.struct(Seal, {"record": lambda value: fields.byte_strings([value])[0]}),
}


def _open(data: bytes, expected: str) -> dict[str, Any]:
    try:
        cbor.check_items_untrusted(data, CONTROL_FRAME_ITEMS)
        value = cbor.decode_untrusted(data)
    except CodecError as error:
        raise ProtocolError(f"a frame is not deterministic CBOR: {error}") from None
    tag = value.pop("t", None) if type(value) is dict else None
    if type(value) is not dict or tag != expected:
        raise ProtocolError(f"not the frame that has to stand there: {expected}")
    return value


def decode_head_untrusted(data: bytes) -> Bundle:
    """The first frame; whose it is, the seal shows."""
    if len(data) > HELLO_BYTES:
        raise ProtocolError(f"a head of {len(data)} bytes is larger than {HELLO_BYTES}", CloseCode.LIMIT)
    value = _open(data, "bundle")
    version = fields.u64(value.pop("v", None))  # first: a later version may have other keys
    if version != BUNDLE_VERSION:
        raise ProtocolError(
            f"it has format {version}, this meshnode reads {BUNDLE_VERSION}: use the same version on both devices",
            CloseCode.VERSION,
        )
    head: Bundle = _read("bundle", value)
    if site_id_of(head.public_key) != head.site:
        raise ProtocolError("the public key of its writer is not that of its site")
    return head


def check_seal_untrusted(data: bytes, head: Bundle, mesh_id: bytes, digest: bytes) -> None:
    """ProtocolError unless this last frame signs that digest for this mesh, by the writer of the head."""
    seal: Seal = _read("seal", _open(data, "seal"))
    try:
        envelope = cose.split_untrusted(seal.record, SEAL_TYPE)
        cose.check_signature(envelope, mesh_id, head.public_key)
    except EnvelopeError as error:
        raise ProtocolError(f"its seal does not hold: {error}", CloseCode.NOT_AUTHENTICATED) from None
    if envelope.kid != head.site or envelope.payload != cbor.encode({"digest": digest}):
        raise ProtocolError("its bytes are not those that were sealed: it was damaged", CloseCode.NOT_AUTHENTICATED)


def decode_part_untrusted(data: bytes) -> Part:
    """Any frame between the head and the seal."""
    tag = _tag_in_untrusted(data)
    if tag in ("introduce", "watermarks"):
        told: Any = decode_control_untrusted(data)
        return told  # type: ignore[no-any-return]
    if tag == "asks":
        asks: Asks = _read(tag, _open(data, tag))
        return asks
    return decode_events_untrusted(data, FEATURES)


def _tag_in_untrusted(data: bytes) -> str:
    """The tag with which a deterministic frame begins: no key sorts before `t`."""
    length = data[3] - 0x60 if data[1:3] == b"\x61t" and len(data) > 3 else 0
    return data[4 : 4 + length].decode("ascii", "replace") if 0 < length < 24 else ""


def _read(tag: str, value: dict[str, Any]) -> Any:
    try:
        return _READS[tag](value)
    except ProtocolError as error:
        raise ProtocolError(f"{tag}: {error}", error.code) from None
