"""One process that discovers, dials and links, and does nothing else: discovery and transport put together.

`python -m support.meeter '{"who": 1, "members": [1, 2], "port": 4747}'` prints a JSON line per link that comes or goes;
`links` on stdin prints the sites linked now, `hush` says goodbye by mDNS and nothing else, `quit` (or the end of stdin)
ends it. With `"hides": true` it neither announces nor dials, and waits to be dialed.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from meshnode.errors import CloseCode
from meshnode.model.record import EndpointAttestation, seal_record
from meshnode.model.site import mesh_tag
from meshnode.net.addresses import Address, parse_address
from meshnode.net.announcement import attestation_opener
from meshnode.net.endpoint import Admission, Endpoint, EndpointConfig, EndpointIdentity, Link
from meshnode.net.mdns import Discovery
from meshnode.net.pace import Pace
from meshnode.net.responder import Service
from meshnode.net.sightings import Sighting
from meshnode.node.dialer import Dialer
from meshnode.node.dialing import DialPlan
from meshnode.node.dialtarget import Attempt
from support.announcer import MESH_ID, say, site_key
from support.lines import stdin_lines


class Meeter:
    """The wiring that the node has too, without a store behind it."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.options = options
        self.key = site_key(int(options["who"]))
        members = [site_key(who) for who in options["members"]]
        self.keys = {member.site: member.public_key for member in members}
        self.plan = DialPlan(self.key.site, random.random)
        self.plan.members(self.keys, self.now())
        self.endpoint: Endpoint
        self.dialer = Dialer(self.plan, self.dial, now=self.now, on_worked=self.worked, on_failed=self.failed)

    def now(self) -> float:
        return time.monotonic()

    async def dial(self, address: Address, expect_site: bytes | None, on_proven: Callable[[], None]) -> bytes:
        host, port = address.host, address.port
        return (await self.endpoint.dial(host, port, expect_site=expect_site, on_proven=on_proven)).site

    def worked(self, site: bytes, address: Address) -> None:
        say("worked", site=site.hex(), address=address.text())

    def failed(self, attempt: Attempt, text: str) -> None:
        say("failed", text=text)

    def admit(self, site: bytes, public_key: bytes, alpn: str) -> Admission:
        return Admission.MEMBER if self.keys.get(site) == public_key else Admission.UNKNOWN

    def linked(self, link: Link) -> None:
        def live() -> None:
            self.plan.linked(link.site, self.now())
            if not link.opened_by_us:
                self.plan.came_from(link.site, parse_address(link.remote_address))
            say("linked", site=link.site.hex(), ours=link.opened_by_us, address=link.remote_address)

        def closed(code: CloseCode | None, reason: str, local: bool) -> None:
            if self.endpoint.link_to(link.site) in (None, link):
                self.plan.unlinked(link.site, self.now(), code)
                say("unlinked", site=link.site.hex(), code=code, reason=reason)
                self.dialer.wake()

        link.on_live, link.on_closed = live, closed
        if link.live:
            live()

    def sighted(self, sighting: Sighting) -> None:
        if sighting.verified:
            say("sighting", site=sighting.site.hex(), addresses=list(sighting.addresses))
            addresses = [Address(host, sighting.port) for host in sighting.addresses]
            self.plan.seen(sighting.site, sighting.boot, addresses, self.now())
            self.dialer.wake()

    def gone(self, site: bytes) -> None:
        self.plan.gone(site)
        say("gone", site=site.hex())

    def network(self) -> None:
        self.plan.network_changed(self.now())
        self.dialer.wake()

    def service(self) -> Service:
        issued = time.time_ns() // 1_000_000
        attestation = seal_record(self.key, MESH_ID, EndpointAttestation(self.endpoint.port, os.urandom(8), issued))
        return Service(f"host {self.options['who']}", self.key.site, mesh_tag(MESH_ID), self.endpoint.port, attestation)

    async def run(self) -> None:
        self.endpoint = await Endpoint.create(
            "",
            int(self.options["port"]),
            identity=EndpointIdentity.create(MESH_ID, self.key, 0),
            admit=self.admit,
            on_link=self.linked,
            on_notice=lambda kind, site, text: say("notice", kind=kind, text=text),
            config=EndpointConfig(keep_alive_s=1.0, silence_s=3.0),
        )
        discovery = Discovery(
            None if self.options.get("hides") else self.service(),
            open_attestation=attestation_opener(MESH_ID, self.keys.get),
            on_sighting=self.sighted,
            on_gone=self.gone,
            on_notice=lambda kind, site, text: say("notice", kind=kind, text=text),
            random=random.random,
            on_network=self.network,
            pace=Pace(rescan_s=0.5),
        )
        discovery.start()
        dialing = asyncio.create_task(asyncio.sleep(0) if self.options.get("hides") else self.dialer.run())
        say("started")
        async for command in stdin_lines():
            if command == "quit":
                break
            if command == "hush":
                await discovery.stop()
            say("links", sites=sorted(link.site.hex() for link in self.endpoint.links()))
        dialing.cancel()
        with suppress(asyncio.CancelledError):
            await dialing
        await discovery.stop()
        await self.endpoint.close()
        say("stopped")


if __name__ == "__main__":
    asyncio.run(Meeter(json.loads(sys.argv[1])).run())
