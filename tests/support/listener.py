"""Hears multicast DNS on one interface and prints a JSON line for each packet: what others on a network get to know.

`python -m support.listener '{"interface": "eth0", "address": "10.47.0.2"}'` ends with its stdin.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from typing import Any

from zeroconf import DNSIncoming

from meshnode.net.multicast import GROUP_V4, MDNS_PORT
from support.announcer import say
from support.lines import stdin_lines


class Ear(asyncio.DatagramProtocol):
    """Says of each packet who sent it, whether it asks, and which names it gives or, with a goodbye, takes back."""

    def datagram_received(self, data: bytes, address: tuple[Any, ...]) -> None:
        packet = DNSIncoming(data)
        if not packet.valid:
            say("noise", host=address[0], text=data.decode("latin-1"))
            return
        answers = packet.answers()
        say(
            "packet",
            host=address[0],
            asks=packet.is_query(),
            given=sorted({record.name for record in answers if record.ttl}),
            taken=sorted({record.name for record in answers if not record.ttl}),
        )


async def main(options: dict[str, Any]) -> None:
    ear = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    ear.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    ear.bind(("", MDNS_PORT))
    membership = socket.inet_aton(GROUP_V4) + socket.inet_aton(options["address"])
    ear.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, membership)
    transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(Ear, sock=ear)
    say("started")
    async for _ in stdin_lines():
        pass
    transport.close()


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1])))
