"""Which of two links to one site stays: the duplicate-link rule as a pure decision (profile §7)."""

from __future__ import annotations

from enum import Enum


class Keep(Enum):
    """What to do with an older, live link and a newer, just authenticated one."""

    NEWER = "newer"  # one end dialed both: the older one is dead or about to be
    AS_ACCEPTED = "as-accepted"  # we dialed both at once: which is the newer is for the end to say that saw them arrive
    OLDER_IF_ALIVE = "older-if-alive"  # crossed, and the older was dialed by the smaller site
    NEWER_IF_ALIVE = "newer-if-alive"  # crossed, and the newer was dialed by the smaller site


def decide(
    own_site: bytes, peer_site: bytes, *, older_opened_by_us: bool, newer_opened_by_us: bool, overlapping: bool
) -> Keep:
    """Both ends come to one answer, whichever link each of them saw first.

    `overlapping`: the newer was dialed before the peer had confirmed the older, so they may have arrived the other way
    round there.
    """
    if older_opened_by_us == newer_opened_by_us:
        return Keep.AS_ACCEPTED if newer_opened_by_us and overlapping else Keep.NEWER
    ours_wins = own_site < peer_site
    return Keep.OLDER_IF_ALIVE if older_opened_by_us == ours_wins else Keep.NEWER_IF_ALIVE
