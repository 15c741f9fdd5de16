"""A node that catches up with another one while that one goes on writing: how late the new rows are, and what it costs.

Both nodes are processes; the receiver is looked at through its database file, so that looking costs it nothing.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from meshnode.bench.process import cpu_s
from meshnode.node.api import ROWS_PER_IMPORT
from meshnode.node.home import Home
from support.nodes import PATIENCE_S, TABLE, Process, note

LOOK_S = 0.002  # seconds between two looks for a row
_ROWS = f"SELECT count(*) FROM {TABLE} WHERE id >= ? AND id < ?"
PAUSE_S = 0.05  # seconds between an arrival and the next write


@dataclass(slots=True)
class CatchUp:
    """What one run has shown."""

    events: int = 0  # that were caught up, without the live ones
    seconds: float = 0.0  # from the link on
    late_ms: list[float] = field(default_factory=list)  # of each row written meanwhile, from the call to the arrival
    cpu_s: tuple[float, float] = (0.0, 0.0)  # of the sender and of the receiver, with the processes they started
    peak_bytes: tuple[int, int] = (0, 0)  # the most that each ever had in memory

    def late(self, share: float) -> float:
        """Milliseconds within which this share of the live rows arrived."""
        ordered = sorted(self.late_ms)
        return ordered[min(int(len(ordered) * share), len(ordered) - 1)]


def memory_bytes(pid: int, line: str = "VmRSS") -> int:
    """What a process has in memory, or (`VmHWM`) the most that it ever had."""
    for each in Path(f"/proc/{pid}/status").read_text().splitlines():
        if each.startswith(f"{line}:"):
            return int(each.split()[1]) * 1024
    raise AssertionError(f"no {line}")


def family(pid: int) -> list[int]:
    """A process and the children that it has now."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return [pid, *(int(child) for task in tasks for child in (task / "children").read_text().split())]


def family_cpu_s(pid: int) -> float:
    """Seconds of processor of all of them."""
    return sum(map(cpu_s, family(pid)))


def family_peak_bytes(pid: int) -> int:
    """The most that each of them ever had in memory, together."""
    return sum(memory_bytes(each, "VmHWM") for each in family(pid))


async def load(node: Process, first: int, rows: int) -> None:
    """Write rows in large transactions."""
    for start in range(first, first + rows, ROWS_PER_IMPORT):
        batch = range(start, min(start + ROWS_PER_IMPORT, first + rows))
        await node.client.import_rows(TABLE, [note(number) for number in batch])


@contextmanager
def database(home: Path) -> Iterator[sqlite3.Connection]:
    """The database of a running node, to look at."""
    path = Home(home).database_path
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, isolation_level=None)) as connection:
        yield connection


def number(connection: sqlite3.Connection, sql: str, *values: object) -> int:
    """One number out of a database."""
    return int(connection.execute(sql, values).fetchone()[0] or 0)


async def catch_up(a: Process, b: Process, rows: int, *, live: bool = True) -> CatchUp:
    """Cut B off, write `rows` at A, let B catch up, and meanwhile write one more row whenever the last one arrived."""
    await b.client.set_online(False)
    await load(a, 0, rows)
    with database(b.home) as seen, database(a.home) as source:
        before = number(seen, "SELECT count(*) FROM meshnode_log")
        result = CatchUp(number(source, "SELECT count(*) FROM meshnode_log") - before)
        used = family_cpu_s(a.pid), family_cpu_s(b.pid)
        await b.client.set_online(True)
        while not any(peer.linked for peer in await b.client.peers()):  # noqa: ASYNC110
            await asyncio.sleep(LOOK_S)
        begun = time.perf_counter()
        writing = asyncio.create_task(_write_on(a, seen, result) if live else asyncio.sleep(0))
        async with asyncio.timeout(10 * PATIENCE_S):
            while number(seen, _ROWS, str(note(0).key["id"]), str(note(rows).key["id"])) < rows:  # noqa: ASYNC110
                await asyncio.sleep(10 * LOOK_S)
        result.seconds = time.perf_counter() - begun
        writing.cancel()
        await asyncio.wait([writing])
        result.cpu_s = (family_cpu_s(a.pid) - used[0], family_cpu_s(b.pid) - used[1])
        result.peak_bytes = (family_peak_bytes(a.pid), family_peak_bytes(b.pid))
    return result


async def _write_on(a: Process, seen: sqlite3.Connection, result: CatchUp) -> None:
    written = 0
    while True:
        key = f"live{written}"
        begun = time.perf_counter()
        await a.client.put(TABLE, {"id": key}, {"title": "one row"})
        while not number(seen, f"SELECT count(*) FROM {TABLE} WHERE id = ?", key):  # noqa: ASYNC110
            await asyncio.sleep(LOOK_S)
        result.late_ms.append((time.perf_counter() - begun) * 1000)
        written += 1
        await asyncio.sleep(PAUSE_S)
