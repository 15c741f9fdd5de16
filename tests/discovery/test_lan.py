"""Discovery over real multicast DNS between network namespaces: found, lost, moved, forged, degraded (profile §11)."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from support.announcer import boot_of, site_key
from support.lan import Lan, lan_available
from support.launch import event
from support.launch import launch as start
from support.lines import Lines

from meshnode.net.mdns import ONLY_LOOPBACK

pytestmark = pytest.mark.skipif(not lan_available(), reason="needs root and iproute2 to make network namespaces")

EVERYBODY = [1, 2, 3]


def site(who: int) -> str:
    return site_key(who).site.hex()


def launch(lan: Lan, host: int, who: int, **options: Any) -> Lines:
    """Start site `who` in a host; members are 1, 2 and 3 unless told otherwise."""
    return start(lan, host, "announcer", **{"who": who, "members": EVERYBODY, **options})


@pytest.fixture
def lan() -> Iterator[Lan]:
    with Lan(3) as made:
        yield made


@pytest.fixture
def machine() -> Iterator[Lan]:
    """One host with loopback only."""
    with Lan(1, wired=False) as made:
        yield made


def test_three_hosts_find_each_other_whatever_the_start_order(lan: Lan) -> None:
    lines = [launch(lan, 0, 1)]
    # The first is announced and has asked its questions before the others exist.
    lines[0].tell("state")
    lines[0].until(event("state"))
    lines += [launch(lan, 1, 2), launch(lan, 2, 3)]
    for own in range(3):
        missing = {other for other in range(3) if other != own}
        while missing:
            found = lines[own].until(event("sighting", verified=True))
            other = next(index for index in missing if site(index + 1) == found["site"])
            if lan.address(other) in found["addresses"]:
                assert found["port"] == 4747
                assert found["boot"] == boot_of(other + 1, 1).hex()
                missing.discard(other)


def test_link_local_addresses_come_with_a_scope_of_the_receiver(lan: Lan) -> None:
    first = launch(lan, 0, 1)
    launch(lan, 1, 2)
    index = lan.run(0, ["cat", "/sys/class/net/eth0/ifindex"]).stdout.strip()
    wanted = f"{lan.link_local(1)}%{index}"
    first.until(lambda line: line["event"] == "sighting" and wanted in line["addresses"])


def test_a_goodbye_is_heard_and_a_silent_leaver_is_noticed(lan: Lan) -> None:
    pace = {"ttl_s": 2, "sweep_s": 0.5, "resolve_s": 1.0}
    first, second, third = launch(lan, 0, 1, pace=pace), launch(lan, 1, 2, pace=pace), launch(lan, 2, 3, pace=pace)
    waiting = {site(2), site(3)}
    while waiting:
        waiting.discard(first.until(event("sighting"))["site"])
    second.tell("quit")
    first.until(event("gone", site=site(2)))
    lan.kill(third.program)
    first.until(event("gone", site=site(3)))


def test_a_restarted_node_is_seen_with_its_new_boot(lan: Lan) -> None:
    first, second = launch(lan, 0, 1), launch(lan, 1, 2)
    first.until(event("sighting", site=site(2), boot=boot_of(2, 1).hex()))
    lan.kill(second.program)
    launch(lan, 1, 2, start=2)
    first.until(event("sighting", site=site(2), boot=boot_of(2, 2).hex()))


def test_a_changed_port_is_announced(lan: Lan) -> None:
    first, second = launch(lan, 0, 1), launch(lan, 1, 2)
    first.until(event("sighting", site=site(2), port=4747))
    second.tell("port 5000")
    first.until(event("sighting", site=site(2), port=5000, verified=True))


def test_a_changed_address_is_announced(lan: Lan) -> None:
    first, _ = launch(lan, 0, 1), launch(lan, 1, 2)
    first.until(event("sighting", site=site(2)))
    lan.readdress(1, "10.47.0.99/24")
    first.until(lambda line: line["event"] == "sighting" and "10.47.0.99" in line["addresses"])


def test_a_host_whose_interface_was_off_finds_the_others_again(lan: Lan) -> None:
    lan.interface_down(0)
    first = launch(lan, 0, 1)
    launch(lan, 1, 2)
    first.until(event("notice", kind="discovery"))
    lan.interface_up(0)
    first.until(event("sighting", site=site(2), verified=True))


def test_after_a_cut_a_refresh_brings_newcomers(lan: Lan) -> None:
    first, second = launch(lan, 0, 1), launch(lan, 1, 2)
    first.until(event("sighting", site=site(2)))
    lan.cut(0)
    third = launch(lan, 2, 3)
    second.until(event("sighting", site=site(3)))  # so it has announced, and the cut host missed it
    lan.mend(0)
    third.tell("state")
    first.tell("refresh")
    first.until(event("sighting", site=site(3), verified=True))


def test_strangers_are_seen_unverified_until_the_keyring_knows_them(lan: Lan) -> None:
    first = launch(lan, 0, 1, members=[1])
    launch(lan, 1, 2)
    first.until(event("sighting", site=site(2), verified=False, boot=""))
    first.tell("admit 2")
    first.until(event("sighting", site=site(2), verified=True, boot=boot_of(2, 1).hex()))


@pytest.mark.parametrize("lie", [{"attested_port": 4748}, {"other_mesh": True}])
def test_an_attestation_that_does_not_hold_is_one_notice_and_no_sighting(lan: Lan, lie: dict[str, Any]) -> None:
    first = launch(lan, 0, 1)
    launch(lan, 1, 2, **lie)
    launch(lan, 2, 3)
    first.until(event("notice", kind="announcement-ignored"))
    first.until(event("sighting", site=site(3)))
    assert not [line for line in first.seen if line["event"] == "sighting" and line["site"] == site(2)]


def test_of_two_announcements_of_one_site_the_newest_boot_counts(lan: Lan) -> None:
    first = launch(lan, 0, 1)
    launch(lan, 1, 2, start=7, port=4747)
    first.until(event("sighting", site=site(2), port=4747))
    launch(lan, 2, 2, start=6, port=4800, name="older")
    launch(lan, 2, 2, start=8, port=4900)  # under the very same name: it gets a number
    first.until(event("sighting", site=site(2), port=4900))
    assert not [line for line in first.seen if line.get("port") == 4800]


@pytest.mark.parametrize("route", [False, True])
def test_processes_of_a_machine_without_a_network_find_each_other(machine: Lan, route: bool) -> None:
    if route:
        machine.configure(0, "route", "add", "224.0.0.0/4", "dev", "lo")
    lines = [launch(machine, 0, who, port=4746 + who) for who in EVERYBODY]
    for own, line in zip(EVERYBODY, lines, strict=True):
        waiting = {site(who) for who in EVERYBODY if who != own}
        while waiting:
            found = line.until(event("sighting", verified=True))
            assert found["addresses"] == ["127.0.0.1", "::1"]
            waiting.discard(found["site"])
    lines[0].ever(event("notice", kind="discovery", text=ONLY_LOOPBACK))


def test_processes_of_one_host_on_a_lan_find_each_other(lan: Lan) -> None:
    lines = [launch(lan, 0, who, port=4746 + who) for who in EVERYBODY]
    for own, line in zip(EVERYBODY, lines, strict=True):
        waiting = {site(who) for who in EVERYBODY if who != own}
        while waiting:
            waiting.discard(line.until(event("sighting", verified=True))["site"])


def test_on_an_interface_that_is_denied_nothing_is_announced_or_heard(lan: Lan) -> None:
    first = launch(lan, 0, 1, deny=["eth0"])
    first.ever(event("notice", kind="discovery", text=ONLY_LOOPBACK))
    beside = launch(lan, 0, 2, port=4800)
    third = launch(lan, 2, 3)
    third.until(event("sighting", site=site(2)))
    beside.until(event("sighting", site=site(3)))
    for other in (beside, third):
        assert not [line for line in other.seen if line.get("site") == site(1)]
    first.tell("state")
    first.until(event("state"))
    assert not [line for line in first.seen if line["event"] == "sighting"]


def test_without_any_interface_the_reason_is_told_and_discovery_recovers(machine: Lan) -> None:
    machine.configure(0, "address", "flush", "dev", "lo")
    first = launch(machine, 0, 1)
    first.until(event("notice", kind="discovery", text="no network interface has an address"))
    machine.configure(0, "address", "add", "127.0.0.1/8", "dev", "lo")
    launch(machine, 0, 2, port=4800)
    first.until(event("sighting", site=site(2)))


def test_a_taken_port_5353_is_told_and_discovery_recovers(machine: Lan) -> None:
    hog = (
        "import socket,sys; s=socket.socket(socket.AF_INET,socket.SOCK_DGRAM); s.bind(('',5353)); print('{}',flush=1);"
    )
    holder = machine.popen(
        0, [sys.executable, "-c", hog + "sys.stdin.read()"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    Lines(holder).until(lambda line: True)
    first = launch(machine, 0, 1)
    notice = first.until(event("notice", kind="discovery"))
    assert "5353" in notice["text"]
    machine.kill(holder)
    launch(machine, 0, 2, port=4800)
    first.until(event("sighting", site=site(2)))
