"""Discovery's supervision on a responder that does as it is told: retries, reasons, floods, changes (profile §11)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import replace
from ipaddress import IPv4Interface, IPv6Interface
from itertools import islice
from random import Random
from typing import cast

import pytest
from support.announcer import MESH_ID, service_of, site_key
from support.spoofer import lies
from zeroconf import DNSIncoming, NonUniqueNameException
from zeroconf.asyncio import AsyncServiceInfo, AsyncZeroconf

from meshnode.errors import UsageError
from meshnode.limits import MULTICAST_INTERFACES, REFUSED_ANNOUNCEMENTS, RESOLVES_AT_ONCE, SEEN_SITES
from meshnode.net.adapters import local_interfaces
from meshnode.net.announcement import attestation_opener
from meshnode.net.interfaces import Interface, Rules, Selection, select
from meshnode.net.mdns import ONLY_LOOPBACK, UNHEARD, Discovery
from meshnode.net.multicast import Paths, multicast_paths
from meshnode.net.pace import DiscoveryState, Pace
from meshnode.net.responder import LABEL_BYTES, SERVICE_TYPE, Resolved, Responder, Service, instance_label
from meshnode.net.seen import Standing
from meshnode.net.sightings import Sighting
from meshnode.net.wifi import Network, Wifi, WifiPolicy
from meshnode.net.wifi_guard import WifiGuard

LIMIT_S = 5.0
(LOOPBACK,) = (one for one in local_interfaces() if one.loopback)
QUICK = Pace(rescan_s=0.005, heard_s=0.02, sweep_s=0.01, browse_s=0.0, retry_s=0.005, retry_cap_s=0.02)
OWN_INSTANCE = "own._meshnode._udp.local."


class Wire:
    """What the fake responders of one discovery share."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.broken: list[Exception] = []  # raised by the next lives, one each
        self.announced = False
        self.echo = True  # whether an announcement comes back, and what is asked is answered
        self.known: dict[str, Resolved] = {}
        self.silent = asyncio.Event()  # set: questions are answered with nothing
        self.asking = 0
        self.read = 0  # instances of which the addresses were looked at
        self.live: FakeResponder | None = None

    def make(self, paths: Paths, on_instance: Callable[[str, bool], None], ttl_s: int) -> Responder:
        if self.broken:
            raise self.broken.pop(0)
        self.live = FakeResponder(self, on_instance)
        return cast(Responder, self.live)


class FakeResponder:
    def __init__(self, wire: Wire, on_instance: Callable[[str, bool], None]) -> None:
        self._wire = wire
        self.on_instance = on_instance
        self.own_instance = OWN_INSTANCE

    async def browse(self) -> None:
        self._wire.log.append("browse")
        if self._wire.echo and self._wire.announced:
            self.on_instance(OWN_INSTANCE, False)

    async def announce(self, service: Service, addresses: tuple[str, ...]) -> None:
        self._wire.log.append(f"announce {service.port} {','.join(addresses)}")
        self._wire.announced = True
        if self._wire.echo:
            self.on_instance(OWN_INSTANCE, False)

    async def change(self, service: Service, addresses: tuple[str, ...]) -> None:
        self._wire.log.append(f"change {service.port} {','.join(addresses)}")

    def glance(self, instance: str) -> Resolved | None:
        known = self._wire.known.get(instance)
        return None if known is None else replace(known, hosts=())

    def cached(self, instance: str) -> Resolved | None:
        self._wire.read += 1
        return self._wire.known.get(instance)

    def forget(self, instance: str) -> None:
        self._wire.known.pop(instance, None)

    async def resolve(self, instance: str, timeout_s: float) -> Resolved | None:
        self._wire.asking += 1
        await self._wire.silent.wait()
        return None

    async def close(self, *, goodbye: bool = True) -> None:
        self._wire.log.append("close" if goodbye else "close without a goodbye")


