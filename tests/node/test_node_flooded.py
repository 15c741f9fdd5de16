"""A hostile dialer that opens thousands of handshakes keeps no member of a whole node out (profile §7, §12)."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path

import msgspec
from support.nodes import free_port, linked, loopback, pair_of_homes

from meshnode import Node

HANDSHAKES = 2000  # at once, as far as one process can; without a bound a member waits for the last of them
LINKED_S = 3.0
TESTS = Path(__file__).parents[1]


async def test_a_member_that_dials_under_a_flood_of_handshakes_is_linked_within_seconds(tmp_path: Path) -> None:
    port = free_port()
    homes = await pair_of_homes(tmp_path, [port, free_port()])
    member = msgspec.structs.replace(loopback(port, name="b"), listen="127.0.0.2")  # the flood is at 127.0.0.1
    command = ["-m", "support.flooder", json.dumps({"port": port, "handshakes": HANDSHAKES})]
    async with Node(homes[0], config=loopback(port=port, name="a")) as a:
        flood = await asyncio.create_subprocess_exec(
            sys.executable, *command, stdout=asyncio.subprocess.PIPE, env={"PYTHONPATH": f"{TESTS}:{TESTS.parent}"}
        )
        assert flood.stdout is not None
        assert json.loads(await flood.stdout.readline())["event"] == "started"
        begun = time.monotonic()
        async with Node(homes[1], config=member) as b:
            await linked(b, a)
            took_s = time.monotonic() - begun
            opened = json.loads(await flood.stdout.readline())
            print(f"linked after {took_s:.2f} s, while a flood was asked again {opened['retries']} times")
            assert took_s < LINKED_S
            assert opened["retries"] > 0
            assert opened["answered"] > 0
            assert a._network is not None
            assert a._network._endpoint.reception.handshaking <= 64
            assert [peer.linked for peer in await a.peers()] == [True]
        assert await flood.wait() == 0
