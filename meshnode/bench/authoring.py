"""The author rate: rows written at a node of this process, with no network, each one signed and on disk."""

from __future__ import annotations

import time
from pathlib import Path

from meshnode.bench.durability import fsyncs, wal_sequence
from meshnode.bench.figures import Author
from meshnode.bench.homes import event_bytes, founded, looking_at
from meshnode.bench.workload import TABLE, TRANSACTION_ROWS, key, row, values
from meshnode.node.local import open_local


async def author(folder: Path, seconds: float) -> Author:
    """Transactions of 500 for so long, then one row at a time."""
    home = await founded(folder)
    async with open_local(home, writing=True) as node:
        commits, sequence = node.storage.meter.commits, wal_sequence(home.database_path)
        before, done, begun = commits.read()[0][-1], 0, time.perf_counter()
        while (taken := time.perf_counter() - begun) < seconds:
            await node.import_rows(TABLE, [row(number) for number in range(done, done + TRANSACTION_ROWS)])
            done += TRANSACTION_ROWS
        synced = fsyncs(commits.read()[0][-1] - before, sequence, wal_sequence(home.database_path))
        rate = done / taken
        singles, begun = 0, time.perf_counter()
        while (taken := time.perf_counter() - begun) < seconds:
            await node.put(TABLE, key(done + singles), values(done + singles))
            singles += 1
    with looking_at(home.database_path) as database:
        size = event_bytes(database)
    return Author(per_s=rate, fsyncs_per_1000=synced / done * 1000, single_per_s=singles / taken, event_bytes=size)
