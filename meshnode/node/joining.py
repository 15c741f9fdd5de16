"""Joining a mesh by an invite: find the inviter, run the ceremony, settle in (profile §10)."""

from __future__ import annotations

import asyncio
import os
import platform
import random
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from ipaddress import ip_address
from pathlib import Path

from meshnode.errors import CloseCode, PairingError, TransportError, UnansweredError, UsageError
from meshnode.model.invite import Invite, parse_invite_untrusted
from meshnode.model.pairing import Ends
from meshnode.model.site import SiteKey, mesh_tag, short_text, site_text
from meshnode.net.adapters import loopback_selection
from meshnode.net.addresses import Address, parse_address, parse_host
from meshnode.net.announcement import attestation_opener
from meshnode.net.endpoint import ALPN_PAIRING, Admission, Endpoint, EndpointIdentity, Link
from meshnode.net.mdns import Discovery
from meshnode.net.sightings import Sighting
from meshnode.node.background import to_the_end
from meshnode.node.bell import Bell
from meshnode.node.ceremony import join_over
from meshnode.node.config import Config
from meshnode.node.founding import SEED_BYTES, Found, check_name, settle_joined
from meshnode.node.home import JOINING, Home
from meshnode.node.interfaces import guard_of, selection_of
from meshnode.node.lock import lock_alone
from meshnode.node.pairing import REFUSED, SAID_NO, Joined
from meshnode.node.pairing_views import JoinView
from meshnode.node.storage import wall_ms

ROUND_S = 1.0  # seconds between two tries at the same address
AGAIN_S = 0.5  # seconds before a ceremony that was not decided is begun again
DIAL_S = 4.0  # seconds for one address to answer: there are others

Tell = Callable[[str], None]
"""Takes a line for the person at this device, while the ceremony goes on."""

# What the inviter itself answered: trying again would only be refused again.
_NO_SUCH_INVITE = REFUSED[CloseCode.NOT_AUTHENTICATED]
_FINAL = frozenset({CloseCode.NOT_AUTHENTICATED, CloseCode.RETIRED})


async def join(
    home: Home | str | os.PathLike[str],
    invite: str,
    *,
    name: str = "",
    timeout_s: float = 60.0,
    tell: Tell = lambda _text: None,
) -> JoinView:
    """Become a member of the mesh of an invite; afterwards `Node(home)` runs this device.

    `home` is a folder in which no node lives yet, `name` what other people see this device called (default: the
    host's name), `tell` gets lines for the person who waits. Where the inviter's owner is asked first, this waits as
    long as the invite lives. Raises InviteError for a string that is no invite, PairingError where it has expired, the
    inviter cannot be reached (with the addresses tried) or refuses, UsageError where a node lives in `home` already,
    BusyError where another process is at work there. The same invite may be tried again with the same home.
    """
    device = home if isinstance(home, Home) else Home(Path(home))
    asked, called = parse_invite_untrusted(invite), name or platform.node() or "meshnode"
    check_name(called)
    if asked.expired(wall_ms()):
        raise PairingError("this invite has expired: make a new one with `meshnode invite`, or set this device's clock")
    device.refuse_founded()
    device.prepare()
    with await lock_alone(device.lock_path, "join"):
        device.begin(JOINING)  # refuses too: somebody else may have been faster
        return await _join(device, asked, called, timeout_s, tell)


async def _join(home: Home, invite: Invite, name: str, timeout_s: float, tell: Tell) -> JoinView:
    seed = secrets.token_bytes(SEED_BYTES)
    may_ask = home.passphrase.may_ask
    key = home.write_site_key(seed) if may_ask else await to_the_end(lambda: home.write_site_key(seed))
    if key.site == invite.site:
        raise UsageError("this invite was made by this very device")
    joined, address = await pair(invite, key, home.config, name, timeout_s, tell)
    mesh = Found(invite.mesh_id, invite.founder, invite.site, joined.records, address)
    await to_the_end(lambda: settle_joined(home, key, mesh, name))
    return JoinView(
        site=site_text(key.site),
        short=short_text(key.site),
        name=name,
        mesh_tag=mesh_tag(invite.mesh_id).hex(),
        home=str(home.path),
        inviter=site_text(invite.site),
        inviter_name=joined.inviter_name,
    )


async def pair(
    invite: Invite, key: SiteKey, config: Config, name: str, timeout_s: float, tell: Tell = lambda _text: None
) -> tuple[Joined, str]:
    """Run the ceremony with this key, again where it was not decided; what the inviter gave, and where it answered."""
    search, undecided = _Search(invite, config), ""
    who = f"this one is {name!r}, site {short_text(key.site)}"
    asked = _Once(tell, f"waiting for the other device, which may ask its owner: {who}")
    clock = asyncio.get_running_loop().time
    deadline = clock() + timeout_s  # of looking for the inviter: a ceremony has a bound of its own
    async with _endpoint(EndpointIdentity.create(invite.mesh_id, key, wall_ms())) as endpoint, search.looking():
        while True:
            try:
                async with asyncio.timeout_at(deadline):
                    link = await search.reach(endpoint)
                return await _ceremony(link, invite, key, name, asked), link.remote_address
            except TimeoutError:
                raise PairingError(undecided or search.unreachable()) from None
            except UnansweredError as error:
                undecided = str(error)
                if error.asked:  # a person decides: the invite's own time is the bound
                    undecided = "nobody confirmed at the inviter while the invite lived: ask for a new one"
                    deadline = clock() + max(0.0, (invite.expires_ms - wall_ms()) / 1000)
            except PairingError as error:
                if asked.told and str(error) == _NO_SUCH_INVITE:
                    raise PairingError(SAID_NO) from error
                raise
            await asyncio.sleep(AGAIN_S)


