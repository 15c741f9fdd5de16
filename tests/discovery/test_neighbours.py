"""Fewer links than members: which ones are kept, whom to dial, and that the mesh stays one (profile §7, §12)."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.laws import law

from meshnode.errors import CloseCode
from meshnode.net.addresses import Address
from meshnode.net.neighbours import beside, surplus, too_many
from meshnode.node.dialing import DialPlan

SITES = [bytes([number]) * 16 for number in range(1, 8)]
A, B, C, D, E, F, G = SITES


def test_the_nearest_on_either_side_of_the_ring() -> None:
    assert beside(D, []) == beside(D, [D]) == frozenset()
    assert beside(D, [F]) == {F}
    assert beside(D, SITES) == {C, E}
    assert beside(A, SITES) == {B, G}
    assert beside(G, [B, C, F]) == {F, B}


def test_a_neighbour_gets_the_place_of_the_farthest() -> None:
    assert surplus(D, [A, B], C, 3) is None
    assert surplus(D, [C, E, A], B, 3) == B, "nobody nearer is displaced"
    assert surplus(D, [C, G, F], E, 3) == G
    assert surplus(D, [A, G], E, 2) == G, "A stays: it is the nearest of them below"
    assert surplus(D, [A], E, 1) == E, "with one link there is no place to give"


def test_where_fewer_links_may_stay_the_farthest_go() -> None:
    linked = [A, B, C, E, F, G]
    assert too_many(D, linked, 6) == []
    assert too_many(D, linked, 4) == [A, G]
    assert set(too_many(D, linked, 2)) == set(linked) - beside(D, linked)
    assert too_many(D, [A, B, E], 1) == [E, A]


class Crowd:
    """Members that can reach each other, each with its plan and its links; a step is whatever one of them dials."""

    def __init__(self, sites: Iterable[bytes], most: int, seed: int, *, named: bool) -> None:
        self.random = random.Random(seed)
        self.most = most
        self.now = 0.0
        self.links: dict[bytes, set[bytes]] = {}
        self.plans: dict[bytes, DialPlan] = {}
        self.members = sorted(sites)
        self.named = named
        for site in self.members:
            self.enter(site)

    def enter(self, site: bytes) -> None:
        """A node starts."""
        plan = DialPlan(site, self.random.random, max_links=self.most)
        plan.members(self.members, self.now)
        others = [other for other in self.members if other != site]
        if self.named:
            for other in others:
                plan.seen(other, b"boot", [address(other)], self.now)
        else:
            plan.static(map(address, others), self.now)
        self.links[site], self.plans[site] = set(), plan

    def leave(self, site: bytes) -> None:
        """A node ends."""
        for other in list(self.links[site]):
            self.part(site, other, None)
        del self.links[site], self.plans[site]

    def run(self, seconds: float) -> None:
        """Let everybody dial what is due, one second after the other, in any order within it."""
        end = self.now + seconds
        while self.now < end:
            for site in self.random.sample(sorted(self.plans), len(self.plans)):
                for attempt in self.plans[site].due(self.now):
                    target = site_at(attempt.addresses[0])
                    code = self.join(site, target)
                    if code is None and target in self.links[site]:
                        self.plans[site].succeeded(attempt, attempt.addresses[0], target, self.now)
                    else:
                        self.plans[site].failed(attempt, self.now, code, target if target in self.plans else None)
            self.now += 1.0

    def join(self, dialer: bytes, acceptor: bytes) -> CloseCode | None:
        if acceptor not in self.plans:
            return None
        if acceptor in self.links[dialer]:
            return CloseCode.DUPLICATE
        for one, other in ((acceptor, dialer), (dialer, acceptor)):
            goes = surplus(one, sorted(self.links[one]), other, self.most)
            if goes == other:
                return CloseCode.LIMIT
            if goes is not None:
                self.part(one, goes, CloseCode.LIMIT)
        for one, other in ((acceptor, dialer), (dialer, acceptor)):
            self.links[one].add(other)
            self.plans[one].linked(other, self.now)
        return None

    def part(self, one: bytes, other: bytes, code: CloseCode | None) -> None:
        for site, peer in ((one, other), (other, one)):
            self.links[site].discard(peer)
            self.plans[site].unlinked(peer, self.now, code)

    def is_one(self) -> bool:
        """Whether everybody reaches everybody over links."""
        seen, waiting = set(), [min(self.links)]
        while waiting:
            site = waiting.pop()
            if site not in seen:
                seen.add(site)
                waiting.extend(self.links[site])
        return seen == set(self.links)


def address(site: bytes) -> Address:
    return Address("10.0.0.1", site[0] * 256 + site[1] + 1)


def site_at(where: Address) -> bytes:
    return bytes([(where.port - 1) // 256, (where.port - 1) % 256]) * 8


few = settings(law, max_examples=25)  # each is a whole mesh
MANY = st.sets(st.integers(1, 60_000), min_size=3, max_size=14).map(
    lambda numbers: [number.to_bytes(2, "big") * 8 for number in numbers]
)


@few
@given(MANY, st.integers(2, 4), st.integers(0, 2**32), st.booleans())
def test_members_that_reach_each_other_become_one_mesh_within_the_bound(
    sites: list[bytes], most: int, seed: int, named: bool
) -> None:
    crowd = Crowd(sites, most, seed, named=named)
    crowd.run(10)
    assert all(len(peers) <= most for peers in crowd.links.values())
    assert crowd.is_one()
    before = {site: set(peers) for site, peers in crowd.links.items()}
    crowd.run(60)
    assert crowd.is_one()
    ring = sorted(before)
    for at, site in enumerate(ring):
        assert ring[at - 1] in crowd.links[site], "neighbours stay linked"


@few
@given(MANY, st.integers(2, 3), st.integers(0, 2**32))
def test_the_mesh_stays_one_when_members_leave_and_return(sites: list[bytes], most: int, seed: int) -> None:
    crowd = Crowd(sites, most, seed, named=True)
    crowd.run(10)
    gone = crowd.random.sample(sorted(crowd.plans), len(crowd.plans) // 3)
    for site in gone:
        crowd.leave(site)
    crowd.run(90)
    assert crowd.is_one()
    for site in gone:
        crowd.enter(site)
    crowd.run(10)
    assert crowd.is_one()
    assert all(len(peers) <= most for peers in crowd.links.values())


@pytest.mark.parametrize("most", [6, 64])
def test_with_enough_links_everybody_is_dialed(most: int) -> None:
    crowd = Crowd(SITES, most, 1, named=True)
    crowd.run(10)
    assert all(len(peers) == len(SITES) - 1 for peers in crowd.links.values())


def test_a_full_node_waits_for_news_instead_of_spinning() -> None:
    plan = DialPlan(D, lambda: 0.0, max_links=2)
    plan.members(SITES, 0.0)
    for site in SITES:
        plan.seen(site, b"boot", [address(site)], 0.0)
    attempts = plan.due(1.0)
    assert {attempt.target for attempt in attempts} == {C, E}
    for attempt, site in zip(attempts, (C, E), strict=True):
        plan.linked(site, 1.0)
        plan.succeeded(attempt, attempt.addresses[0], site, 1.0)
    assert plan.due(1000.0) == []
    assert plan.next_due() is None
    plan.unlinked(E, 1000.0, None)
    assert [attempt.target for attempt in plan.due(1000.5)] in ([E], [F])
