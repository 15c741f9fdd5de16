"""One life of the mDNS library on a fixed set of interfaces: announce, browse, resolve, say goodbye (profile §11)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import zeroconf
from zeroconf import DNSAddress, DNSPointer, DNSService, DNSText  # type: ignore[attr-defined]  # kept there for users
from zeroconf.asyncio import AsyncServiceBrowser, AsyncServiceInfo, AsyncZeroconf

from meshnode.errors import UsageError
from meshnode.limits import HOSTS_PER_ANNOUNCEMENT
from meshnode.net.mdns_budget import Budget, Paced
from meshnode.net.multicast import Paths, hear_joined_only

SERVICE_TYPE = "_meshnode._udp.local."
_PTR, _TXT, _SRV, _INTERNET = 12, 16, 33, 1  # record types and the class of DNS (RFC 1035, RFC 2782)
LABEL_BYTES = 63  # one DNS label (RFC 1035)
TXT_STRING_BYTES = 255  # one key=value pair of a TXT record (RFC 6763 §6.1)
PROBE_S = 10.0  # seconds that claiming a name may take; against a neighbour that claims every name we try
CLOSE_S = 2.0  # seconds that the goodbye may take


@dataclass(frozen=True, slots=True)
class Service:
    """What this node announces; `name` is the device's, `attestation` its endpoint attestation record."""

    name: str
    site: bytes
    tag: bytes
    port: int
    attestation: bytes
    nearby: int = 0  # the port where it is open to nearby devices, while a person opened it (profile §10)


@dataclass(frozen=True, slots=True)
class Resolved:
    """What the network says about one instance, nothing of it checked."""

    instance: str
    port: int | None
    hosts: tuple[str, ...]
    properties: Mapping[bytes, bytes | None]


def instance_label(service: Service) -> str:
    """`<name>-<short site id>`: at most one label, no dots (the library would split there), no control characters."""
    short = service.site.hex()[:8]
    clean = "".join("-" if char == "." or not char.isprintable() else char for char in service.name).strip()
    room = LABEL_BYTES - len(short) - 1
    head = (clean or "node").encode("utf-8", "replace")[:room].decode("utf-8", "ignore")
    return f"{head}-{short}"


