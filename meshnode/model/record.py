"""Records: what is signed and is no event, one shape per content type (profile §7, §9, §11)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from meshnode.codec import cbor, cose
from meshnode.codec.digest import DIGEST_BYTES, blake3_256
from meshnode.codec.ed25519 import PUBLIC_KEY_BYTES
from meshnode.errors import CodecError, MalformedError, UsageError
from meshnode.limits import LABEL_BYTES, RECORD_BYTES
from meshnode.model.hlc import U64_MAX, Hlc
from meshnode.model.site import SITE_BYTES, SiteKey, site_id_of

VOUCH: Final = "sovm/ssp-vouch-v1"
ROLE: Final = "sovm/ssp-role-v1"
RETIREMENT: Final = "sovm/ssp-retirement-v1"
BINDING: Final = "sovm/ssp-transport-binding-v1"
ENDPOINT: Final = "sovm/ssp-endpoint-v1"
TRAVELLING: Final = (VOUCH, ROLE, RETIREMENT)  # every stored one to every peer, nothing else (profile §9)

AUTHORITY: Final = "authority"
MEMBER: Final = "member"
READER: Final = "reader"
ROLES: Final = frozenset({AUTHORITY, MEMBER, READER})

BOOT_BYTES: Final = 8
TRANSPORT_QUIC: Final = "quic"
PORT_MAX: Final = 65535


@dataclass(frozen=True, slots=True)
class Vouch:
    """Admits a site with its key. That the two match is for the walk to judge (profile §9)."""

    site: bytes
    public_key: bytes
    name: str
    issued: Hlc


@dataclass(frozen=True, slots=True)
class Role:
    """What a site may do from `issued` on."""

    site: bytes
    role: str
    issued: Hlc


@dataclass(frozen=True, slots=True)
class Retirement:
    """Ends a site at `cutoff`; of the records it signed, those in `honours` stay valid."""

    site: bytes
    cutoff: Hlc
    honours: tuple[bytes, ...]
    issued: Hlc


@dataclass(frozen=True, slots=True)
class TransportBinding:
    """Ties a TLS key to the site whose `public_key` signed it (profile §7)."""

    transport: str
    spki: bytes
    public_key: bytes
    issued: int


@dataclass(frozen=True, slots=True)
class EndpointAttestation:
    """Where a site says that it listens (profile §11)."""

    port: int
    boot: bytes
    issued: int


Body: TypeAlias = Vouch | Role | Retirement | TransportBinding | EndpointAttestation


@dataclass(frozen=True, slots=True)
class Record:
    """One record and its exact bytes."""

    record_id: bytes
    signer: bytes
    data: bytes
    content_type: str
    body: Body

    @property
    def issued(self) -> Hlc:
        """When it was issued; the two types that do not travel carry milliseconds alone."""
        issued = self.body.issued
        return issued if isinstance(issued, Hlc) else Hlc(issued, 0)


def _bytes(value: Any, length: int, what: str) -> bytes:
    if type(value) is not bytes or len(value) != length:
        raise MalformedError(f"{what} is a byte string of {length} bytes")
    return value


def _unsigned(value: Any, most: int, what: str) -> int:
    if type(value) is not int or not 0 <= value <= most:
        raise MalformedError(f"{what} is an unsigned integer of at most {most}")
    return value


def _text(value: Any, what: str) -> str:
    if type(value) is not str:
        raise MalformedError(f"{what} is text")
    return value


def _hlc(value: Any, what: str) -> Hlc:
    if type(value) is not list or len(value) != 2:
        raise MalformedError(f"{what} is a pair of physical and logical time")
    return Hlc(_unsigned(value[0], U64_MAX, what), _unsigned(value[1], U64_MAX, what))


def _vouch(fields: dict[str, Any]) -> Vouch:
    return Vouch(
        _bytes(fields["site"], SITE_BYTES, "site"),
        _bytes(fields["public_key"], PUBLIC_KEY_BYTES, "public_key"),
        _text(fields["name"], "name"),
        _hlc(fields["issued"], "issued"),
    )


def _role(fields: dict[str, Any]) -> Role:
    role = _text(fields["role"], "role")
    if role not in ROLES:
        raise MalformedError("role is authority, member or reader")
    return Role(_bytes(fields["site"], SITE_BYTES, "site"), role, _hlc(fields["issued"], "issued"))


def _retirement(fields: dict[str, Any]) -> Retirement:
    honours = fields["honours"]
    if type(honours) is not list:
        raise MalformedError("honours is an array of record ids")
    return Retirement(
        _bytes(fields["site"], SITE_BYTES, "site"),
        _hlc(fields["cutoff"], "cutoff"),
        tuple(_bytes(each, DIGEST_BYTES, "an entry of honours") for each in honours),
        _hlc(fields["issued"], "issued"),
    )


def _binding(fields: dict[str, Any]) -> TransportBinding:
    if fields["transport"] != TRANSPORT_QUIC:
        raise MalformedError("transport is quic")
    return TransportBinding(
        TRANSPORT_QUIC,
        _bytes(fields["spki"], DIGEST_BYTES, "spki"),
        _bytes(fields["public_key"], PUBLIC_KEY_BYTES, "public_key"),
        _unsigned(fields["issued"], U64_MAX, "issued"),
    )


def _endpoint(fields: dict[str, Any]) -> EndpointAttestation:
    port = _unsigned(fields["port"], PORT_MAX, "port")
    if port == 0:
        raise MalformedError("port 0 names no endpoint")
    return EndpointAttestation(
        port, _bytes(fields["boot"], BOOT_BYTES, "boot"), _unsigned(fields["issued"], U64_MAX, "issued")
    )


# Content type: its fields, how they are read, and what holds them.
_SHAPES: Final[dict[str, tuple[frozenset[str], Callable[[dict[str, Any]], Body], type[Body]]]] = {
    VOUCH: (frozenset(("site", "public_key", "name", "issued")), _vouch, Vouch),
    ROLE: (frozenset(("site", "role", "issued")), _role, Role),
    RETIREMENT: (frozenset(("site", "cutoff", "honours", "issued")), _retirement, Retirement),
    BINDING: (frozenset(("transport", "spki", "public_key", "issued")), _binding, TransportBinding),
    ENDPOINT: (frozenset(("port", "boot", "issued")), _endpoint, EndpointAttestation),
}
_TYPE_OF: Final[dict[type[Body], str]] = {shape[2]: content_type for content_type, shape in _SHAPES.items()}


def split_record_untrusted(data: bytes, content_types: tuple[str, ...] = TRAVELLING) -> cose.Envelope:
    """Size and envelope of a record of one of these types, whose signer's key need not be known yet."""
    if len(data) > RECORD_BYTES:
        raise MalformedError(f"a record of {len(data)} bytes is larger than {RECORD_BYTES}")
    content_type = cose.content_type_of_untrusted(data, content_types)
    if content_type is None:
        raise MalformedError("not a record of a type that is expected here")
    return cose.split_untrusted(data, content_type)


