"""The guest of a nearby pairing: who is open on this network, and becoming a member by six digits (profile §10)."""

from __future__ import annotations

import asyncio
import os
import platform
import random
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from meshnode.errors import CloseCode, PairingError, TransportError, UsageError
from meshnode.model.nearby import NO_MESH, NONCE_BYTES, End, NearbyEnds
from meshnode.model.site import SiteKey, mesh_tag, short_text, site_text
from meshnode.model.wording import quoted
from meshnode.net.addresses import Address, parse_address
from meshnode.net.announcement import attestation_opener
from meshnode.net.endpoint import ALPN_NEARBY, Admission, Endpoint, EndpointIdentity, Link
from meshnode.net.mdns import Discovery
from meshnode.net.sightings import Sighting
from meshnode.node.bell import Bell
from meshnode.node.config import Config
from meshnode.node.founding import SEED_BYTES, check_name, settle_joined
from meshnode.node.home import JOINING, Home
from meshnode.node.interfaces import guard_of, selection_of
from meshnode.node.lock import lock_alone
from meshnode.node.nearby_ceremony import BUSY, Ask, endpoint_config, visit_over
from meshnode.node.pairing_views import JoinView, NearbyDeviceView
from meshnode.node.storage import wall_ms

DIAL_S = 4.0  # seconds for one address to answer: there may be others
SETTLE_S = 1.0  # seconds that a name is looked for on: another device may have the same


class Nearby:
    """What is seen of open devices on this network; none of it is proven, and none of it grants anything."""

    def __init__(self, config: Config | None = None) -> None:
        settings = Config() if config is None else config
        self._off = "" if settings.mdns_enabled else "mdns_enabled is false in config.toml"
        self._seen: dict[bytes, Sighting] = {}
        self._changed = Bell()
        self._discovery = Discovery(
            None,
            open_attestation=attestation_opener(NO_MESH, lambda _site: None),
            on_sighting=self._saw,
            on_gone=self._gone,
            on_notice=lambda _kind, _site, _text: None,
            random=random.random,
            scan=lambda: selection_of(settings),
            guard=guard_of(settings),
        )

    @classmethod
    @asynccontextmanager
    async def looking(cls, config: Config) -> AsyncIterator[Nearby]:
        """Browse meanwhile, unless the settings turn mDNS off."""
        nearby = cls(config)
        if config.mdns_enabled:
            nearby._discovery.start()
        try:
            yield nearby
        finally:
            await nearby._discovery.stop()

    def _saw(self, sighting: Sighting) -> None:
        if sighting.nearby:
            self._seen[sighting.site] = sighting
        else:
            self._seen.pop(sighting.site, None)
        self._changed.ring()

    def _gone(self, site: bytes) -> None:
        self._seen.pop(site, None)

    @property
    def trouble(self) -> str:
        """Why others might not be found, if there is a reason."""
        return self._off or self._discovery.state.reason

    def devices(self) -> list[NearbyDeviceView]:
        """Those that are open now, by name."""
        return sorted(map(_view, self._seen.values()), key=lambda each: (each.name.casefold(), each.site))

    async def find(self, named: str, timeout_s: float) -> Sighting:
        """The open device of this name, short id or site id; PairingError where there is none in time."""
        loop = asyncio.get_running_loop()
        end, settled = loop.time() + timeout_s, 0.0
        while True:
            rung, found = self._changed.listen(), self._named(named)
            if len(found) > 1:
                ids = ", ".join(short_text(each.site) for each in found)
                raise UsageError(f"several devices here are called {quoted(named)}: say which by its short id ({ids})")
            now = loop.time()
            if found and (found[0].site.hex().startswith(named) or (settled and now >= settled)):
                return found[0]
            settled = (settled or now + SETTLE_S) if found else 0.0
            if now >= end and not found:
                raise PairingError(self._nobody(named))
            await Bell.wait(rung, max(0.0, (settled or end) - now))

    def _named(self, named: str) -> list[Sighting]:
        ids = [each for each in self._seen.values() if named in (short_text(each.site), site_text(each.site))]
        return ids or [each for each in self._seen.values() if each.name.casefold() == named.casefold()]

    def _nobody(self, named: str) -> str:
        open_now = ", ".join(repr(each.name) for each in self.devices())
        seen = f" (open: {open_now})" if open_now else f" ({self.trouble})" if self.trouble else ""
        return (
            f"no device called {quoted(named)} is open to pairing on this network{seen}: `meshnode nearby --open` on it"
        )


