"""Which interfaces of this machine a node uses for discovery, and why not the others, without I/O (profile §11)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from ipaddress import IPv4Interface, IPv6Interface

ALLOW, DENY = "allow_interfaces", "deny_interfaces"  # the settings
OFF_LINE = "no cable, or switched off"

# Names of interfaces that seldom lead to another device of the same person, and what they are.
_VIRTUAL = (
    (re.compile(r"docker|br-|veth|lxc|lxd|cni|flannel|podman|cali|kube", re.IGNORECASE), "of a container network"),
    (re.compile(r"virbr|vnet\d|vmnet|vmware virtual|vboxnet|virtualbox", re.IGNORECASE), "of virtual machines"),
    (re.compile(r"u?tun|tap|wg|wireguard|wintun|tailscale|zt[a-z0-9]{8}|ppp|sit\d", re.IGNORECASE), "a tunnel"),
)
# What cards are called, and what containers call the one way out that they have, whatever it is made of.
_ORDINARY = re.compile(r"eth\d|en[a-z]?\d|enx|wl[a-z]*\d|wlx|em\d|p\d+p\d|bond\d|lan\d|usb\d", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Device:
    """What Linux knows of an interface beyond its name; elsewhere nothing is known."""

    card: bool = False  # hardware stands behind it, or what a virtual machine takes for hardware
    tunnel: bool = False  # it carries no Ethernet, or a program is at its other end (tun, tap)
    bridge: bool = False
    ports: tuple[tuple[str, Device], ...] = ()  # of a bridge
    up: bool = True  # switched on, and something is at the other end of its cable


UNKNOWN = Device()


@dataclass(frozen=True, slots=True)
class Interface:
    """One network interface as it is now; `index` is what scopes IPv6 link-local addresses."""

    name: str
    index: int
    addresses: tuple[IPv4Interface | IPv6Interface, ...]
    # No part of what an interface is: the ports of a bridge come and go with the virtual machines on it.
    device: Device = field(default=UNKNOWN, compare=False)
    up: bool = True  # what its device says, and part of what it is: addresses stay when a cable is pulled

    @property
    def loopback(self) -> bool:
        return bool(self.addresses) and all(address.ip.is_loopback for address in self.addresses)

    @property
    def link_local(self) -> str | None:
        """Its first IPv6 link-local address, without a scope."""
        found = (address.ip for address in self.addresses if address.version == 6 and address.ip.is_link_local)
        return next((ip.compressed for ip in found), None)

    @property
    def order(self) -> tuple[bool, bool, int]:
        """Real networks first, then virtual ones, loopback last."""
        return (self.loopback, bool(virtual(self.name, self.device)), self.index)


def ordinary(name: str, device: Device) -> bool:
    """Whether it is a network card by what stands behind it, or by its name."""
    return device.card or bool(_ORDINARY.match(name))


def virtual(name: str, device: Device = UNKNOWN) -> str:
    """What makes an interface a virtual one, in words; nothing for one that leads to a network of devices.

    A bridge with a card for a port is the LAN, as on a NAS or a host of virtual machines, whatever it is called; and
    in a container `eth0` is the LAN, whatever it is made of.
    """
    if device.card or any(port.card for _, port in device.ports):
        return ""
    if _ORDINARY.match(name):
        return ""
    by_name = next((what for pattern, what in _VIRTUAL if pattern.match(name)), "")
    if device.bridge and device.ports and not all(virtual(*port) for port in device.ports):
        return ""
    if by_name:
        return f"{by_name}, by its name"
    if device.tunnel:
        return "a tunnel"
    if device.bridge:
        return "a bridge of virtual interfaces alone" if device.ports else "a bridge that nothing is connected to"
    return ""


@dataclass(frozen=True, slots=True)
class Rules:
    """What the operator says: names of interfaces, or patterns with `*`, `?` and `[...]`."""

    allow: tuple[str, ...] = ()  # none: every one that is not virtual
    deny: tuple[str, ...] = ()  # wins

    def allowing(self, names: Iterable[str]) -> Rules:
        """The same, with these named too."""
        return Rules((*self.allow, *names), self.deny)


NO_RULES = Rules()


@dataclass(frozen=True, slots=True)
class Selection:
    """The interfaces to announce and browse on, the most useful first, and why the others are not among them."""

    used: tuple[Interface, ...]
    skipped: tuple[tuple[str, str], ...] = ()  # name and reason
    spare: tuple[Interface, ...] = ()  # loopback while there are others: for when none of those can multicast
    every: tuple[Interface, ...] = ()  # those without an address too, which nobody uses
    unmatched: tuple[tuple[str, str], ...] = ()  # setting and pattern of rules that name no interface there is

    @property
    def unplugged(self) -> bool:
        """Whether there is a network to be on, and none is up."""
        skipped = dict(self.skipped)
        real = [one for one in self.every if not one.loopback and one.name not in skipped]
        return bool(real) and not any(one.up for one in real)

    def misnamed(self, setting: str) -> str:
        """What to say of the patterns of a setting that name no interface; nothing where all do."""
        names = ", ".join(pattern for of, pattern in self.unmatched if of == setting)
        there = ", ".join(interface.name for interface in self.every) or "none"
        return f"no interface is called {names}, as {setting} has it (there are: {there})" if names else ""

    @property
    def networks(self) -> frozenset[str]:
        """The addresses through which anything can be reached, skipped interfaces' too: another set, another network.

        Without link-local ones, with which the virtual interfaces of containers come and go.
        """
        addresses = (address for interface in self.every for address in interface.addresses)
        return frozenset(str(address) for address in addresses if not address.ip.is_link_local)

    def without(self, reasons: Mapping[str, str]) -> Selection:
        """The same but for these interfaces, by name, each with a further reason against it."""
        left = [interface for interface in (*self.used, *self.spare) if interface.name not in reasons]
        return _selection(left, (*self.skipped, *reasons.items()), self.every, self.unmatched)


def select(interfaces: Iterable[Interface], rules: Rules = NO_RULES) -> Selection:
    """Which interfaces to use by what they are, and by the rules."""
    every = tuple(sorted(interfaces, key=lambda interface: interface.order))
    reasons = {interface.name: _against(interface, rules) for interface in every}
    left = [interface for interface in every if interface.addresses and not reasons[interface.name]]
    skipped = tuple((one.name, reasons[one.name]) for one in every if one.addresses and reasons[one.name])
    return _selection(left, skipped, every, _unmatched(every, rules))


def _unmatched(every: Iterable[Interface], rules: Rules) -> tuple[tuple[str, str], ...]:
    names = [interface.name for interface in every]
    said = ((ALLOW, rules.allow), (DENY, rules.deny))
    return tuple(
        (setting, pattern)
        for setting, patterns in said
        for pattern in patterns
        if not any(_named(name, (pattern,)) for name in names)
    )


def _selection(
    left: Iterable[Interface],
    skipped: tuple[tuple[str, str], ...],
    every: tuple[Interface, ...],
    unmatched: tuple[tuple[str, str], ...],
) -> Selection:
    """Loopback is used only where nothing else is left: then at least the nodes of this machine find each other."""
    used = tuple(interface for interface in left if not interface.loopback)
    loopback = tuple(interface for interface in left if interface.loopback)
    if used:
        return Selection(used, skipped, loopback, every, unmatched)
    return Selection(loopback, skipped, (), every, unmatched)


def _against(interface: Interface, rules: Rules) -> str:
    name = interface.name
    if _named(name, rules.deny):
        return "deny_interfaces names it"
    if interface.loopback or _named(name, rules.allow):
        return ""
    if rules.allow:
        return "allow_interfaces does not name it"
    what = virtual(name, interface.device)
    return f"{what}; allow_interfaces can name it" if what else ""


def _named(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