def parse_record_untrusted(envelope: cose.Envelope, data: bytes) -> Record:
    """Read the payload of a record whose signature verified; MalformedError unless its shape is exact."""
    shape = _SHAPES.get(envelope.content_type)
    if shape is None:
        raise MalformedError(f"{envelope.content_type} is no record")
    try:
        fields = cbor.decode_untrusted(envelope.payload)
    except CodecError as error:
        raise MalformedError(str(error)) from None
    names, read, _ = shape
    if type(fields) is not dict or fields.keys() != names:
        raise MalformedError(f"a record of type {envelope.content_type} has exactly {', '.join(sorted(names))}")
    return Record(blake3_256(data), envelope.kid, data, envelope.content_type, read(fields))


def open_record_untrusted(
    data: bytes, *, mesh_id: bytes, key_of: Callable[[bytes], bytes | None], content_type: str | None = None
) -> Record:
    """Size, envelope, signer, signature, shape of one record; without a type, of any that travels."""
    envelope = split_record_untrusted(data, TRAVELLING if content_type is None else (content_type,))
    cose.check_envelope(envelope, external_aad=mesh_id, key_of=key_of)
    return parse_record_untrusted(envelope, data)


def _payload(body: Body) -> bytes:
    fields: dict[str, Any] = {}
    for name in _SHAPES[_TYPE_OF[type(body)]][0]:
        value = getattr(body, name)
        fields[name] = list(value) if isinstance(value, tuple) else value
    return cbor.encode(fields)


def seal_record(key: SiteKey, mesh_id: bytes, body: Body) -> bytes:
    """Sign one record; UsageError where it would not be accepted by those who get it."""
    content_type = _TYPE_OF[type(body)]
    try:
        if isinstance(body, Vouch) and len(body.name.encode(errors="replace")) > LABEL_BYTES:
            raise MalformedError(f"a device's name has at most {LABEL_BYTES} bytes")
        data = cose.seal(content_type, key.site, _payload(body), external_aad=mesh_id, sign=key.sign)
        parse_record_untrusted(split_record_untrusted(data, (content_type,)), data)
    except (CodecError, MalformedError) as error:
        raise UsageError(f"cannot issue this record: {error}") from None
    return data


def seal_binding(key: SiteKey, external_aad: bytes, spki: bytes, issued: int) -> bytes:
    """The transport binding of `key` to the TLS key with this SubjectPublicKeyInfo digest (profile §7)."""
    return seal_record(key, external_aad, TransportBinding(TRANSPORT_QUIC, spki, key.public_key, issued))


def open_binding_untrusted(data: bytes, external_aad: bytes) -> tuple[TransportBinding, bytes]:
    """A binding and the site that it authenticates; raises an EnvelopeError.

    It certifies itself: the key is in the payload, and must be the one whose site id is the kid.
    """
    envelope = split_record_untrusted(data, (BINDING,))
    binding = parse_record_untrusted(envelope, data).body
    if not isinstance(binding, TransportBinding) or site_id_of(binding.public_key) != envelope.kid:
        raise MalformedError("the binding's public key is not that of its site")
    cose.check_signature(envelope, external_aad, binding.public_key)
    return binding, envelope.kid
