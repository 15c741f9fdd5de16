"""mDNS costs a bounded part of one core, and a flood its own host's part alone (profile §11, §12)."""

from __future__ import annotations

from random import Random

import pytest

from meshnode.net.mdns_budget import BURST_S, CORE, HOST, HOSTS, Budget, Paced

WORK_S = 0.001  # of one datagram


def worked(budget: Budget, hosts: list[str], seconds: float, per_s: int) -> dict[str, float]:
    """Seconds of work per host, where each says so much in turn."""
    done = dict.fromkeys(hosts, 0.0)
    for step in range(int(seconds * per_s)):
        now = step / per_s
        for host in hosts:
            if budget.admits(host, now):
                budget.spent(host, WORK_S, now)
                done[host] += WORK_S
    return done


def test_one_host_has_its_part_and_no_more() -> None:
    assert worked(Budget(), ["a"], 10, 2000)["a"] == pytest.approx(BURST_S + 10 * HOST, rel=0.02)


def test_all_together_have_theirs() -> None:
    done = worked(Budget(), [str(host) for host in range(300)], 10, 200)
    assert sum(done.values()) == pytest.approx(BURST_S + 10 * CORE, rel=0.02)


def test_who_says_little_is_heard_beside_a_flood() -> None:
    budget, heard = Budget(), 0
    for step in range(20_000):
        now = step / 2000
        if budget.admits("flood", now):
            budget.spent("flood", WORK_S, now)
        if step % 200 == 0:
            heard += budget.admits("quiet", now)
            budget.spent("quiet", WORK_S, now)
    assert heard == 100


def test_invented_addresses_take_no_memory() -> None:
    budget, random = Budget(), Random(1)
    for step in range(5000):
        host = random.randbytes(4).hex()
        budget.admits(host, step / 1e6)
        budget.spent(host, WORK_S, step / 1e6)
    assert len(budget._hosts) <= HOSTS + 1
    assert budget.admits("quiet", 100.0)


def test_what_is_not_read_costs_nothing_and_the_rest_is_handed_on() -> None:
    class Reader:
        read = 0

        def datagram_received(self, _data: bytes, _addr: object) -> None:
            self.read += 1
            clock[0] += BURST_S

    clock, reader = [0.0], Reader()
    paced = Paced(reader, Budget(), lambda: clock[0])
    for _ in range(5):
        paced.datagram_received(b"", ("10.0.0.1", 5353))
    assert reader.read == 1
    clock[0] += BURST_S / HOST
    paced.datagram_received(b"", ("10.0.0.1", 5353))
    assert reader.read == 2
