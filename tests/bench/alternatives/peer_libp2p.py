"""py-libp2p: one stream (TCP, noise, yamux) under this project's own engine; the same events, just as durable."""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
import struct
import sys
from typing import Any

import multiaddr
import trio
from libp2p import create_new_ed25519_key_pair, new_host
from libp2p.peer.peerinfo import info_from_p2p_addr
from mesh_homes import TABLE, both, own
from peer import BATCH, GAP_S, INFO, LIVE, PORT, ROLE, N, check, emit, key, maxrss_kb, now, now_ns, stamped, workload

from meshnode.engine.commit import commit_events
from meshnode.engine.engine import Engine
from meshnode.engine.write import LocalChange
from meshnode.model.scope import Scope
from meshnode.node.databases import database_of
from meshnode.node.home import Home
from meshnode.node.storage import environment

PROTOCOL = "/meshnode-bench/1"
LISTEN = [multiaddr.Multiaddr(f"/ip4/127.0.0.1/tcp/{PORT}")]
ANYWHERE = [multiaddr.Multiaddr("/ip4/127.0.0.1/tcp/0")]


def engine_of(home: Home) -> Engine:
    """The engine over the home's database."""
    key_of_site = home.site_key()
    file = database_of(home, key_of_site)
    return Engine.open(file.writer(), environment(file), key_of_site)


async def read_exactly(stream: Any, size: int) -> bytes:
    """So many bytes."""
    data = b""
    while len(data) < size:
        part = await stream.read(size - len(data))
        if not part:
            raise EOFError
        data += part
    return data


async def read_batch(stream: Any) -> list[bytes]:
    """Events, each with its length."""
    (size,) = struct.unpack("<I", await read_exactly(stream, 4))
    data, at, found = await read_exactly(stream, size), 0, []
    while at < size:
        (length,) = struct.unpack_from("<H", data, at)
        found.append(data[at + 2 : at + 2 + length])
        at += 2 + length
    return found


async def send_batch(stream: Any, events: list[bytes]) -> None:
    """The same."""
    data = b"".join(struct.pack("<H", len(each)) + each for each in events)
    await stream.write(struct.pack("<I", len(data)) + data)


async def told(word: str) -> None:
    """Until the driver says it."""
    while (line := (await trio.to_thread.run_sync(sys.stdin.readline)).strip()) != word:
        if line == "quit" or not line:
            os._exit(0)


async def author(home: Home) -> None:
    """Writes all, then serves it, then the live writes."""
    engine, changes = engine_of(home), workload()

    def write(part: list[tuple[str, dict[str, Any]]]) -> list[bytes]:
        made = [LocalChange("main", TABLE, {"id": name}, values) for name, values in part]
        return [event.data for event in engine.write(made)]

    begun = now()
    events = [data for start in range(0, N, BATCH) for data in write(changes[start : start + BATCH])]
    emit(author_s=now() - begun)
    arrived = trio.Event()
    streams: list[Any] = []

    async def serve(stream: Any) -> None:
        streams.append(stream)
        for start in range(0, N, BATCH):
            await send_batch(stream, events[start : start + BATCH])
            if start >= 4 * BATCH:
                await read_exactly(stream, 1)  # its ack of an earlier one
        arrived.set()
        await trio.sleep_forever()

    host = new_host(key_pair=create_new_ed25519_key_pair())
    host.set_stream_handler(PROTOCOL, serve)
    async with host.run(listen_addrs=LISTEN):
        emit(ready={"address": f"{LISTEN[0]}/p2p/{host.get_id()}", "site": home.site_key().site.hex()})
        await told("live")
        await arrived.wait()
        begun = now()
        for number in range(LIVE):
            await trio.sleep(max(0.0, begun + number * GAP_S - now()))
            await send_batch(streams[0], write([(key(number), stamped(number))]))
        emit(live_done=1)
        await told("quit")
        os._exit(0)


async def receiver(home: Home) -> None:
    """Connects when it is told to, and follows."""
    engine, site, late = engine_of(home), bytes.fromhex(INFO["site"]), list[float]()
    context = engine.context

    def apply(events: list[bytes]) -> None:
        checked = engine.verify(events)
        context.transact(lambda tx: commit_events(context, tx, checked, author_stream=True, scope=Scope(), peer=site))

    def all_rows() -> list[tuple[Any, ...]]:
        with sqlite3.connect(home.database_path) as database:
            return database.execute(f"SELECT id, i, title, body, done, rank FROM {TABLE}").fetchall()

    host = new_host(key_pair=create_new_ed25519_key_pair())
    async with host.run(listen_addrs=ANYWHERE):
        emit(up=1, rss_kb=maxrss_kb())
        await told("go")
        begun, there = now(), 0
        target = info_from_p2p_addr(multiaddr.Multiaddr(INFO["address"]))
        await host.connect(target)
        stream = await host.new_stream(target.peer_id, [PROTOCOL])
        while there < N:
            events = await read_batch(stream)
            apply(events)
            there += len(events)
            await stream.write(b"\x01")
        seconds = now() - begun
        check(
            (name, dict(zip(("i", "title", "body", "done", "rank"), each, strict=True))) for name, *each in all_rows()
        )
        emit(catchup_s=seconds, rss_kb=maxrss_kb())
        with sqlite3.connect(home.database_path) as database:
            for number in range(LIVE):
                apply(await read_batch(stream))
                (title,) = database.execute(f"SELECT title FROM {TABLE} WHERE id = ?", (key(number),)).fetchone()
                late.append((now_ns() - int(title)) / 1e6)
        emit(lat_ms=late)
        await told("quit")
        os._exit(0)


logging.disable(logging.CRITICAL)
trio.run(author, asyncio.run(both())) if ROLE == "A" else trio.run(receiver, own())
