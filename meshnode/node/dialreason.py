"""Why a target is dialed, or is not, at the moment: what the dialing plan says for itself (profile §11)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from meshnode.net.addresses import Address


class Dialing(StrEnum):
    """How it is with a target."""

    LINKED = "linked"  # there is a link, whoever dialed it
    DIALING = "dialing"  # an attempt is under way
    WAITING = "waiting"  # for the pause after the last attempt to end
    YIELDING = "yielding"  # for the smaller site to dial first
    QUEUED = "queued"  # its turn has come, and as many attempts as are made at once are under way
    NO_ADDRESS = "no-address"
    NO_PLACE = "max-links"  # others are nearer on the ring, and there are as many links as there may be
    DOUBLED = "doubled"  # one of its addresses is being dialed for another target
    OWN = "own"  # this very node answered there
    NO_TARGET = "no-target"  # no member that may be dialed


@dataclass(frozen=True, slots=True)
class DialReason:
    """How it is, and what led there."""

    state: Dialing
    in_s: float = 0.0  # until the next attempt, where it waits for one
    failures: int = 0  # one after the other
    error: str = ""  # why the last attempt led to no link, or the last link ended
    addresses: tuple[Address, ...] = ()  # what is tried, in this order
    elsewhere: tuple[tuple[Address, bytes], ...] = ()  # of these, where another site answered
