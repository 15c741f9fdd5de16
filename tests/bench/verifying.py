"""How long `verify` takes to find one difference between two nodes on loopback. A measurement, not a test:

    python tests/bench/verifying.py [--events 1000000] [--rows 0] [--folder DIR]

Two nodes hold the same `--events` events over `--rows` rows (0: as many as events). In the log of one of them an event
is then deleted by hand, and in its table a value is changed. Each node is a process of its own; what is told is the
time of `meshnode verify`, the memory of both processes, and what was found.
"""

from __future__ import annotations

import argparse
import asyncio
import sqlite3
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from support.nodes import PATIENCE_S, TABLE, Process, free_port, pair_of_homes

from meshnode.engine.engine import Engine
from meshnode.engine.write import LocalChange
from meshnode.node.databases import database_of
from meshnode.node.home import Home
from meshnode.node.storage import environment

BATCH = 2_000


def _fill(path: Path, events: int, rows: int) -> None:
    """Writes of the node itself, as fast as they go."""
    home = Home.load(path)
    key = home.site_key()
    file = database_of(home, key)
    engine = Engine.open(file.writer(), environment(file), key)
    for first in range(0, events, BATCH):
        engine.write(
            [
                LocalChange("main", TABLE, {"id": f"n{number % rows:08}"}, {"title": f"{number}", "done": number % 2})
                for number in range(first, min(first + BATCH, events))
            ]
        )
    engine.close()


def _copy(source: Path, target: Path) -> None:
    """What the first holds, as if the second had received all of it; the stream between them stands behind it."""
    with closing(sqlite3.connect(target / "meshnode.db", isolation_level=None)) as connection:
        connection.execute("ATTACH ? AS a", (str(source / "meshnode.db"),))
        connection.execute("BEGIN")
        for name, same in (("sites", "h.site = o.site"), ("tables", "(h.schema, h.name) = (o.schema, o.name)")):
            connection.execute(
                f"CREATE TEMP TABLE {name}_of AS SELECT o.no AS there, h.no AS here FROM a.meshnode_{name} AS o"
                f" JOIN main.meshnode_{name} AS h ON {same}"
            )
        for name in ("meshnode_log", "meshnode_rows", TABLE):
            connection.execute(f"DELETE FROM main.{name}")
        connection.execute(
            "INSERT INTO main.meshnode_log SELECT l.position, s.here, l.physical, l.logical, l.id_prefix, t.here,"
            " l.state, l.event FROM a.meshnode_log AS l JOIN sites_of AS s ON s.there = l.site_no"
            " JOIN tables_of AS t ON t.there = l.table_no ORDER BY l.position"
        )
        connection.execute(
            "INSERT INTO main.meshnode_rows SELECT t.here, r.key, r.state, r.reason FROM a.meshnode_rows AS r"
            " JOIN tables_of AS t ON t.there = r.table_no ORDER BY t.here, r.key"
        )
        connection.execute(f"INSERT INTO main.{TABLE} SELECT * FROM a.{TABLE}")
        for name in ("next_position", "clock"):
            kept = "SELECT name, value FROM a.meshnode_meta WHERE name = ?"
            connection.execute(f"INSERT OR REPLACE INTO main.meshnode_meta {kept}", (name,))
        last = connection.execute("SELECT max(position) FROM a.meshnode_log").fetchone()[0]
        connection.execute("COMMIT")
        for schema in ("main", "a"):
            moved = f"UPDATE {schema}.meshnode_outbound SET cursor = ?, offer_cursor = ?"
            connection.execute(moved, (last, last))


def _plant(path: Path, position: int, row: str) -> None:
    with closing(sqlite3.connect(path / "meshnode.db", isolation_level=None)) as connection:
        connection.execute("DELETE FROM meshnode_log WHERE position = ?", (position,))
        connection.execute(f"UPDATE {TABLE} SET title = 'changed by hand' WHERE id = ?", (row,))


def _memory_mib(process: Process) -> float:
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]) / 1024


@asynccontextmanager
async def _both(homes: tuple[Path, Path], ports: tuple[int, int]) -> AsyncIterator[tuple[Process, Process]]:
    a, b = Process.on_loopback(homes[0], ports[0]), Process.on_loopback(homes[1], ports[1], ports[0])
    async with a, b:
        yield a, b
        await b.stop()
        await a.stop()


async def _measure(folder: Path, events: int, rows: int) -> None:
    ports = free_port(), free_port()
    homes = await pair_of_homes(folder, ports)
    async with _both(homes, ports) as (a, _):  # both streams begin
        await a.client.put(TABLE, {"id": "first"}, {"title": "first"})
        assert (await a.client.wait(timeout_s=PATIENCE_S)).complete
    begun = time.perf_counter()
    await asyncio.to_thread(_fill, homes[0], events, rows)
    await asyncio.to_thread(_copy, *homes)
    print(f"made in {time.perf_counter() - begun:.0f} s", flush=True)
    _plant(homes[1], events // 3, f"n{rows // 2:08}")
    async with _both(homes, ports) as (a, b):
        while not (await a.client.peers())[0].linked:  # noqa: ASYNC110  # another process
            await asyncio.sleep(0.1)
        before = [_memory_mib(each) for each in (a, b)]
        for _ in range(2):
            begun = time.perf_counter()
            report = await a.client.verify("b")
            seconds = time.perf_counter() - begun
            after = [_memory_mib(each) for each in (a, b)]
            print(f"{events:,} events, {rows:,} rows: {seconds:.1f} s, {report.exchanges} exchanges, {report.counts}")
            print(
                "memory at most: "
                + ", ".join(f"{one:.0f} to {two:.0f} MiB" for one, two in zip(before, after, strict=True))
            )
            for each in report.rows:
                print(f"  {each.kind} {each.table} {each.key}: {each.what}")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--rows", type=int, default=0)
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        asyncio.run(_measure(Path(folder), options.events, options.rows or options.events))


if __name__ == "__main__":
    main()