class Rig:
    def __init__(self, pace: Pace, service: Service | None) -> None:
        self.wire = Wire()
        self.interfaces: tuple[Interface, ...] = (LOOPBACK,)
        self.rules = Rules()
        self.joined: dict[str, Network] = {}
        self.guard = WifiGuard(WifiPolicy(), now=lambda: 0.0, read=self.read)
        self.scans = 0
        self.networks = asyncio.Event()
        self.sightings: asyncio.Queue[Sighting] = asyncio.Queue()
        self.gone: asyncio.Queue[bytes] = asyncio.Queue()
        self.notices: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
        keys = {site_key(2).site: site_key(2).public_key}
        self.discovery = Discovery(
            service,
            open_attestation=attestation_opener(MESH_ID, keys.get),
            on_sighting=self.sightings.put_nowait,
            on_gone=self.gone.put_nowait,
            on_notice=lambda kind, site, text: self.notices.put_nowait((kind, text)),
            random=lambda: 1.0,
            on_network=self.networks.set,
            on_over=lambda kind: self.notices.put_nowait((kind, "")),
            scan=self.scan,
            guard=self.guard,
            responder=self.wire.make,
            pace=pace,
        )

    def hear(self, instance: str, gone: bool = False) -> None:
        assert self.wire.live is not None
        self.wire.live.on_instance(instance, gone)

    async def until(self, true: Callable[[], bool]) -> None:
        while not true():  # noqa: ASYNC110 - polls what has no event of its own; `running` sets the deadline
            await asyncio.sleep(0.001)

    async def rounds(self, count: int) -> None:
        """Until discovery has looked at the interfaces so many times more."""
        wanted = self.scans + count
        await self.until(lambda: self.scans >= wanted)

    async def read(self, names: Iterable[str]) -> dict[str, Network]:
        return {name: self.joined[name] for name in names}

    def scan(self) -> Selection:
        self.scans += 1
        return select(self.interfaces, self.rules)


@contextlib.asynccontextmanager
async def running(pace: Pace = QUICK, *, announces: bool = True) -> AsyncIterator[Rig]:
    rig = Rig(pace, service_of({"who": 1}) if announces else None)
    rig.discovery.start()
    try:
        async with asyncio.timeout(LIMIT_S):
            yield rig
    finally:
        await rig.discovery.stop()


def resolved(who: int, instance: str, **options: object) -> Resolved:
    service = service_of({"who": who, **options})
    properties: dict[bytes, bytes | None] = {
        b"v": b"1",
        b"tag": service.tag.hex().encode(),
        b"site": service.site.hex().encode(),
        b"att": service.attestation,
    }
    return Resolved(instance, service.port, ("10.0.0.1",), properties)


async def test_every_failure_becomes_a_reason_and_is_retried() -> None:
    async with running() as rig:
        rig.wire.broken = [OSError(19, "No such device"), RuntimeError("odd"), OSError(98, "Address in use")]
        reasons = [(await rig.notices.get())[1] for _ in range(3)]
        assert reasons == ["[Errno 19] No such device", "RuntimeError: odd", "[Errno 98] Address in use"]
        await rig.until(lambda: rig.discovery.state.working)


async def test_the_same_reason_is_told_once() -> None:
    async with running() as rig:
        rig.wire.broken = [OSError(98, "Address in use") for _ in range(5)]
        await rig.until(lambda: rig.discovery.state.working)
        assert [text for kind, text in rig.notices._queue] == ["[Errno 98] Address in use", ONLY_LOOPBACK]  # type: ignore[attr-defined]


async def test_not_hearing_oneself_is_told_and_withdrawn_when_it_changes() -> None:
    async with running() as rig:
        rig.wire.echo = False
        await rig.until(lambda: rig.discovery.state == DiscoveryState(True, UNHEARD))
        rig.wire.echo = True
        await rig.until(lambda: rig.discovery.state == DiscoveryState(True, ONLY_LOOPBACK))


async def test_multicast_that_is_blocked_later_is_told_and_asked_for_until_it_is_heard_again() -> None:
    async with running(replace(QUICK, requery_s=0.05)) as rig:
        await rig.until(lambda: rig.wire.log.count("browse") > 1)
        assert rig.discovery.state == DiscoveryState(True, ONLY_LOOPBACK)
        rig.wire.echo = False
        await rig.until(lambda: rig.discovery.state == DiscoveryState(True, UNHEARD))
        asked = len(rig.wire.log)
        rig.discovery._pace = QUICK  # it would not ask again for minutes
        await rig.until(lambda: len(rig.wire.log) > asked + 2)
        rig.wire.echo = True
        await rig.until(lambda: rig.discovery.state == DiscoveryState(True, ONLY_LOOPBACK))


