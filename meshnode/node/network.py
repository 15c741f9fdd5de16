"""The running node's network: the endpoint, the finder, and one driver per link (profile §7, §8, §10)."""

from __future__ import annotations

import asyncio
import errno
import logging
import secrets
import time
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from dataclasses import replace
from functools import partial

from meshnode.engine.policy import PolicyChange
from meshnode.errors import CloseCode, TransportError
from meshnode.limits import INTRODUCE_BYTES, LEAVING_LINKS
from meshnode.model.delivery import Committed
from meshnode.model.frames import FEATURES, Hello
from meshnode.model.logevent import LogEvent, log_event
from meshnode.model.membership import Membership
from meshnode.model.pairing import NONCE_BYTES, Ends
from meshnode.model.site import short_text
from meshnode.net.addresses import Address, parse_address
from meshnode.net.endpoint import (
    ALPN_PAIRING,
    ALPN_SYNC,
    Admission,
    Endpoint,
    EndpointConfig,
    EndpointIdentity,
    Link,
)
from meshnode.node.background import Background
from meshnode.node.ceremony import UnknownInvites, invite_over
from meshnode.node.comparing import Comparisons
from meshnode.node.config import Config
from meshnode.node.dialtarget import Attempt
from meshnode.node.drive import Ending, Hooks, PeerDriver, heard_on
from meshnode.node.farewell import Farewell
from meshnode.node.finding import Finder
from meshnode.node.jobs import StoreJobs
from meshnode.node.own_history import OwnHistory
from meshnode.node.peering import Heard
from meshnode.node.remembered import remembered
from meshnode.node.settings import NetworkSettings
from meshnode.node.storage import Storage, wall_ms
from meshnode.node.views import HOW_TO_CHOOSE
from meshnode.sync.greeting import Greeting
from meshnode.sync.session import Session

BOOT_BYTES = 8  # profile §8
REPLACED_S = 10.0  # seconds that a link waits for the jobs of the one it replaces
_ITEM_HEAD = 8  # bytes, more than CBOR puts around one record

logger = logging.getLogger("meshnode.network")

PORT_TAKEN = "port-taken"


