"""How much each scenario may do: by time where a rate is measured, by number where the number is the point.

The quick plan gives each scenario a slice of 45 s, and does less in it on a slow machine; the full one does what the
figures of a release are taken from, five rounds of it, and takes half an hour.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Plan:
    """Seconds are of one measurement; of `rounds` of them the median counts."""

    rounds: int
    ceiling_s: float  # each single ceiling
    stream_s: float  # bulk over one stream, bare aioquic and this node's endpoint each
    author_s: float  # in transactions of 500, and the same one by one
    apply_s: float  # verified and durable
    apply_events: int  # the most that are made for it
    load_s: float  # writing what is caught up then
    catch_up_events: int  # the most of them
    live_writes: int
    fan_out_events: int
    fan_out_peers: int
    idle_s: float
    idle_peers: int
    starts: int
    growth_events: int  # of one more catch-up, for how rates change with the log; 0: the catch-up itself tells


QUICK: Final = Plan(
    rounds=1,
    ceiling_s=0.35,
    stream_s=1.0,
    author_s=1.2,
    apply_s=1.2,
    apply_events=20_000,
    load_s=2.0,
    catch_up_events=20_000,
    live_writes=100,
    fan_out_events=1_000,
    fan_out_peers=8,
    idle_s=2.5,
    idle_peers=20,
    starts=1,
    growth_events=0,
)

FULL: Final = Plan(
    rounds=5,
    ceiling_s=1.0,
    stream_s=4.0,
    author_s=4.0,
    apply_s=4.0,
    apply_events=60_000,
    load_s=120.0,
    catch_up_events=100_000,
    live_writes=300,
    fan_out_events=5_000,
    fan_out_peers=8,
    idle_s=20.0,
    idle_peers=20,
    starts=3,
    growth_events=1_000_000,
)
