"""One socket for both families, and addresses in the form in which datagrams come (profile §7)."""

from __future__ import annotations

import asyncio
import socket
import sys

import pytest
from support.quic import ALICE, CAROL, FAST, PATIENCE_S, Station, identity, station

from meshnode.errors import TransportError
from meshnode.limits import ANSWERED_ADDRESSES, DATAGRAM_SIZES
from meshnode.net import endpoint_socket, endpoint_source
from meshnode.net.endpoint import Endpoint
from meshnode.net.endpoint_segments import Datagram
from meshnode.net.endpoint_socket import (
    DatagramSocket,
    address_text,
    host_of,
    open_socket,
    resolve,
)
from meshnode.net.endpoint_source import Address, Sources


def ipv6_works() -> bool:
    """This machine has an IPv6 loopback address."""
    try:
        open_socket("::1", 0).close()
    except OSError:
        return False
    return True


IPV6 = ipv6_works()
HOSTS = ["127.0.0.1", "localhost", "::1"] if IPV6 else ["127.0.0.1", "localhost"]


async def everywhere(here: Station) -> Endpoint:
    """An endpoint on every interface."""
    return await Endpoint.create(
        "",
        0,
        identity=identity(CAROL),
        admit=here.admit,
        on_link=here.on_link,
        on_notice=here.on_notice,
        config=FAST,
    )


@pytest.mark.parametrize("host", HOSTS)
async def test_both_families_on_one_socket_for_dialing_and_accepting(host: str) -> None:
    one, other = Station({ALICE.site, CAROL.site}), Station({ALICE.site, CAROL.site})
    carol = await everywhere(one)
    alice = await Endpoint.create(
        "::", 0, identity=identity(ALICE), admit=other.admit, on_link=other.on_link, on_notice=other.on_notice
    )
    try:
        link = await alice.dial(host, carol.port)
        assert link.site == CAROL.site
        theirs = (await one.first()).link
        assert theirs.remote_address in (f"127.0.0.1:{alice.port}", f"[::1]:{alice.port}")
    finally:
        await alice.close()
        await carol.close()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other platforms have one loopback address")
