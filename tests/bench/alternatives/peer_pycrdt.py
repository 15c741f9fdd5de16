"""pycrdt (Yjs): a room of pycrdt-websocket and a provider over websockets; SQLiteYStore on both sides, as shipped."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from peer import (
    BATCH,
    FOLDER,
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
from pycrdt import Doc, Map, Provider
from pycrdt.store import SQLiteYStore
from pycrdt.websocket import WebsocketServer, YRoom
from websockets.asyncio.client import connect
from websockets.asyncio.server import serve
from websockets.exceptions import ConnectionClosed


class Channel:
    """What pycrdt asks of one."""

    path = "bench"

    def __init__(self, socket: Any) -> None:
        self._socket = socket

    def __aiter__(self) -> Channel:
        return self

    async def __anext__(self) -> bytes:
        try:
            return await self._socket.recv()
        except ConnectionClosed:
            raise StopAsyncIteration from None

    async def send(self, data: bytes) -> None:
        """One message, unless the other has gone."""
        try:
            await self._socket.send(data)
        except ConnectionClosed:
            return

    async def recv(self) -> bytes:
        """One message."""
        return await self._socket.recv()


class Store(SQLiteYStore):
    """In this peer's folder."""

    db_path = f"{FOLDER}/y.db"


def put(rows: Any, name: str, values: dict[str, Any]) -> None:
    """One row."""
    inner = rows.get(name)
    if inner is None:
        rows[name] = Map(dict(values))
        return
    for column, value in values.items():
        inner[column] = value


async def told(word: str) -> None:
    """Until the driver says it."""
    await asyncio.to_thread(wait_for, word)


async def author() -> None:
    """Writes all, then serves it, then the live writes."""
    doc, changes, pending = Doc(), workload(), list[bytes]()
    doc["rows"] = rows = Map()
    kept = doc.observe(lambda event: pending.append(event.update))
    store = Store("bench")

    async def keep() -> None:
        for update in pending:
            await store.write(update)
        pending.clear()

    async with store:
        await store.db_initialized.wait()
        begun = now()
        for start in range(0, N, BATCH):
            with doc.transaction():
                for name, values in changes[start : start + BATCH]:
                    put(rows, name, values)
            await keep()
        emit(author_s=now() - begun)
        doc.unobserve(kept)
        async with WebsocketServer(auto_clean_rooms=False) as server:
            room = server.rooms["bench"] = YRoom(ydoc=doc, ystore=None)
            await server.start_room(room)

            async def handler(socket: Any) -> None:
                await server.serve(Channel(socket))

            async with serve(handler, "127.0.0.1", int(PORT), max_size=None, compression=None):
                emit(ready={})
                await told("live")
                doc.observe(lambda event: pending.append(event.update))
                begun = now()
                for number in range(LIVE):
                    await asyncio.sleep(max(0.0, begun + number * GAP_S - now()))
                    with doc.transaction():
                        put(rows, key(number), stamped(number))
                    await keep()
                emit(live_done=1)
                await told("quit")
                os._exit(0)


async def receiver() -> None:
    """Connects when it is told to, and follows."""
    doc, updates, late = Doc(), asyncio.Queue[bytes](), list[float]()
    doc["rows"] = rows = Map()
    doc.observe(lambda event: updates.put_nowait(event.update))
    store = Store("bench")
    async with store:
        await store.db_initialized.wait()
        emit(up=1, rss_kb=maxrss_kb())
        await told("go")
        begun = now()
        url = f"ws://127.0.0.1:{PORT}/bench"
        async with connect(url, max_size=None, compression=None) as socket, Provider(doc, Channel(socket)) as provider:
            await provider.synced.wait()
            while not updates.empty():
                await store.write(updates.get_nowait())
            seconds = now() - begun
            check((name, rows[name].to_py()) for name in rows)
            emit(catchup_s=seconds, rss_kb=maxrss_kb())
            while len(late) < LIVE:
                update = await updates.get()  # a value cannot be read in pycrdt's observer
                late.append((now_ns() - int(rows[key(len(late))]["title"])) / 1e6)
                await store.write(update)
            emit(lat_ms=late)
            await told("quit")
    os._exit(0)


asyncio.run(author() if ROLE == "A" else receiver())
