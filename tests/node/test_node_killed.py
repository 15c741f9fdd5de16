"""SIGKILL in the middle of a bulk load, at either end: nothing is lost, nothing repeated (NEOTH commit contract)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from support.command import meshnode
from support.nodes import PATIENCE_S, TABLE, Load, Process, free_port, ids, note, pair_of_homes, take

from meshnode.errors import MeshError
from meshnode.node.home import Home
from meshnode.node.local import open_local
from meshnode.node.views import ChangeView

LAST = "n999999"


async def events_on_disk(home: Path) -> int:
    """How many events a node holds that does not run."""
    async with open_local(Home.load(home), writing=False) as node:
        return (await node.status()).events


async def settled(a: Process, b: Process) -> None:
    """`wait --all` ends well at both, and they hold the same."""
    for node in (a, b):
        waited = await meshnode("wait", "--all", "--timeout", str(PATIENCE_S), home=node.home)
        assert (waited.code, waited.err) == (0, "")
    assert await a.client.digest() == await b.client.digest()
    assert (await a.client.status()).events == (await b.client.status()).events


def assert_once_each(changes: list[ChangeView], rows: int) -> None:
    """Every row and the last one appeared once, under numbers without gap.

    What is written while a peer catches up may go ahead of what was written before (feature `live`).
    """
    assert sorted(ids(changes)) == [*(str(note(number).key["id"]) for number in range(rows)), LAST]
    assert [change.seq for change in changes] == list(range(1, rows + 2))


@pytest.mark.parametrize("seen", [1, 1200])
async def test_a_receiver_killed_in_a_bulk_load(tmp_path: Path, seen: int) -> None:
    ports = free_port(), free_port()
    homes = await pair_of_homes(tmp_path, ports)
    async with Process.on_loopback(homes[0], ports[0]) as a, Process.on_loopback(homes[1], ports[1], ports[0]) as b:
        load = Load(a.client)
        loading = asyncio.create_task(load.run())
        before = await take(b.client.changes(since=0), seen)
        await b.kill()
        kept = await events_on_disk(b.home)
        load.stop()  # what is under way is written after the kill, so it came in the middle
        await loading
        assert seen <= kept < load.written
        await b.start()
        await a.client.put(TABLE, {"id": LAST}, {})
        after = await take(b.client.changes(since=before[-1].seq), load.written + 1 - len(before))
        await settled(a, b)
        assert_once_each([*before, *after], load.written)
        assert (await b.client.status()).events == load.written + 1
        await b.stop()
        await a.stop()


async def test_a_sender_killed_in_a_bulk_load(tmp_path: Path) -> None:
    ports = free_port(), free_port()
    homes = await pair_of_homes(tmp_path, ports)
    async with Process.on_loopback(homes[0], ports[0]) as a, Process.on_loopback(homes[1], ports[1], ports[0]) as b:
        load = Load(a.client)
        loading = asyncio.create_task(load.run())
        changes = b.client.changes(since=0)
        before = await take(changes, 600)
        await a.kill()
        with pytest.raises((MeshError, OSError)):
            await loading
        written = await events_on_disk(a.home)
        assert written >= load.written >= 500  # what was acknowledged to the writer is there
        await a.start()
        await a.client.import_rows(TABLE, [note(written + each) for each in range(300)])
        await a.client.put(TABLE, {"id": LAST}, {})
        after = await take(changes, written + 300 + 1 - len(before))
        await settled(a, b)
        assert_once_each([*before, *after], written + 300)
        await a.stop()
        await b.stop()