async def test_no_interface_is_a_reason_and_interfaces_that_come_are_used() -> None:
    async with running() as rig:
        rig.interfaces = ()
        assert await rig.notices.get() == ("discovery", "no network interface has an address")
        rig.interfaces = (LOOPBACK,)
        await rig.until(lambda: rig.discovery.state.working)


async def test_an_address_that_comes_is_announced_without_a_goodbye() -> None:
    async with running() as rig:
        await rig.until(lambda: len(rig.wire.log) >= 2)
        address = IPv4Interface("127.0.0.2/8")
        rig.interfaces = (Interface(LOOPBACK.name, LOOPBACK.index, (*LOOPBACK.addresses, address)),)
        await rig.until(lambda: any(line.startswith("change") for line in rig.wire.log))
        assert "close" not in rig.wire.log
        assert rig.networks.is_set()


async def test_another_port_is_announced_at_once() -> None:
    async with running(Pace(rescan_s=LIMIT_S * 2)) as rig:
        await rig.until(lambda: rig.discovery.state.working)
        rig.discovery.update(service_of({"who": 1, "port": 5000}))
        await rig.until(lambda: rig.wire.log[-1].startswith("change 5000"))


async def test_refresh_asks_again_and_only_so_often() -> None:
    async with running(Pace(rescan_s=0.005, browse_s=LIMIT_S * 2)) as rig:
        await rig.until(lambda: rig.discovery.state.working)
        rig.discovery.refresh()
        await rig.rounds(5)
        assert rig.wire.log.count("browse") == 1
    async with running(Pace(rescan_s=LIMIT_S * 2, browse_s=0.0)) as rig:
        await rig.until(lambda: rig.discovery.state.working)
        rig.discovery.refresh()
        await rig.until(lambda: rig.wire.log.count("browse") == 2)


async def test_the_network_is_asked_again_from_time_to_time() -> None:
    async with running(Pace(rescan_s=0.005, browse_s=LIMIT_S, requery_s=0.01)) as rig:
        await rig.until(lambda: rig.wire.log.count("browse") >= 3)


async def test_seen_lost_and_gone() -> None:
    async with running() as rig:
        await rig.until(lambda: rig.discovery.state.working)
        rig.wire.known["x"] = resolved(2, "x")
        rig.hear("x")
        assert (await rig.sightings.get()).verified
        rig.hear("x", gone=True)
        assert await rig.gone.get() == site_key(2).site


async def test_every_announcement_is_shown_our_own_too_with_what_it_is_worth() -> None:
    async with running() as rig:
        await rig.until(lambda: rig.discovery.state.working)
        rig.wire.known["x"] = Resolved("x", 4747, ("10.0.0.1",), {})
        rig.hear("x")
        own, odd = rig.discovery.seen()
        assert (own.instance, own.standing, own.site) == (OWN_INSTANCE, Standing.OWN, site_key(1).site)
        assert (odd.instance, odd.standing, odd.addresses) == ("x", Standing.MALFORMED, ("10.0.0.1",))


async def test_a_record_that_ran_out_and_is_not_answered_for_is_gone() -> None:
    async with running() as rig:
        await rig.until(lambda: rig.discovery.state.working)
        rig.wire.known["x"] = resolved(2, "x")
        rig.hear("x")
        await rig.sightings.get()
        del rig.wire.known["x"]
        rig.wire.silent.set()
        assert await rig.gone.get() == site_key(2).site


