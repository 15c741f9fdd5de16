"""One run: the scenarios in order, in a folder of their own, with a word on each; medians where there are rounds."""

from __future__ import annotations

import os
import platform
import sqlite3
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from meshnode import __version__
from meshnode.bench.applying import apply
from meshnode.bench.authoring import author
from meshnode.bench.ceilings import ceilings
from meshnode.bench.figures import CatchUp, Figure, Figures, Live, Machine, Start, Window, middle
from meshnode.bench.goodput import goodput
from meshnode.bench.pair import catch_up, live, pair, start
from meshnode.bench.plan import Plan
from meshnode.bench.resting import fan_out, idle
from meshnode.errors import UsageError
from meshnode.node.storage import wall_ms

F = TypeVar("F", bound=Figure)

SCENARIOS: Final = (
    "ceilings",
    "goodput",
    "author",
    "apply",
    "start",
    "catch-up",
    "live",
    "fan-out",
    "idle",
    "growth",
)
_OF_A_PAIR: Final = frozenset({"start", "catch-up", "live", "growth"})

Say = Callable[[str], None]
"""Takes a line for the person who waits."""


def machine() -> Machine:
    """This one, as it is now."""
    return Machine(
        cores=os.cpu_count() or 1,
        platform=f"{platform.system()} {platform.machine()}",
        python=platform.python_version(),
        sqlite=sqlite3.sqlite_version,
        meshnode=__version__,
        load=round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else 0.0,
    )


def chosen(only: Collection[str]) -> frozenset[str]:
    """The scenarios of these names, or all; UsageError where one is none."""
    if unknown := sorted(set(only) - set(SCENARIOS)):
        raise UsageError(f"there is no scenario {unknown[0]!r}: name {', '.join(SCENARIOS[:-1])} or {SCENARIOS[-1]}")
    return frozenset(only or SCENARIOS)


async def measure(plan: Plan, only: Collection[str], folder: Path, say: Say) -> Figures:
    """Run what was chosen; `folder` is there and keeps nothing. MeshError where a scenario fails."""
    return await _Run(plan, chosen(only), folder, say).all()


@dataclass(slots=True)
class _PairRound:
    """What one pair of nodes showed."""

    start: Start | None = None
    live: Live | None = None
    catch_up: CatchUp | None = None
    growth: tuple[Window, ...] = ()


@dataclass(slots=True)
class _Run:
    plan: Plan
    wanted: frozenset[str]
    folder: Path
    say: Say
    begun: float = field(default_factory=time.perf_counter)

    async def all(self) -> Figures:
        plan, found = self.plan, Figures(machine=machine(), rounds=self.plan.rounds)
        single: dict[str, Callable[[Path], Awaitable[Figure]]] = {
            "ceilings": self._ceilings,
            "goodput": lambda _folder: goodput(plan.stream_s),
            "author": lambda folder: author(folder / "author", plan.author_s),
            "apply": lambda folder: apply(folder / "apply", plan.apply_s, plan.apply_events),
            "fan-out": lambda folder: fan_out(folder, plan.fan_out_peers, plan.fan_out_events),
            "idle": lambda folder: idle(folder, plan.idle_peers, plan.idle_s),
        }
        for name in SCENARIOS:
            if name in single and name in self.wanted:
                rounds = [await self._round(name, single[name], number) for number in self._rounds]
                found = msgspec.structs.replace(found, **{name.replace("-", "_"): middle(rounds)})
            elif name == "start" and self.wanted & _OF_A_PAIR:
                found = await self._pairs(found)
        return msgspec.structs.replace(found, seconds=time.perf_counter() - self.begun)

    @property
    def _rounds(self) -> range:
        return range(self.plan.rounds)

    async def _ceilings(self, folder: Path) -> Figure:
        return ceilings(folder, self.plan.ceiling_s, wall_ms())

    async def _round(self, name: str, scenario: Callable[[Path], Awaitable[F]], number: int) -> F:
        async with self._place(name, number) as folder:
            return await scenario(folder)

    async def _pairs(self, found: Figures) -> Figures:
        """Start, live writes and catch-up of the same two nodes, new ones in each round; then the long catch-up."""
        plan = self.plan
        alone = self.wanted & _OF_A_PAIR == {"growth"} and plan.growth_events > 0
        rounds = [] if alone else [await self._pair_round(number) for number in self._rounds]
        for name in ("start", "live", "catch_up"):
            if values := [getattr(each, name) for each in rounds if getattr(each, name) is not None]:
                found = msgspec.structs.replace(found, **{name: middle(values)})
        if "growth" not in self.wanted:
            return found
        if not plan.growth_events:
            return msgspec.structs.replace(found, growth=rounds[-1].growth)
        async with self._place("growth", 0) as folder, pair(folder) as both:
            await both.b.start()
            run, growth = await catch_up(both, plan.growth_events, float("inf"))
        return msgspec.structs.replace(found, growth=growth, growth_run=run)

    async def _pair_round(self, number: int) -> _PairRound:
        plan, found = self.plan, _PairRound()
        async with self._place("start, live, catch-up", number) as folder, pair(folder) as both:
            if "start" in self.wanted:
                found.start = middle([await start(both) for _ in range(plan.starts)])
            else:
                await both.b.start()
            if "live" in self.wanted:
                found.live = await live(both, plan.live_writes)
            if self.wanted & {"catch-up", "growth"}:
                found.catch_up, found.growth = await catch_up(both, plan.catch_up_events, plan.load_s)
        return found

    @asynccontextmanager
    async def _place(self, name: str, number: int) -> AsyncIterator[Path]:
        """A folder for one round, gone afterwards."""
        which = f", round {number + 1} of {self.plan.rounds}" if self.plan.rounds > 1 else ""
        self.say(f"{time.perf_counter() - self.begun:6.1f} s  {name}{which}")
        with tempfile.TemporaryDirectory(dir=self.folder, ignore_cleanup_errors=True) as folder:
            yield Path(folder)
