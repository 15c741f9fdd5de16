"""Drives one QuicConnection: guarded input, one transmission per wake-up, a lazy timer, repeated closes (§7)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from aioquic.quic.packet import QuicErrorCode, QuicFrameType

from meshnode.model.logevent import LogEvent, log_event
from meshnode.net.aioquic_private import MutualConnection
from meshnode.net.endpoint_segments import Datagram
from meshnode.net.endpoint_source import Address

_TIMER_SLACK_S = 0.0005  # a loop's timer may fire that much early
_CLOSE_ECHOES = 2**8  # datagrams after our close beyond which it is not repeated any more

logger = logging.getLogger("meshnode.net")


class Driver:
    """The time and the datagrams of one connection; `wake` asks for a settling, `broken` says that none will help."""

    def __init__(
        self,
        quic: MutualConnection,
        *,
        send: Callable[[list[Datagram]], list[int]],
        wake: Callable[[], None],
        broken: Callable[[str], None],
    ) -> None:
        self._quic = quic
        self._send = send
        self._wake = wake
        self._broken = broken
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._close_flight: list[Datagram] = []
        self._after_close = 0
        self._stopped = False

    def receive_untrusted(self, data: bytes, address: Address) -> None:
        """Take in one datagram; whatever a parser raises ends this connection and nothing else."""
        if self._close_flight:
            self._repeat_close()
            return
        try:
            self._quic.receive_datagram(data, address, now=self._loop.time())
        except Exception:
            # What a parser below QUIC raises on bytes it does not expect (a certificate of X.509 version 4, say).
            log_event(logger, logging.DEBUG, LogEvent.DATAGRAM_UNREADABLE, trace=True)
            self._quic.close(
                error_code=QuicErrorCode.PROTOCOL_VIOLATION,
                frame_type=QuicFrameType.PADDING,
                reason_phrase="a datagram that cannot be read",
            )

    def transmit(self) -> None:
        """Send what is due and set the timer."""
        if self._stopped:
            return
        try:
            flight = self._quic.datagrams_to_send(now=self._loop.time())
        except Exception:
            log_event(logger, logging.WARNING, LogEvent.TRANSPORT_FAULT, trace=True, work="transmitting")
            self._broken("internal error in the transport")
            return
        for size in self._send(flight) if flight else ():
            self._quic.refused(size, self._loop.time())
        if flight and self._quic.closing_locally:
            self._close_flight = flight
        self._arm()

    def stop(self) -> None:
        """No more datagrams, no more timers."""
        self._stopped = True
        self._close_flight = []
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _repeat_close(self) -> None:
        """A peer that goes on sending has not read the close; an ever rarer repeat ends that (RFC 9000 §10.2.1)."""
        self._after_close += 1
        if self._after_close <= _CLOSE_ECHOES and self._after_close & (self._after_close - 1) == 0:
            self._send(self._close_flight)

    def _arm(self) -> None:
        """Keep an earlier timer: firing in vain costs less than moving it at every wake-up."""
        at = self._quic.get_timer()
        if self._timer is not None:
            if at is not None and self._timer.when() <= at:
                return
            self._timer.cancel()
            self._timer = None
        if at is not None:
            self._timer = self._loop.call_at(at, self._fired)

    def _fired(self) -> None:
        self._timer = None
        at = self._quic.get_timer()
        if at is None:
            return
        now = self._loop.time()
        if at > now + _TIMER_SLACK_S:
            self._arm()
            return
        try:
            self._quic.handle_timer(now=max(now, at))
        except Exception:
            log_event(logger, logging.WARNING, LogEvent.TRANSPORT_FAULT, trace=True, work="a timer")
            self._broken("internal error in the transport")
            return
        self._wake()
