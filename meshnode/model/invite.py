"""The invite a person carries to the joining device, as text and in a QR code (profile §10)."""

from __future__ import annotations

import base64
import binascii
import hmac
from dataclasses import dataclass, field

from meshnode import limits
from meshnode.codec import cbor
from meshnode.codec.digest import blake3_256, derive_key
from meshnode.errors import CodecError, InviteError

PREFIX = "meshnode-invite:"
VERSION = 1
SECRET_BYTES = 16

_CHECK_BYTES = 4
_ADDRESS_BYTES = 300  # one "host:port": a DNS name has at most 253 bytes
_TEXT_CHARS = 16 * limits.KIB  # of a pasted invite; a full one has under 9,000
_FIELDS = frozenset({"v", "mesh", "site", "founder", "secret", "addrs", "expires"})
_SIZES = {"mesh": 16, "site": 16, "founder": 32, "secret": SECRET_BYTES}
_MISTYPED = "this invite was mistyped or cut short: copy it again in full, or show the QR code"


@dataclass(frozen=True, slots=True)
class Invite:
    """What the inviter tells the joiner out of band; whoever holds `secret` may join once, until `expires_ms`."""

    mesh_id: bytes
    site: bytes
    founder: bytes
    secret: bytes = field(repr=False)
    addrs: tuple[str, ...]
    expires_ms: int

    def text(self) -> str:
        """The printed form: prefix and lowercase unpadded base32 of the CBOR and its check bytes."""
        body = cbor.encode(
            {
                "v": VERSION,
                "mesh": self.mesh_id,
                "site": self.site,
                "founder": self.founder,
                "secret": self.secret,
                "addrs": list(self.addrs),
                "expires": self.expires_ms,
            }
        )
        checked = body + blake3_256(body)[:_CHECK_BYTES]
        return PREFIX + _base32(checked)

    @property
    def invite_id(self) -> bytes:
        """The id that the joiner names first."""
        return invite_id(self.secret)

    def expired(self, now_ms: int) -> bool:
        """Whether it is past its time by this device's clock; the inviter's clock decides."""
        return now_ms > self.expires_ms


def invite_id(secret: bytes) -> bytes:
    """What names an invite on the wire without giving its secret away."""
    return derive_key("meshnode 2026 invite id v1", secret)[:8]


def parse_invite_untrusted(text: str) -> Invite:
    """Read a pasted or scanned invite; case, spaces and line breaks do not matter. Raises InviteError."""
    if len(text) > _TEXT_CHARS:
        raise InviteError("this is too long to be an invite")
    compact = "".join(text.split()).lower()
    if not compact.startswith(PREFIX):
        raise InviteError(f"an invite begins with {PREFIX}")
    body = _checked(compact.removeprefix(PREFIX).rstrip("="))
    try:
        fields = cbor.decode_untrusted(body)
    except CodecError as error:
        raise InviteError(f"this invite is damaged: {error}") from error
    if not isinstance(fields, dict) or type(fields.get("v")) is not int:
        raise InviteError("this invite is damaged: its content is not an invite's")
    if fields["v"] != VERSION:
        raise InviteError("this invite was made by another version of meshnode: upgrade this device")
    return _invite_of(fields)


def _checked(encoded: str) -> bytes:
    try:
        data = base64.b32decode(encoded.upper() + "=" * (-len(encoded) % 8))
    except (binascii.Error, ValueError) as error:
        raise InviteError(_MISTYPED) from error
    body, check = data[:-_CHECK_BYTES], data[-_CHECK_BYTES:]
    if not body or not hmac.compare_digest(check, blake3_256(body)[:_CHECK_BYTES]):
        raise InviteError(_MISTYPED)
    if _base32(data) != encoded:
        # The last character carries unused bits, which the decoder passes over: one invite has one text.
        raise InviteError(_MISTYPED)
    return body


def _base32(data: bytes) -> str:
    return base64.b32encode(data).decode().rstrip("=").lower()


def _invite_of(fields: dict[object, object]) -> Invite:
    damaged = InviteError("this invite is damaged: ask for a new one")
    if fields.keys() != _FIELDS:
        raise damaged
    parts: dict[str, bytes] = {}
    for name, size in _SIZES.items():
        value = fields[name]
        if not isinstance(value, bytes) or len(value) != size:
            raise damaged
        parts[name] = value
    addrs, expires = fields["addrs"], fields["expires"]
    if not isinstance(addrs, list) or type(expires) is not int or expires < 0:
        raise damaged
    texts = [addr for addr in addrs if isinstance(addr, str) and 0 < len(addr.encode()) <= _ADDRESS_BYTES]
    if len(texts) != len(addrs):
        raise damaged
    kept = tuple(texts[: limits.ADDRESSES_PER_SITE])
    return Invite(parts["mesh"], parts["site"], parts["founder"], parts["secret"], kept, expires)
