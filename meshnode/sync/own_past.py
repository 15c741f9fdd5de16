"""What a peer claims of this node's own events beyond what it knows: an old copy of it was restored (profile §8).

Each reading is asked for once on a link, since the peer may claim what it does not hold any more; and once more where
it came while an earlier request was being answered, with what the peer held when that began.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from meshnode.model.frames import FEATURE_COVERING, WHAT_SITE, Request
from meshnode.model.frames_untrusted import decode_control_untrusted
from meshnode.model.hlc import ZERO, Hlc, beyond_skew
from meshnode.sync.effects import RolledBack


class OwnPast:
    """Of one link; `asked` are always the requests of this node that are known to go to the peer, as CBOR."""

    __slots__ = ("_asked", "_begun", "_later", "_site")

    def __init__(self, site: bytes) -> None:
        self._site = site
        self._asked = ZERO  # the latest event of ours that the peer was asked for because it claimed it
        self._begun: frozenset[bytes] = frozenset()  # requests that it may be answering without that event
        self._later: Hlc | None = None  # told by the hello, and beyond the skew bound so far

    def greeted(self, claimed: Hlc, *, skewed: bool, known: Hlc, asked: Iterable[bytes]) -> None:
        """The hello names our newest event; what is within the skew bound is asked for at once."""
        if skewed:
            self._later = claimed if claimed > known else None
            return
        self._asked = claimed
        if claimed > known:
            self._begun = self._of_ours(asked)

    def claimed(self, ahead: Hlc | None, asked: Iterable[bytes]) -> list[RolledBack]:
        """By its watermarks the peer knows of an event of ours that is not known here."""
        return [] if ahead is None or ahead <= self._asked else self._ask(ahead, asked)

    def answered(self, requests: Collection[bytes], known: Hlc) -> list[RolledBack]:
        """The peer answered some requests; `known` is our newest event now."""
        if self._begun.isdisjoint(requests):
            return []
        self._begun = frozenset()
        return [RolledBack(self._asked)] if self._asked > known else []

    def time_passed(self, now_ms: int, asked: Iterable[bytes]) -> list[RolledBack]:
        """What was beyond the skew bound counts once it is within it."""
        later = self._later
        if later is None or beyond_skew(later.physical, now_ms):
            return []
        self._later = None
        return self._ask(max(later, self._asked), asked)

    def _ask(self, claimed: Hlc, asked: Iterable[bytes]) -> list[RolledBack]:
        self._asked, self._begun = claimed, self._of_ours(asked)
        return [RolledBack(claimed)]

    def _of_ours(self, asked: Iterable[bytes]) -> frozenset[bytes]:
        decoded = (decode_control_untrusted(body, frozenset({FEATURE_COVERING})) for body in asked)
        return frozenset(
            each.id
            for each in decoded
            if isinstance(each, Request) and (each.what, each.site) == (WHAT_SITE, self._site)
        )
