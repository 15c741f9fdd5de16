"""Discovery, dialing and transport together on a LAN: one link per pair, whatever the network does (profile §7)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from support.announcer import site_key
from support.lan import Lan, lan_available
from support.launch import event
from support.launch import launch as start
from support.lines import Lines

from meshnode.errors import CloseCode

pytestmark = pytest.mark.skipif(not lan_available(), reason="needs root and iproute2 to make network namespaces")

EVERYBODY = [1, 2, 3]
FIRST_LINK_S = 10.0  # from start to linked, without any address given


def site(who: int) -> str:
    return site_key(who).site.hex()


def launch(lan: Lan, host: int, who: int, **options: Any) -> Lines:
    return start(lan, host, "meeter", **{"who": who, "members": EVERYBODY, "port": 4747, **options})


@pytest.fixture
def lan() -> Iterator[Lan]:
    with Lan(3) as made:
        yield made


def wait_linked(lines: Lines, *others: int, timeout: float = 30.0) -> None:
    """Until exactly these sites are linked."""
    wanted = sorted(site(who) for who in others)
    deadline = time.monotonic() + timeout
    while True:
        lines.tell("links")
        if lines.until(event("links"))["sites"] == wanted:
            return
        lines.until(lambda line: line["event"] in ("linked", "unlinked"), deadline - time.monotonic())


def test_three_hosts_that_start_together_end_with_one_link_per_pair(lan: Lan) -> None:
    started = time.monotonic()
    lines = [launch(lan, host, host + 1) for host in range(3)]
    for own, line in enumerate(lines, 1):
        wait_linked(line, *(who for who in EVERYBODY if who != own))
    assert time.monotonic() - started < FIRST_LINK_S


def test_hosts_without_ipv4_meet_over_link_local_addresses(lan: Lan) -> None:
    for host in (0, 1):
        lan.configure(host, "-4", "address", "flush", "dev", "eth0")
    first, second = launch(lan, 0, 1), launch(lan, 1, 2)
    wait_linked(first, 2)
    wait_linked(second, 1)
    assert first.ever(event("linked"))["address"].startswith("[fe80::")


def test_a_cut_host_is_missed_and_linked_again(lan: Lan) -> None:
    lines = [launch(lan, host, host + 1) for host in range(3)]
    for own, line in enumerate(lines, 1):
        wait_linked(line, *(who for who in EVERYBODY if who != own))
    lan.cut(2)
    wait_linked(lines[0], 2)
    wait_linked(lines[2])
    lan.mend(2)
    wait_linked(lines[2], 1, 2)
    wait_linked(lines[0], 2, 3)


def test_a_killed_node_that_comes_back_is_linked_before_its_silence_is_noticed(lan: Lan) -> None:
    first, second = launch(lan, 0, 1), launch(lan, 1, 2)
    wait_linked(first, 2)
    lan.kill(second.program)
    again = launch(lan, 1, 2)
    wait_linked(again, 1)
    wait_linked(first, 2)


def test_a_node_that_moves_to_another_port_is_followed(lan: Lan) -> None:
    first, second = launch(lan, 0, 1), launch(lan, 1, 2)
    wait_linked(first, 2)
    second.tell("quit")
    first.until(event("unlinked", site=site(2)))
    launch(lan, 1, 2, port=5000)
    first.until(event("linked", site=site(2)))


def test_a_goodbye_ends_no_link_and_forgets_no_address_that_worked(lan: Lan) -> None:
    """Whether a peer lives is QUIC's to say: a service that vanishes from mDNS says nothing about it."""
    first, second = launch(lan, 0, 1), launch(lan, 1, 2)
    wait_linked(first, 2)
    first.ever(event("sighting", site=site(2)))
    second.tell("hush")
    first.until(event("gone", site=site(2)))
    wait_linked(first, 2)
    lan.kill(second.program)
    first.until(event("unlinked", site=site(2)))
    launch(lan, 1, 2, hides=True)
    first.until(event("linked", site=site(2), ours=True))


def test_of_twenty_addresses_sixteen_are_tried_and_the_dead_ones_stop_nobody(lan: Lan) -> None:
    dead = [f"10.47.0.{100 + number}" for number in range(15)]
    far = [f"172.30.{number}.1" for number in range(4)]
    first = launch(lan, 0, 1)
    watcher = start(lan, 2, "announcer", who=3, members=EVERYBODY)
    launch(lan, 1, 2, hides=True)
    start(lan, 1, "herald", who=2, addresses=[*far, *dead, lan.address(1)])
    sighting = watcher.until(event("sighting", site=site(2), verified=True))
    assert sorted(sighting["addresses"]) == sorted([*dead, lan.address(1)])
    first.until(event("linked", site=site(2), ours=True))


def test_three_nodes_on_one_machine_without_a_network_meet() -> None:
    with Lan(1, wired=False) as machine:
        lines = [launch(machine, 0, who, port=4746 + who) for who in EVERYBODY]
        for own, line in zip(EVERYBODY, lines, strict=True):
            wait_linked(line, *(who for who in EVERYBODY if who != own))


def test_a_stranger_is_neither_dialed_nor_let_in(lan: Lan) -> None:
    first = launch(lan, 0, 1, members=[1, 2])
    stranger = launch(lan, 2, 3)
    launch(lan, 1, 2, members=[1, 2])
    wait_linked(first, 2)
    stranger.until(event("unlinked", code=CloseCode.NOT_A_MEMBER))
    first.tell("links")
    assert first.until(event("links"))["sites"] == [site(2)]
