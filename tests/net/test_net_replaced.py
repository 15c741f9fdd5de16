"""A new path takes the place of a dead link within 3 s, at both ends and in every role, over thousands of timings (§7).

The production code that decides runs at both ends in virtual time; links between them are simulated.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from support.virtual_time import run_virtually

from meshnode.errors import CloseCode
from meshnode.net.endpoint_config import EndpointConfig
from meshnode.net.endpoint_links import LinkRegistry
from meshnode.net.endpoint_notices import NoticeBoard

SITES = (b"\x01" * 16, b"\x02" * 16)
REPLACED_S = 3.0
RUNS = 200  # of each case
LONG_S = 15.0  # until everything about two links is decided


def now() -> float:
    return asyncio.get_running_loop().time()


@dataclass
class Path:
    """What two ends of one link share: how long a datagram takes, and from when on none arrives."""

    delay_s: float
    dies_at: float = float("inf")
    ends: list[SimLink] = field(default_factory=list)
    closed: bool = False  # by one end; the other hears of it later, if at all

    def end(self) -> None:
        for link in self.ends:
            link.end()

    def carry(self, arrived: Callable[[], None]) -> None:
        if now() + self.delay_s < self.dies_at:
            asyncio.get_running_loop().call_later(self.delay_s, arrived)


class SimLink:
    """One end of a link, as far as the registry looks at it."""

    def __init__(self, host: Host, path: Path, *, opened_by_us: bool, dialed_at: float, start: bytes) -> None:
        self.host, self.path = host, path
        self.site, self.opened_by_us = SITES[1 - host.number], opened_by_us
        self.spki = self.boot = self.said_boot = start
        self.begun = now()
        self.live = self.closed = False
        self.asked_at: float | None = None
        self.connection: Any = SimpleNamespace(begun=dialed_at, sink=self, close=self.close, pulse=self)
        path.ends.append(self)

    @property
    def unanswered_s(self) -> float:
        return 0.0 if self.asked_at is None else now() - self.asked_at

    async def ping(self, seconds: float) -> bool:
        answer = asyncio.get_running_loop().create_future()
        self.asked_at = now() if self.asked_at is None else self.asked_at

        def answered() -> None:
            self.asked_at = None
            if not answer.done():
                answer.set_result(not self.closed)

        self.path.carry(lambda: None if self.path.closed else self.path.carry(answered))
        try:
            async with asyncio.timeout(seconds):
                return bool(await answer)
        except TimeoutError:
            return False

    def close(self, code: CloseCode = CloseCode.DONE, reason: str = "") -> None:
        if not self.closed:
            self.path.closed = True
            self.end()
            self.path.carry(self.path.end)

    def end(self) -> None:
        """Closed by either side."""
        if not self.closed:
            self.closed = True
            self.host.registry.ended(self)  # type: ignore[arg-type]

    def ended(self, ending: object) -> None:
        """The node is told; the connection may go on for a moment."""


class Host:
    def __init__(self, number: int) -> None:
        self.number = number
        self.live_at: dict[SimLink, float] = {}
        self.notices: list[str] = []
        board = NoticeBoard(lambda kind, site, text: self.notices.append(kind), now, 60.0)
        self.registry = LinkRegistry(SITES[number], EndpointConfig(), board, self.took)  # type: ignore[arg-type]

    def took(self, link: SimLink) -> None:
        self.live_at[link] = now()

    @property
    def links(self) -> list[SimLink]:
        return self.registry.live()  # type: ignore[return-value]


@dataclass(frozen=True)
class Case:
    older_by: int  # the host that dialed it
    newer_by: int
    restarted: int | None = None  # the host that is another process by now
    overlapping: bool = False  # the newer was dialed before the older was confirmed


CASES = {
    f"{'small' if older == 0 else 'large'}-then-{'small' if newer == 0 else 'large'}{suffix}": Case(
        older, newer, **more
    )
    for older in (0, 1)
    for newer in (0, 1)
    for suffix, more in (
        ("", {}),
        ("-overlapping", {"overlapping": True}),
        ("-small-restarted", {"restarted": 0}),
        ("-large-restarted", {"restarted": 1}),
    )
    if not (more.get("overlapping") and older != newer)
}


async def link_up(hosts: list[Host], path: Path, by: int, starts: list[bytes], dialed_at: float) -> None:
    """The acceptor has it at once; the dialer when the word of that arrives, unless it is one of a refusal."""

    def up(number: int) -> None:
        start = starts[1 - number]
        link = SimLink(hosts[number], path, opened_by_us=number == by, dialed_at=dialed_at, start=start)
        hosts[number].registry.enter(link)  # type: ignore[arg-type]

    up(1 - by)
    await asyncio.sleep(path.delay_s)
    if not path.closed:
        up(by)


async def play(case: Case, source: random.Random, *, dead: bool) -> tuple[list[Host], Path, Path]:
    """Two links, one after the other; where `dead`, nothing arrives on the older one any more when the newer comes."""
    hosts = [Host(0), Host(1)]
    starts = [b"start-0", b"start-1"]
    first, second = (Path(source.uniform(0.0001, 0.25)) for _ in range(2))
    dialed_at = now()
    await link_up(hosts, first, case.older_by, starts, dialed_at)
    older = sorted(first.ends, key=lambda end: end.host.number)
    if case.overlapping:
        first.dies_at = now() if dead else first.dies_at
        dialed_at = older[case.newer_by].begun - source.uniform(0.0, first.delay_s)
    else:
        await asyncio.sleep(source.uniform(0.0, 5.0))
        first.dies_at = now() if dead else first.dies_at
        if source.random() < 0.5:  # somebody doubted it, and that is why there is a newer one
            pings = [asyncio.create_task(end.ping(1.0)) for end in older if source.random() < 0.7]
            await asyncio.sleep(source.uniform(0.0, 2.0))
            del pings
        dialed_at = now()
    if case.restarted is not None:
        number = case.restarted
        hosts[number].registry.stop()
        hosts[number] = Host(number)
        starts[number] = b"start-x"
        if dead:
            older[number].closed = True
    await link_up(hosts, second, case.newer_by, starts, dialed_at)
    await asyncio.sleep(LONG_S)
    return hosts, first, second


@pytest.mark.parametrize("name", sorted(CASES))
def test_a_dead_link_gives_way_to_a_new_one_within_3_s(name: str) -> None:
    async def runs() -> None:
        for seed in range(RUNS):
            hosts, older, newer = await play(CASES[name], random.Random(f"{name} {seed}"), dead=True)
            for number, host in enumerate(hosts):
                assert [link.path for link in host.links] == [newer], f"seed {seed}: host {number}"
                took_s = host.live_at[host.links[0]] - host.links[0].begun
                assert took_s <= REPLACED_S, f"seed {seed}: host {number} took {took_s:.2f} s"
                assert host.notices == [], f"seed {seed}"
            assert not any(end.live for end in older.ends if end.host in hosts)

    run_virtually(runs())


@pytest.mark.parametrize("name", sorted(name for name in CASES if CASES[name].restarted is None))
def test_of_two_living_links_the_same_one_stays_at_both_ends(name: str) -> None:
    async def runs() -> None:
        for seed in range(RUNS):
            hosts, older, newer = await play(CASES[name], random.Random(f"{name} {seed}"), dead=False)
            assert [[link.path for link in host.links] for host in hosts] in (
                [[older], [older]],
                [[newer], [newer]],
            ), f"seed {seed}"
            if CASES[name].older_by != CASES[name].newer_by:
                assert hosts[0].links[0].opened_by_us, "that of the smaller site"

    run_virtually(runs())


@pytest.mark.parametrize("name", sorted(name for name in CASES if CASES[name].restarted is not None))
def test_two_starts_of_one_site_that_both_answer_are_twins(name: str) -> None:
    async def runs() -> None:
        case = CASES[name]
        assert case.restarted is not None
        for seed in range(RUNS // 10):
            hosts, _, _ = await play(case, random.Random(f"{name} {seed}"), dead=False)
            witness = hosts[1 - case.restarted]
            assert witness.notices == ["twin"], f"seed {seed}"
            assert witness.links == []

    run_virtually(runs())


def test_how_long_a_link_left_a_ping_unanswered_before_counts() -> None:
    async def run() -> None:
        hosts, older, newer = [Host(0), Host(1)], Path(0.01), Path(0.01)
        await link_up(hosts, older, 0, [b"a", b"b"], now())
        older.dies_at = now()
        (link,) = hosts[1].links
        assert not await link.ping(1.5)
        await link_up(hosts, newer, 1, [b"a", b"b"], now())
        await asyncio.sleep(LONG_S)
        (link,) = hosts[1].links
        assert hosts[1].live_at[link] - link.begun < 0.6

    run_virtually(run())


def test_a_link_whose_answers_wait_here_is_not_given_up_for_that() -> None:
    """This process stood still for a while; the other end knows nothing of it."""

    async def run() -> None:
        hosts, older, newer = [Host(0), Host(1)], Path(0.01), Path(0.01)
        await link_up(hosts, older, 0, [b"a", b"b"], now())
        (link,) = hosts[1].links
        link.asked_at = now() - 60.0
        await link_up(hosts, newer, 1, [b"a", b"b"], now())
        await asyncio.sleep(LONG_S)
        assert [[link.path for link in host.links] for host in hosts] == [[older], [older]]

    run_virtually(run())