def _ceremony(link: Link, invite: Invite, key: SiteKey, name: str, asked: Callable[[], None]) -> Awaitable[Joined]:
    ends = Ends(invite.mesh_id, invite.site, link.spki, key.public_key, link.own_spki)
    return join_over(
        link, ends, invite, key=key, name=name, random_bytes=secrets.token_bytes, now_ms=wall_ms, on_asked=asked
    )


class _Once:
    """Tells it the first time that it is called."""

    def __init__(self, tell: Tell, text: str) -> None:
        self.told = False
        self._tell, self._text = tell, text

    def __call__(self) -> None:
        if not self.told:
            self.told = True
            self._tell(self._text)


@asynccontextmanager
async def _endpoint(identity: EndpointIdentity) -> AsyncIterator[Endpoint]:
    """An endpoint that only dials: whoever knocks is refused."""
    endpoint = await Endpoint.create(
        "",
        0,
        identity=identity,
        admit=lambda _site, _key, _alpn: Admission.REFUSED,
        on_link=lambda _link: None,
        on_notice=lambda _kind, _site, _text: None,
    )
    try:
        yield endpoint
    finally:
        await endpoint.close(CloseCode.DONE, "")


class _Search:
    """Where the inviter may be: the invite's addresses, and announcements with its tag and site (profile §10)."""

    def __init__(self, invite: Invite, config: Config) -> None:
        self._invite, self._browses = invite, config.mdns_enabled
        self._addresses = dict.fromkeys(parse_address(text) for text in invite.addrs)
        self._failures: dict[Address, str] = {}
        self._found = Bell()
        self._discovery = Discovery(
            None,
            open_attestation=attestation_opener(invite.mesh_id, lambda _site: None),
            on_sighting=self._seen,
            on_gone=lambda _site: None,
            on_notice=lambda _kind, _site, _text: None,
            random=random.random,
            scan=loopback_selection if self._on_this_machine() else lambda: selection_of(config),
            guard=guard_of(config),
        )

    @asynccontextmanager
    async def looking(self) -> AsyncIterator[None]:
        """Browse meanwhile, unless the settings turn mDNS off."""
        if self._browses:
            self._discovery.start()
        try:
            yield
        finally:
            await self._discovery.stop()

    async def reach(self, endpoint: Endpoint) -> Link:
        """The first link to the inviter; tries every address, again and again, until cancelled."""
        while True:
            rung = self._found.listen()
            link = await self._race(endpoint, list(self._addresses))
            if link is not None:
                return link
            await self._found.wait(rung, ROUND_S)

    async def _race(self, endpoint: Endpoint, addresses: list[Address]) -> Link | None:
        tasks = [asyncio.ensure_future(self._try(endpoint, address)) for address in addresses]
        try:
            for finished in asyncio.as_completed(tasks):
                link = await finished
                if link is not None:
                    return link
            return None
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _try(self, endpoint: Endpoint, address: Address) -> Link | None:
        try:
            return await endpoint.dial(
                address.host, address.port, alpn=ALPN_PAIRING, expect_site=self._invite.site, timeout=DIAL_S
            )
        except TransportError as error:
            if error.code in _FINAL and "another site" not in str(error):
                raise PairingError(_refused(error)) from error
            self._failures[address] = str(error)
            return None

    def _on_this_machine(self) -> bool:
        """An inviter that names nothing but loopback addresses is not looked for on the network."""
        hosts = [parse_host(address.host) for address in self._addresses]
        return bool(hosts) and all(host is not None and ip_address(host).is_loopback for host in hosts)

    def _seen(self, sighting: Sighting) -> None:
        """Nothing proves an unknown inviter's announcement; the transport binding will (profile §11)."""
        if sighting.site == self._invite.site and sighting.tag == mesh_tag(self._invite.mesh_id):
            self._addresses.update(dict.fromkeys(Address(host, sighting.port) for host in sighting.addresses))
            self._found.ring()

    def unreachable(self) -> str:
        """Which addresses were tried, and what became of each."""
        tried = "; ".join(self._failures.get(address, f"{address.text()}: no answer") for address in self._addresses)
        return (
            f"the inviter {short_text(self._invite.site)} cannot be reached (tried {tried or 'nothing'}): is "
            "`meshnode up` running there, on the same network?"
        )


def _refused(error: TransportError) -> str:
    return REFUSED[error.code] if error.code in REFUSED else str(error)
