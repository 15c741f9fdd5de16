"""Where multicast DNS cannot work the node says so and why, does everything else, and heals by itself (profile §11)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support.lan import Lan, lan_available
from support.lan_mesh import PORT, LanMesh, eventually, links_to, row_at, started
from support.lines import Lines
from support.nodes import TABLE, Process

from meshnode.net.mdns import UNHEARD

pytestmark = pytest.mark.skipif(not lan_available(), reason="needs root and iproute2 to make network namespaces")

TAKEN, FREE, BLOCKED = range(3)
QUICK = {"Pace.heard_s": 1.5, "Pace.browse_s": 2.0, "Pace.rescan_s": 0.5, "Pace.retry_cap_s": 1.0}
HOLD = "import socket,sys; s=socket.socket(socket.AF_INET,socket.SOCK_DGRAM); s.bind(('',5353)); print('{}',flush=1);"


def hold_port(lan: Lan, host: int) -> subprocess.Popen[str]:
    """A program that has port 5353 and does not share it."""
    command = [sys.executable, "-c", HOLD + "sys.stdin.read()"]
    program = lan.popen(host, command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    Lines(program).until(lambda _: True)
    return program


async def says(node: Process, state: str) -> None:
    """Wait until that is, or begins, the state of discovery."""

    async def holds() -> bool:
        found = (await node.client.status()).discovery
        return found == "on" if state == "on" else found.startswith(state)

    await eventually(holds)


async def noticed(node: Process, words: str) -> None:
    """Wait until the last notice about discovery has these words; without any, until there is none."""

    async def holds() -> bool:
        kept = [each.sample for each in (await node.client.status()).notices if each.kind == "discovery"]
        return words in kept[0] if words and kept else not words and not kept

    await eventually(holds)


async def test_a_taken_port_and_swallowed_multicast(homes: list[Path], tmp_path: Path) -> None:
    with Lan(3) as lan:
        holder = hold_port(lan, TAKEN)
        lan.block_mdns(BLOCKED)
        mesh = LanMesh(lan, homes[:3], tmp_path)
        told = ["--peer", f"{lan.address(FREE)}:{PORT}"]  # n0 is told where n1 is, n2 is not
        nodes = [mesh.node(TAKEN, *told, limits=QUICK), *(mesh.node(host, limits=QUICK) for host in (FREE, BLOCKED))]
        async with started(nodes) as (taken, free, blocked):
            await says(taken, "UDP port 5353 is taken")
            await says(blocked, UNHEARD)
            await noticed(taken, "port 5353 is taken by a program that does not share it")
            await noticed(blocked, UNHEARD)
            # All else goes on.
            await links_to(taken.client, "n1")
            await links_to(free.client, "n0")
            await taken.client.put(TABLE, {"id": "without"}, {"done": 1})
            await row_at(free.client, "without")
            await noticed(free, "")
            # It heals when the cause goes, and nobody is told to look again.
            lan.kill(holder)
            lan.unblock_mdns(BLOCKED)
            for node in (taken, blocked):
                await says(node, "on")
                await noticed(node, "")  # what ended is over
            await links_to(blocked.client, "n0", "n1")
            await links_to(taken.client, "n1", "n2")
