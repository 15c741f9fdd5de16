"""Addresses: what people and peers write, which of them can be dialed, in what order (profile §11)."""

from __future__ import annotations

from ipaddress import IPv4Interface, IPv6Interface, ip_interface

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshnode.errors import UsageError
from meshnode.limits import ADDRESSES_PER_SITE, HOSTS_PER_ANNOUNCEMENT
from meshnode.net.addresses import (
    Address,
    announced_addresses,
    dialable_untrusted,
    invite_addresses,
    is_own,
    parse_address,
)
from meshnode.net.interfaces import Interface


def interface(name: str, index: int, *addresses: str) -> Interface:
    parsed = [ip_interface(address) for address in addresses]
    assert all(isinstance(one, (IPv4Interface, IPv6Interface)) for one in parsed)
    return Interface(name, index, tuple(parsed))


LO = interface("lo", 1, "127.0.0.1/8", "::1/128")
ETH = interface("eth0", 2, "192.168.1.10/24", "fe80::1/64", "fd00::10/64")
WIFI = interface("wlan0", 3, "10.0.0.7/24", "fe80::2/64")
DOCKER = interface("docker0", 4, "172.17.0.1/16", "fe80::3/64")
ALL = (ETH, WIFI, DOCKER, LO)


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("10.0.0.1:4747", "10.0.0.1", 4747),
        (" box.local:1 ", "box.local", 1),
        ("BOX:65535", "box", 65535),
        ("[fe80::1%eth0]:4747", "fe80::1%eth0", 4747),
        ("[2001:DB8:0::1]:5", "2001:db8::1", 5),
        ("[::1]:80", "::1", 80),
    ],
)
def test_addresses_that_are_understood(text: str, host: str, port: int) -> None:
    address = parse_address(text)
    assert address == Address(host, port)
    assert parse_address(address.text()) == address


@pytest.mark.parametrize(
    "text",
    [
        "", ":", ":4747", "host", "host:", "host:0", "host:65536", "host:x", "host:-1", "host:+1", "host:４７",
        "fe80::1:4747", "::1", "[::1", "[::1]", "[::1]4747", "[::1]:", "[host]:1", "[fe80::1%]:1", "[1.2.3.4]:1",
        "256.1.1.1:1", "1.2.3:1", "1.2.3.4%eth0:1", "a b:1", "a..b:1", "a/b:1", "host:1:2", "é:1", "x" * 400 + ":1",
        "a" * 64 + ":1", "[fe80::1%a b]:1", "host\n:1", "host:00000000004747",
    ],
)  # fmt: skip
def test_anything_else_is_a_usage_error_that_says_why(text: str) -> None:
    with pytest.raises(UsageError, match=r"."):
        parse_address(text)


def test_a_default_port_fills_in_for_a_missing_one() -> None:
    assert parse_address("box", 4747) == Address("box", 4747)
    assert parse_address("[::1]", 4747) == Address("::1", 4747)
    assert parse_address("box:1", 4747) == Address("box", 1)


@given(st.text(max_size=60))
def test_parsing_never_raises_anything_else(text: str) -> None:
    try:
        address = parse_address(text, 1)
    except UsageError:
        return
    assert parse_address(address.text()) == address


def test_announced_are_all_but_loopback_the_real_networks_first() -> None:
    assert announced_addresses((LO, DOCKER, WIFI, ETH))[:3] == ("192.168.1.10", "fe80::1", "fd00::10")
    assert not {"127.0.0.1", "::1"} & set(announced_addresses(ALL))
    assert announced_addresses((LO,)) == ("127.0.0.1", "::1")
    assert announced_addresses(()) == ()


def test_announced_addresses_are_bounded() -> None:
    many = tuple(interface(f"eth{n}", n, f"10.{n}.0.1/24") for n in range(1, 40))
    assert len(announced_addresses(many)) == ADDRESSES_PER_SITE


def test_an_invite_carries_few_and_none_that_only_mean_something_here() -> None:
    assert [one.text() for one in invite_addresses(ALL, 4747)] == [
        "192.168.1.10:4747",
        "[fd00::10]:4747",
        "10.0.0.7:4747",
        "172.17.0.1:4747",
    ]
    assert len(invite_addresses(ALL, 4747, limit=2)) == 2
    assert [one.host for one in invite_addresses((DOCKER, LO), 1)] == ["172.17.0.1"]
    assert [one.host for one in invite_addresses((LO,), 1)] == ["127.0.0.1", "::1"]


def test_dialable_puts_near_networks_first_and_drops_what_is_no_host() -> None:
    found = dialable_untrusted(
        ["127.0.0.1", "8.8.8.8", "172.17.0.9", "fe80::9%3", "10.0.0.9", "0.0.0.0", "::", "224.0.0.1", "ff02::1",
         "255.255.255.255", "no address", "", "fe80::9%3"],
        ALL,
    )  # fmt: skip
    assert found == ("10.0.0.9", "fe80::9%3", "172.17.0.9", "8.8.8.8", "127.0.0.1")


def test_link_local_without_a_scope_of_ours_is_tried_on_every_link() -> None:
    assert dialable_untrusted(["fe80::9"], ALL) == ("fe80::9%2", "fe80::9%3", "fe80::9%4")
    assert dialable_untrusted(["fe80::9%77"], ALL) == ("fe80::9%2", "fe80::9%3", "fe80::9%4")
    assert dialable_untrusted(["fe80::9%wlan0"], ALL) == ("fe80::9%3",)
    assert dialable_untrusted(["fe80::9%2"], (LO,)) == ()


def test_ipv4_in_the_notation_of_ipv6_is_judged_as_ipv4() -> None:
    """Else an announcement would have us dial a multicast group, or ourselves."""
    mapped = ["::ffff:224.0.0.251", "::ffff:255.255.255.255", "::ffff:0.0.0.0", "::ffff:10.0.0.9", "10.0.0.9"]
    assert dialable_untrusted(mapped, ALL) == ("10.0.0.9",)
    assert is_own(Address("::ffff:172.17.0.1", 4747), 4747, ALL)
    assert is_own(Address("::ffff:127.0.0.1", 4747), 4747, ALL)
    assert parse_address("[::ffff:10.0.0.9]:4747") == Address("10.0.0.9", 4747)


def test_dialable_is_bounded() -> None:
    assert len(dialable_untrusted((f"10.1.{n >> 8}.{n & 255}" for n in range(5000)), ALL)) == ADDRESSES_PER_SITE


def test_of_twenty_addresses_the_nearest_are_kept_wherever_they_stand() -> None:
    far = [f"172.30.{n}.1" for n in range(18)]
    found = dialable_untrusted([*far, "192.168.1.77", "10.0.0.77"], ALL)
    assert found == ("192.168.1.77", "10.0.0.77", *far[: ADDRESSES_PER_SITE - 2])
    flood = (f"172.{n >> 8}.{n & 255}.1" for n in range(HOSTS_PER_ANNOUNCEMENT))
    assert "192.168.1.77" not in dialable_untrusted([*flood, "192.168.1.77"], ALL)


def test_own_address_and_port_is_this_node_and_another_port_is_another() -> None:
    assert is_own(Address("172.17.0.1", 4747), 4747, ALL)
    assert is_own(Address("fe80::1%2", 4747), 4747, ALL)
    assert is_own(Address("127.0.0.1", 4747), 4747, ALL)
    assert not is_own(Address("172.17.0.1", 4748), 4747, ALL)
    assert not is_own(Address("172.17.0.2", 4747), 4747, ALL)
    assert not is_own(Address("box", 4747), 4747, ALL)
