"""Where a node can be reached: parsing addresses, which ones are announced, the order to try them in (profile §11)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from itertools import islice

from meshnode.errors import UsageError
from meshnode.limits import ADDRESS_CHARS, ADDRESSES_PER_SITE, HOSTS_PER_ANNOUNCEMENT
from meshnode.net.interfaces import Interface

NAME_CHARS = 253  # of a host name (RFC 1035)
_LABEL = re.compile(r"[A-Za-z0-9_-]{1,63}")
_SCOPE = re.compile(r"[A-Za-z0-9_.:-]{1,64}")


@dataclass(frozen=True, slots=True)
class Address:
    """A host (a name, an IPv4 address, an IPv6 address with or without `%scope`) and a UDP port."""

    host: str
    port: int

    def text(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str, default_port: int | None = None) -> Address:
    """`host:port` or `[v6]:port`, also with a scope; raises UsageError saying which part is wrong."""
    trimmed = text.strip()
    if len(trimmed) > ADDRESS_CHARS:
        raise UsageError(f"an address has at most {ADDRESS_CHARS} characters, this one {len(trimmed)}")
    host, port_text = _split(trimmed)
    if port_text is None:
        if default_port is None:
            raise UsageError(f"no port in {trimmed!r}: write host:port or [v6 address]:port")
        return Address(_host(host, trimmed), default_port)
    if not (port_text.isascii() and port_text.isdigit() and len(port_text) <= 5 and 0 < int(port_text) < 65536):
        raise UsageError(f"{port_text!r} in {trimmed!r} is no port: a number from 1 to 65535 is")
    return Address(_host(host, trimmed), int(port_text))


def _split(text: str) -> tuple[str, str | None]:
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")) or ":" not in host:
            raise UsageError(f"{text!r} is no address: an IPv6 address is written [address]:port")
        return host, rest[1:] if rest else None
    if text.count(":") > 1:
        raise UsageError(f"{text!r} is no address: an IPv6 address is written [address]:port")
    host, colon, port = text.partition(":")
    return host, port if colon else None


def _host(host: str, text: str) -> str:
    parsed = parse_host(host)
    if parsed is not None:
        return parsed
    labels = host.removesuffix(".").split(".")
    # A last label of digits is a mistyped IPv4 address, never a name.
    if len(host) <= NAME_CHARS and all(_LABEL.fullmatch(label) for label in labels) and not labels[-1].isdigit():
        return host.lower()
    raise UsageError(f"{host!r} in {text!r} is neither a host name nor an IP address")


def parse_host(host: str) -> str | None:
    """The usual spelling of a numeric address, its scope kept; None for anything else.

    An IPv4 address in IPv6's notation is the IPv4 one: it reaches the same, and is judged as that.
    """
    bare, percent, scope = host.partition("%")
    try:
        parsed = ip_address(bare)
    except ValueError:
        return None
    if isinstance(parsed, IPv6Address) and parsed.ipv4_mapped is not None:
        parsed = parsed.ipv4_mapped
    if percent and (parsed.version == 4 or not _SCOPE.fullmatch(scope)):
        return None
    return f"{parsed.compressed}{percent}{scope}"


def announced_addresses(interfaces: Sequence[Interface]) -> tuple[str, ...]:
    """What an announcement lists: every address but loopback's, which counts only where there is no other."""
    ordered = sorted(interfaces, key=lambda interface: interface.order)
    hosts = [address.ip for interface in ordered for address in interface.addresses if not address.ip.is_loopback]
    hosts = hosts or [address.ip for interface in ordered for address in interface.addresses]
    return tuple(dict.fromkeys(host.compressed for host in hosts))[:ADDRESSES_PER_SITE]


def invite_addresses(interfaces: Sequence[Interface], port: int, *, limit: int = 4) -> tuple[Address, ...]:
    """What an invite carries: few, since a person may have to read them; no link-local ones, whose scope is ours."""
    hosts = [host for host in announced_addresses(interfaces) if not ip_address(host).is_link_local]
    return tuple(Address(host, port) for host in hosts[:limit])


def is_own(address: Address, port: int, interfaces: Sequence[Interface]) -> bool:
    """Whether dialing this reaches this very node: a container bridge has the same address on every machine."""
    bare = parse_host(address.host.partition("%")[0])
    if address.port != port or bare is None:
        return False
    return ip_address(bare).is_loopback or any(
        bare == own.ip.compressed for interface in interfaces for own in interface.addresses
    )


def dialable_untrusted(hosts: Iterable[str], interfaces: Sequence[Interface]) -> tuple[str, ...]:
    """The hosts of an announcement that can be dialed, nearest first, at most 16 (profile §11)."""
    found: dict[str, int] = {}
    for host in islice(hosts, HOSTS_PER_ANNOUNCEMENT):
        parsed = parse_host(host)
        if parsed is None:
            continue
        bare = ip_address(parsed.partition("%")[0])
        if bare.is_unspecified or bare.is_multicast or (bare.version == 4 and bare == IPv4Address("255.255.255.255")):
            continue
        for scoped in _scoped(parsed, bare, interfaces):
            found.setdefault(scoped, _distance(bare, interfaces))
    return tuple(sorted(found, key=found.__getitem__))[:ADDRESSES_PER_SITE]


def _scoped(host: str, bare: IPv4Address | IPv6Address, interfaces: Sequence[Interface]) -> tuple[str, ...]:
    """A link-local address means nothing without a scope that exists here: then every interface is a candidate."""
    plain, _, scope = host.partition("%")
    if bare.version == 4 or not bare.is_link_local:
        return (plain,)
    candidates = [interface for interface in interfaces if interface.link_local is not None]
    named = [one for one in candidates if scope in (str(one.index), one.name)]
    return tuple(f"{plain}%{interface.index}" for interface in named or candidates)


def _distance(bare: IPv4Address | IPv6Address, interfaces: Sequence[Interface]) -> int:
    """0 on a network that we are on, 1 on a link of ours, 2 on a virtual network of ours, 3 elsewhere, 4 loopback."""
    if bare.is_loopback:
        return 4
    if bare.is_link_local:
        return 1
    for interface in interfaces:
        if any(bare in network.network for network in interface.addresses if network.version == bare.version):
            return 2 if interface.order[1] else 0
    return 3
