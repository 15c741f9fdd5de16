"""A thousand invented announcements a second: a bounded share of one core, and nobody is dialed (profile §11)."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from support.lan import Lan, lan_available
from support.lan_mesh import LanMesh, eventually, links_to, row_at
from support.launch import event, launch
from support.lines import Lines
from support.nodes import TABLE, Process
from support.spoofer import MEMBER_PORT

from meshnode.model.record import EndpointAttestation, seal_record
from meshnode.model.site import mesh_tag, short_text
from meshnode.node.home import Home

pytestmark = pytest.mark.skipif(not lan_available(), reason="needs root and iproute2 to make network namespaces")

NODE, MEMBER, HOSTILE = range(3)
CPU_MOST = 0.9  # seconds of one core for a second of flood; about a third of a second is usual
GROWTH_MOST_MB = 64.0
DATAGRAMS_OF_A_DIAL = 10  # in the time that nobody answers


def spoofer(lan: Lan, member: Home) -> Lines:
    """Ready to flood; it has an attestation of an earlier start of that member."""
    with closing(sqlite3.connect(member.database_path)) as database:
        (mesh_id,) = database.execute("SELECT value FROM meshnode_meta WHERE name = 'mesh_id'").fetchone()
    attestation = seal_record(member.site_key(), mesh_id, EndpointAttestation(MEMBER_PORT, b"earlier.", 1))
    return launch(
        lan,
        HOSTILE,
        "spoofer",
        address=lan.address(HOSTILE),
        mesh_tag=mesh_tag(mesh_id).hex(),
        site=member.site_key().site.hex(),
        label=f"n1-{short_text(member.site_key().site)}",
        attestation=attestation.hex(),
    )


def cpu_s(node: Process) -> float:
    """What the process has used by now."""
    fields = Path(f"/proc/{node.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_mb(node: Process) -> float:
    pages = int(Path(f"/proc/{node.pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


async def test_a_flood_costs_little_and_a_member_that_comes_meanwhile_is_linked(
    homes: list[Path], tmp_path: Path
) -> None:
    with Lan(3) as lan:
        mesh = LanMesh(lan, homes[:2], tmp_path)
        hostile = await asyncio.to_thread(spoofer, lan, Home.load(homes[MEMBER]))
        async with mesh.node(NODE) as node:
            await eventually(lambda: _discovers(node))
            used, resident = cpu_s(node), resident_mb(node)
            hostile.tell("begin")
            async with mesh.node(MEMBER) as member:
                seconds = await links_to(node.client, "n1")
                await links_to(member.client, "n0")
                await member.client.put(TABLE, {"id": "during"}, {"done": 1})
                await row_at(node.client, "during")
                hostile.tell("end")
                told = await asyncio.to_thread(hostile.until, event("flooded"))
                used, resident = cpu_s(node) - used, resident_mb(node) - resident
            share = used / told["seconds"]
            print(f"{told}: {share:.2f} s of CPU a second, {resident:.1f} MB more, linked after {seconds:.1f} s")
            assert told["sent"] > 0.8 * 1000 * told["seconds"]
            assert share < CPU_MOST
            assert resident < GROWTH_MOST_MB
            assert told["to_strangers"] == 0
            assert told["to_member"] <= DATAGRAMS_OF_A_DIAL * (1 + told["seconds"])


async def _discovers(node: Process) -> bool:
    return (await node.client.status()).discovery == "on"
