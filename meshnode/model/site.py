"""Sites: site keys, the ids derived from them, and what of a mesh is public (profile §3)."""

from __future__ import annotations

from dataclasses import dataclass, field

from meshnode.codec import ed25519
from meshnode.codec.digest import blake3_256, derive_key
from meshnode.errors import IdentityError

SITE_BYTES = 16
MESH_ID_BYTES = 16
MESH_TAG_BYTES = 8
_DATABASE_CONTEXT = "meshnode 2026 database key v1"
_TAG_CONTEXT = "meshnode 2026 mesh tag v1"
_HEX_DIGITS = frozenset("0123456789abcdef")


def site_id_of(public_key: bytes) -> bytes:
    """The id of the site that authors with `public_key`."""
    if len(public_key) != ed25519.PUBLIC_KEY_BYTES:
        raise IdentityError(f"a site's public key has {ed25519.PUBLIC_KEY_BYTES} bytes, not {len(public_key)}")
    return blake3_256(public_key)[:SITE_BYTES]


def site_text(site: bytes) -> str:
    """32 lowercase hex digits."""
    return site.hex()


def short_text(site: bytes) -> str:
    """The first 8 of them, for people."""
    return site.hex()[:8]


def parse_site(text: str) -> bytes:
    """The site id that a text form names."""
    if len(text) != 2 * SITE_BYTES or not _HEX_DIGITS.issuperset(text):
        raise IdentityError(f"a site id is {2 * SITE_BYTES} lowercase hex digits, not {text[:64]!r}")
    return bytes.fromhex(text)


def mesh_tag(mesh_id: bytes) -> bytes:
    """The public hint by which members find each other; it does not reveal the mesh id."""
    return derive_key(_TAG_CONTEXT, mesh_id, MESH_TAG_BYTES)


@dataclass(frozen=True, slots=True)
class SiteKey:
    """One authoring identity. The secret never shows in a repr, so never in a log."""

    public_key: bytes
    site: bytes
    secret: bytes = field(repr=False)

    @classmethod
    def from_seed(cls, seed: bytes) -> SiteKey:
        """The key of a 32-byte seed."""
        public_key, secret = ed25519.secret_key_from_seed(seed)
        return cls(public_key, site_id_of(public_key), secret)

    @property
    def seed(self) -> bytes:
        """What the key is kept as on disk."""
        return self.secret[: ed25519.SEED_BYTES]

    def database_key(self) -> bytes:
        """The key of this device's database, where that is encrypted."""
        return derive_key(_DATABASE_CONTEXT, self.seed)

    def sign(self, message: bytes) -> bytes:
        """The signature of `message` by this site."""
        return ed25519.sign(self.secret, message)
