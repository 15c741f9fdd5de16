"""The TLS identity of one start of a node, and what a peer's must look like (profile §7).

The certificate proves possession of a TLS key; the transport binding inside it ties that key to a site of this mesh.
No certificate authority and no date is looked at: nothing expires, retirement is what ends a site.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from meshnode.codec.digest import blake3_256
from meshnode.errors import BadSignatureError, CloseCode, EnvelopeError, TransportError
from meshnode.limits import RECORD_BYTES
from meshnode.model.record import open_binding_untrusted, seal_binding
from meshnode.model.site import SiteKey

BINDING_OID = x509.ObjectIdentifier("2.25.288181926021832004010977585273114422337")
_NAME = x509.Name([])  # says nothing: whoever listens on the LAN reads it
_FROM = datetime(2000, 1, 1, tzinfo=UTC)
_UNTIL = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)

TlsKey = ed25519.Ed25519PrivateKey | ec.EllipticCurvePrivateKey


@dataclass(frozen=True, slots=True)
class EndpointIdentity:
    """What this node shows of itself; the TLS key lives in memory only and is made afresh at every start."""

    mesh_id: bytes
    key: SiteKey
    certificate: x509.Certificate
    spki: bytes  # BLAKE3-256 of the certificate's SubjectPublicKeyInfo
    tls_key: TlsKey = field(repr=False)

    @classmethod
    def create(cls, mesh_id: bytes, key: SiteKey, now_ms: int) -> EndpointIdentity:
        """Make a TLS key and bind it to the site; `now_ms` is written down and never compared."""
        tls_key = ed25519.Ed25519PrivateKey.generate()
        spki = spki_digest(tls_key.public_key())
        binding = seal_binding(key, mesh_id, spki, now_ms)
        return cls(mesh_id, key, self_signed(tls_key, binding), spki, tls_key)


@dataclass(frozen=True, slots=True)
class AuthenticatedPeer:
    """A site of this mesh, proven by its TLS key and binding; whether it is a member is another question."""

    site: bytes
    public_key: bytes
    spki: bytes


def spki_digest(public_key: ed25519.Ed25519PublicKey | ec.EllipticCurvePublicKey) -> bytes:
    """The digest that a binding carries."""
    return blake3_256(public_key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo))


def self_signed(tls_key: TlsKey, binding: bytes | None, *, serial: int | None = None) -> x509.Certificate:
    """A certificate by `tls_key` for itself, with the binding as a non-critical extension."""
    builder = (
        x509.CertificateBuilder()
        .subject_name(_NAME)
        .issuer_name(_NAME)
        .public_key(tls_key.public_key())
        .serial_number(serial or x509.random_serial_number())
        .not_valid_before(_FROM)
        .not_valid_after(_UNTIL)
    )
    if binding is not None:
        builder = builder.add_extension(x509.UnrecognizedExtension(BINDING_OID, binding), critical=False)
    digest = None if isinstance(tls_key, ed25519.Ed25519PrivateKey) else hashes.SHA256()
    return builder.sign(tls_key, digest)


def authenticate_untrusted(certificates: list[x509.Certificate], mesh_id: bytes) -> AuthenticatedPeer:
    """The site that presented `certificates`; TransportError with `not-authenticated` and the reason otherwise."""
    if len(certificates) != 1:
        raise _refusal("no certificate" if not certificates else f"{len(certificates)} certificates instead of one")
    spki, binding = _read_untrusted(certificates[0])
    if len(binding) > RECORD_BYTES:
        raise _refusal(f"a transport binding of {len(binding)} bytes")
    try:
        bound, site = open_binding_untrusted(binding, mesh_id)
    except EnvelopeError as error:
        if isinstance(error, BadSignatureError):  # the mesh id is signed along, so this is what another mesh's is like
            raise _refusal(f"a device of another mesh answered, or one that forges ({error.reason})") from error
        raise _refusal(f"transport binding that is damaged ({error.reason})") from error
    if bound.spki != spki:
        raise _refusal("transport binding made for another certificate")
    return AuthenticatedPeer(site, bound.public_key, spki)


def _read_untrusted(certificate: x509.Certificate) -> tuple[bytes, bytes]:
    """SPKI digest and binding bytes. A parser of hostile DER raises what it likes, so all of it is one refusal."""
    try:
        public_key = certificate.public_key()
        extension = certificate.extensions.get_extension_for_oid(BINDING_OID).value
        if not isinstance(public_key, ed25519.Ed25519PublicKey) and not (
            isinstance(public_key, ec.EllipticCurvePublicKey) and isinstance(public_key.curve, ec.SECP256R1)
        ):
            raise _refusal("TLS key that is neither Ed25519 nor P-256")
        if not isinstance(extension, x509.UnrecognizedExtension):
            raise _refusal("certificate without a transport binding")
        return spki_digest(public_key), extension.value
    except x509.ExtensionNotFound as error:
        raise _refusal("certificate without a transport binding") from error
    except TransportError:
        raise
    except Exception as error:
        raise _refusal(f"certificate that cannot be read ({type(error).__name__})") from error


def _refusal(reason: str) -> TransportError:
    return TransportError(reason, CloseCode.NOT_AUTHENTICATED)