class Responder:
    """Announces one service and browses for its kind. Every method may raise OSError or zeroconf.Error.

    `on_instance(name, gone)` is called for every instance that appears, changes or leaves, our own included.
    """

    def __init__(self, paths: Paths, on_instance: Callable[[str, bool], None], ttl_s: int) -> None:
        version = zeroconf.IPVersion.All if paths.dual_stack else zeroconf.IPVersion.V4Only
        self._on_instance = on_instance
        self._ttl_s = ttl_s
        self._info: AsyncServiceInfo | None = None
        self._claimed: str | None = None  # the label that is being claimed
        self._browser: AsyncServiceBrowser | None = None
        self._zeroconf = AsyncZeroconf(interfaces=list(paths.hosts), ip_version=version)

    @property
    def own_instance(self) -> str | None:
        """The name that our announcement goes by, once it is out."""
        return None if self._info is None else self._info.name.lower()

    async def browse(self) -> None:
        """Ask the network who is there; called again it asks again, which is how silent leavers and arrivals show.

        Our own announcement is asked for too, whatever the library knows of it: `on_instance` tells whether it came.
        """
        if self._browser is None:
            await self._zeroconf.zeroconf.async_wait_for_start()
            budget = Budget()
            for reader in self._zeroconf.zeroconf.engine.readers:
                hear_joined_only(reader.transport.get_extra_info("socket"))
                reader.transport.set_protocol(Paced(reader.transport.get_protocol(), budget, time.perf_counter))
        else:
            await self._browser.async_cancel()
        if self.own_instance is not None:
            self.forget(self.own_instance)
        # Multicast questions only: the answer to a unicast one goes to port 5353 of this machine, where of several
        # processes that share it one gets the datagram, and not the one that asked.
        self._browser = AsyncServiceBrowser(
            self._zeroconf.zeroconf,
            SERVICE_TYPE,
            handlers=[self._changed],
            question_type=zeroconf.DNSQuestionType.QM,
        )

    def _changed(self, *, name: str, state_change: zeroconf.ServiceStateChange, **_: Any) -> None:
        self._on_instance(name.lower(), state_change is zeroconf.ServiceStateChange.Removed)

    async def announce(self, service: Service, addresses: tuple[str, ...]) -> None:
        """Claim the instance name and announce it; a name that is taken gets a number behind it."""
        info = self._describe(service, addresses, f"{instance_label(service)}.{SERVICE_TYPE}")
        self._claimed = instance_label(service).lower()
        try:
            async with asyncio.timeout(PROBE_S):
                sent = await self._zeroconf.async_register_service(info, allow_name_change=True)
        except (TimeoutError, zeroconf.Error):
            # The short site id makes honest names unique: whoever disputes it does not get to silence us.
            info = self._describe(service, addresses, f"{instance_label(service)}.{SERVICE_TYPE}")
            sent = await self._zeroconf.async_register_service(info, cooperating_responders=True)
        finally:
            self._claimed = None
        self._info = info
        await sent

    async def change(self, service: Service, addresses: tuple[str, ...]) -> None:
        """Announce another port, attestation or set of addresses under the same name."""
        if self._info is None:
            await self.announce(service, addresses)
            return
        self._info = self._describe(service, addresses, self._info.name)
        await (await self._zeroconf.async_update_service(self._info))

    def _describe(self, service: Service, addresses: tuple[str, ...], name: str) -> AsyncServiceInfo:
        properties = {
            b"v": b"1",
            b"tag": service.tag.hex().encode("ascii"),
            b"site": service.site.hex().encode("ascii"),
            b"att": service.attestation,
        }
        if service.nearby:
            properties |= {b"near": str(service.nearby).encode("ascii"), b"name": service.name.encode()}
        if any(len(key) + 1 + len(value) > TXT_STRING_BYTES for key, value in properties.items()):
            raise UsageError(f"an attestation of {len(service.attestation)} bytes does not fit into a TXT record")
        return AsyncServiceInfo(
            SERVICE_TYPE,
            name,
            port=service.port,
            properties=properties,
            server=f"meshnode-{service.site.hex()}.local.",
            parsed_addresses=list(addresses),
            host_ttl=self._ttl_s,
        )

    def cached(self, instance: str) -> Resolved | None:
        """What is known of an instance without asking, or None when part of it is missing or has expired."""
        self._drop_surplus(instance)
        with suppress(zeroconf.Error):
            info = AsyncServiceInfo(SERVICE_TYPE, instance)
            if info.load_from_cache(self._zeroconf.zeroconf):
                return _resolved(instance, info)
        return None

    def _drop_surplus(self, instance: str) -> None:
        """Of one host's addresses the first to come stay; against a neighbour that adds thousands to a member's."""
        cache = self._zeroconf.zeroconf.cache
        service = cache.get_by_details(instance, _SRV, _INTERNET)
        if isinstance(service, DNSService):
            addresses = [one for one in cache.entries_with_name(service.server) if isinstance(one, DNSAddress)]
            cache.async_remove_records(addresses[HOSTS_PER_ANNOUNCEMENT:])

    def glance(self, instance: str) -> Resolved | None:
        """The port and the properties alone, where both are known: a fraction of what reading addresses costs."""
        cache = self._zeroconf.zeroconf.cache
        service = cache.get_by_details(instance, _SRV, _INTERNET)
        text = cache.get_by_details(instance, _TXT, _INTERNET)
        if not isinstance(service, DNSService) or not isinstance(text, DNSText):
            return None
        with suppress(zeroconf.Error):
            properties = AsyncServiceInfo(SERVICE_TYPE, instance, properties=text.text).properties
            return Resolved(instance, service.port, (), properties)
        return None

    def forget(self, instance: str) -> None:
        """Drop every record of an instance that does not count.

        The library would keep 10,000 records, tell the network at each question which of them it knows, hand them all
        to the next browser, and plan to ask for each one again: what a flood leaves must not cost anything later.
        """
        if self._claimed is not None and instance.startswith(self._claimed):
            return  # these records are how the library knows that a name is taken
        cache = self._zeroconf.zeroconf.cache
        records = cache.entries_with_name(instance)
        cache.async_remove_records(records)
        for server in {one.server for one in records if isinstance(one, DNSService)}:
            if not cache.entries_with_server(server):
                cache.async_remove_records(cache.entries_with_name(server))
        pointer = DNSPointer(SERVICE_TYPE, _PTR, _INTERNET, 0, instance)
        known = cache.async_get_unique(pointer)
        if isinstance(known, DNSPointer):
            cache.async_remove_records([known])
            if self._browser is not None:
                self._browser.query_scheduler.cancel_ptr_refresh(known)

    async def resolve(self, instance: str, timeout_s: float) -> Resolved | None:
        """Ask for what is missing; None when nobody answers in time."""
        with suppress(zeroconf.Error):
            info = AsyncServiceInfo(SERVICE_TYPE, instance)
            multicast = zeroconf.DNSQuestionType.QM
            if await info.async_request(self._zeroconf.zeroconf, timeout_s * 1000, multicast):
                return _resolved(instance, info)
        return None

    async def close(self, *, goodbye: bool = True) -> None:
        """Say goodbye, unless that would tell somebody who was never greeted; release the sockets, in bounded time."""
        if not goodbye and self._info is not None:
            self._zeroconf.zeroconf.registry.async_remove(self._info)
        if self._browser is not None:
            await self._browser.async_cancel()
            self._browser = None
        with suppress(TimeoutError, OSError, zeroconf.Error):
            async with asyncio.timeout(CLOSE_S):
                await self._zeroconf.async_close()


def _resolved(instance: str, info: AsyncServiceInfo) -> Resolved:
    return Resolved(instance, info.port, tuple(info.parsed_scoped_addresses()), info.properties)
