"""How discovery keeps time, and how it says how it is doing (profile §11)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pace:
    """How often discovery does what, in seconds."""

    rescan_s: float = 5.0  # between two looks at the interfaces
    sweep_s: float = 30.0  # between two looks for instances whose records ran out: they left without a goodbye
    heard_s: float = 5.0  # after asking, until not having heard oneself is worth saying
    resolve_s: float = 3.0  # for an instance to answer
    browse_s: float = 10.0  # at least between two fresh questions to the network
    requery_s: float = 120.0  # until asking again unprompted: a cable that was out for a while shows in no address
    retry_s: float = 1.0  # first pause after a failure; doubles
    retry_cap_s: float = 60.0
    ignored_s: float = 60.0  # between two notices about announcements that do not count
    ttl_s: int = 120  # lifetime of our host records (RFC 6762 §10)


@dataclass(frozen=True, slots=True)
class DiscoveryState:
    """Whether nodes can be found at the moment; `reason` says what is wrong or limited, if anything."""

    working: bool
    reason: str
