"""Discovery on the local network: announces this node, watches for others, never dies (profile §11).

Whatever goes wrong (no interface, no multicast, port 5353 taken, addresses that change) becomes a state with a
reason, and is tried again with growing, jittered pauses.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from meshnode.errors import MalformedError, TransportError
from meshnode.limits import RESOLVES_AT_ONCE
from meshnode.net.adapters import selection
from meshnode.net.addresses import Address, announced_addresses, dialable_untrusted, is_own
from meshnode.net.announcement import OpenAttestation, parse_txt_untrusted
from meshnode.net.interfaces import ALLOW, OFF_LINE, Selection
from meshnode.net.multicast import Paths, multicast_paths
from meshnode.net.pace import DiscoveryState, Pace
from meshnode.net.responder import Resolved, Responder, Service
from meshnode.net.seen import Seen, Standing
from meshnode.net.sightings import Gone, Ignored, News, Sighting, SightingBook
from meshnode.net.wifi_guard import Quiet, WifiGuard

ONLY_LOOPBACK = "only loopback can multicast: nodes on this machine are found, others are not"
UNHEARD = (
    "this node does not hear its own announcement: a firewall or the network swallows multicast; let UDP port 5353 "
    "through, or name devices to dial in `peers`"
)
NO_NETWORK = f"no network is up ({OFF_LINE}): nodes on this machine are found, others are not"
STARTING = "starting"
TROUBLE = "discovery"  # the notice of it


class Discovery:
    """Announces `service` (None: browses only, for the site and mesh tag in `own`) and reports who else is there.

    Runs until `stop`.
    """

    def __init__(
        self,
        service: Service | None,
        *,
        open_attestation: OpenAttestation,
        on_sighting: Callable[[Sighting], None],
        on_gone: Callable[[bytes], None],
        on_notice: Callable[[str, bytes | None, str], None],
        random: Callable[[], float],
        on_network: Callable[[], None] | None = None,
        on_over: Callable[[str], None] | None = None,
        scan: Callable[[], Selection] = selection,
        guard: WifiGuard | None = None,
        responder: Callable[[Paths, Callable[[str, bool], None], int], Responder] = Responder,
        pace: Pace | None = None,
        own: tuple[bytes, bytes] | None = None,
    ) -> None:
        self._working, self._trouble = False, STARTING
        self._asking = ""  # the tool that is waited for
        self._service = service
        self._on_sighting, self._on_gone, self._on_notice = on_sighting, on_gone, on_notice
        self._random, self._scan, self._make_responder = random, scan, responder
        self._pace = Pace() if pace is None else pace
        self._on_network = on_network
        self._on_over = on_over  # the condition of a notice came to its end
        self._guard = guard
        self._quiet = Quiet()  # in force: nothing is open any more where it says so
        self._goodbye = True  # whether the life that ends is to say one
        own_site, own_tag = own or ((None, None) if service is None else (service.site, service.tag))
        self._book = SightingBook(own_site, open_attestation, own_tag)
        self.selection = Selection(())
        self._looked = False
        self._responder: Responder | None = None
        self._paths: Paths | None = None
        self._task: asyncio.Task[None] | None = None
        self._resolving: dict[str, asyncio.Task[None]] = {}
        self._kick = asyncio.Event()
        self._stale = False  # the announcement differs from what `service` says
        self._browse_wanted = False
        self._heard = False
        self._failures = 0
        self._ignored = 0
        self._ignored_after = float("-inf")

    # --- what the node calls

    def start(self) -> None:
        """Begin, in the background; problems show in `state` and as notices."""
        self._task = asyncio.create_task(self._run(), name="discovery")

    async def stop(self) -> None:
        """Say goodbye and release everything; safe to call twice."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait({task})

    def update(self, service: Service) -> None:
        """Announce something else from now on: another port, another attestation."""
        self._service = service
        self._stale = True
        self._kick.set()

    def refresh(self) -> None:
        """Ask the network again: worth it when a peer was lost or none is linked."""
        self._browse_wanted = True
        self._kick.set()

    def look_again(self) -> None:
        """Which interfaces to use may be another question now."""
        self._kick.set()

    def recheck(self) -> None:
        """The keyring changed: a site that was only seen may be a member now."""
        self._tell(self._book.recheck())

    @property
    def state(self) -> DiscoveryState:
        """How it is, with where it keeps quiet."""
        trouble = f"waiting for {self._asking}" if self._asking and self._trouble == STARTING else self._trouble
        for name, why in self._quiet.reasons.items():
            trouble = trouble.replace(f"{name}: {why}", name)  # said once is enough
        quiet = (f"quiet on {name}: {why}" for name, why in self._quiet.reasons.items())
        return DiscoveryState(self._working, "; ".join(filter(None, (*quiet, trouble))))

    @property
    def listening(self) -> frozenset[str]:
        """The interfaces on which it announces and browses at this moment, by name."""
        return frozenset() if self._paths is None else self._paths.names

    @property
    def refused(self) -> tuple[str, ...]:
        """A sentence for each interface that was to be used and cannot multicast."""
        return () if self._paths is None else self._paths.refused

    @property
    def deaf(self) -> str:
        """Why nobody out there can be heard at the moment, if so."""
        state = self.state
        beyond = self._paths is not None and self._paths.beyond
        lost = not state.working or not beyond or self._trouble in (NO_NETWORK, UNHEARD)
        return state.reason or ONLY_LOOPBACK if lost else ""

    def sightings(self) -> list[Sighting]:
        return self._book.sightings()

    def seen(self) -> list[Seen]:
        """Every announcement in sight and what it is worth, this node's own included once it was heard."""
        own = None if self._responder is None else self._responder.own_instance
        if own is None or self._service is None or not self._heard:
            return self._book.seen()
        addresses = announced_addresses(self.selection.used)
        service = self._service
        mine = Seen(own, Standing.OWN, "this very node", service.site, service.tag, service.port, addresses)
        return [mine, *self._book.seen()]

    # --- keeping it alive

    async def _run(self) -> None:
        while True:
            try:
                await self._session()
            except Exception as error:  # whatever it is, the library's own faults included: a reason, not an end
                expected = isinstance(error, (OSError, TransportError))
                self._set_state(False, str(error) if expected else f"{type(error).__name__}: {error}")
                self._failures += 1
                longest = min(self._pace.retry_cap_s, self._pace.retry_s * 2 ** min(self._failures - 1, 16))
                if self._quiet.reasons:
                    longest = min(longest, self._pace.rescan_s)  # another network may be one to speak on
                await self._wait(longest * (0.5 + self._random() / 2))

    async def _wait(self, seconds: float) -> None:
        """Until something is to be done or the time is over."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._kick.wait()
        self._kick.clear()

    async def _session(self) -> None:
        """One life of the responder; returns when the interfaces it uses have changed."""
        self._quiet, self._goodbye = await self._look_around(), True
        paths = multicast_paths(self.selection)
        responder = self._make_responder(paths, self._instance_changed, self._pace.ttl_s)
        self._responder, self._paths, self._heard = responder, paths, False
        try:
            await responder.browse()
            self._set_state(True, _reach(paths, self.selection))
            if self._service is not None:
                self._stale = False
                await responder.announce(self._service, announced_addresses(self.selection.used))
            self._failures = 0
            await self._watch(responder, paths)
        finally:
            self._responder = self._paths = None
            for task in self._resolving.values():
                task.cancel()
            await responder.close(goodbye=self._goodbye)

    async def _watch(self, responder: Responder, paths: Paths) -> None:
        clock = asyncio.get_running_loop().time
        browsed = listening = swept = clock()
        while True:
            await self._wait(self._pace.rescan_s)
            used = self.selection.used
            quiet = await self._look_around()
            self._goodbye = not quiet.moved
            other = self.selection.used != used
            # What was refused a moment ago may be ready now: an IPv6 address is tentative at first.
            if (other or paths.refused) and multicast_paths(self.selection).hosts != paths.hosts:
                return
            self._quiet = quiet
            self._stale = self._stale or other
            if other:  # a cable was pulled, or is back
                self._set_state(True, _reach(paths, self.selection))
            if self._stale and self._service is not None:
                self._stale = False
                await responder.change(self._service, announced_addresses(self.selection.used))
            asked = clock() - browsed
            if asked >= (self._pace.browse_s if self._browse_wanted else self._pace.requery_s):
                self._browse_wanted, browsed = False, clock()
                if clock() - listening >= self._pace.heard_s:
                    # Multicast that is blocked by now shows in no address either.
                    self._heard, listening = False, clock()
                await responder.browse()
            if clock() - swept >= self._pace.sweep_s:
                swept = clock()
                self._sweep(responder)
            if self._service is not None and clock() - listening >= self._pace.heard_s:
                self._set_state(True, self._limits(paths))
                self._browse_wanted |= not self._heard

    async def _look_around(self) -> Quiet:
        """Which interfaces there are now, and whether that is another network than a moment ago."""
        before, found = self.selection, self._scan()
        quiet = Quiet() if self._guard is None else await self._ask(self._guard, found)
        self.selection = found.without(quiet.reasons)
        same = before.used == self.selection.used and before.networks == self.selection.networks
        if self._looked and not same and self._on_network is not None:
            self._on_network()
        self._looked = True
        return quiet

    async def _ask(self, guard: WifiGuard, found: Selection) -> Quiet:
        self._asking = guard.tool
        try:
            return await guard.look(found.used)
        finally:
            self._asking = ""

    def _limits(self, paths: Paths) -> str:
        reach = _reach(paths, self.selection)
        return reach if self._heard or reach == NO_NETWORK else UNHEARD

    def _set_state(self, working: bool, reason: str) -> None:
        """A reason is told once, when it arises, and its end too.

        What comes of keeping quiet where that was asked for is none.
        """
        if reason == ONLY_LOOPBACK and self._quiet.reasons:
            reason = ""
        previous, self._working, self._trouble = self._trouble, working, reason
        if reason and reason != previous:
            self._on_notice(TROUBLE, None, reason)
        elif previous and not reason and self._on_over is not None:
            self._on_over(TROUBLE)

    # --- what the network says

    def _instance_changed(self, instance: str, gone: bool) -> None:
        responder = self._responder
        if responder is None:
            return
        if instance == responder.own_instance:
            self._heard = self._heard or not gone
        elif gone:
            self._tell(self._book.lost(instance))
        else:
            self._look_at(responder, instance)

    def _look_at(self, responder: Responder, instance: str) -> None:
        """Take an instance in, ask for what is missing of it, or have its records forgotten."""
        glance = responder.glance(instance)
        if glance is not None and not self._counts_untrusted(glance):
            self._take_untrusted(responder, glance)
            return
        resolved = responder.cached(instance)
        if resolved is not None:
            self._take_untrusted(responder, resolved)
        elif instance in self._resolving:
            return
        elif len(self._resolving) < RESOLVES_AT_ONCE:
            task = asyncio.create_task(self._resolve(responder, instance))
            self._resolving[instance] = task
            task.add_done_callback(lambda _: self._resolving.pop(instance, None))
        elif not self._book.keeps(instance):
            responder.forget(instance)

    async def _resolve(self, responder: Responder, instance: str) -> None:
        resolved = await responder.resolve(instance, self._pace.resolve_s)
        if resolved is None:
            self._tell(self._book.lost(instance))
            responder.forget(instance)
        else:
            self._take_untrusted(responder, resolved)

    def _sweep(self, responder: Responder) -> None:
        """Ask for what has run out; an instance that does not answer any more has left."""
        for instance in self._book.instances():
            self._look_at(responder, instance)

    def _counts_untrusted(self, glance: Resolved) -> bool:
        """Whether its addresses are worth reading; anybody can announce without end."""
        try:
            announcement = parse_txt_untrusted(glance.instance, glance.port, glance.properties, ())
        except MalformedError:
            return self._book.has_room(glance.instance)
        return self._book.would_keep(announcement)

    def _take_untrusted(self, responder: Responder, resolved: Resolved) -> None:
        own_port = 0 if self._service is None else self._service.port
        port = resolved.port or 0
        hosts = dialable_untrusted(resolved.hosts, self.selection.used)
        hosts = tuple(host for host in hosts if not is_own(Address(host, port), own_port, self.selection.every))
        try:
            announcement = parse_txt_untrusted(resolved.instance, resolved.port, resolved.properties, hosts)
        except MalformedError as error:
            self._tell(self._book.malformed(resolved.instance, port, hosts, str(error)))
        else:
            self._tell(self._book.saw(announcement))
        if not self._book.keeps(resolved.instance):
            responder.forget(resolved.instance)

    def _tell(self, news: list[News]) -> None:
        """Callbacks run from the event loop, so that nothing they raise reaches the library's packet handling."""
        loop = asyncio.get_running_loop()
        for one in news:
            if isinstance(one, Sighting):
                loop.call_soon(self._on_sighting, one)
            elif isinstance(one, Gone):
                loop.call_soon(self._on_gone, one.site)
            else:
                self._count_ignored(one, loop.time())

    def _count_ignored(self, one: Ignored, now: float) -> None:
        """Anybody on the network can announce rubbish, so this is one notice a minute, with a count."""
        self._ignored += 1
        if now >= self._ignored_after:
            others = self._ignored - 1
            text = f"{one.reason} (and {others} more since the last notice)" if others else one.reason
            self._on_notice("announcement-ignored", one.site, text)
            self._ignored, self._ignored_after = 0, now + self._pace.ignored_s


def _reach(paths: Paths, selection: Selection) -> str:
    """What is wrong with the paths, if they lead nowhere beyond this machine."""
    if selection.unplugged:
        return NO_NETWORK
    if paths.beyond:
        return ""
    misnamed = selection.misnamed(ALLOW)
    return "; ".join((*filter(None, (misnamed,)), ONLY_LOOPBACK, *paths.refused))
