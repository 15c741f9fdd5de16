"""Five processes that write all the time and are killed at random: what was acknowledged is everywhere in the end.

`MESHNODE_CASES=9` makes it a whole minute, `MESHNODE_SEED` another one.
"""

from __future__ import annotations

import asyncio
import os
import random
from contextlib import AsyncExitStack, suppress
from pathlib import Path

from support.command import meshnode
from support.nodes import PATIENCE_S, TABLE, Process, add_notes, free_port, loopback

from meshnode import Node, RowChange, join
from meshnode.errors import MeshError
from meshnode.node.api import ROWS_PER_PAGE

NODES = 5
SECONDS = 7.0 * int(os.environ.get("MESHNODE_CASES", "1"))
SEED = int(os.environ.get("MESHNODE_SEED", "1"))
SHARED_ROWS = 20  # that all of them write
BATCH = 25  # rows of every fourth write
GONE = (MeshError, OSError)  # what a write at a node that is killed ends with


async def homes_of_five(folder: Path) -> list[Path]:
    """The homes of one mesh, each with the table; none of the nodes runs."""
    homes = [folder / f"n{number}" for number in range(NODES)]
    async with Node(homes[0], config=loopback(name="n0")) as founder:
        await add_notes(founder)
        for home in homes[1:]:
            await join(home, (await founder.invite()).invite, name=home.name)
            async with Node(home, config=loopback(name=home.name)) as node:
                await add_notes(node)
    return homes


class Writer:
    """Writes at one node whenever it runs; knows which rows of its own were acknowledged."""

    def __init__(self, process: Process, chance: random.Random) -> None:
        self.acknowledged: set[str] = set()
        self.up = asyncio.Event()
        self.up.set()
        self._process, self._chance = process, chance
        self._count = 0

    async def run(self) -> None:
        """Goes on until it is cancelled."""
        while True:
            await self.up.wait()
            with suppress(*GONE):
                await self._write()

    async def _write(self) -> None:
        self._count += 1
        client, name = self._process.client, self._process.home.name
        shared = {"id": f"shared{self._chance.randrange(SHARED_ROWS)}"}
        kind = self._count % 4
        if kind == 0:
            ids = [f"{name}-{self._count}-{each}" for each in range(BATCH)]
            await client.import_rows(TABLE, [RowChange(key={"id": each}, columns={"title": name}) for each in ids])
            self.acknowledged.update(ids)
        elif kind == 1:
            await client.put(TABLE, shared, {"title": f"{name} {self._count}"})
        elif kind == 2 and self._chance.random() < 0.3:
            await client.remove(TABLE, shared)
        else:
            own = f"{name}-{self._count}"
            await client.put(TABLE, {"id": own}, {"title": "one", "done": self._count % 2})
            self.acknowledged.add(own)


async def kill_at_random(processes: list[Process], writers: list[Writer], chance: random.Random) -> int:
    """Kill one or two, let each lie for a moment and start again, and so on; how often."""
    loop = asyncio.get_running_loop()
    end, kills = loop.time() + SECONDS, 0
    async with asyncio.TaskGroup() as revivals:
        while loop.time() < end or kills < NODES:
            await asyncio.sleep(chance.uniform(0.1, 1.0))
            alive = [number for number, writer in enumerate(writers) if writer.up.is_set()]
            for victim in chance.sample(alive, min(len(alive), chance.choice([1, 1, 2]))):
                writers[victim].up.clear()
                await processes[victim].kill()
                kills += 1
                revivals.create_task(_revive(processes[victim], writers[victim], chance.uniform(0.0, 1.0)))
    return kills


async def _revive(process: Process, writer: Writer, pause_s: float) -> None:
    await asyncio.sleep(pause_s)
    await process.start()
    writer.up.set()


async def ids_at(process: Process) -> set[str]:
    """The ids of every row."""
    found: set[str] = set()
    page = await process.client.rows(TABLE, limit=ROWS_PER_PAGE)
    while page:
        found.update(str(row.key["id"]) for row in page)
        page = await process.client.rows(TABLE, limit=ROWS_PER_PAGE, after=page[-1].key)
    return found


async def test_five_nodes_killed_at_random_under_load_converge(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    homes = await homes_of_five(tmp_path)
    ports = [free_port() for _ in homes]
    processes = [
        Process.on_loopback(home, port, *(other for other in ports if other != port))
        for home, port in zip(homes, ports, strict=True)
    ]
    async with AsyncExitStack() as stack:
        for process in processes:
            await stack.enter_async_context(process)
        writers = [Writer(process, random.Random(chance.random())) for process in processes]
        writing = [asyncio.create_task(writer.run()) for writer in writers]
        kills = await kill_at_random(processes, writers, chance)
        for task in writing:
            task.cancel()
        await asyncio.gather(*writing, return_exceptions=True)
        acknowledged = set().union(*(writer.acknowledged for writer in writers))
        print(f"seed {SEED}: {kills} kills in {SECONDS:g} s, {len(acknowledged)} rows acknowledged")
        assert all(writer.acknowledged for writer in writers)
        waits = await asyncio.gather(*(process.client.wait(timeout_s=PATIENCE_S) for process in processes))
        assert all(wait.complete for wait in waits), waits
        digests = [await process.client.digest() for process in processes]
        assert digests == digests[:1] * NODES
        events = [(await process.client.status()).events for process in processes]
        assert events == events[:1] * NODES
        for process in processes:
            assert acknowledged <= await ids_at(process)
            checked = await meshnode("check", home=process.home)
            assert (checked.code, checked.err) == (0, ""), checked.out
            await process.stop()
