"""What became of every announcement in sight, in a word and in words: what people are shown (profile §11)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from meshnode.limits import REFUSED_ANNOUNCEMENTS


class Standing(StrEnum):
    """What an announcement is worth."""

    VERIFIED = "verified"  # a member attests it: its site is dialed there
    UNKNOWN_SITE = "unknown-site"  # no member's, so that nothing in it can be checked
    OTHER_MESH = "other-mesh"  # the same, and it announces another mesh's tag
    NO_ATTESTATION = "no-attestation"
    WRONG_PORT = "wrong-port"  # its attestation is for another one
    BAD_ATTESTATION = "bad-attestation"  # it does not verify, or is by another site
    MALFORMED = "malformed"
    OWN = "own"


@dataclass(frozen=True, slots=True)
class Seen:
    """One announcement as it was claimed, and what it is worth; `reason` says why it is not verified."""

    instance: str
    standing: Standing
    reason: str
    site: bytes | None = None
    tag: bytes | None = None
    port: int = 0
    addresses: tuple[str, ...] = ()


class Refused:
    """Announcements that do not count, kept to be shown until they go: the first ones, against a flood of others."""

    def __init__(self) -> None:
        self._kept: dict[str, Seen] = {}

    def keeps(self, instance: str) -> bool:
        """Whether it is kept."""
        return instance in self._kept

    def has_room(self, instance: str) -> bool:
        """Whether it is kept, or would be."""
        return instance in self._kept or len(self._kept) < REFUSED_ANNOUNCEMENTS

    def put(self, seen: Seen) -> None:
        """It does not count."""
        if self.has_room(seen.instance):
            self._kept[seen.instance] = seen

    def drop(self, instance: str) -> None:
        """It went away, or counts now."""
        self._kept.pop(instance, None)

    def all(self) -> list[Seen]:
        """Those that are kept."""
        return list(self._kept.values())
