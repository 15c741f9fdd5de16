"""A hostile host on the LAN: floods it with announcements, and counts what comes to the port that they name.

`python -m support.spoofer OPTIONS` (its own address, the tag, and of a member site, name and an old attestation) says
`started`; a line on stdin begins the flood, another one ends it. Then it says how many it sent, and how many datagrams
came to where strangers are said to be, and to where the member is.
"""

from __future__ import annotations

import contextlib
import json
import random
import select
import socket
import struct
import sys
import time
from collections.abc import Iterator
from typing import Any

from meshnode.model.record import EndpointAttestation, seal_record
from meshnode.model.site import SiteKey

GROUP = ("224.0.0.251", 5353)
TYPE = "_meshnode._udp.local"
A, PTR, TXT, SRV = 1, 12, 16, 33
FLUSH, IN = 0x8001, 1
RATE = 1000  # announcements a second
TTL_S = 4500
MANY = 130  # addresses in one datagram, which may have 8,966 bytes
PREPARED = 5000  # different ones
LIE_PORT = 5999  # where strangers say they are, and a member's attestation does not
MEMBER_PORT = 4747  # where it does


def name_bytes(name: str) -> bytes:
    return b"".join(bytes([len(label)]) + label.encode() for label in name.split(".")) + b"\0"


def record(name: str, kind: int, data: bytes, scope: int = FLUSH) -> bytes:
    return name_bytes(name) + struct.pack(">HHIH", kind, scope, TTL_S, len(data)) + data


def announcement(label: str, port: int, hosts: list[str], texts: list[bytes]) -> bytes:
    """One mDNS response: PTR, SRV, TXT and an address record for each host."""
    instance, server = f"{label}.{TYPE}", f"{label}-host.local"
    records = [
        record(TYPE, PTR, name_bytes(instance), IN),
        record(instance, SRV, struct.pack(">HHH", 0, 0, port) + name_bytes(server)),
        record(instance, TXT, b"".join(bytes([len(text)]) + text for text in texts)),
        *(record(server, A, socket.inet_aton(host)) for host in hosts),
    ]
    return response(records)


def response(records: list[bytes]) -> bytes:
    return struct.pack(">HHHHHH", 0, 0x8400, 0, len(records), 0, 0) + b"".join(records)


def texts(site: bytes, tag: str, attestation: bytes) -> list[bytes]:
    return [b"v=1", b"tag=" + tag.encode(), b"site=" + site.hex().encode(), b"att=" + attestation]


def lies(options: dict[str, Any], chance: random.Random) -> Iterator[bytes]:
    """Endlessly different announcements, each kind in turn."""
    tag, here = options["mesh_tag"], options["address"]
    strangers = [SiteKey.from_seed(chance.randbytes(32)) for _ in range(500)]
    number = 0
    while True:
        number += 1
        stranger = chance.choice(strangers)
        attestation = seal_record(stranger, bytes(16), EndpointAttestation(LIE_PORT, bytes(8), number))
        site = chance.randbytes(16)
        # A site nobody knows, with a well-formed attestation of somebody else nobody knows.
        yield announcement(f"s{number}", LIE_PORT, [here], texts(stranger.site, tag, attestation))
        yield announcement(f"r{number}", LIE_PORT, [here], texts(site, tag, chance.randbytes(150)))
        # A member's attestation of an earlier start: at a port that it does not name, and at hosts of ours.
        told = texts(bytes.fromhex(options["site"]), tag, bytes.fromhex(options["attestation"]))
        yield announcement(f"m{number}", LIE_PORT, [here], told)
        yield announcement(f"h{number}", MEMBER_PORT, [here], told)
        # A TXT record that fills the datagram, and as many addresses as go in.
        yield announcement(f"t{number}", LIE_PORT, [here], [chance.randbytes(255) for _ in range(30)])
        many = [f"10.{chance.randrange(256)}.{chance.randrange(256)}.{last}" for last in range(MANY)]
        yield announcement(f"a{number}", LIE_PORT, [here, *many], texts(stranger.site, tag, attestation))
        # The member's own records once more, and further addresses of its host to be read with its own.
        host = f"meshnode-{options['site']}.local"
        service = record(f"{options['label']}.{TYPE}", SRV, struct.pack(">HHH", 0, 0, MEMBER_PORT) + name_bytes(host))
        yield response([service, *(record(host, A, chance.randbytes(4), IN) for _ in range(MANY))])
        yield response([record(TYPE, PTR, name_bytes(f"p{number}.{TYPE}"), IN)])


def ear(port: int) -> socket.socket:
    """A socket that counts who comes."""
    listening = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    listening.setblocking(False)
    listening.bind(("", port))
    return listening


def mouth(address: str) -> socket.socket:
    """A socket that speaks to the group as a responder does."""
    speaking = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    for option in (socket.SO_REUSEADDR, socket.SO_REUSEPORT):
        speaking.setsockopt(socket.SOL_SOCKET, option, 1)
    speaking.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(address))
    speaking.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 255)
    speaking.bind(("", GROUP[1]))
    return speaking


def heard(listening: socket.socket) -> int:
    """How many datagrams came."""
    count = 0
    with contextlib.suppress(BlockingIOError):
        while True:
            listening.recv(65535)
            count += 1
    return count


def flood(speaking: socket.socket, prepared: list[bytes]) -> tuple[int, float]:
    """Send until a line comes on stdin; returns how many, and in how many seconds."""
    started, sent = time.monotonic(), 0
    while not select.select([sys.stdin], [], [], max(0.0, sent / RATE - (time.monotonic() - started)))[0]:
        speaking.sendto(prepared[sent % len(prepared)], GROUP)
        sent += 1
    return sent, time.monotonic() - started


def say(event: str, **fields: Any) -> None:
    print(json.dumps({"event": event, **fields}), flush=True)


def main(options: dict[str, Any]) -> None:
    source = lies(options, random.Random(1))
    prepared = [next(source) for _ in range(PREPARED)]
    ears, speaking = [ear(port) for port in (LIE_PORT, MEMBER_PORT)], mouth(options["address"])
    say("started")
    sys.stdin.readline()
    sent, seconds = flood(speaking, prepared)
    to_strangers, to_member = map(heard, ears)
    say("flooded", sent=sent, seconds=seconds, to_strangers=to_strangers, to_member=to_member)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