class Network:
    """Everything that has a socket. Made at start and when the owner lets a node talk again; `stop` ends it."""

    def __init__(self, settings: NetworkSettings, storage: Storage) -> None:
        self.settings = settings
        self.jobs = StoreJobs(storage)
        self.publishing = settings.publishing
        self._storage = storage
        self._boot = secrets.token_bytes(BOOT_BYTES)
        self.comparisons = Comparisons(storage)
        self._hooks = Hooks(
            self._started,
            self._greeted,
            self._committed,
            self._moved,
            self._ended,
            self._rolled_back,
            self.comparisons.heard_untrusted,
            self._own_end,
        )
        self._drivers: dict[Link, PeerDriver] = {}
        self._leaving: set[PeerDriver] = set()  # their links ended, jobs of theirs may still be under way
        self._heard: dict[bytes, Heard] = {}
        self._met: set[bytes] = set()  # sites that know us: no introduction for them
        self._unknown_to: set[bytes] = set()  # sites that turned us away as strangers: an old copy of them was restored
        self._introduction: tuple[bytes, ...] = ()
        self._answer_until = 0  # pairing is answered until then
        self._generation = -1
        self.turned_away_by: set[bytes] = set()  # peers that closed because this device is retired
        self._own_history = OwnHistory(time.monotonic)
        self._unknown = UnknownInvites(wall_ms)
        self._background = Background()
        self._spawn = self._background.spawn
        self._finder = Finder(
            settings,
            self._boot,
            key_of=lambda site: self._membership.key_of(site),
            dial=storage.meter.counted(self._dial),
            on_worked=self._dial_worked,
            on_failed=self._dial_failed,
            on_notice=self._notice,
            on_over=self._over,
        )
        self._endpoint: Endpoint

    # --- life

    async def start(self) -> None:
        """Listen, announce, dial. TransportError where the port cannot be used; then nothing runs."""
        self._endpoint = await self._listen()
        kept = await self._storage.read(remembered)
        self._met = set(kept.met)
        self._answer_until = kept.answer_until
        await self.membership_changed()
        self._finder.start(self._endpoint, self._members(), kept.addresses)

    async def _listen(self) -> Endpoint:
        """On the chosen port; where another program has it, on any, which announcements and dials make up for."""
        port = self.settings.config.port
        try:
            endpoint = await self._create_endpoint(port)
        except TransportError as error:
            cause = error.__cause__
            if self.settings.port_asked or not isinstance(cause, OSError) or cause.errno != errno.EADDRINUSE:
                raise
            await self.jobs.surface(PORT_TAKEN, None, f"{error}: listening on another one until the next start")
            return await self._create_endpoint(0)
        await self.jobs.over(PORT_TAKEN)
        return endpoint

    async def _create_endpoint(self, port: int) -> Endpoint:
        listen = self.settings.config.listen
        return await Endpoint.create(
            "" if listen == "::" else listen,
            port,
            identity=EndpointIdentity.create(self.settings.mesh_id, self.settings.key, wall_ms()),
            admit=self._admit,
            on_link=self._linked,
            on_notice=self._notice,
            config=EndpointConfig(live_links=self.settings.config.max_links, yields=True),
            counts=self._storage.meter.endpoint,
        )

    async def stop(self, code: CloseCode, reason: str) -> None:
        """Say goodbye to everybody and give the port back; jobs under way finish."""
        for driver in list(self._drivers.values()):
            driver.goodbye(code, reason)
        await self._finder.stop()
        await self.comparisons.stop()
        drivers = [*self._drivers.values(), *self._leaving]  # one may have come meanwhile
        await self._endpoint.close(code, reason)
        await self._background.stop()
        for driver in drivers:
            await driver.stopped()

    # --- what the node asks

    @property
    def port(self) -> int:
        """The UDP port."""
        return self._endpoint.port

    @property
    def finder(self) -> Finder:
        """Discovery and dialing."""
        return self._finder

    @property
    def handshaking(self) -> int:
        """Connections of strangers."""
        return self._endpoint.reception.handshaking

    @property
    def heard(self) -> dict[bytes, Heard]:
        """What is known of each peer beyond the database, as it is now: any thread may read it."""
        for driver in self.live():
            self._remember(driver)
        return dict(self._heard)

    # --- what the node tells

    def log_grew(self) -> None:
        """This node wrote something: offer it."""
        for driver in self.live():
            driver.log_grew()

    def hurry(self) -> None:
        """Somebody waits for everybody to have everything: what was gathered for a peer goes out."""
        for driver in self.live():
            driver.hurry()

    def _tell_links(self) -> None:
        """Peers offer us at once what we do not hear of from its author (profile §14)."""
        linked = self._linked_to()
        for driver in self.live():
            driver.linked(linked)

    def _linked_to(self) -> list[bytes]:
        return [driver.peer for driver in self.live() if driver.session.hello is not None]

    def invite_opened(self, until_ms: int) -> None:
        """Answer pairing until then."""
        self._answer_until = max(self._answer_until, until_ms)

    @property
    def linked(self) -> frozenset[bytes]:
        """The sites with a link whose session hears of what changes."""
        return frozenset(driver.peer for driver in self._drivers.values())

    async def follow(self, config: Config) -> None:
        """Other settings say whom to dial, and where this node shows itself."""
        await self._finder.follow(config)

    def driver_to(self, site: bytes) -> PeerDriver | None:
        """The link to a site, once it greeted."""
        found = [each for each in self.live() if each.peer == site and each.session.hello is not None]
        return found[0] if found else None

    async def policy_changed(self, change: PolicyChange) -> None:
        """Another policy is in force: what hellos say of it takes a new link (profile §8), the rest is told here."""
        for driver in list(self._drivers.values()):
            if change.scope:
                driver.goodbye(CloseCode.DONE, "its scope is another now: a new link follows")
                self._finder.again(driver.peer)
            else:
                driver.policy_changed(widened=not change.narrowed)
        if not change.scope:
            await self.ask()

    async def membership_changed(self) -> None:
        """Judge links, dials and sightings again, and ask for what a new standing makes acceptable (profile §9)."""
        self._generation = self._storage.engine.context.generation
        shown = await self.jobs.introduction()
        self._introduction = shown if sum(map(len, shown)) + _ITEM_HEAD * len(shown) < INTRODUCE_BYTES else ()
        self._endpoint.recheck()
        self._finder.members(self._members())
        await self.ask()

    async def wake(self, sites: Iterable[bytes]) -> None:
        """A cycle with these sites now: ask, offer again, look at what stands still, dial whoever is not linked."""
        wanted = set(sites)
        for driver in self.live():
            if driver.peer in wanted:
                driver.wake()
                wanted.discard(driver.peer)
        for site in wanted:
            self._finder.again(site)
        await self.ask()

    async def ask(self) -> None:
        """Send every linked peer what this node asks of it by now (profile §8, "Requests")."""
        for driver in self.live():
            driver.requests(await self.jobs.outstanding(driver.peer))

    # --- links

    def _admit(self, site: bytes, public_key: bytes, alpn: str) -> Admission:
        """Profile §7: in the keyring with that key and not retired; for pairing, only while an invite is open."""
        membership = self._membership
        if membership.retired(site) is not None:
            return Admission.RETIRED
        if alpn == ALPN_PAIRING:
            return Admission.UNKNOWN if wall_ms() <= self._answer_until else Admission.REFUSED
        known = membership.key_of(site)
        if known is None:
            return Admission.UNKNOWN
        return Admission.MEMBER if known == public_key else Admission.REFUSED

    def _linked(self, link: Link) -> None:
        if link.alpn == ALPN_PAIRING:
            self._spawn(self._pair(link, self._ceremony(link)))
            return
        if self._membership.retired(link.site) is not None:
            self._spawn(Farewell(link).say(self.jobs.proof_of_end))
            return
        if sum(driver.peer == link.site for driver in self._leaving) >= LEAVING_LINKS:
            link.close(CloseCode.LIMIT, "work of earlier links is still under way here")
            return
        greeting = Greeting(
            site=self.settings.key.site,
            name=self.settings.name,
            software=self.settings.software,
            boot=self._boot,
            scope=self._storage.engine.context.policy.scope.patterns,
            features=FEATURES,
            introduce=() if self._is_known_to(link.site) else self._introduction,
        )
        session = Session(greeting, link.site, admitted=link.admitted)
        session.counts = self._storage.meter.frames
        driver = PeerDriver(link, session, self.jobs, self._hooks, wall_ms)
        driver.publish(self.publishing)
        driver.linked(self._linked_to())  # known before the first word on this link
        self._drivers[link] = driver
        link.on_moved = partial(self._came_from, driver)
        if link.live:
            driver.start()

    def _is_known_to(self, peer: bytes) -> bool:
        """Whether a peer surely has our records: it greeted us since, or one of us let the other in."""
        if peer in self._unknown_to:
            return False
        by_site, own = self._membership.by_site, self.settings.key.site
        pairs = ((own, peer), (peer, own))
        return peer in self._met or any(one in by_site and by_site[one].vouched_by == other for one, other in pairs)

    async def _started(self, driver: PeerDriver) -> None:
        """Let the jobs of a link that this one replaces end first: two sessions of one stream only cost reconnects."""
        if driver.link.closed:
            return  # it ended before this ran: it is one of those that leave, and is no longer a link to anybody
        self._finder.linked(driver.peer)
        leaving = [other.stopped() for other in self._leaving if other.peer == driver.peer]
        if leaving:
            with suppress(TimeoutError):
                async with asyncio.timeout(REPLACED_S):
                    await asyncio.gather(*leaving)

    def _greeted(self, driver: PeerDriver, hello: Hello) -> None:
        self._met.add(driver.peer)
        self._unknown_to.discard(driver.peer)
        if not driver.link.opened_by_us:
            self._came_from(driver)
        self._heard[driver.peer] = Heard(newest=hello.max_hlc.get(driver.peer))
        self._tell_links()
        self._moved(driver)

    def _came_from(self, driver: PeerDriver) -> None:
        """Its datagrams come from there, since it dialed or since it moved: there it can be dialed too."""
        address = parse_address(driver.link.remote_address)
        self._finder.came_from(driver.peer, address)
        self._dial_worked(driver.peer, address)

    def _committed(self, driver: PeerDriver, result: Committed) -> None:
        if result.answered:
            self.answered()
        if result.membership_changed or self._storage.engine.context.generation != self._generation:
            self._spawn(self.membership_changed())
        if result.added:
            for other in self.live():
                if other is not driver:
                    other.log_grew()
        self._moved(driver)

    def _moved(self, _driver: PeerDriver) -> None:
        self._storage.changed.ring()

    def _ended(self, driver: PeerDriver, ending: Ending) -> None:
        self._remember(driver)
        self.comparisons.ended(driver)
        self._storage.meter.link_ends.add(ending.name, ending.by)
        self._drivers.pop(driver.link, None)
        self._leaving.add(driver)
        self._spawn(self._left(driver))
        if not any(other.peer == driver.peer for other in self.live()):
            self._heard[driver.peer] = replace(
                self._heard[driver.peer], linked=False, links=frozenset(), note=ending.why
            )
            self._finder.unlinked(driver.peer, ending.code, ending.why, ours=ending.local)
        self._tell_links()
        self._own_history.left(driver.peer)
        if ending.code is CloseCode.NOT_A_MEMBER and not ending.local:
            self._unknown_to.add(driver.peer)
        if ending.code is CloseCode.TWIN and not ending.local:
            self._stop_publishing(driver.peer)
        if ending.code is CloseCode.RETIRED and not ending.local:
            self._turned_away(driver.peer)
        self._storage.changed.ring()

    def _turned_away(self, peer: bytes) -> None:
        """A peer says that this device was retired. That alone proves nothing: it shows the records on a new link."""
        first = peer not in self.turned_away_by
        self.turned_away_by.add(peer)
        if self._membership.retired(self.settings.key.site) is None and first:
            text = f"{short_text(peer)} says that this device was retired, and has not shown by whom"
            self._spawn(self.jobs.said_retired(peer, text))
            self._finder.again(peer)

    def _own_end(self, _driver: PeerDriver) -> None:
        """It has shown them."""
        self._spawn(self.membership_changed())

    async def _left(self, driver: PeerDriver) -> None:
        await driver.stopped()
        self._leaving.discard(driver)
        if driver.session.hello is not None and not self._background.stopped:
            await self.jobs.seen(driver.peer)

    def _rolled_back(self, driver: PeerDriver) -> None:
        """A peer knows later events of this device than are here: nothing is authored until it answered (§8)."""
        self._own_history.claimed(driver.peer)

    @property
    def recovering(self) -> bool:
        """Whether this node waits for its own history and must not author yet."""
        return self._own_history.awaited

    def answered(self) -> None:
        """A peer answered a request of ours, on its link or in a bundle: that is enough (§8)."""
        self._own_history.answered()

    def _stop_publishing(self, peer: bytes) -> None:
        """Somebody saw this site live twice: neither copy offers anything until its owner chose (profile §8)."""
        self.publishing = False
        for driver in self.live():
            driver.publish(False)
        text = f"{short_text(peer)} saw another copy of this node alive, so neither offers anything: {HOW_TO_CHOOSE}"
        self._spawn(self.jobs.twin_seen(text))

    async def resumed(self) -> None:
        """The owner said that this copy is the device: publish, but author nothing before its own history came back."""
        self.publishing = True
        for driver in self.live():
            driver.publish(True)
        self._own_history.ask(*(driver.peer for driver in self.live()))
        await self.ask()

    # --- pairing

    def _ceremony(self, link: Link) -> Coroutine[None, None, bytes | None]:
        """Attached before this returns: the joiner's first frame may already be on its way."""
        ends = Ends(
            mesh_id=self.settings.mesh_id,
            inviter=self.settings.key.site,
            inviter_spki=link.own_spki,
            joiner_public_key=link.public_key,
            joiner_spki=link.spki,
        )
        nonce = secrets.token_bytes(NONCE_BYTES)
        return invite_over(link, ends, self.jobs, name=self.settings.name, nonce=nonce, unknown=self._unknown)

    async def _pair(self, link: Link, ceremony: Coroutine[None, None, bytes | None]) -> None:
        if await ceremony is not None:
            log_event(logger, logging.INFO, LogEvent.MEMBER_JOINED, peer=short_text(link.site))
            await self.joined()

    async def joined(self) -> None:
        """Somebody was vouched for here: take it in, and tell the others."""
        await self.membership_changed()
        self.log_grew()

    @property
    def desk(self) -> StoreJobs:
        """The store, for a ceremony of nearby devices."""
        return self.jobs

    def announce_nearby(self, port: int) -> str:
        """Say on the local network where nearby devices may pair, 0: nowhere any more."""
        self._finder.announce_nearby(port)
        return self._finder.state

    # --- dialing

    async def _dial(self, address: Address, expect_site: bytes | None, on_proven: Callable[[], None]) -> bytes:
        log_event(logger, logging.DEBUG, LogEvent.DIALING, peer=short_text(expect_site or b""), address=address.text())
        try:
            link = await self._endpoint.dial(
                address.host, address.port, alpn=ALPN_SYNC, expect_site=expect_site, on_proven=on_proven
            )
        except TransportError as error:
            peer = error.site or expect_site
            if error.code is CloseCode.RETIRED and peer is not None and self._membership.retired(peer) is None:
                self._turned_away(peer)  # it refuses in the handshake, and shows nothing
            raise
        return link.site

    def _dial_worked(self, site: bytes, address: Address) -> None:
        self._spawn(self.jobs.worked(site, address.text()))

    def _dial_failed(self, attempt: Attempt, reason: str) -> None:
        site = attempt.expect_site
        address = attempt.addresses[0].text() if attempt.addresses else ""
        log_event(
            logger, logging.INFO, LogEvent.DIAL_FAILED, peer=short_text(site or b""), address=address, reason=reason
        )
        if site is not None:
            self._heard[site] = replace(self._heard.get(site, Heard()), note=reason)

    # --- the rest

    @property
    def _membership(self) -> Membership:
        return self._storage.engine.context.membership

    def _members(self) -> list[bytes]:
        return [member.site for member in self._membership.members() if member.cutoff is None]

    def live(self) -> list[PeerDriver]:
        """One for each site that there is a link to."""
        return [driver for link, driver in self._drivers.items() if link.live and not link.closed]

    def _remember(self, driver: PeerDriver) -> None:
        self._heard[driver.peer] = heard_on(driver, self._heard.get(driver.peer, Heard()))

    def _notice(self, kind: str, site: bytes | None, text: str) -> None:
        if kind == "twin" and site == self.settings.key.site and self.publishing:
            self._stop_publishing(site)  # it answered a dial of this very node
        self._spawn(self.jobs.surface(kind, site, text))

    def _over(self, kind: str) -> None:
        self._spawn(self.jobs.over(kind))
