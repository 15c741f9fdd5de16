"""The bytes of an independent peer: deterministic CBOR, signed structures, shapes of frames (profile §2 to §4, §8).

Written from the profile's text, sharing no code with the node under test.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import cbor2
from blake3 import blake3
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

EVENT = "sovm/ssp-event-v1"
VOUCH = "sovm/ssp-vouch-v1"
ROLE = "sovm/ssp-role-v1"
RETIREMENT = "sovm/ssp-retirement-v1"
BINDING = "sovm/ssp-transport-binding-v1"

Frame = dict[str, Any]
Hlc = tuple[int, int]

# What each frame of profile §8 must carry, no more and no less: (name, check).
_U64 = 2**64


def _is_uint(value: Any) -> bool:
    return type(value) is int and 0 <= value < _U64


def _is_bytes(length: int | None = None) -> Callable[[Any], bool]:
    return lambda value: type(value) is bytes and (length is None or len(value) == length)


def _is_text(value: Any) -> bool:
    return type(value) is str


def _is_label(value: Any) -> bool:
    return type(value) is str and len(value.encode()) <= 128


def _is_hlc(value: Any) -> bool:
    return type(value) is list and len(value) == 2 and all(map(_is_uint, value))


def _list_of(check: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: type(value) is list and all(map(check, value))


def _map_of(key: Callable[[Any], bool], item: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: type(value) is dict and all(key(k) and item(v) for k, v in value.items())


def _exactly(**fields: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: (
        type(value) is dict
        and value.keys() == fields.keys()
        and all(check(value[name]) for name, check in fields.items())
    )


_is_epoch = _is_bytes(8)
_is_site = _is_bytes(16)
_is_inbound = _exactly(
    epoch=_is_epoch, next=_is_uint, digest=lambda value: type(value) is bytes and len(value) in (0, 32)
)


def _is_entry(value: Any) -> bool:
    names = type(value) is list and len(value) == 5 and _is_site(value[0]) and all(map(_is_text, value[1:3]))
    return names and all(map(_is_uint, value[3:]))


_is_t = _is_text

SHAPES: dict[str, Callable[[Any], bool]] = {
    "hello": _exactly(
        t=_is_t,
        v=lambda value: value == 1,
        site=_is_site,
        name=_is_label,
        software=_is_label,
        incarnation=_is_bytes(16),
        boot=_is_bytes(8),
        wall=_is_uint,
        hlc=_is_hlc,
        scope=_list_of(_is_text),
        features=_list_of(_is_text),
        inbound=lambda value: value is None or _is_inbound(value),
        max_hlc=_map_of(_is_site, _is_hlc),
    ),
    "ack": _exactly(
        t=_is_t,
        epoch=_is_epoch,
        no=_is_uint,
        digest=_is_bytes(32),
        hlc=_is_hlc,
        rejected=_list_of(_is_uint),
        held=_is_uint,
        dropped=_is_uint,
    ),
    "nak": _exactly(t=_is_t, epoch=_is_epoch, expected=_is_uint, reason=_is_label),
    "watermarks": _exactly(t=_is_t, after=_exactly(epoch=_is_epoch, no=_is_uint), entries=_list_of(_is_entry)),
    "request": lambda value: (
        (
            _exactly(t=_is_t, id=_is_epoch, what=_is_text, schema=_is_text, table=_is_text)(value)
            and value["what"] == "table"
        )
        or (_exactly(t=_is_t, id=_is_epoch, what=_is_text, site=_is_site)(value) and value["what"] == "site")
    ),
    "bye": _exactly(t=_is_t, code=_is_uint, reason=_is_label),
    "introduce": _exactly(t=_is_t, records=_list_of(_is_bytes())),
    "open": _exactly(t=_is_t, epoch=_is_epoch, next=_is_uint),
    "batch": _exactly(
        t=_is_t, epoch=_is_epoch, no=_is_uint, clock=_map_of(_is_site, _is_uint), events=_list_of(_is_bytes())
    ),
    "live": _exactly(
        t=_is_t, epoch=_is_epoch, no=_is_uint, clock=_map_of(_is_site, _is_uint), events=_list_of(_is_bytes())
    ),
    "records": _exactly(t=_is_t, epoch=_is_epoch, no=_is_uint, records=_list_of(_is_bytes())),
    "answered": _exactly(t=_is_t, epoch=_is_epoch, no=_is_uint, id=_is_epoch),
}
CONTROL = {"introduce", "hello", "ack", "nak", "watermarks", "links", "request", "bye"}


def _is_offered(value: Any) -> bool:
    """The `events` of an offer: per author, physical times as differences, ascending; at most 1024 (profile §14)."""
    return (
        type(value) is dict
        and 1 <= sum(map(len, value.values())) <= 3 * 1024
        and all(_is_site(site) and _are_names(entries) for site, entries in value.items())
    )


def _are_names(entries: Any) -> bool:
    names, physical = [], 0
    for start in range(0, len(entries), 3):
        above, logical, short_id = entries[start : start + 3]
        if not (_is_uint(above) and _is_uint(logical) and _is_bytes(16)(short_id)):
            return False
        physical += above
        names.append((physical, logical, short_id))
    return bool(names) and names == sorted(set(names))


def _is_ascending(most: int) -> Callable[[Any], bool]:
    return lambda value: type(value) is list and len(value) <= most and value == sorted(set(value))


# What the feature `offer` adds (profile §14): two frames, and a key that the acks of offers alone have.
OFFER_SHAPES: dict[str, Callable[[Any], bool]] = {
    "offer": _exactly(t=_is_t, epoch=_is_epoch, no=_is_uint, events=_is_offered),
    "links": _exactly(t=_is_t, sites=lambda value: _list_of(_is_site)(value) and _is_ascending(64)(value)),
    "ack": lambda value: (
        SHAPES["ack"]({name: item for name, item in value.items() if name != "wanted"})
        and ("wanted" not in value or (_list_of(_is_uint)(value["wanted"]) and _is_ascending(1024)(value["wanted"])))
    ),
}


def offered(*events: tuple[bytes, Hlc, bytes]) -> Frame:
    """The `events` of an offer of these, each an author, its clock and its bytes."""
    packed: Frame = {}
    last: dict[bytes, int] = {}
    for site, (physical, logical), short_id in sorted((site, hlc, digest(data)[:16]) for site, hlc, data in events):
        packed.setdefault(site, []).extend((physical - last.get(site, 0), logical, short_id))  # type: ignore[call-overload]
        last[site] = physical
    return packed


def short_ids(offer: Frame) -> list[bytes]:
    """The ids in an offer, in the order in which `wanted` counts them."""
    return [entries[at] for _, entries in sorted(offer["events"].items()) for at in range(2, len(entries), 3)]


# --- bytes


def encode(value: Any) -> bytes:
    """Deterministic CBOR (profile §2; one key type per map makes cbor2's order the right one)."""
    return cbor2.dumps(value, canonical=True)


def digest(data: bytes) -> bytes:
    """BLAKE3-256."""
    return bytes(blake3(data).digest())


def derive(context: str, material: bytes) -> bytes:
    """BLAKE3 derive_key, 32 bytes."""
    return bytes(blake3(material, derive_key_context=context).digest())


def keyed(key: bytes, data: bytes) -> bytes:
    """Keyed BLAKE3, 32 bytes."""
    return bytes(blake3(data, key=key).digest())


def framed(data: bytes) -> bytes:
    """A frame as the stream carries it."""
    return len(data).to_bytes(4, "big") + data


def now_ms() -> int:
    """The wall clock."""
    return time.time_ns() // 1_000_000


class Site:
    """An Ed25519 site key (profile §3)."""

    def __init__(self, seed: bytes) -> None:
        self._key = Ed25519PrivateKey.from_private_bytes(seed)
        self.public_key = self._key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
        self.site = digest(self.public_key)[:16]

    @classmethod
    def from_cose_key(cls, data: bytes) -> Site:
        """The key of a file in a node's home."""
        key = cbor2.loads(data)
        assert (key[1], key[-1]) == (1, 6), "an OKP key on Ed25519"
        return cls(key[-4])

    def sign(self, data: bytes) -> bytes:
        """A signature."""
        return self._key.sign(data)

    def seal(self, mesh: bytes, content_type: str, payload: Any, *, raw: bytes | None = None) -> bytes:
        """An untagged COSE_Sign1 (profile §4, §9); `raw` stands for the payload's bytes."""
        protected = encode({1: -8, 3: content_type, 4: self.site})
        body = raw if raw is not None else encode(payload)
        return encode([protected, {}, body, self.sign(encode(["Signature1", protected, mesh, body]))])

    def event(
        self,
        mesh: bytes,
        key: Any,
        columns: dict[str, Any] | None,
        hlc: Hlc,
        *,
        table: str = "notes",
        schema: str = "main",
        **more: Any,
    ) -> bytes:
        """An event; columns None is a delete."""
        payload = {
            "table_schema": schema,
            "table_name": table,
            "row_key": key,
            "operation": "delete" if columns is None else "upsert",
            "payload": columns,
            "hlc_physical_ms": hlc[0],
            "hlc_logical": hlc[1],
        }
        return self.seal(mesh, EVENT, payload | more)

    def vouch(self, mesh: bytes, whom: Site, issued: Hlc, name: str = "foreigner") -> bytes:
        """A vouch record."""
        payload = {"site": whom.site, "public_key": whom.public_key, "name": name, "issued": list(issued)}
        return self.seal(mesh, VOUCH, payload)

    def role(self, mesh: bytes, whom: Site, role: str, issued: Hlc) -> bytes:
        """A role record."""
        return self.seal(mesh, ROLE, {"site": whom.site, "role": role, "issued": list(issued)})

    def retirement(self, mesh: bytes, whom: Site, cutoff: Hlc, issued: Hlc) -> bytes:
        """A retirement record that honours nothing."""
        payload = {"site": whom.site, "cutoff": list(cutoff), "honours": [], "issued": list(issued)}
        return self.seal(mesh, RETIREMENT, payload)


def opened(mesh: bytes, data: bytes, key_of: Callable[[bytes], bytes]) -> tuple[str, bytes, Frame]:
    """Verify a COSE_Sign1 strictly: (content type, signer, payload)."""
    protected, unprotected, payload, signature = strictly(data)
    header = strictly(protected)
    assert unprotected == {}
    assert header.keys() == {1, 3, 4}
    assert header[1] == -8
    content_type, signer = header[3], header[4]
    public_key = key_of(signer)
    assert digest(public_key)[:16] == signer
    try:
        signed = encode(["Signature1", protected, mesh, payload])
        Ed25519PublicKey.from_public_bytes(public_key).verify(signature, signed)
    except InvalidSignature as error:
        raise AssertionError(f"a {content_type} whose signature is wrong") from error
    return content_type, signer, strictly(payload)


def strictly(data: bytes) -> Any:
    """Decode what must be deterministic CBOR."""
    value = cbor2.loads(data)
    assert encode(value) == data, "not deterministic CBOR"
    return value
