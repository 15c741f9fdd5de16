"""What the apply path asks of membership (profile §6, §9): an immutable snapshot, replaced as a whole."""

from __future__ import annotations

from typing import Protocol

from meshnode.model.hlc import Hlc


class Keyring(Protocol):
    """A snapshot of who may sign what. Any thread may read it."""

    def key_of(self, site: bytes) -> bytes | None:
        """The site's public key, None where the site was never vouched for (`unknown-signer`)."""

    def judge(self, site: bytes, hlc: Hlc) -> str | None:
        """None where an event of this site at this HLC is acceptable, else the reason that drops it."""

    def retired(self, site: bytes) -> Hlc | None:
        """The cutoff of a retired site."""
