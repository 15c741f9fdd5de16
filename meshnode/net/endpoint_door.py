"""Who may begin a handshake: version negotiation, Retry past a threshold, a bound on strangers (profile §7, §12).

Everything here is about datagrams of unknown origin: nothing is kept for one, and no answer is larger than it was.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

from aioquic.quic.configuration import SMALLEST_MAX_DATAGRAM_SIZE
from aioquic.quic.packet import (
    QuicHeader,
    QuicPacketType,
    QuicProtocolVersion,
    encode_quic_retry,
    encode_quic_version_negotiation,
)
from aioquic.quic.retry import QuicRetryTokenHandler

from meshnode.net.endpoint_source import Address

CONNECTION_ID_BYTES = 8
_VERSIONS = [int(QuicProtocolVersion.VERSION_1)]


@dataclass(frozen=True, slots=True)
class Entry:
    """A first datagram that may begin a connection, with the ids that the handshake has to confirm."""

    original_destination: bytes
    retry_source: bytes | None


class Door:
    """Judges first datagrams; `send` carries the stateless answers."""

    def __init__(self, send: Callable[[bytes, Address], object], now: Callable[[], float], retry_from: int) -> None:
        self._send = send
        self._now = now
        self._retry_from = retry_from
        self._retry = QuicRetryTokenHandler()

    def knock_untrusted(self, header: QuicHeader, size: int, address: Address, handshaking: int) -> Entry | None:
        """An Entry when a connection may be made for this long-header packet of no known connection."""
        if size < SMALLEST_MAX_DATAGRAM_SIZE or header.packet_type == QuicPacketType.VERSION_NEGOTIATION:
            return None
        if header.version not in _VERSIONS:
            self._send(
                encode_quic_version_negotiation(
                    source_cid=header.destination_cid,
                    destination_cid=header.source_cid,
                    supported_versions=_VERSIONS,
                ),
                address,
            )
            return None
        if header.packet_type != QuicPacketType.INITIAL or len(header.destination_cid) < CONNECTION_ID_BYTES:
            return None
        if header.token:
            return self._returned_untrusted(header, address)
        if handshaking >= self._retry_from:
            self._ask_again(header, address)
            return None
        return Entry(header.destination_cid, None)

    def _ask_again(self, header: QuicHeader, address: Address) -> None:
        source = os.urandom(CONNECTION_ID_BYTES)
        token = self._retry.create_token(
            address=address,
            original_destination_connection_id=header.destination_cid,
            retry_source_connection_id=source,
            now=self._now(),
        )
        self._send(
            encode_quic_retry(
                version=_VERSIONS[0],
                source_cid=source,
                destination_cid=header.source_cid,
                original_destination_cid=header.destination_cid,
                retry_token=token,
            ),
            address,
        )

    def _returned_untrusted(self, header: QuicHeader, address: Address) -> Entry | None:
        """A token of ours proves the address, whether or not a Retry would be asked for by now."""
        try:
            original = self._retry.validate_token(
                address=address, destination_cid=header.destination_cid, token=header.token, now=self._now()
            )
        except ValueError:
            return None
        return Entry(original, header.destination_cid)
