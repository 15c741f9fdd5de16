"""The endpoint: one UDP socket that dials and accepts, with many connections behind it (profile §7).

Datagrams find their connection by connection id. A connection becomes a link when the peer is authenticated, and only
then does anything that came over its streams reach the node.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Awaitable, Callable, Sequence

from aioquic.buffer import Buffer  # type: ignore[attr-defined]
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.packet import pull_quic_header
from cryptography import x509

from meshnode.errors import CloseCode, TransportError
from meshnode.model.logevent import LogEvent, log_event
from meshnode.net.aioquic_private import MutualConnection, configuration
from meshnode.net.endpoint_config import (
    ALPN_NEARBY,
    ALPN_PAIRING,
    ALPN_SYNC,
    Admission,
    Admit,
    EndpointConfig,
    OnNotice,
)
from meshnode.net.endpoint_connection import Connection
from meshnode.net.endpoint_counts import EndpointCounts
from meshnode.net.endpoint_door import CONNECTION_ID_BYTES, Door
from meshnode.net.endpoint_notices import NoticeBoard
from meshnode.net.endpoint_ports import Ending
from meshnode.net.endpoint_reception import Reception
from meshnode.net.endpoint_segments import Datagram
from meshnode.net.endpoint_socket import DatagramSocket, address_text, open_socket, resolve
from meshnode.net.endpoint_source import Address
from meshnode.net.identity import EndpointIdentity
from meshnode.net.link import Link
from meshnode.net.names import Names
from meshnode.net.racing import first_link

__all__ = [
    "ALPN_NEARBY",
    "ALPN_PAIRING",
    "ALPN_SYNC",
    "Admission",
    "Endpoint",
    "EndpointConfig",
    "EndpointIdentity",
    "Link",
]

_LONG_HEADER = 0x80

logger = logging.getLogger("meshnode.net")


class Endpoint:
    """Create with `Endpoint.create`; `on_link` is called once per link, before its first byte is delivered."""

    def __init__(
        self,
        identity: EndpointIdentity,
        config: EndpointConfig,
        *,
        admit: Admit,
        on_link: Callable[[Link], None],
        on_notice: OnNotice,
        counts: EndpointCounts | None = None,
    ) -> None:
        self.identity = identity
        self.counts = counts or EndpointCounts()
        self._config = config
        self._loop = asyncio.get_running_loop()
        self._by_id: dict[bytes, Connection] = {}
        self._connections: dict[Connection, None] = {}
        self._touched: dict[Connection, None] = {}
        self._turn_due: asyncio.Handle | None = None
        self._in_turn = False
        self._socket: DatagramSocket
        self._closed = False
        self._notices = NoticeBoard(on_notice, self._loop.time, config.notice_interval_s)
        self._names = Names()
        self._door = Door(self.send, self._loop.time, config.retry_from)
        self.reception = Reception(identity, config, self._notices, admit=admit, on_link=on_link, counts=self.counts)
        self._server_configuration = self._configuration(list(self._config.alpns), is_client=False)

    @classmethod
    async def create(
        cls,
        host: str,
        port: int,
        *,
        identity: EndpointIdentity,
        admit: Admit,
        on_link: Callable[[Link], None],
        on_notice: OnNotice,
        config: EndpointConfig | None = None,
        counts: EndpointCounts | None = None,
    ) -> Endpoint:
        """Bind (`host` empty: every interface, both families; `port` 0: any) and begin to listen."""
        endpoint = cls(
            identity, config or EndpointConfig(), admit=admit, on_link=on_link, on_notice=on_notice, counts=counts
        )
        try:
            sock = open_socket(host, port)
        except OSError as error:
            where = f"UDP port {port}" if error.errno == errno.EADDRINUSE else f"the address {host or '::'}"
            raise TransportError(f"{where} cannot be used: {error.strerror or error}") from error
        endpoint._socket = DatagramSocket(sock, endpoint._received_untrusted)
        await endpoint._socket.start()
        return endpoint

    @property
    def port(self) -> int:
        """The UDP port."""
        return self._socket.port

    def links(self) -> list[Link]:
        """The live links, one per site."""
        return self.reception.links.live()

    def link_to(self, site: bytes) -> Link | None:
        """The live link to a site, if there is one."""
        return self.reception.links.link_to(site)

    def allow_links(self, most: int) -> None:
        """So many live links from now on; the farthest ones beyond that end."""
        self.reception.links.allow(most)

    def keep(self, link: Link) -> None:
        """This ceremony is one that people take part in: strangers that come do not push it out."""
        self.reception.keep(link)

    def rerouted(self) -> None:
        """This machine's own addresses changed: datagrams leave from others, and on other paths, from now on."""
        self._socket.rerouted()
        for connection in self._connections:
            connection.rerouted()

    def recheck(self) -> None:
        """Membership changed: end the links of sites that were retired or are no members any more."""
        self.reception.recheck()

    async def dial(
        self,
        host: str,
        port: int,
        *,
        alpn: str = ALPN_SYNC,
        expect_site: bytes | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - the addresses of one host share it
        on_proven: Callable[[], None] | None = None,
    ) -> Link:
        """A link that the peer accepted; TransportError says who refused, with the close code where one was given.

        `on_proven` is called when the peer authenticated: whether an older link gives way to this one takes longer.
        """
        seconds = timeout or self._config.handshake_s
        addresses = await resolve(self._socket.raw, host, port, self._names, seconds)

        def dial_one(address: Address, left_s: float, prove: Callable[[], None]) -> Awaitable[Link]:
            return self._dial_one(address, alpn, expect_site, left_s, prove)

        return await first_link(addresses, dial_one, seconds, on_proven)

    async def close(self, code: CloseCode = CloseCode.SHUTTING_DOWN, reason: str = "shutting down") -> None:
        """End every link with `code` and give the port back."""
        if self._closed:
            return
        self.reception.stop()
        for connection in list(self._connections):
            connection.close_now(code, reason)
        self._closed = True
        if self._turn_due is not None:
            self._turn_due.cancel()
        self._socket.close()

    # --- What connections ask of their owner.

    def send(self, data: bytes, address: Address) -> bool:
        """One datagram; False where it is larger than the interface takes."""
        self.counts.datagrams_sent += 1
        self.counts.bytes_sent += len(data)
        return self._socket.send(data, address)

    def send_all(self, flight: Sequence[Datagram]) -> list[int]:
        """Many; the sizes of those that are larger than the interface takes."""
        self.counts.datagrams_sent += len(flight)
        self.counts.bytes_sent += sum(len(data) for data, _ in flight)
        return self._socket.send_all(flight)

    def touch(self, connection: Connection) -> None:
        """Settle the connection before this turn of the event loop ends."""
        self._touched[connection] = None
        if self._turn_due is None and not self._in_turn:
            self._turn_due = self._loop.call_soon(self._turn)

    def learn(self, connection: Connection, connection_id: bytes) -> None:
        """Datagrams with that id are for this connection."""
        connection.connection_ids.add(connection_id)
        self._by_id[connection_id] = connection

    def forget(self, connection: Connection, connection_id: bytes) -> None:
        """They are not any more."""
        connection.connection_ids.discard(connection_id)
        self._by_id.pop(connection_id, None)

    def handshaken_untrusted(self, connection: Connection, certificates: list[x509.Certificate], alpn: str) -> None:
        """Authenticate the peer, then accept or refuse it."""
        self.reception.receive_untrusted(connection, certificates, alpn)

    def confirmed(self, connection: Connection) -> None:
        """The peer of an outgoing connection let us in."""
        self.reception.confirmed(connection)

    def ended(self, connection: Connection, ending: Ending) -> None:
        """The connection is of no more use, though its ids still are."""
        self.reception.ended(connection, ending)

    def gone(self, connection: Connection) -> None:
        """Nothing of the connection is needed any more."""
        for connection_id in list(connection.connection_ids):
            self.forget(connection, connection_id)
        self._connections.pop(connection, None)
        self._touched.pop(connection, None)

    # --- Datagrams.

    def _received_untrusted(self, batch: list[Datagram]) -> None:
        self.counts.datagrams_received += len(batch)
        self.counts.bytes_received += sum(len(data) for data, _ in batch)
        for data, address in batch:
            connection = self._connection_for_untrusted(data, address)
            if connection is not None:
                connection.receive_untrusted(data, address)
                self._touched[connection] = None
        self._settle()

    def _settle(self) -> None:
        """Once per wake-up: what arrived is worked off and answered, connection by connection."""
        self._in_turn = True
        try:
            while self._touched:
                connection, _ = self._touched.popitem()
                if connection in self._connections:
                    self._settle_one(connection)
        finally:
            self._in_turn = False

    def _settle_one(self, connection: Connection) -> None:
        try:
            connection.settle()
        except Exception:  # a defect, ours or the node's, costs one connection and never the listener
            log_event(
                logger,
                logging.ERROR,
                LogEvent.FAULT,
                trace=True,
                work=f"a connection of {address_text(connection.address)}",
            )
            connection.abandon("internal error")

    def _turn(self) -> None:
        self._turn_due = None
        self._settle()

    def _connection_for_untrusted(self, data: bytes, address: Address) -> Connection | None:
        if not data:
            return None
        if not data[0] & _LONG_HEADER:
            return self._by_id.get(data[1 : 1 + CONNECTION_ID_BYTES])
        try:
            header = pull_quic_header(Buffer(data=data), host_cid_length=CONNECTION_ID_BYTES)
        except ValueError:
            return None
        known = self._by_id.get(header.destination_cid)
        if known is not None or self._closed:
            return known
        if self.reception.crowded(address):
            return None  # it comes again if it means it
        entry = self._door.knock_untrusted(header, len(data), address, self.reception.handshaking)
        if entry is None:
            return None
        quic = MutualConnection(
            configuration=self._server_configuration,
            datagram_sizes=self._datagram_sizes,
            original_destination_connection_id=entry.original_destination,
            retry_source_connection_id=entry.retry_source,
        )
        connection = self._adopt(quic, address, opened_by_us=False)
        connection.address_proven = entry.retry_source is not None
        self.learn(connection, header.destination_cid)
        self.reception.expect(connection)
        return connection

    async def _dial_one(
        self,
        address: Address,
        alpn: str,
        expect_site: bytes | None,
        seconds: float,
        on_proven: Callable[[], None],
    ) -> Link:
        if self._closed:
            raise TransportError("the endpoint is closed", CloseCode.SHUTTING_DOWN)
        quic = MutualConnection(
            configuration=self._configuration([alpn], is_client=True), datagram_sizes=self._datagram_sizes
        )
        connection = self._adopt(quic, address, opened_by_us=True)
        opened = self.reception.expect_site(connection, expect_site, on_proven)
        quic.connect(address, now=self._loop.time())
        self.touch(connection)
        try:
            async with asyncio.timeout(seconds):
                return await opened
        except TimeoutError:
            raise TransportError(
                f"{address_text(address)}: no answer within {seconds:g} s: nobody is there, or a firewall "
                f"drops UDP port {address[1]}"
            ) from None
        finally:
            if not opened.done() or opened.cancelled():
                connection.close_now(CloseCode.DONE, "dialing was given up")

    @property
    def _datagram_sizes(self) -> tuple[int, ...]:
        """Sizes to try: none where datagrams would be cut up on the way instead of lost."""
        return self._config.datagram_sizes if self._socket.unfragmented else ()

    def _configuration(self, alpns: list[str], *, is_client: bool) -> QuicConfiguration:
        return configuration(
            self.identity,
            is_client=is_client,
            alpns=alpns,
            idle_s=self._config.idle_s,
            window=self._config.window_bytes,
        )

    def _adopt(self, quic: MutualConnection, address: Address, *, opened_by_us: bool) -> Connection:
        connection = Connection(quic, self, self._config, address, opened_by_us=opened_by_us)
        self._connections[connection] = None
        self.learn(connection, quic.host_cid)
        return connection
