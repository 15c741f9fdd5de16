"""What one run is like, drawn from its seed: all that differs between runs is here, so that a run can be read."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from meshnode.limits import BATCH_EVENTS, LIVE_BACKLOG, OFFER_WAIT_MS
from sim.chance import Chance
from sim.network import Direction, Weather
from sim.schedule import MS, SECOND

HOSTILE: Final = 9  # its number
TROUBLE: Final = (  # a kind, how many of the runs have it, how often at most in one
    ("crash", 0.5, 4),
    ("die in a transaction", 0.5, 6),
    ("die between effects", 0.4, 4),
    ("refuse writes", 0.3, 4),
    ("set a clock", 0.4, 6),
    ("break a link", 0.6, 12),
    ("cut one way", 0.3, 3),
    ("part the mesh", 0.4, 3),
    ("restore a copy", 0.25, 2),
    ("lose the disk", 0.15, 2),
    ("gain a column", 0.5, 3),
    ("make a table", 0.6, 3),
    ("compact", 0.15, 3),
    ("let a device in", 0.35, 2),
    ("give a role", 0.15, 3),
    ("retire a member", 0.3, 2),
    ("change a scope", 0.15, 3),
)
BUNDLES: Final = ("carry a bundle", 0.15, 3)  # likewise, drawn apart
TAKES_BACK: Final = {"retire a member", "give a role"}
"""What an event superseded comes back with these, unless it was compacted, or never asked for (feature `covering`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The choices of one run."""

    members: int
    hostile: bool  # one more member, who lies
    edges: tuple[Direction, ...]
    weather: dict[Direction, Weather]
    trouble_us: int  # how long things go wrong
    bursts: int  # of local writes
    job_us: int  # mean time of a job on the writer
    sync_us: int  # mean time until what it committed is on the disk
    event_us: int = 0  # what each event of a batch adds to that
    batch_events: int = BATCH_EVENTS  # what a frame holds at most: small ones make a long way of a short log
    live_backlog: int = LIVE_BACKLOG  # positions ahead of a cursor from which own new events go ahead of them
    mixed: bool = False  # whether some devices are older ones, now and then, which list fewer features
    offer_wait_ms: int = OFFER_WAIT_MS  # that an event waits for its author before it is offered
    trouble: tuple[tuple[str, int], ...]  # what goes wrong, and how often (`trouble.Trouble`)

    @property
    def compacts(self) -> bool:
        """Whether nodes drop events that no row needs."""
        return any(name == "compact" and times for name, times in self.trouble)

    @property
    def keeps_history(self) -> bool:
        """Whether somebody who left a table out asks for its history, not only for what its rows need."""
        names = {name for name, _ in self.trouble}
        return "change a scope" in names and not TAKES_BACK.isdisjoint(names)


def plan_of(seed: int) -> Plan:
    """The plan of a seed."""
    chance = Chance(seed, "plan")
    members = chance.pick((2, 2, 2, 3, 3, 3, 3, 4, 4, 5))
    edges = _edges(chance, members)
    hostile = chance.hit(0.35)
    if hostile:
        edges += tuple((HOSTILE, number) for number in chance.shuffled(range(1, members + 1))[:2])
    rough = chance.hit(0.5)
    bounds = Chance(seed, "bounds")
    return Plan(
        members=members,
        hostile=hostile,
        edges=edges,
        weather={edge: weather_of(chance, rough=rough) for edge in edges},
        trouble_us=chance.between(5, 40) * SECOND,
        bursts=chance.between(10, 25),
        job_us=chance.pick((2 * MS, 10 * MS, 50 * MS)),
        sync_us=chance.pick((1 * MS, 5 * MS, 40 * MS)),
        batch_events=bounds.pick((BATCH_EVENTS, BATCH_EVENTS, 1, 3, 12)),
        live_backlog=bounds.pick((LIVE_BACKLOG, LIVE_BACKLOG, 0, 3, 12)),
        mixed=bounds.hit(0.2),
        offer_wait_ms=bounds.pick((OFFER_WAIT_MS, OFFER_WAIT_MS, 50, 500, 3_000)),
        trouble=(*_trouble(chance), *_bundles(Chance(seed, "bundles"))),
    )


def _trouble(chance: Chance) -> tuple[tuple[str, int], ...]:
    trouble = {name: chance.between(1, most) for name, often, most in TROUBLE if chance.hit(often)}
    if not TAKES_BACK.isdisjoint(trouble):
        trouble.pop("compact", None)
    return tuple(trouble.items())


def _bundles(chance: Chance) -> tuple[tuple[str, int], ...]:
    name, often, most = BUNDLES
    return ((name, chance.between(1, most)),) if chance.hit(often) else ()


def _edges(chance: Chance, members: int) -> tuple[Direction, ...]:
    """A line, a star, a ring or a full mesh."""
    numbers = chance.shuffled(range(1, members + 1))
    line = list(pairwise(numbers))
    kind = chance.pick(("line", "star", "ring", "full", "full"))
    if kind == "star":
        return tuple((numbers[0], other) for other in numbers[1:])
    if kind == "ring" and members > 2:
        return (*line, (numbers[-1], numbers[0]))
    if kind == "full":
        return tuple((one, other) for at, one in enumerate(numbers) for other in numbers[at + 1 :])
    return tuple(line)


def weather_of(chance: Chance, *, rough: bool) -> Weather:
    """What a link is like; rough ones lose and are slow."""
    return Weather(
        latency_us=chance.pick((200, 5 * MS, 60 * MS)),
        jitter_us=chance.pick((100, 5 * MS, 100 * MS)),
        loss=chance.pick((0.05, 0.2, 0.4)) if rough else 0.0,
        bytes_per_ms=chance.pick((20, 1_000, 10_000)) if rough else 10_000,
    )
