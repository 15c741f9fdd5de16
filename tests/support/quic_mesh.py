"""A full mesh of whole nodes over QUIC on loopback, and the bytes of their streams."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path

from meshnode import Node, RowChange, join
from meshnode.codec.framing import FrameReader
from meshnode.net.link import Link
from support.mesh_bytes import BATCH_EVENTS, Measured, title
from support.nodes import KEY, PATIENCE_S, TABLE, free_port, linked, loopback, until
from support.timed_mesh import Carried

SINGLE_EVERY_S = 1.0
BATCHES = 8
QUIET_S = 65.0  # seconds until what was gathered has gone out


@asynccontextmanager
async def full_mesh(folder: Path, count: int) -> AsyncIterator[list[Node]]:
    """Nodes that are all linked to each other, with one table."""
    ports = [free_port() for _ in range(count)]
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(Node(folder / "0", config=loopback(port=ports[0], name="node 0")))
        nodes = [first]
        for number in range(1, count):
            await join(folder / str(number), (await first.invite()).invite, name=f"node {number}")
            config = loopback(*ports[:number], port=ports[number])
            nodes.append(await stack.enter_async_context(Node(folder / str(number), config=config)))
        for node in nodes:
            await node.add_table(TABLE, KEY, {"title": "TEXT"})
            await linked(node, *(other for other in nodes if other is not node))
        for node in nodes:
            await until(node, lambda node=node: _knows_all_links(node, count))  # type: ignore[misc]
        yield nodes


async def _knows_all_links(node: Node, count: int) -> bool:
    """Whether every peer said that it is linked to everybody else."""
    return [len(heard.links) for heard in node._heard().values()] == [count - 2] * (count - 1)


@contextmanager
def counted() -> Iterator[Callable[[], Carried]]:
    """Every frame that any node of this process sends meanwhile, greetings of links that stand already excluded."""
    readers: dict[tuple[Link, str], FrameReader] = {}
    found = Carried()
    originals = {name: getattr(Link, name) for name in ("send_control", "send_events")}

    def counting(name: str) -> Callable[[Link, bytes], None]:
        def send(link: Link, data: bytes) -> None:
            for frame in readers.setdefault((link, name), FrameReader()).feed(data):
                found.add(frame)
            originals[name](link, data)

        return send

    def so_far() -> Carried:
        return Carried(found.frames.copy(), found.bytes.copy())

    for name in originals:
        setattr(Link, name, counting(name))
    try:
        yield so_far
    finally:
        for name, original in originals.items():
            setattr(Link, name, original)


async def measure_over_quic(folder: Path, count: int, writes: int) -> dict[str, Measured]:
    """Single writes, one a second, then batches; everything at rest before and after."""
    async with full_mesh(folder, count) as nodes:
        await _rest(nodes)
        results = {}
        for kind, rows, every_s in (
            ("singles", [[f"n{number:06}"] for number in range(writes)], SINGLE_EVERY_S),
            ("batches", [[f"b{batch:03}{row:03}" for row in range(BATCH_EVENTS)] for batch in range(BATCHES)], 5.0),
        ):
            before = await _last_position(nodes[0])
            with counted() as so_far:
                for number, keys in enumerate(rows):
                    changes = [RowChange(key={"id": key}, columns={"title": title(key)}) for key in keys]
                    await nodes[number % count].import_rows(TABLE, changes)
                    await asyncio.sleep(every_s)
                during = so_far()
                await asyncio.sleep(QUIET_S)
                afterwards = so_far()
            events = await _events(nodes[0], before, len(rows[0]))
            assert len(events) == len(rows)
            results[kind] = Measured(events, during, afterwards)
            await _rest(nodes)
        return results


async def _rest(nodes: list[Node]) -> None:
    for node in nodes:
        assert (await node.wait(timeout_s=PATIENCE_S)).complete


async def _last_position(node: Node) -> int:
    return await node.storage.read(
        lambda tx: int(tx.execute("SELECT coalesce(max(position), 0) FROM meshnode_log").fetchone()[0])
    )


async def _events(node: Node, after: int, size: int) -> list[list[bytes]]:
    """The events beyond a position of the log, in the order in which they were written, as many to each write."""
    sql = "SELECT event FROM meshnode_log WHERE position > ? ORDER BY physical, logical"
    log = await node.storage.read(lambda tx: [bytes(row[0]) for row in tx.execute(sql, (after,)).fetchall()])
    return [log[start : start + size] for start in range(0, len(log), size)]
