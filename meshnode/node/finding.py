"""Finding the other members: announcements, addresses remembered or given, and whom to dial when (profile §11)."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace

from meshnode.errors import CloseCode, TransportError
from meshnode.limits import LINK_SILENT_S
from meshnode.model.record import EndpointAttestation, seal_record
from meshnode.model.site import mesh_tag
from meshnode.net.addresses import Address, parse_address
from meshnode.net.announcement import attestation_opener
from meshnode.net.changes import LOOK_S, SETTLE_S, SLEPT_S, KernelNews, Look, Remembered, changed
from meshnode.net.endpoint import Endpoint
from meshnode.net.interfaces import Interface, Selection
from meshnode.net.mdns import TROUBLE, Discovery
from meshnode.net.responder import Service
from meshnode.net.sightings import Sighting
from meshnode.node.config import Config, wifi_policy_of
from meshnode.node.dialer import Dial, Dialer
from meshnode.node.dialing import DialPlan
from meshnode.node.dialtarget import Attempt
from meshnode.node.doubting import Doubts, elsewhere
from meshnode.node.interfaces import guard_of, selection_of
from meshnode.node.settings import NetworkSettings
from meshnode.node.storage import wall_ms
from meshnode.node.surroundings import MDNS_OFF, OFF, Surroundings, around_of, state_of

OnNotice = Callable[[str, bytes | None, str], None]


class Finder:
    """Discovery, dialer and doubts around one dialing plan. mDNS grants nothing: only members are ever dialed."""

    def __init__(
        self,
        settings: NetworkSettings,
        boot: bytes,
        *,
        key_of: Callable[[bytes], bytes | None],
        dial: Dial,
        on_worked: Callable[[bytes, Address], None],
        on_failed: Callable[[Attempt, str], None],
        on_notice: OnNotice,
        on_over: Callable[[str], None] = lambda _kind: None,
    ) -> None:
        self._settings = settings
        self._config = settings.config
        self._nearby = 0
        self._boot = boot
        self._key_of = key_of
        self._on_notice, self._on_over = on_notice, on_over
        self._plan = DialPlan(settings.key.site, random.random, max_links=settings.config.max_links)
        self._dialer = Dialer(self._plan, dial, now=time.monotonic, on_worked=on_worked, on_failed=on_failed)
        self._tasks: list[asyncio.Task[None]] = []
        self._endpoint: Endpoint
        self._doubts: Doubts
        self._discovery: Discovery | None = None
        self._service: Service | None = None
        self._guard = guard_of(settings.config)
        self._interfaces = Remembered(lambda: selection_of(self._config), time.monotonic)

    def start(self, endpoint: Endpoint, members: Iterable[bytes], remembered: Mapping[bytes, Iterable[str]]) -> None:
        """Dial what is known, look after links, and announce the endpoint's port unless discovery is off."""
        self._endpoint = endpoint
        self._doubts = Doubts(endpoint.link_to, on_silent=self._silent, on_answer=self._plan.trusted)
        self.members(members)
        now = time.monotonic()
        for site, addresses in remembered.items():
            self._plan.remembered(site, [parse_address(text) for text in addresses], now)
        self._dial_given()
        self._tasks = [
            asyncio.create_task(self._dialer.run(), name="dialer"),
            asyncio.create_task(self._watch(), name="network-watch"),
        ]
        self._discover()

    async def stop(self) -> None:
        """Dial nobody any more and say goodbye on the network."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._tasks:
            await self._doubts.stop()
        if self._discovery is not None:
            await self._discovery.stop()

    @property
    def state(self) -> str:
        """`on`, `off`, or why discovery is limited."""
        return state_of(self._discovery)

    @property
    def selection(self) -> Selection:
        """The interfaces that are used, and why the others are not."""
        return selection_of(self._config) if self._discovery is None else self._discovery.selection

    async def look(self, seconds: float) -> Surroundings:
        """Ask the network again, and tell after so many seconds what is around and how it is with whom is dialed."""
        if self._discovery is not None:
            self._discovery.refresh()
        await asyncio.sleep(seconds)
        dialing, discovery = self._plan.reasons(time.monotonic()), self._discovery
        around = Surroundings(OFF, self.selection, deaf=MDNS_OFF) if discovery is None else around_of(discovery)
        return replace(around, dialing=dialing, owners=self._plan.owners)

    def announce_nearby(self, port: int) -> None:
        """Say where nearby devices may pair, 0: nowhere any more (profile §10)."""
        self._nearby = port
        if self._discovery is not None and self._service is not None:
            self._service = replace(self._service, nearby=port)
            self._discovery.update(self._service)

    async def follow(self, config: Config) -> None:
        """From now on dial whom these settings name, and announce and look where they say so, and nowhere else."""
        self._config = config
        self._interfaces.forget()
        self._guard.follow(wifi_policy_of(config))
        self._dial_given()
        self._plan.allow(config.max_links)
        self._endpoint.allow_links(config.max_links)
        self._dialer.wake()
        discovery = self._discovery
        if discovery is None:
            self._discover()
        elif config.mdns_enabled:
            discovery.look_again()
        else:
            self._discovery = self._service = None
            await discovery.stop()
            self._on_over(TROUBLE)

    # --- news

    def members(self, sites: Iterable[bytes]) -> None:
        """Who may be dialed from now on."""
        self._plan.members(sites, time.monotonic())
        self._dialer.wake()
        if self._discovery is not None:
            self._discovery.recheck()

    def linked(self, site: bytes) -> None:
        """A link to this site is up."""
        self._plan.linked(site, time.monotonic())

    def came_from(self, site: bytes, address: Address) -> None:
        """A link that this site dialed is up."""
        self._plan.came_from(site, address)

    def again(self, site: bytes) -> None:
        """A link to this site was ended on purpose: another one is wanted at once."""
        self._plan.again(site, time.monotonic())
        self._dialer.wake()

    def unlinked(self, site: bytes, code: CloseCode | None, why: str, *, ours: bool) -> None:
        """The last link to this site is gone; `ours`: this side ended it."""
        self._plan.unlinked(site, time.monotonic(), code, why, ours=ours)
        self._dialer.wake()
        if self._discovery is not None:
            self._discovery.refresh()

    def _dial_given(self) -> None:
        self._plan.static([parse_address(text) for text in self._config.peers], time.monotonic())

    # --- discovery

    def _discover(self) -> None:
        if self._config.mdns_enabled:
            self._discovery = self._announce(self._endpoint.port)
            self._discovery.start()
        else:  # an earlier run may have left the notice
            self._on_over(TROUBLE)

    def _announce(self, port: int) -> Discovery:
        key, mesh_id = self._settings.key, self._settings.mesh_id
        attestation = seal_record(key, mesh_id, EndpointAttestation(port, self._boot, wall_ms()))
        self._service = Service(self._settings.name, key.site, mesh_tag(mesh_id), port, attestation, self._nearby)
        return Discovery(
            self._service,
            open_attestation=attestation_opener(mesh_id, self._key_of),
            on_sighting=self._seen,
            on_gone=self._plan.gone,
            on_notice=self._on_notice,
            on_network=self._network_changed,
            on_over=self._on_over,
            random=random.random,
            scan=self._scan,
            guard=self._guard,
        )

    def _seen(self, sighting: Sighting) -> None:
        if not sighting.verified:
            return
        addresses = [Address(host, sighting.port) for host in sighting.addresses]
        self._plan.seen(sighting.site, sighting.boot, addresses, time.monotonic())
        self._dialer.wake()
        link = self._endpoint.link_to(sighting.site)
        if link is not None and elsewhere(link.boot, link.remote_address, sighting.boot, addresses):
            self._doubts.ask(sighting.site)

    # --- this machine's own network

    def _scan(self) -> Selection:
        return self._interfaces.look()

    async def _watch(self) -> None:
        """Look at the network and at the links. Discovery looks too, but more rarely, and only where it is on."""
        stirred = asyncio.Event()

        def heard() -> None:
            self._interfaces.forget()
            stirred.set()

        news = KernelNews(heard)
        self._interfaces.trusted = news.listening
        try:
            before = self._looked(())
            while True:
                with suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_S):
                        await stirred.wait()
                    await asyncio.sleep(SETTLE_S)
                stirred.clear()
                if time.time() - before.wall_s >= LOOK_S + SLEPT_S:
                    self._interfaces.forget()  # what the kernel said meanwhile may be more than it had room for
                after = self._looked(before.interfaces)
                if changed(before, after):
                    self._network_changed()
                    if self._discovery is not None:
                        self._discovery.refresh()
                before = after
                for link in self._endpoint.links():
                    if link.unanswered_s >= LINK_SILENT_S:  # whatever happened, it happened out of our sight
                        self._doubts.ask(link.site)
        finally:
            self._interfaces.trusted = False
            news.close()

    def _looked(self, before: tuple[Interface, ...]) -> Look:
        """What there is now; as before where the machine does not tell, of which discovery says why."""
        used = before
        with suppress(TransportError):
            used = self._scan().used
        return Look(time.monotonic(), time.time(), used)

    def _network_changed(self) -> None:
        """Whoever was dialed in vain may be there now, and links may lead nowhere any more (profile §7)."""
        self._endpoint.rerouted()
        for link in self._endpoint.links():
            self._doubts.ask(link.site)
        self._plan.network_changed(time.monotonic())
        self._dialer.wake()

    def _silent(self, site: bytes) -> None:
        self._plan.doubted(site, time.monotonic())
        self._dialer.wake()
