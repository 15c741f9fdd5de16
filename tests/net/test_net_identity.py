"""The certificate and its binding, taken apart without a network (profile §7)."""

from __future__ import annotations

import importlib.util
import warnings
from pathlib import Path
from types import ModuleType

import pytest
from aioquic.tls import load_pem_x509_certificates
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import Encoding
from hypothesis import given, settings
from hypothesis import strategies as st
from support.quic import ALICE, BOB, CERTS, MESH, STRANGER, identity

from meshnode.errors import CloseCode, TransportError
from meshnode.model.record import seal_binding
from meshnode.net.identity import BINDING_OID, authenticate_untrusted, self_signed, spki_digest

ANOTHER_MESH = b"a different mesh"


def presented(fixture: str) -> list[x509.Certificate]:
    """The certificates of a fixture."""
    return load_pem_x509_certificates((CERTS / f"{fixture}.pem").read_bytes().partition(b"-----BEGIN PRIVATE")[0])


def refusal(certificates: list[x509.Certificate], mesh: bytes = MESH) -> str:
    """Why these are refused; the code is always the same, since the reasons look alike from outside."""
    with pytest.raises(TransportError) as caught:
        authenticate_untrusted(certificates, mesh)
    assert caught.value.code is CloseCode.NOT_AUTHENTICATED
    return str(caught.value)


def maker() -> ModuleType:
    """certs/make_certs.py as a module."""
    spec = importlib.util.spec_from_file_location("make_certs", CERTS / "make_certs.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_fixtures_are_what_their_script_makes(tmp_path: Path) -> None:
    maker().main(tmp_path)
    made = {path.name: path.read_bytes() for path in tmp_path.glob("*.pem")}
    assert made == {path.name: path.read_bytes() for path in CERTS.glob("*.pem")}


@pytest.mark.parametrize(("fixture", "key"), [("alice", ALICE), ("bob", BOB), ("stranger", STRANGER)])
def test_good_certificates(fixture: str, key: object) -> None:
    certificates = presented(fixture)
    peer = authenticate_untrusted(certificates, MESH)
    assert (peer.site, peer.public_key) == (key.site, key.public_key)
    assert peer.spki == spki_digest(certificates[0].public_key())


@pytest.mark.parametrize(
    ("fixture", "reason"),
    [
        ("no-binding", "without a transport binding"),
        ("signed-by-another-key", "bad-signature"),
        ("lifted-from-alice", "another certificate"),
        ("other-mesh", "bad-signature"),
        ("garbage-binding", "malformed"),
        ("empty-binding", "malformed"),
        ("two-certificates", "2 certificates"),
    ],
)
def test_bad_certificates(fixture: str, reason: str) -> None:
    assert reason in refusal(presented(fixture))


def test_no_certificate_and_another_mesh() -> None:
    assert "no certificate" in refusal([])
    assert "a device of another mesh" in refusal(presented("alice"), ANOTHER_MESH)


def test_our_own_certificate() -> None:
    own = identity(ALICE)
    extension = own.certificate.extensions.get_extension_for_oid(BINDING_OID)
    assert not extension.critical
    assert len(list(own.certificate.extensions)) == 1
    assert list(own.certificate.subject) == []
    peer = authenticate_untrusted([own.certificate], MESH)
    assert (peer.site, peer.spki) == (ALICE.site, own.spki)


def test_a_p256_tls_key_is_as_good() -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = self_signed(key, seal_binding(ALICE, MESH, spki_digest(key.public_key()), 1))
    assert authenticate_untrusted([certificate], MESH).site == ALICE.site


def test_other_tls_keys_are_not() -> None:
    key = ec.generate_private_key(ec.SECP384R1())
    certificate = self_signed(key, seal_binding(ALICE, MESH, spki_digest(key.public_key()), 1))
    assert "neither Ed25519 nor P-256" in refusal([certificate])


def test_an_oversized_binding() -> None:
    certificate = self_signed(ed25519.Ed25519PrivateKey.generate(), bytes(16 * 1024 + 1))
    assert "16385 bytes" in refusal([certificate])


@settings(max_examples=200)
@given(st.integers(0, 10_000), st.integers(1, 255))
def test_a_certificate_damaged_anywhere_is_refused_or_never_parsed(position: int, flip: int) -> None:
    der = bytearray(presented("alice")[0].public_bytes(Encoding.DER))
    der[position % len(der)] ^= flip
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            certificate = x509.load_der_x509_certificate(bytes(der))
    except (ValueError, x509.InvalidVersion):
        return
    try:
        peer = authenticate_untrusted([certificate], MESH)
    except TransportError:
        return
    # Damage outside key and binding (a date, the serial, the certificate's own signature) proves and harms nothing.
    assert peer.site == ALICE.site
