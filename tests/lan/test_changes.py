"""Cables, interfaces, addresses and whole machines that go and come back: sync goes on right after (profile §11)."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from pathlib import Path

import pytest
from support.lan import Lan, lan_available
from support.lan_mesh import LanMesh, links_to, row_at
from support.nodes import TABLE

from meshnode.node.api import Operations

pytestmark = pytest.mark.skipif(not lan_available(), reason="needs root and iproute2 to make network namespaces")

# A silent link is lost after 1.5 s in place of 45, and dials in vain grow the pauses between them soon.
IMPATIENT = {"KEEP_ALIVE_S": 0.5, "SILENCE_S": 1.5, "HANDSHAKE_S": 0.5}
AWAY_S = 4.0  # how long a node is away: more than its peers wait for it
RESUME_S = 3.5  # from when it could be reached again to the first row
PAUSE_S = 0.005  # between two rows of an application that writes
CHANGE_S = 5.0  # from a change of addresses to the next row, with the usual limits

CABLE, INTERFACE, MACHINE = 1, 2, 3
WRITER, READER = 0, 1
UP = "from meshnode.net.adapters import *; print([one.device.up for one in local_interfaces() if one.name == 'eth0'])"


async def test_a_cable_an_interface_and_a_machine_that_sleeps(homes: list[Path], tmp_path: Path) -> None:
    """Three nodes go at once, each in its own way, and come back: what was written meanwhile is there soon."""
    with Lan(4) as lan:
        async with LanMesh(lan, homes, tmp_path).running(0, 1, 2, 3, limits=IMPATIENT) as (here, *others):
            await links_to(here.client, "n1", "n2", "n3")
            lan.cut(CABLE)
            lan.interface_down(INTERFACE)
            os.kill(others[MACHINE - 1].pid, signal.SIGSTOP)
            started = time.monotonic()
            # Nobody else can know that a cable was pulled: to its own host it has to be news.
            assert lan.run(CABLE, [sys.executable, "-c", UP]).stdout == "[False]\n"
            await links_to(here.client)
            await here.client.put(TABLE, {"id": "meanwhile"}, {"done": 1})
            await asyncio.sleep(max(0.0, started + AWAY_S - time.monotonic()))
            lan.mend(CABLE)
            lan.interface_up(INTERFACE)
            os.kill(others[MACHINE - 1].pid, signal.SIGCONT)
            took = await asyncio.gather(*(row_at(node.client, "meanwhile", seconds=RESUME_S) for node in others))
            print("from coming back to the row: cable {:.1f} s, interface {:.1f} s, sleep {:.1f} s".format(*took))
            await links_to(here.client, "n1", "n2", "n3")


class Writing:
    """A row every few milliseconds: as much as an application writes, and not what a machine can."""

    def __init__(self, node: Operations) -> None:
        self.written = 0
        self._node = node

    async def run(self) -> None:
        """Goes on until it is cancelled."""
        while True:
            await self._node.put(TABLE, {"id": f"n{self.written + 1}"}, {"done": 1})
            self.written += 1
            await asyncio.sleep(PAUSE_S)


async def test_addresses_that_change_while_rows_are_written(homes: list[Path], tmp_path: Path) -> None:
    """The old address is gone at once, there is no other one, and nobody is told but by mDNS."""
    with Lan(2) as lan:
        for host in (WRITER, READER):
            lan.configure(host, "-6", "address", "flush", "dev", "eth0")
        async with LanMesh(lan, homes[:2], tmp_path).running(WRITER, READER) as (writer, reader):
            await links_to(writer.client, "n1")
            writing = Writing(writer.client)
            task = asyncio.create_task(writing.run())
            try:
                await row_at(reader.client, "n10")
                for changing in (READER, WRITER):
                    lan.readdress(changing, f"10.47.0.{90 + changing}/24")
                    later = f"n{writing.written + 2}"  # the next one that is not on its way yet
                    print(f"a row again after {await row_at(reader.client, later, seconds=CHANGE_S):.1f} s")
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
            await row_at(reader.client, f"n{writing.written}")
            assert "Traceback" not in "".join([*writer.said, *reader.said])