@pytest.mark.parametrize("bound", ["", "0.0.0.0"])
async def test_answers_leave_from_the_address_that_was_dialed(bound: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """To a peer at 127.0.0.1 the kernel would answer from 127.0.0.1, whichever address the peer spoke to."""
    if bound:
        monkeypatch.setattr("meshnode.net.endpoint.open_socket", lambda host, port: plain_ipv4())
    here = Station({ALICE.site, CAROL.site})
    carol = await everywhere(here)
    try:
        async with station(ALICE) as alice:
            link = await alice.endpoint.dial("127.0.0.2", carol.port)
            assert link.remote_address == f"127.0.0.2:{carol.port}"
            assert await link.ping(PATIENCE_S)
    finally:
        await carol.close()


def plain_ipv4() -> socket.socket:
    """Every interface, IPv4 only."""
    return endpoint_socket._bind(socket.AF_INET, "0.0.0.0", 0)


async def test_remembered_sources_are_bounded_and_forgotten_when_they_fail() -> None:
    with open_socket("", 0) as sock:

        def peer(port: int) -> Address:
            return ("::1", port, 0, 0) if sock.family == socket.AF_INET6 else ("127.0.0.1", port)

        sources = Sources(sock)
        for port in range(1, 3000):
            sources._remember(peer(port), bytes(15) + b"\1" + bytes(4))
        assert len(sources._pins) == ANSWERED_ADDRESSES
        gone = peer(4000)
        nowhere = bytes.fromhex("20010db8000000000000000000000001") + bytes(4)
        sources._remember(
            gone, nowhere if sock.family == socket.AF_INET6 else bytes([0, 0, 0, 0, 192, 0, 2, 1]) + bytes(4)
        )
        sources.send(b"from an address that this machine does not have", gone)
        assert gone not in sources._pins


def test_an_interface_is_pinned_only_for_link_local_addresses() -> None:
    link_local = bytes.fromhex("fe80") + bytes(14) + b"\3\0\0\0"
    assert endpoint_source._pin_of(link_local) == link_local
    wide = bytes.fromhex("2001") + bytes(14)
    assert endpoint_source._pin_of(wide + b"\3\0\0\0") == wide + bytes(4)
    assert endpoint_source._pin_of(b"\1\0\0\0" + bytes([10, 0, 0, 1]) + b"\xff" * 4) == bytes(4) + bytes(
        [10, 0, 0, 1]
    ) + bytes(4)


async def test_without_ipv6_the_endpoint_is_ipv4(monkeypatch: pytest.MonkeyPatch) -> None:
    bind = endpoint_socket._bind

    def no_ipv6(family: socket.AddressFamily, host: str, port: int) -> socket.socket:
        if family == socket.AF_INET6:
            raise OSError("Address family not supported by protocol")
        return bind(family, host, port)

    monkeypatch.setattr(endpoint_socket, "_bind", no_ipv6)
    here = Station({ALICE.site, CAROL.site})
    carol = await everywhere(here)
    try:
        async with station(ALICE) as alice:
            assert (await alice.endpoint.dial("127.0.0.1", carol.port)).site == CAROL.site
            with pytest.raises(TransportError, match="no address"):
                await carol.dial("::1", alice.endpoint.port)
    finally:
        await carol.close()


async def test_a_loop_without_readiness_callbacks_works_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    start = DatagramSocket.start
    monkeypatch.setattr(DatagramSocket, "start", lambda self: start(self, readiness=False))
    async with station(CAROL) as carol, station(ALICE) as alice:
        link = await alice.endpoint.dial("127.0.0.1", carol.endpoint.port)
        link.send_events(bytes(300_000))
        await link.drained(0)
        assert len((await carol.first()).events) == 300_000
        assert carol.endpoint.port > 0


async def test_one_wake_up_takes_many_datagrams_and_leaves_the_rest_for_the_next() -> None:
    batches: list[list[Datagram]] = []
    enough = asyncio.Event()

    def take(batch: list[Datagram]) -> None:
        batches.append(batch)
        if sum(map(len, batches)) == 100:
            enough.set()

    receiver = DatagramSocket(open_socket("127.0.0.1", 0), take)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        for number in range(100):
            sender.sendto(bytes([number]), ("127.0.0.1", receiver.port))
    await receiver.start()
    async with asyncio.timeout(PATIENCE_S):
        await enough.wait()
    receiver.close()
    receiver.close()
    assert [len(batch) for batch in batches] == [64, 36]
    assert b"".join(data for batch in batches for data, _ in batch) == bytes(range(100))


async def test_sending_never_raises() -> None:
    own = DatagramSocket(open_socket("127.0.0.1", 0), lambda batch: None)
    await own.start()
    own.send(bytes(100_000), ("127.0.0.1", 9))
    own.send(b"x", ("255.255.255.255", 9))
    own.close()
    own.send(b"after the end", ("127.0.0.1", 9))


async def test_addresses_are_resolved_into_the_form_that_datagrams_have() -> None:
    with open_socket("127.0.0.1", 0) as four:
        assert await resolve(four, "127.0.0.1", 4747) == [("127.0.0.1", 4747)]
    if IPV6:
        with open_socket("", 0) as dual, open_socket("::1", 0) as six:
            assert await resolve(dual, "127.0.0.1", 4747) == [("::ffff:127.0.0.1", 4747, 0, 0)]
            assert await resolve(dual, "fe80::1%1", 4747) == [("fe80::1", 4747, 0, 1)]
            assert await resolve(six, "::1", 4747) == [("::1", 4747, 0, 0)]
            with pytest.raises(TransportError):
                await resolve(six, "127.0.0.1", 4747)


async def test_datagrams_on_loopback_grow() -> None:
    async with station(CAROL) as carol, station(ALICE) as alice:
        sizes: list[int] = []
        received = alice.endpoint._socket._on_datagrams
        alice.endpoint._socket._on_datagrams = lambda batch: (
            sizes.extend(len(data) for data, _ in batch),
            received(batch),
        )
        await alice.endpoint.dial("127.0.0.1", carol.endpoint.port)
        link = (await carol.first()).link
        async with asyncio.timeout(PATIENCE_S):
            while link.connection.quic.datagram_bytes < max(DATAGRAM_SIZES):
                await link.ping(PATIENCE_S)
        assert set(sizes) >= set(DATAGRAM_SIZES[1:])  # the listener's first probe may come before the dial is through
        sizes.clear()
        link.send_events(bytes(100_000))
        await alice.until(lambda: bool(alice.links) and len(alice.links[0].events) == 100_000)
        assert len(sizes) < 100_000 / 1452


@pytest.mark.parametrize("host", HOSTS[::2])
async def test_a_datagram_that_is_too_large_is_said_to_be_so_and_never_cut_up(host: str) -> None:
    with open_socket(host, 0) as plain:
        sender = DatagramSocket(plain, lambda batch: None)
        assert sender.unfragmented
        here = plain.getsockname()
        assert sender.send(bytes(1200), here)
        assert not sender.send(bytes(65_530), here)
        if sys.platform == "linux":
            level, name = (socket.IPPROTO_IPV6, 23) if ":" in host else (socket.IPPROTO_IP, 10)
            assert plain.getsockopt(level, name) == 3


@pytest.mark.skipif(sys.platform == "win32", reason="no packet information there")
async def test_a_datagram_that_is_too_large_leaves_the_local_address_as_it_is() -> None:
    received: asyncio.Future[list[Datagram]] = asyncio.get_running_loop().create_future()
    server = DatagramSocket(open_socket("", 0), received.set_result)
    await server.start()
    with open_socket("127.0.0.1", 0) as client:
        client.sendto(b"hello", ("127.0.0.1", server.port))
        async with asyncio.timeout(PATIENCE_S):
            ((_, address),) = await received
        assert server._sources is not None
        assert address in server._sources._pins
        assert not server.send(bytes(65_530), address)
        assert address in server._sources._pins
        server.rerouted()
        assert not server._sources._pins
    server.close()


def test_addresses_as_text() -> None:
    assert address_text(("192.0.2.1", 4747)) == "192.0.2.1:4747"
    assert address_text(("::ffff:192.0.2.1", 4747, 0, 0)) == "192.0.2.1:4747"
    assert address_text(("2001:db8::1", 4747, 0, 0)) == "[2001:db8::1]:4747"
    assert address_text(("fe80::1", 4747, 0, 3)) == "[fe80::1%3]:4747"
    assert host_of(("::ffff:192.0.2.1", 1, 0, 0)) == "192.0.2.1"
    assert host_of(("2001:db8::1", 1, 0, 0)) == host_of(("2001:db8::ffff", 2, 0, 0)) == "2001:db8::/64"
    assert host_of(("fe80::1%3", 1, 0, 3)) == "fe80::/64"
