"""When the platform is asked for the networks, and what is remembered of them (NEOTH)."""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv4Interface

import pytest

from meshnode.limits import WIFI_LOOK_S
from meshnode.net.interfaces import Interface
from meshnode.net.wifi import Network, Unknown, Wifi, WifiPolicy, Wired
from meshnode.net.wifi_guard import Quiet, WifiGuard, platform_reader
from meshnode.net.wifi_linux import read_linux
from meshnode.net.wifi_macos import read_macos
from meshnode.net.wifi_windows import read_windows

CAREFUL = WifiPolicy(announce_on_untrusted_wifi=False, trusted_ssids=frozenset({b"Home"}))
LOOPBACK = Interface("lo", 1, (IPv4Interface("127.0.0.1/8"),))
CABLE = Interface("eth0", 2, (IPv4Interface("10.0.0.1/24"),))
RADIO = Interface("wlan0", 3, (IPv4Interface("10.1.0.1/24"),))
ALL = (CABLE, RADIO, LOOPBACK)
NOT_TRUSTED = {"wlan0": 'joined to "Cafe", which is not in trusted_ssids'}


class Platform:
    """What a laptop with a cable in tells, and how often it was asked."""

    def __init__(self, policy: WifiPolicy = CAREFUL) -> None:
        self.now = 0.0
        self.asked: list[list[str]] = []
        self.radio: Network = Wifi(b"Cafe")
        self.guard = WifiGuard(policy, now=lambda: self.now, read=self.read)

    async def read(self, names: Iterable[str]) -> dict[str, Network]:
        self.asked.append(list(names))
        return {name: Wired() if name == "eth0" else self.radio for name in self.asked[-1]}


async def test_by_default_nobody_is_asked() -> None:
    platform = Platform(WifiPolicy())
    assert await platform.guard.look(ALL) == Quiet()
    assert platform.asked == []


async def test_a_cable_is_used_beside_wifi_that_is_not_trusted() -> None:
    platform = Platform()
    assert await platform.guard.look(ALL) == Quiet(NOT_TRUSTED)
    assert platform.asked == [["eth0", "wlan0"]]


async def test_the_platform_is_asked_again_when_an_interface_or_the_policy_changes_or_time_has_passed() -> None:
    platform = Platform()
    await platform.guard.look(ALL)
    platform.radio, platform.now = Wifi(b"Home"), WIFI_LOOK_S - 0.1
    assert await platform.guard.look(ALL) == Quiet(NOT_TRUSTED)
    platform.now = WIFI_LOOK_S
    assert await platform.guard.look(ALL) == Quiet()
    platform.radio = Wifi(b"Cafe")
    elsewhere = Interface("wlan0", 3, (IPv4Interface("10.1.0.2/24"),))
    assert (await platform.guard.look((CABLE, elsewhere))).reasons == NOT_TRUSTED
    platform.radio = Wifi(b"Home")
    platform.guard.follow(CAREFUL)
    assert await platform.guard.look((CABLE, elsewhere)) == Quiet()
    assert len(platform.asked) == 4


@pytest.mark.parametrize("radio", [Wifi(b"Cafe"), Wifi(None, "no answer"), Unknown("no answer")], ids=str)
async def test_only_a_network_that_was_spoken_on_is_one_to_say_goodbye_on(radio: Network) -> None:
    platform = Platform()
    assert not (await platform.guard.look(ALL)).moved, "it was never spoken on"
    platform.radio, platform.now = Wifi(b"Home"), 100.0
    assert not (await platform.guard.look(ALL)).moved
    platform.radio, platform.now = radio, 200.0
    assert (await platform.guard.look(ALL)).moved
    assert not (await platform.guard.look(ALL)).moved, "that was said"


async def test_trust_that_is_withdrawn_is_a_network_to_say_goodbye_on() -> None:
    platform = Platform()
    platform.radio = Wifi(b"Home")
    await platform.guard.look(ALL)
    platform.guard.follow(WifiPolicy())
    assert await platform.guard.look(ALL) == Quiet()
    platform.radio = Wifi(b"Cafe")  # where it is announced as anywhere
    platform.guard.follow(CAREFUL)
    assert await platform.guard.look(ALL) == Quiet(NOT_TRUSTED)


async def test_each_platform_has_its_reader_and_another_one_tells_nothing() -> None:
    assert [platform_reader(name) for name in ("linux", "darwin", "win32")] == [read_linux, read_macos, read_windows]
    found = await platform_reader("freebsd14")(["em0"])
    assert isinstance(found["em0"], Unknown)
