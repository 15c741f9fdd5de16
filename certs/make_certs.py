"""Makes the certificate fixtures beside it, good and deliberately bad, for the handshake tests (profile §7).

    python certs/make_certs.py

Everything is derived from fixed seeds, so that running it again changes nothing. The keys protect nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from meshnode.model.record import seal_binding
from meshnode.model.site import SiteKey
from meshnode.net.identity import self_signed, spki_digest

MESH = bytes(range(16))
OTHER_MESH = bytes(range(16, 32))
ISSUED = 1_760_000_000_000

ALICE = SiteKey.from_seed(b"certificate fixtures: site alice")
BOB = SiteKey.from_seed(b"certificate fixtures: site  bob ")
STRANGER = SiteKey.from_seed(b"certificate fixtures: a stranger")


def tls_key(name: str) -> Ed25519PrivateKey:
    """The TLS key of one fixture."""
    return Ed25519PrivateKey.from_private_bytes(f"fixture tls key {name}".ljust(32).encode()[:32])


def binding(site: SiteKey, key: Ed25519PrivateKey, mesh: bytes = MESH) -> bytes:
    """An honest transport binding."""
    return seal_binding(site, mesh, spki_digest(key.public_key()), ISSUED)


def signed_by_another(name: str) -> bytes:
    """Alice's site and public key, Bob's signature."""
    forger = SiteKey(ALICE.public_key, ALICE.site, BOB.secret)
    return binding(forger, tls_key(name))


def fixtures() -> Iterator[tuple[str, list[x509.Certificate], Ed25519PrivateKey]]:
    """Name, certificates in the order in which they are presented, and the key that proves the first."""
    bindings: dict[str, bytes | None] = {
        "alice": binding(ALICE, tls_key("alice")),
        "bob": binding(BOB, tls_key("bob")),
        "stranger": binding(STRANGER, tls_key("stranger")),
        "no-binding": None,
        "signed-by-another-key": signed_by_another("signed-by-another-key"),
        "lifted-from-alice": binding(ALICE, tls_key("alice")),
        "other-mesh": binding(ALICE, tls_key("other-mesh"), OTHER_MESH),
        "garbage-binding": b"\x84\x58\x20 not a record at all",
        "empty-binding": b"",
    }
    for serial, (name, value) in enumerate(bindings.items(), start=1):
        key = tls_key(name)
        yield name, [self_signed(key, value, serial=serial)], key
    key = tls_key("two-certificates")
    first = self_signed(key, binding(ALICE, key), serial=100)
    second = self_signed(tls_key("bob"), binding(BOB, tls_key("bob")), serial=101)
    yield "two-certificates", [first, second], key


def pem(certificates: list[x509.Certificate], key: Ed25519PrivateKey) -> bytes:
    """One fixture file."""
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return b"".join(certificate.public_bytes(Encoding.PEM) for certificate in certificates) + secret


def main(folder: Path) -> None:
    """Write every fixture into `folder`."""
    for name, certificates, key in fixtures():
        (folder / f"{name}.pem").write_bytes(pem(certificates, key))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
