"""A link: one authenticated peer, its control stream and the two event streams (profile §7).

Bytes come through callbacks that the node sets when it is handed the link; a callback that raises ends the link and
nothing else. In-flight data is bounded both ways: what the peer may send by a window that opens as bytes are consumed
(`pause` keeps it shut), what it leaves unacknowledged by `buffered`, which the node looks at before it sends more.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from meshnode.errors import CloseCode, ProtocolError, TransportError
from meshnode.limits import HELLO_BYTES, INTRODUCE_BYTES
from meshnode.model.frames_untrusted import boot_in_untrusted
from meshnode.model.logevent import LogEvent, log_event
from meshnode.net.endpoint_config import CEREMONIES
from meshnode.net.endpoint_ports import Ending
from meshnode.net.endpoint_socket import address_text
from meshnode.net.identity import AuthenticatedPeer

if TYPE_CHECKING:
    from meshnode.net.endpoint_connection import Connection

LOW_WATER_BYTES = 64 * 1024  # unacknowledged bytes at which a link counts as drained
_UNADMITTED_BYTES = INTRODUCE_BYTES + HELLO_BYTES + 8  # an introduce frame, and a hello that follows it at once

logger = logging.getLogger("meshnode.net")


class Link:
    """One peer, proven to be `site`.

    `admitted`: it is known to be a member. `live`: it is the one link to that site; only then may a session run on it.
    """

    def __init__(
        self,
        connection: Connection,
        peer: AuthenticatedPeer,
        *,
        own_spki: bytes,
        alpn: str,
        admitted: bool,
        on_admitted: Callable[[Link], None],
        on_boot: Callable[[Link], None],
    ) -> None:
        self.site = peer.site
        self.public_key = peer.public_key
        self.spki = peer.spki
        self.own_spki = own_spki
        self.alpn = alpn
        self.admitted = admitted
        self.on_control: Callable[[bytes], None] = lambda data: None
        self.on_events: Callable[[bytes], None] = lambda data: None
        self.on_closed: Callable[[CloseCode | None, str, bool], None] = lambda code, reason, local: None
        self.on_live: Callable[[], None] = lambda: None
        self.on_moved: Callable[[], None] = lambda: None
        self.ending: Ending | None = None
        self.begun = asyncio.get_running_loop().time()  # both ends have authenticated each other
        self.live = False
        self.bytes_sent = 0  # on both streams, as they were queued
        self.bytes_received = 0
        self._connection = connection
        self._on_admitted = on_admitted
        self._on_boot = on_boot
        self._boot: bytes | None = None
        self._early_bytes = 0
        self._held: tuple[bytearray, bytearray] | None = (bytearray(), bytearray())  # until the link is handed over
        self._paused = False
        self._withheld = 0
        self._waiting: dict[asyncio.Future[None], int] = {}

    def __repr__(self) -> str:
        direction = "to" if self.opened_by_us else "from"
        return f"<Link {direction} {self.site.hex()[:8]} {self.remote_address} {self.alpn}>"

    # --- What the node asks.

    @property
    def opened_by_us(self) -> bool:
        """This node dialed."""
        return self._connection.opened_by_us

    @property
    def remote_address(self) -> str:
        """Where the peer's datagrams come from, as `host:port`."""
        return address_text(self._connection.address)

    @property
    def closed(self) -> bool:
        """Nothing can be sent any more."""
        return self.ending is not None

    @property
    def buffered(self) -> int:
        """Bytes sent on either stream that the peer has not acknowledged."""
        return self._connection.control_unacknowledged + self._connection.events_unacknowledged

    @property
    def control_backlog(self) -> int:
        """Of them, those of the control stream."""
        return self._connection.control_unacknowledged

    @property
    def boot(self) -> bytes | None:
        """The peer's boot id, once the node read it in the peer's hello (profile §8)."""
        return self._boot

    @boot.setter
    def boot(self, boot: bytes) -> None:
        self._boot = boot
        self._on_boot(self)

    @property
    def said_boot(self) -> bytes | None:
        """The same, also from a hello that waits for the node to take the link."""
        return self._boot or (boot_in_untrusted(bytes(self._held[0])) if self._held is not None else None)

    # --- What the node does.

    def send_control(self, data: bytes) -> None:
        """Queue bytes for the control stream; on a closed link they go nowhere."""
        if self.ending is None:
            self.bytes_sent += len(data)
            self._connection.send_control(data)

    def send_events(self, data: bytes) -> None:
        """Queue bytes for our event stream; on a closed link they go nowhere."""
        if self.ending is None:
            self.bytes_sent += len(data)
            self._connection.send_events(data)

    async def drained(self, below: int = LOW_WATER_BYTES) -> None:
        """Wait until at most `below` bytes are unacknowledged; TransportError if the link ends first."""
        while self.buffered > below or self.ending is not None:
            if self.ending is not None:
                raise TransportError(f"the link has ended: {self.ending.reason}", self.ending.code)
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting[waiter] = below
            try:
                await waiter
            finally:
                self._waiting.pop(waiter, None)

    async def ping(self, seconds: float) -> bool:
        """Whether the peer answers a QUIC PING within that time."""
        return self.ending is None and await self._connection.pulse.ping(seconds)

    @property
    def unanswered_s(self) -> float:
        """For how long the peer has acknowledged nothing though it was to."""
        return self._connection.pulse.unanswered_s

    def pause(self) -> None:
        """Let the peer send no more than its window still allows."""
        self._paused = True

    def resume(self) -> None:
        """Count what came meanwhile as consumed."""
        self._paused = False
        size, self._withheld = self._withheld, 0
        if size and self.ending is None:
            self._connection.consumed(size)

    def admit(self) -> None:
        """The peer's introduction made it a member (profile §7); `on_live` follows, unless another is preferred."""
        if not self.admitted and self.ending is None:
            self.admitted = True
            self._on_admitted(self)

    def close(self, code: CloseCode = CloseCode.DONE, reason: str = "") -> None:
        """End the link, after what is queued had its chance to leave; `on_closed` follows with `local` true."""
        self._connection.close(code, reason)

    # --- What the endpoint does.

    @property
    def connection(self) -> Connection:
        """The connection that carries this link; the endpoint's business."""
        return self._connection

    @property
    def handed_over(self) -> bool:
        """The node has it."""
        return self._held is None

    def hand_over(self) -> None:
        """The callbacks are set: deliver what came so far, and everything from now on."""
        if self._held is None:
            return
        (control, events), self._held = self._held, None
        if control or events:
            self.received_untrusted(bytes(control), bytes(events))

    def received_untrusted(self, control: bytes, events: bytes) -> None:
        """Bytes in stream order; while the peer is not admitted, no more of them than an introduction takes."""
        if self.ending is not None or not self._within_bounds(control, events):
            return
        if self._held is not None:  # counted once it is handed over
            self._held[0].extend(control)
            self._held[1].extend(events)
            return
        self.bytes_received += len(control) + len(events)
        if control:
            self._call(self.on_control, control)
        if events:
            self._call(self.on_events, events)
        if self._paused:
            self._withheld += len(control) + len(events)
        else:
            self._connection.consumed(len(control) + len(events))

    def progressed(self) -> None:
        """Wake whoever waits for acknowledgements."""
        if self._waiting:
            buffered = self.buffered
            for waiter, below in self._waiting.items():
                if buffered <= below and not waiter.done():
                    waiter.set_result(None)

    def moved(self) -> None:
        """Its datagrams come from another address, which `remote_address` says from now on."""
        try:
            self.on_moved()
        except Exception:
            log_event(logger, logging.ERROR, LogEvent.FAULT, trace=True, work=f"the move of {self!r}")

    def ended(self, ending: Ending) -> None:
        """Tell the node once; a link that was never handed over ends without its knowledge."""
        if self.ending is not None:
            return
        self.ending = ending
        for waiter in self._waiting:
            if not waiter.done():
                waiter.set_result(None)
        if self._held is None:
            try:
                self.on_closed(ending.code, ending.reason, ending.local)
            except Exception:
                log_event(logger, logging.ERROR, LogEvent.FAULT, trace=True, work=f"the end of {self!r}")
        self._held = None

    def _within_bounds(self, control: bytes, events: bytes) -> bool:
        if self.alpn in CEREMONIES:
            if events:
                self.close(CloseCode.PROTOCOL_ERROR, "pairing has one stream")
            return not events
        if self.admitted:
            return True
        self._early_bytes += len(control)
        if events or self._early_bytes > _UNADMITTED_BYTES:
            self.close(CloseCode.NOT_A_MEMBER, "only an introduction is read from a site that is no member")
            return False
        return True

    def _call(self, callback: Callable[[bytes], None], data: bytes) -> None:
        if self._connection.closing:
            return
        try:
            callback(data)
        except ProtocolError as error:
            self.close(error.code, str(error))
        except Exception:
            log_event(logger, logging.ERROR, LogEvent.FAULT, trace=True, work=f"handling bytes of {self!r}")
            self.close(CloseCode.INTERNAL, "internal error")
