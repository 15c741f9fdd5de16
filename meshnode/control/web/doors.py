"""Who may see the dashboard: ways in that work once, and the sessions that they turn into (clock and chance are given).

Both are kept as digests, so that what lies in memory opens nothing, and compared in constant time.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from typing import Final

from meshnode.codec.digest import blake3_256

TICKET_S: Final = 60.0  # seconds that a way in is open
TICKETS: Final = 8  # open at once, the oldest goes first; against a script that asks for one after another
SESSION_IDLE_S: Final = 12 * 3600.0  # seconds after which a browser that asked for nothing is not known any more
SESSIONS: Final = 16  # browsers at once, the one that was idle longest goes first


class Doors:
    """`now` is a monotonic clock in seconds, `secret` gives text that nobody guesses."""

    def __init__(self, now: Callable[[], float], secret: Callable[[], str]) -> None:
        self._now = now
        self._secret = secret
        self._tickets: dict[bytes, float] = {}  # digest to when it ends, the oldest first
        self._sessions: dict[bytes, float] = {}  # digest to when it ends without another request, likewise

    def ticket(self) -> str:
        """A new way in."""
        text = self._secret()
        _keep(self._tickets, _digest(text), self._now() + TICKET_S, TICKETS)
        return text

    def redeem(self, ticket: str) -> str | None:
        """A session for a ticket that is open, which is used up by that; None for anything else."""
        held = self._held(self._tickets, ticket)
        if held is None:
            return None
        del self._tickets[held]
        session = self._secret()
        _keep(self._sessions, _digest(session), self._now() + SESSION_IDLE_S, SESSIONS)
        return session

    def knows(self, session: str) -> bool:
        """Whether it is one; then it lives on."""
        held = self._held(self._sessions, session)
        if held is None:
            return False
        del self._sessions[held]
        _keep(self._sessions, held, self._now() + SESSION_IDLE_S, SESSIONS)
        return True

    def _held(self, kept: dict[bytes, float], text: str) -> bytes | None:
        now = self._now()
        for digest in [digest for digest, ends in kept.items() if ends <= now]:
            del kept[digest]
        given, found = _digest(text), None
        for digest in kept:  # every one, whether or not it was found: how long it takes tells nothing
            if hmac.compare_digest(digest, given):
                found = digest
        return found


def _keep(kept: dict[bytes, float], digest: bytes, ends: float, most: int) -> None:
    kept[digest] = ends
    while len(kept) > most:
        del kept[next(iter(kept))]


def _digest(text: str) -> bytes:
    return blake3_256(text.encode("utf-8", "replace"))
