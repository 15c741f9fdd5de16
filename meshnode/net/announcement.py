"""One announcement as it was claimed, and the attestation in it: reading both, without I/O (profile §11)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from meshnode.errors import MalformedError
from meshnode.limits import LABEL_BYTES, RECORD_BYTES
from meshnode.model.record import ENDPOINT, EndpointAttestation, open_record_untrusted


@dataclass(frozen=True, slots=True)
class Attested:
    """A verified endpoint attestation: who signed it, and for which port and start of the node."""

    signer: bytes
    port: int
    boot: bytes
    issued: int


# Opens an attestation record; raises UnknownSignerError for a site not in the keyring, EnvelopeError otherwise.
OpenAttestation = Callable[[bytes], Attested]


def attestation_opener(mesh_id: bytes, key_of: Callable[[bytes], bytes | None]) -> OpenAttestation:
    """Attestations as members of one mesh sign them; `key_of` is asked each time, so the keyring may change."""

    def open_untrusted(data: bytes) -> Attested:
        record = open_record_untrusted(data, mesh_id=mesh_id, key_of=key_of, content_type=ENDPOINT)
        if not isinstance(record.body, EndpointAttestation):
            raise MalformedError("the record is no endpoint attestation")
        return Attested(record.signer, record.body.port, record.body.boot, record.body.issued)

    return open_untrusted


@dataclass(frozen=True, slots=True)
class Announcement:
    """One resolved service instance, as it was claimed."""

    instance: str
    site: bytes
    tag: bytes
    port: int
    addresses: tuple[str, ...]
    attestation: bytes
    nearby: int = 0
    name: str = ""


def parse_txt_untrusted(
    instance: str, port: int | None, properties: Mapping[bytes, bytes | None], addresses: Iterable[str]
) -> Announcement:
    """Check the shape of a resolved instance; raises MalformedError for what is not version 1 of this profile."""
    if properties.get(b"v") != b"1":
        raise MalformedError("the announcement is not of version 1")
    site = _hex(properties.get(b"site"), 16, "site")
    tag = _hex(properties.get(b"tag"), 8, "tag")
    attestation = properties.get(b"att") or b""
    if len(attestation) > RECORD_BYTES:
        raise MalformedError("the announcement's attestation is larger than a record")
    if port is None or not 0 < port < 65536:
        raise MalformedError("the announcement has no port")
    return Announcement(instance, site, tag, port, tuple(addresses), attestation, *_nearby(properties))


def _nearby(properties: Mapping[bytes, bytes | None]) -> tuple[int, str]:
    """The port for nearby devices and the name; what is not of that shape counts as not there."""
    near, name = properties.get(b"near") or b"", properties.get(b"name") or b""
    if not (near.isdigit() and len(near) <= 5 and 0 < int(near) < 65536) or len(name) > LABEL_BYTES:
        return 0, ""
    return int(near), name.decode("utf-8", "replace")


def _hex(value: bytes | None, size: int, name: str) -> bytes:
    # Exactly lower-case hex: bytes.fromhex would also take spaces and capitals.
    if value is not None and len(value) == 2 * size and all(digit in b"0123456789abcdef" for digit in value):
        return bytes.fromhex(value.decode("ascii"))
    raise MalformedError(f"the announcement's {name} is not {2 * size} lower-case hex digits")