async def test_a_flood_of_names_is_bounded_and_one_notice() -> None:
    async with running() as rig:
        await rig.until(lambda: rig.discovery.state.working)
        while not rig.notices.empty():
            rig.notices.get_nowait()
        for number in range(1000):
            rig.hear(f"flood {number}")
        await rig.until(lambda: rig.wire.asking == RESOLVES_AT_ONCE)
        await rig.rounds(5)
        assert rig.wire.asking == RESOLVES_AT_ONCE
        for number in range(1000):
            rig.wire.known[f"lie {number}"] = resolved(2, f"lie {number}", attested_port=1)
            rig.hear(f"lie {number}")
        kind, text = rig.notices.get_nowait()
        assert kind == "announcement-ignored"
        assert "another port" in text
        assert rig.notices.empty()
        assert rig.sightings.empty()
        # Those that had no text were all looked up, of the others only what is shown.
        assert (rig.wire.read, len(rig.wire.known)) == (1000 + REFUSED_ANNOUNCEMENTS, REFUSED_ANNOUNCEMENTS)


async def test_strangers_beyond_what_is_shown_are_not_read_and_not_remembered() -> None:
    async with running() as rig:
        await rig.until(lambda: rig.discovery.state.working)
        for number in range(SEEN_SITES + 100):
            rig.wire.known[f"s{number}"] = resolved(1000 + number, f"s{number}")
            rig.hear(f"s{number}")
        assert rig.wire.read == len(rig.wire.known) == len(rig.discovery.sightings()) == SEEN_SITES
        rig.wire.known["member"] = resolved(2, "member")
        rig.hear("member")
        await rig.until(lambda: any(one.verified for one in rig.discovery.sightings()))


async def test_the_library_keeps_nothing_of_a_flood() -> None:
    """Its cache would be told to the network with every question, and gone through by every new browser."""
    made: list[Responder] = []
    discovery = Discovery(
        None,
        open_attestation=attestation_opener(MESH_ID, {}.get),
        on_sighting=lambda sighting: None,
        on_gone=lambda site: None,
        on_notice=lambda kind, site, text: None,
        random=lambda: 1.0,
        scan=lambda: Selection((LOOPBACK,)),
        responder=lambda *how: made.append(Responder(*how)) or made[-1],  # type: ignore[func-returns-value]
        pace=Pace(sweep_s=LIMIT_S * 2),
    )
    discovery.start()
    try:
        async with asyncio.timeout(LIMIT_S):
            while not discovery.state.working:  # noqa: ASYNC110 - it has no event of its own
                await asyncio.sleep(0.001)
            library = made[0]._zeroconf.zeroconf
            await library.async_wait_for_start()
        before = len(library.cache.names())
        told = {"address": "127.0.0.1", "mesh_tag": "00" * 8, "site": "00" * 16, "label": "x", "attestation": "00"}
        for data in islice(lies(told, Random(1)), 1000):
            library.record_manager.async_updates_from_response(DNSIncoming(data))
        kept = discovery.seen()
        assert len(kept) > SEEN_SITES
        # Of each that is in sight its own name and its host's; the flood's one member is told of twice.
        assert len(library.cache.names()) - before <= 2 * (len(kept) + 2)
        pointers = library.cache.entries_with_name(SERVICE_TYPE)
        assert len(pointers) - len(kept) <= RESOLVES_AT_ONCE
    finally:
        await discovery.stop()


async def test_without_an_announcement_it_only_browses() -> None:
    async with running(announces=False) as rig:
        await rig.until(lambda: rig.discovery.state.working)
        await rig.rounds(10)
        assert set(rig.wire.log) == {"browse"}
        assert rig.discovery.state.reason == ONLY_LOOPBACK


async def test_stop_says_goodbye_and_may_be_called_again() -> None:
    async with running() as rig:
        await rig.until(lambda: rig.discovery.state.working)
        await rig.discovery.stop()
        assert rig.wire.log[-1] == "close"
        await rig.discovery.stop()


def test_interfaces_that_cannot_multicast_are_named_with_the_reason() -> None:
    nowhere = Interface("ghost0", 9999, LOOPBACK.addresses[:0])
    paths = multicast_paths(Selection((LOOPBACK, nowhere)))
    assert paths.hosts == ("127.0.0.1",)
    assert not paths.beyond
    assert paths.refused == ("ghost0: it has neither an IPv4 nor an IPv6 link-local address",)