async def nearby_devices(config: Config, seconds: float) -> tuple[list[NearbyDeviceView], str]:
    """Look around for so long: the devices that are open, and why others might not be seen."""
    async with Nearby.looking(config) as nearby:
        await asyncio.sleep(seconds)
        return nearby.devices(), nearby.trouble


async def pair_nearby(
    home: Home | str | os.PathLike[str], where: str, *, ask: Ask, name: str = "", timeout_s: float = 30.0
) -> JoinView:
    """Become a member of the mesh of a nearby device that was opened; afterwards `Node(home)` runs this device.

    `where` is the other device's name, short id, site id or `host:port`; `ask` shows the digits to the person here.
    Raises PairingError with what to do, UsageError where a node lives in `home` already, BusyError where another
    process is at work there. It may be tried again with the same home.
    """
    device, called = home if isinstance(home, Home) else Home(Path(home)), name or platform.node() or "meshnode"
    check_name(called)
    device.refuse_founded()
    device.prepare()
    with await lock_alone(device.lock_path, "pair"):
        device.begin(JOINING)  # refuses too: somebody else may have been faster
        key = device.write_site_key(secrets.token_bytes(SEED_BYTES))
        return await _pair(device, key, called, where, ask, timeout_s)


async def _pair(home: Home, key: SiteKey, name: str, where: str, ask: Ask, timeout_s: float) -> JoinView:
    addresses, expected = await _where(home.config, where, timeout_s)
    endpoint = await Endpoint.create(
        "",
        0,
        identity=EndpointIdentity.create(NO_MESH, key, wall_ms()),
        admit=lambda _site, _key, _alpn: Admission.REFUSED,
        on_link=lambda _link: None,
        on_notice=lambda _kind, _site, _text: None,
        config=endpoint_config(),
    )
    try:
        link = await _reach(endpoint, addresses, expected, min(DIAL_S, timeout_s))
        host, at = link.site, parse_address(link.remote_address)
        ends = NearbyEnds(End(link.public_key, link.spki), End(key.public_key, link.own_spki))
        nonce = secrets.token_bytes(NONCE_BYTES)
        welcome, host_name = await visit_over(link, ends, ask, name=name, nonce=nonce, now_ms=wall_ms)
    finally:
        await endpoint.close(CloseCode.DONE, "")
    settle_joined(home, key, welcome.at(host, Address(at.host, welcome.port).text()), name)
    return JoinView(
        site=site_text(key.site),
        short=short_text(key.site),
        name=name,
        mesh_tag=mesh_tag(welcome.mesh_id).hex(),
        home=str(home.path),
        inviter=site_text(host),
        inviter_name=host_name,
    )


async def _where(config: Config, where: str, timeout_s: float) -> tuple[list[Address], bytes | None]:
    """The addresses to try, and the site that was announced there, if a name was given."""
    if ":" in where:
        return [parse_address(where)], None
    async with Nearby.looking(config) as nearby:
        sighting = await nearby.find(where, timeout_s)
    return [Address(host, sighting.nearby) for host in sighting.addresses], sighting.site


async def _reach(endpoint: Endpoint, addresses: Sequence[Address], expected: bytes | None, each_s: float) -> Link:
    """The first address that answers, one after the other: the host takes one guest at a time."""
    failures: list[str] = []
    for address in addresses:
        try:
            return await endpoint.dial(
                address.host, address.port, alpn=ALPN_NEARBY, expect_site=expected, timeout=each_s
            )
        except TransportError as error:
            if BUSY in str(error):
                raise PairingError("the other device is pairing with another one just now: try again") from error
            failures.append(str(error))
    tried = "; ".join(failures) or "nothing"
    raise PairingError(f"the other device cannot be reached (tried {tried}): is it still open to pairing?")


def _view(sighting: Sighting) -> NearbyDeviceView:
    return NearbyDeviceView(
        name=sighting.name,
        site=site_text(sighting.site),
        short=short_text(sighting.site),
        mesh_tag=sighting.tag.hex(),
        addresses=[Address(host, sighting.nearby).text() for host in sighting.addresses],
    )
