"""meshnode: two programs that embed a node each; signed events, on disk before they are acknowledged, over QUIC."""

from __future__ import annotations

import asyncio
import os

from mesh_homes import ADDRESS, TABLE, both, own
from peer import (
    BATCH,
    GAP_S,
    LIVE,
    PORT,
    ROLE,
    N,
    check,
    emit,
    key,
    maxrss_kb,
    now,
    now_ns,
    stamped,
    wait_for,
    workload,
)

from meshnode import Config, Node, RowChange
from meshnode.bench.homes import log_end, looking_at
from meshnode.bench.nodes import free_port
from meshnode.node.local import open_local


async def told(word: str) -> None:
    """Until the driver says it."""
    await asyncio.to_thread(wait_for, word)


async def author() -> None:
    """Writes all, then serves it, then the live writes."""
    home = await both()
    changes = [RowChange(key={"id": name}, columns=values) for name, values in workload()]
    async with open_local(home, writing=True) as node:
        begun = now()
        for start in range(0, N, BATCH):
            await node.import_rows(TABLE, changes[start : start + BATCH])
        emit(author_s=now() - begun)
    async with Node(home, config=Config(name="a", listen="127.0.0.1", port=int(PORT), mdns_enabled=False)) as running:
        emit(ready={})
        await told("live")
        begun = now()
        for number in range(LIVE):
            await asyncio.sleep(max(0.0, begun + number * GAP_S - now()))
            await running.put(TABLE, {"id": key(number)}, stamped(number))
        emit(live_done=1)
        await told("quit")
    os._exit(0)


async def receiver() -> None:
    """Connects when it is told to, and follows."""
    home = own()
    config = Config(name="b", listen="127.0.0.1", port=free_port(), mdns_enabled=False, peers=[ADDRESS])
    async with Node(home, config=config) as node:
        await node.set_online(False)
        emit(up=1, rss_kb=maxrss_kb())
        await told("go")
        with looking_at(home.database_path) as database:
            before, begun = log_end(database), now()
            await node.set_online(True)
            while log_end(database) - before < N:  # noqa: ASYNC110  # a look that costs A nothing
                await asyncio.sleep(0.005)
            seconds = now() - begun
            names = ("id", "i", "title", "body", "done", "rank")
            rows = database.execute(f"SELECT {', '.join(names)} FROM {TABLE}").fetchall()
        check((name, dict(zip(names[1:], values, strict=True))) for name, *values in rows)
        late: list[float] = []
        following = asyncio.create_task(follow(node, late))
        emit(catchup_s=seconds, rss_kb=maxrss_kb())
        await following
        emit(lat_ms=late)
        await told("quit")
    os._exit(0)


async def follow(node: Node, late: list[float]) -> None:
    """When each live write is told here."""
    async for change in node.changes():
        late.append((now_ns() - int(str(change.columns["title"]))) / 1e6)
        if len(late) == LIVE:
            return


asyncio.run(author() if ROLE == "A" else receiver())