def test_loopback_stands_in_where_nothing_else_can_multicast() -> None:
    nowhere = Interface("ghost0", 9999, LOOPBACK.addresses[:0])
    paths = multicast_paths(Selection((nowhere,), spare=(LOOPBACK,)))
    assert (paths.hosts, paths.beyond) == (("127.0.0.1",), False)
    assert paths.refused == ("ghost0: it has neither an IPv4 nor an IPv6 link-local address",)


async def test_rules_that_leave_nothing_are_the_reason_and_their_change_is_taken_up() -> None:
    async with running() as rig:
        rig.rules = Rules(deny=("lo",))
        text = "every network interface is skipped: lo: deny_interfaces names it"
        assert await rig.notices.get() == ("discovery", text)
        rig.rules = Rules()
        await rig.until(lambda: rig.discovery.state.working)


async def test_an_interface_that_is_skipped_is_neither_announced_nor_a_reason_to_announce_again() -> None:
    async with running() as rig:
        await rig.until(lambda: rig.discovery.state.working)
        container = Interface("veth1", 9, (IPv6Interface("fe80::9/64"),))
        rig.interfaces = (LOOPBACK, container)
        await rig.rounds(3)
        assert [line.split()[0] for line in rig.wire.log] == ["browse", "announce"]
        assert not rig.networks.is_set()
        assert [name for name, _ in rig.discovery.selection.skipped] == ["veth1"]
        vpn = Interface("wg0", 10, (IPv4Interface("10.8.0.2/24"),))
        rig.interfaces = (LOOPBACK, container, vpn)  # what can be dialed may be another now
        await rig.networks.wait()
        assert "10.8.0.2" not in "".join(rig.wire.log)


# What a test can multicast on and is not taken for loopback alone.
WLAN = Interface("wlan0", LOOPBACK.index, (IPv4Interface("127.0.0.3/8"), IPv4Interface("10.1.1.1/24")))
CAREFUL = WifiPolicy(announce_on_untrusted_wifi=False, trusted_ssids=frozenset({b"Home"}))
QUIET = 'quiet on wlan0: joined to "Cafe", which is not in trusted_ssids'


async def test_on_a_network_that_is_not_trusted_a_node_keeps_quiet_and_no_fault_is_made_of_it() -> None:
    async with running() as rig:
        rig.interfaces, rig.joined = (LOOPBACK, WLAN), {"wlan0": Wifi(b"Cafe")}
        rig.guard.follow(CAREFUL)
        await rig.until(lambda: rig.discovery.state == DiscoveryState(True, QUIET))
        assert rig.discovery.selection.skipped == (("wlan0", QUIET.partition(": ")[2]),)
        assert "10.1.1.1" not in "".join(rig.wire.log)
        rig.joined = {"wlan0": Wifi(b"Hotel")}
        rig.guard.follow(CAREFUL)
        await rig.until(lambda: rig.discovery.state == DiscoveryState(True, QUIET.replace("Cafe", "Hotel")))
        rig.wire.echo = False
        rig.joined = {"wlan0": Wifi(b"Home")}
        rig.guard.follow(CAREFUL)
        await rig.until(lambda: rig.wire.log[-1:] == ["announce 4747 10.1.1.1"])
        await rig.until(lambda: rig.discovery.state == DiscoveryState(True, UNHEARD))
        assert not [text for kind, text in rig.notices._queue if "quiet" in text]  # type: ignore[attr-defined]


@pytest.mark.parametrize("moved", [False, True])
async def test_trust_that_ends_is_a_goodbye_and_a_strange_network_hears_none(moved: bool) -> None:
    async with running(Pace(rescan_s=LIMIT_S * 2)) as rig:
        await rig.until(lambda: rig.discovery.state.working)
        rig.interfaces, rig.joined = (LOOPBACK, WLAN), {"wlan0": Wifi(b"Home")}
        rig.guard.follow(CAREFUL)
        rig.discovery.look_again()
        await rig.until(lambda: rig.wire.log[-1:] == ["announce 4747 10.1.1.1"])
        del rig.wire.log[:]
        rig.joined = {"wlan0": Wifi(b"Cafe" if moved else b"Home")}
        rig.guard.follow(CAREFUL if moved else WifiPolicy(announce_on_untrusted_wifi=False))
        rig.discovery.look_again()
        await rig.until(lambda: len(rig.wire.log) == 3)
        assert rig.wire.log[0] == ("close without a goodbye" if moved else "close")


