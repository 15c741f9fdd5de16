"""Everything that a run measured, as values; what of it is a ratio is reckoned from these alone.

`fsyncs` is how often the database was brought to the disk. Nothing portable counts the calls, so they are told from
what makes them: with `synchronous=FULL` each commit to the WAL is one; a checkpoint is one of the WAL's, one of the
database file's, and one of the new WAL's head. Commits are counted by who makes them, checkpoints by the sequence
number in the head of the WAL (`durability.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from statistics import median
from typing import TypeVar

import msgspec


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """What one scenario found."""


F = TypeVar("F", bound=Figure)


class Machine(Figure, frozen=True, kw_only=True):
    """Where it was measured; `load` is what else ran when it began (the load average of a minute)."""

    cores: int
    platform: str
    python: str
    sqlite: str
    meshnode: str
    load: float


class Ceilings(Figure, frozen=True, kw_only=True):
    """What the libraries do by themselves, on the very bytes and rows of the scenarios."""

    verify_per_s: float  # one core, Ed25519 through `nacl.bindings`
    verify_all_cores_per_s: float
    sign_per_s: float
    sign_all_cores_per_s: float
    blake3_per_s: float
    upserts_per_s: float  # plain SQLite: the same rows, transactions and fsyncs
    upsert_fsyncs_per_1000: float
    fsync_ms: float  # one append of a page and its fsync, median
    event_bytes: float


class Goodput(Figure, frozen=True, kw_only=True):
    """One stream of bulk on loopback, between two processes."""

    bare_mb_per_s: float  # aioquic's own client and server at their defaults
    own_mb_per_s: float  # this node's endpoint


class Author(Figure, frozen=True, kw_only=True):
    """Rows written at a node without a network: signed and on disk."""

    per_s: float  # in transactions of 500
    fsyncs_per_1000: float
    single_per_s: float  # one by one
    event_bytes: float


class Apply(Figure, frozen=True, kw_only=True):
    """Foreign events through the door, in batches: each is verified, and on disk before its ack could leave."""

    per_s: float
    verify_per_s: float  # of the same events, measured in turn with it: the machine may be busy
    fsyncs_per_1000: float
    cpu_us_per_event: float


class Window(Figure, frozen=True, kw_only=True):
    """A catch-up when so many events were there: how fast the last of them came."""

    events: int
    per_s: float


class CatchUp(Figure, frozen=True, kw_only=True):
    """Two node processes: what one wrote while the other was cut off, from the link until it is readable there."""

    events: int
    seconds: float
    per_s: float
    mb_per_s: float  # of event bytes
    sender_cpu_s: float
    receiver_cpu_s: float
    sender_peak_mb: float
    receiver_peak_mb: float
    receiver_fsyncs_per_1000: float
    database_bytes_per_event: float
    event_bytes: float


class Live(Figure, frozen=True, kw_only=True):
    """Single writes, one after the other: from the call at one node to who follows the changes of another."""

    writes: int
    median_ms: float
    p99_ms: float
    max_ms: float


class Start(Figure, frozen=True, kw_only=True):
    """From `meshnode up` to the first row that was written elsewhere meanwhile."""

    to_up_s: float
    to_first_row_s: float


class FanOut(Figure, frozen=True, kw_only=True):
    """What the same writes cost their author, with one peer and with several, until all acknowledged them."""

    events: int
    peers: int
    one_cpu_s: float
    all_cpu_s: float


class Idle(Figure, frozen=True, kw_only=True):
    """A node while nothing happens, with one peer and with several."""

    peers: int
    one_cpu_percent: float  # of a core
    all_cpu_percent: float
    one_memory_mb: float
    all_memory_mb: float


class Figures(Figure, frozen=True, kw_only=True):
    """A run; None for what was not asked for."""

    machine: Machine
    seconds: float = 0.0
    rounds: int = 1
    ceilings: Ceilings | None = None
    goodput: Goodput | None = None
    author: Author | None = None
    apply: Apply | None = None
    start: Start | None = None
    catch_up: CatchUp | None = None
    live: Live | None = None
    fan_out: FanOut | None = None
    idle: Idle | None = None
    growth: tuple[Window, ...] = ()
    growth_run: CatchUp | None = None  # the catch-up that `growth` is of, where it is another one


def ratios(figures: Figures) -> dict[str, float]:
    """Own figures against ceilings of the same run, to one core; those that both sides were measured of."""
    found: dict[str, float] = {}
    ceilings, apply, catch_up = figures.ceilings, figures.apply, figures.catch_up
    if apply is not None:
        found["apply_to_verify"] = over(apply.per_s, apply.verify_per_s)
    verify = ceilings.verify_per_s if ceilings is not None else apply.verify_per_s if apply is not None else 0.0
    if catch_up is not None and verify:
        found["catchup_to_verify"] = over(catch_up.per_s, verify)
    if ceilings is not None and figures.author is not None:
        found["author_to_sign"] = over(figures.author.per_s, ceilings.sign_per_s)
    if ceilings is not None and apply is not None:
        found["apply_to_upserts"] = over(apply.per_s, ceilings.upserts_per_s)
    if figures.goodput is not None:
        found["goodput_to_aioquic"] = over(figures.goodput.own_mb_per_s, figures.goodput.bare_mb_per_s)
    if figures.fan_out is not None:
        found["fan_out_to_one"] = over(figures.fan_out.all_cpu_s, figures.fan_out.one_cpu_s)
    if (idle := figures.idle) is not None and idle.peers > 1:
        found["memory_mb_per_peer"] = (idle.all_memory_mb - idle.one_memory_mb) / (idle.peers - 1)
    if len(figures.growth) > 1:
        found["growth_last_to_first"] = over(figures.growth[-1].per_s, figures.growth[0].per_s)
    return found


def over(part: float, whole: float) -> float:
    """Their quotient; 0 where nothing was measured below the line."""
    return part / whole if whole else 0.0


def middle(rounds: Sequence[F]) -> F:
    """The median of each number over the rounds."""
    first = rounds[0]
    numbers = {name: [getattr(each, name) for each in rounds] for name in first.__struct_fields__}
    exact = {name: median(found) for name, found in numbers.items() if isinstance(found[0], int | float)}
    kept = {name: type(getattr(first, name))(value) for name, value in exact.items()}
    return msgspec.structs.replace(first, **kept)


def percentile(values: Sequence[float], share: float) -> float:
    """The value that this share of them does not exceed."""
    ordered = sorted(values)
    return ordered[max(ceil(len(ordered) * share) - 1, 0)]
