"""This machine's interfaces as its operating system tells of them: addresses, and on Linux what each is made of."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterable
from dataclasses import replace
from ipaddress import IPv4Interface, IPv6Interface, ip_address
from pathlib import Path

import ifaddr

from meshnode.errors import TransportError
from meshnode.net.addresses import parse_host
from meshnode.net.interfaces import NO_RULES, UNKNOWN, Device, Interface, Rules, Selection, ordinary, select

SYSFS = Path("/sys/class/net")
DEPTH = 4  # levels of bridges, bonds and VLANs that are looked through for a card
PORTS = 64  # ports of one bridge that are looked at; hosts of many virtual machines have the card among the first
# ARPHRD_NONE, ARPHRD_PPP, ARPHRD_TUNNEL, ARPHRD_TUNNEL6, ARPHRD_SIT, ARPHRD_IPGRE, ARPHRD_IP6GRE (Linux if_arp.h)
_TUNNELS = frozenset({"65534", "512", "768", "769", "776", "778", "823"})
_NOT_UP = frozenset({"down", "lowerlayerdown", "notpresent", "dormant"})  # RFC 2863; a driver may tell nothing at all
_THROUGH = frozenset({"vlan", "bond", "macvlan", "ipvlan"})

Look = Callable[[str, int], Device]  # what is known of the interface of this name and index


def linux_device(name: str, index: int, root: Path = SYSFS) -> Device:
    """What sysfs tells of an interface; UNKNOWN where there is no sysfs, or one of another network namespace."""
    # The name comes from the operating system, and is one path component for all that Linux allows.
    if _text(root / name / "ifindex") != str(index):
        return UNKNOWN
    return replace(_device(root / name, DEPTH), up=_text(root / name / "operstate") not in _NOT_UP)


def mtu_of(name: str, root: Path = SYSFS) -> int | None:
    """The largest packet that an interface takes, in bytes; None where the system does not tell so."""
    text = _text(root / name / "mtu")
    return int(text) if text.isascii() and text.isdigit() else None


def _device(path: Path, depth: int) -> Device:
    if depth == 0:
        return UNKNOWN
    kind = next((line[8:] for line in _text(path / "uevent").splitlines() if line.startswith("DEVTYPE=")), "")
    card = os.path.exists(path / "device")
    tunnel = os.path.exists(path / "tun_flags") or _text(path / "type") in _TUNNELS
    if kind == "bridge":
        return Device(
            card, tunnel, True, tuple((name, _device(path.parent / name, depth - 1)) for name in _below(path))
        )
    # These lead where their card leads; a VXLAN, say, has its card only to travel by.
    if kind in _THROUGH:
        card = card or any(_device(path.parent / name, depth - 1).card for name in _below(path))
    return Device(card, tunnel)


def _below(path: Path) -> list[str]:
    """The interfaces that one is made of."""
    try:
        return sorted(each.name[6:] for each in path.iterdir() if each.name.startswith("lower_"))[:PORTS]
    except OSError:
        return []


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError, ValueError):
        return ""


def local_interfaces(look: Look = linux_device) -> tuple[Interface, ...]:
    """Every interface of this machine that has an address, and those cards that are down and have none left.

    TransportError where the system does not tell.
    """
    try:
        adapters, named = tuple(ifaddr.get_adapters()), socket.if_nameindex()
    except (OSError, ValueError, AssertionError) as error:  # no file is free; a name in no UTF-8; no netmask
        raise TransportError(f"this machine does not tell of its network interfaces: {error}") from error
    found = []
    for adapter in adapters:
        addresses = tuple(sorted({_network(ip) for ip in adapter.ips}, key=lambda one: (one.version, one)))
        if addresses:
            # The nice name is the name itself but on Windows, where the other one is a GUID (untested there).
            name, index = adapter.nice_name, adapter.index or 0
            device = look(name, index)
            found.append(Interface(name, index, addresses, device, device.up))
    return (*found, *_without_address({one.name for one in found}, named, look))


def _without_address(known: set[str], named: Iterable[tuple[int, str]], look: Look) -> list[Interface]:
    """A card that is switched off loses its addresses, and shall be missed by nobody who looks for the reason."""
    found = []
    for index, name in named:
        if name not in known and ordinary(name, device := look(name, index)) and not device.up:
            found.append(Interface(name, index, (), device, up=False))
    return found


def _network(ip: ifaddr.IP) -> IPv4Interface | IPv6Interface:
    if isinstance(ip.ip, tuple):
        return IPv6Interface((ip.ip[0].partition("%")[0], ip.network_prefix))
    return IPv4Interface((ip.ip, ip.network_prefix))


def selection(rules: Rules = NO_RULES) -> Selection:
    """What a node uses that listens on every interface."""
    return select(local_interfaces(), rules)


def loopback_selection() -> Selection:
    """Loopback alone: what nodes that shall be found on this machine only announce and browse on."""
    return select(interface for interface in local_interfaces() if interface.loopback)


def selection_at(host: str, rules: Rules = NO_RULES) -> Selection:
    """What a node uses that listens on `host`: of `::` and `0.0.0.0` every interface, else the one that has it.

    Whoever names an address to listen on has named its interface: it may be a virtual one.
    """
    bare = parse_host(host.partition("%")[0]) if host else None
    if bare is None or ip_address(bare).is_unspecified:
        return selection(rules)
    heard = [
        replace(one, addresses=tuple(each for each in one.addresses if each.ip.compressed == bare))
        for one in local_interfaces()
        if any(each.ip.compressed == bare for each in one.addresses)
    ]
    return select(heard, rules.allowing(one.name for one in heard))