async def test_of_a_node_that_can_only_keep_quiet_the_networks_are_looked_at_again_soon() -> None:
    async with running(Pace(rescan_s=0.005, retry_s=LIMIT_S * 2)) as rig:
        rig.interfaces, rig.joined = (WLAN,), {"wlan0": Wifi(b"Cafe")}
        rig.guard.follow(CAREFUL)
        once = f"{QUIET}; every network interface is skipped: wlan0"
        await rig.until(lambda: rig.discovery.state.reason == once)
        rig.joined = {"wlan0": Wifi(b"Home")}
        rig.guard.follow(CAREFUL)
        await rig.until(lambda: rig.wire.log[-1:] == ["announce 4747 10.1.1.1"])


def test_only_so_many_interfaces_are_joined() -> None:
    many = tuple(Interface(f"lo:{number}", LOOPBACK.index, LOOPBACK.addresses) for number in range(40))
    assert len(multicast_paths(Selection(many)).hosts) == MULTICAST_INTERFACES


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("Kitchen", "Kitchen-27411066"),
        ("a.b\tc", "a-b-c-27411066"),
        ("", "node-27411066"),
        (" . ", "--27411066"),
        ("é" * 100, "é" * 27 + "-27411066"),
        ("x" * 200, "x" * 54 + "-27411066"),
    ],
)
def test_instance_labels_are_one_dns_label(name: str, label: str) -> None:
    made = instance_label(service_of({"who": 1, "name": name}))
    assert made == label
    assert len(made.encode()) <= LABEL_BYTES


async def test_a_neighbour_that_disputes_every_name_does_not_silence_us(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[dict[str, bool]] = []

    async def register(self: AsyncZeroconf, info: AsyncServiceInfo, **how: bool) -> asyncio.Future[None]:
        calls.append(how)
        if how.get("allow_name_change"):
            raise NonUniqueNameException
        sent: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        sent.set_result(None)
        return sent

    monkeypatch.setattr(AsyncZeroconf, "async_register_service", register)
    responder = Responder(multicast_paths(Selection((LOOPBACK,))), lambda name, gone: None, 120)
    try:
        await responder.announce(service_of({"who": 1}), ("127.0.0.1",))
    finally:
        await responder.close()
    assert calls == [{"allow_name_change": True}, {"cooperating_responders": True}]
    assert responder.own_instance == "host 1-27411066._meshnode._udp.local."


async def test_an_attestation_too_large_for_a_txt_record_is_refused() -> None:
    responder = Responder(multicast_paths(Selection((LOOPBACK,))), lambda name, gone: None, 120)
    try:
        service = service_of({"who": 1})
        huge = Service(service.name, service.site, service.tag, service.port, bytes(252))
        with pytest.raises(UsageError, match="TXT"):
            await responder.announce(huge, ("127.0.0.1",))
    finally:
        await responder.close()


async def test_a_condition_that_ended_is_told_to_be_over() -> None:
    async with running() as rig:
        rig.rules = Rules(deny=("lo",))
        while (await rig.notices.get())[1] != "every network interface is skipped: lo: deny_interfaces names it":
            pass
        rig.interfaces, rig.rules = (LOOPBACK, WLAN), Rules()
        while await rig.notices.get() != ("discovery", ""):
            pass
        assert rig.discovery.state == DiscoveryState(True, "")


async def test_a_tool_that_does_not_answer_yet_is_what_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    async def hang(names: Iterable[str]) -> dict[str, Network]:
        return await asyncio.Future()

    async with running() as rig:
        monkeypatch.setattr(rig.guard, "_read", hang)
        rig.interfaces = (LOOPBACK, WLAN)
        rig.guard.follow(CAREFUL)
        await rig.until(lambda: rig.discovery.state == DiscoveryState(False, f"waiting for {rig.guard.tool}"))
        assert (rig.discovery.deaf, rig.discovery.listening) == (f"waiting for {rig.guard.tool}", frozenset())
