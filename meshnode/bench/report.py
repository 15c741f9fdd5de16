"""A run for people, row by row, and for programs, as one object; what the ratios are of stands in `figures`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from meshnode.bench.figures import Apply, Author, CatchUp, Ceilings, Figures, Idle, ratios
from meshnode.limits import CHANGES_KEPT


class Line(NamedTuple):
    """One figure: of what it is, its number as text, its unit, and what makes it comparable."""

    group: str
    figure: str
    value: str
    unit: str
    note: str = ""


COLUMNS: Final = ("group", "figure", "value", "unit", "note")
_RATIOS: Final = {
    "apply_to_verify": ("apply to raw verify of one core", "≥ 0.75"),
    "catchup_to_verify": ("catch-up to raw verify of one core", "≥ 0.5"),
    "author_to_sign": ("author to raw sign of one core", ""),
    "apply_to_upserts": ("apply to raw SQLite upserts", ""),
    "goodput_to_aioquic": ("goodput to bare aioquic", "≥ 2"),
    "fan_out_to_one": ("author's CPU, all peers to one", "≤ 2.5 with 8"),
    "memory_mb_per_peer": ("memory of each further idle peer, MB", "≤ 0.5"),
    "growth_last_to_first": ("catch-up, largest log to smallest", "≥ 0.8 at 1 M"),
}
"""What each ratio is, and what this node is meant to hold."""


def as_object(figures: Figures) -> dict[str, Any]:
    """All of it, with the ratios first; what was not measured is left out."""
    found = {name: value for name, value in msgspec.to_builtins(figures).items() if value not in (None, (), [])}
    shown = {"ratios": ratios(figures), **found}
    return {name: _rounded(value) for name, value in shown.items()}


def lines(figures: Figures) -> list[Line]:
    """All of it, in the order in which it was measured; ratios last."""
    return list(_lines(figures))


def head(figures: Figures) -> str:
    """Where and how it was measured, in a line."""
    machine = figures.machine
    rounds = f", medians of {figures.rounds} rounds" if figures.rounds > 1 else ""
    return (
        f"meshnode {machine.meshnode} on {machine.cores} cores ({machine.platform}), Python {machine.python}, SQLite "
        f"{machine.sqlite}, load {machine.load:.1f} before it began; {figures.seconds:.0f} s{rounds}"
    )


def number(value: float) -> str:
    """Three digits, or all of those before the point."""
    for digits, least in ((0, 100), (1, 10), (2, 1)):
        if abs(value) >= least:
            return f"{value:,.{digits}f}"
    return f"{value:.3f}"


def _lines(figures: Figures) -> Iterator[Line]:
    yield from _of_ceilings(figures.ceilings)
    if (stream := figures.goodput) is not None:
        yield Line("ceiling", "bulk stream, bare aioquic", number(stream.bare_mb_per_s), "MB/s", "defaults")
        yield Line("goodput", "bulk stream, this node's endpoint", number(stream.own_mb_per_s), "MB/s")
    yield from _of_author(figures.author)
    yield from _of_apply(figures.apply)
    if (start := figures.start) is not None:
        yield Line("start", "to the node that answers", number(start.to_up_s), "s")
        yield Line("start", "to the first row of another node", number(start.to_first_row_s), "s")
    yield from _of_catch_up(figures.catch_up, "catch-up")
    if (live := figures.live) is not None:
        note = f"{live.writes} writes, from the call to who follows at the other node"
        yield Line("live", "a write at the other node, median", number(live.median_ms), "ms", note)
        yield Line("live", "99 of 100", number(live.p99_ms), "ms", f"at most {number(live.max_ms)} ms")
    if (fan := figures.fan_out) is not None:
        note = f"{fan.events} events, all acknowledged"
        yield Line("fan-out", "author's CPU with 1 peer", number(fan.one_cpu_s), "s", note)
        yield Line("fan-out", f"author's CPU with {fan.peers} peers", number(fan.all_cpu_s), "s", note)
    yield from _of_idle(figures.idle)
    for window in figures.growth:
        yield Line("growth", f"catch-up at {window.events:,} events", number(window.per_s), "events/s")
    yield from _of_catch_up(figures.growth_run, "growth")
    for name, value in ratios(figures).items():
        what, meant = _RATIOS[name]
        yield Line("ratio", what, number(value), "", meant)


def _of_ceilings(found: Ceilings | None) -> Iterator[Line]:
    if found is None:
        return
    note = f"events of {found.event_bytes:.0f} bytes"
    yield Line("ceiling", "Ed25519 verify, one core", number(found.verify_per_s), "/s", note)
    yield Line("ceiling", "Ed25519 verify, all cores", number(found.verify_all_cores_per_s), "/s", note)
    yield Line("ceiling", "Ed25519 sign, one core", number(found.sign_per_s), "/s", note)
    yield Line("ceiling", "Ed25519 sign, all cores", number(found.sign_all_cores_per_s), "/s", note)
    yield Line("ceiling", "BLAKE3", number(found.blake3_per_s), "/s", note)
    synced = f"{number(found.upsert_fsyncs_per_1000)} fsyncs per 1,000"
    yield Line("ceiling", "SQLite upserts of the same rows", number(found.upserts_per_s), "/s", synced)
    yield Line("ceiling", "fsync of a page", number(found.fsync_ms), "ms")


def _of_author(found: Author | None) -> Iterator[Line]:
    if found is None:
        return
    note = f"{found.event_bytes:.0f} bytes each; {number(found.fsyncs_per_1000)} fsyncs per 1,000"
    yield Line("author", "in transactions of 500", number(found.per_s), "events/s", note)
    yield Line("author", "one by one", number(found.single_per_s), "events/s")


def _of_apply(found: Apply | None) -> Iterator[Line]:
    if found is None:
        return
    note = f"{number(found.fsyncs_per_1000)} fsyncs per 1,000; {found.cpu_us_per_event:.0f} µs of CPU each"
    yield Line("apply", "verified and durable", number(found.per_s), "events/s", note)
    yield Line("apply", "raw verify of the same, in turn", number(found.verify_per_s), "/s", "one core")


def _of_catch_up(found: CatchUp | None, group: str) -> Iterator[Line]:
    if found is None:
        return
    note = f"{found.events:,} events of {found.event_bytes:.0f} bytes in {number(found.seconds)} s"
    yield Line(group, "between two processes", number(found.per_s), "events/s", note)
    synced = f"{number(found.receiver_fsyncs_per_1000)} fsyncs per 1,000 at the receiver"
    yield Line(group, "the same in bytes of events", number(found.mb_per_s), "MB/s", synced)
    cpu = f"{number(found.sender_cpu_s)} and {number(found.receiver_cpu_s)}"
    yield Line(group, "CPU of sender and receiver", cpu, "s")
    peaks = f"{found.sender_peak_mb:.0f} and {found.receiver_peak_mb:.0f}"
    yield Line(group, "most memory of sender and receiver", peaks, "MB")
    feed = f"the last {CHANGES_KEPT:,} changes for `watch` are in it"
    yield Line(group, "database, per event", number(found.database_bytes_per_event), "bytes", feed)


def _of_idle(found: Idle | None) -> Iterator[Line]:
    if found is None:
        return
    yield Line("idle", "CPU with 1 peer", number(found.one_cpu_percent), "% of a core")
    yield Line("idle", f"CPU with {found.peers} peers", number(found.all_cpu_percent), "% of a core")
    yield Line("idle", "memory with 1 peer", number(found.one_memory_mb), "MB")
    yield Line("idle", f"memory with {found.peers} peers", number(found.all_memory_mb), "MB")


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {name: _rounded(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(each) for each in value]
    return value


def rows(found: Sequence[Line]) -> list[dict[str, str]]:
    """As a table is printed of."""
    return [dict(zip(COLUMNS, each, strict=True)) for each in found]
