"""A hostile dialer: opens handshakes and finishes none. It answers Retries, so that its address counts as proven.

`python -m support.flooder '{"port": 4747, "handshakes": 1000}'` prints a JSON line when it is about to begin and one
when all are opened. Every handshake has the same ClientHello, so that one costs the listener more than the flooder.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

from aioquic.buffer import Buffer  # type: ignore[attr-defined]
from aioquic.quic.connection import QuicConnection
from aioquic.quic.crypto import CryptoPair
from aioquic.quic.packet import QuicFrameType, QuicPacketType, QuicProtocolVersion, pull_quic_header
from aioquic.quic.packet_builder import QuicPacketBuilder
from aioquic.tls import Epoch

from support.announcer import say
from support.quic import bare_configuration

HOST = "127.0.0.1"
VERSION = int(QuicProtocolVersion.VERSION_1)
ID_BYTES = 8
BURST = 8  # handshakes opened before answers are read


class Flood(asyncio.DatagramProtocol):
    def __init__(self, options: dict[str, Any]) -> None:
        self._target = (HOST, int(options["port"]))
        self._handshakes = int(options["handshakes"])
        self._transport: asyncio.DatagramTransport
        self.retries = 0
        self.answered = 0
        quic = QuicConnection(configuration=bare_configuration("stranger"))
        quic.connect(self._target, now=0.0)
        self._own_id = quic.host_cid
        self._hello = bytes(quic._crypto_streams[Epoch.INITIAL].sender._buffer)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]

    def datagram_received(self, data: bytes, address: Any) -> None:
        header = pull_quic_header(Buffer(data=data), host_cid_length=ID_BYTES)
        if header.packet_type is QuicPacketType.RETRY:
            self.retries += 1
            self._open(header.source_cid, header.token)
        else:
            self.answered += 1

    async def run(self) -> None:
        for number in range(self._handshakes):
            self._open(os.urandom(ID_BYTES))
            if number % BURST == 0:
                for _ in range(2 * BURST):  # asyncio reads one datagram a turn
                    await asyncio.sleep(0)

    def _open(self, peer_id: bytes, token: bytes = b"") -> None:
        crypto = CryptoPair()
        crypto.setup_initial(cid=peer_id, is_client=True, version=VERSION)
        builder = QuicPacketBuilder(
            host_cid=self._own_id,
            peer_cid=peer_id,
            peer_token=token,
            version=VERSION,
            is_client=True,
            max_datagram_size=1200,
        )
        builder.start_packet(QuicPacketType.INITIAL, crypto)
        frame = builder.start_frame(QuicFrameType.CRYPTO)
        frame.push_uint_var(0)
        frame.push_uint_var(len(self._hello))
        frame.push_bytes(self._hello)
        for datagram in builder.flush()[0]:
            self._transport.sendto(datagram, self._target)


async def main(options: dict[str, Any]) -> None:
    loop = asyncio.get_running_loop()
    _, flood = await loop.create_datagram_endpoint(lambda: Flood(options), local_addr=(HOST, 0))
    say("started")
    await flood.run()
    await asyncio.sleep(0.5)  # for the last answers
    say("opened", retries=flood.retries, answered=flood.answered)


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1])))
