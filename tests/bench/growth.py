"""How the store grows: apply rate, bytes and memory with ever more events in the log. A measurement, not a test:

    python tests/bench/growth.py [--sizes 10000 100000 1000000] [--rows 10000] [--measure 5120] [--rounds 5]

Events are made and verified on the way, and applied durably (WAL, synchronous=FULL, a transaction per batch). First a
database of each size is written; then, round by round, a copy of each takes in `--measure` further events, so that a
busy moment of the machine strikes every size alike. `--rows` is the number of rows that the events are spread over,
in every database; with 0 it is a tenth of the size, so that tables grow as well as logs. The ratios are of the
medians to that of the smallest size.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from support.engines import Bench
from support.mesh_context import START_MS
from support.records import site_key

from meshnode.engine.commit import commit_events
from meshnode.engine.registry import TableSpec
from meshnode.model.scope import Scope

BATCH = 512
TABLE = TableSpec(
    "main", "items", {"id": "TEXT"}, {"title": "TEXT", "done": "INTEGER", "amount": "REAL", "note": "TEXT"}
)


def _events(bench: Bench, first: int, count: int, rows: int) -> list[bytes]:
    """Writes of site 2, each to one column more than the key needs, in the order of their clocks."""
    return [
        bench.event(
            2,
            (START_MS - 10_000_000_000 + number, 0),
            {"id": f"item-{number * 7919 % rows:08}"},
            {"title": f"Title {number}", "done": number % 2, "amount": number / 2, "note": "some words of text"},
            table="items",
        ).data
        for number in range(first, first + count)
    ]


def _batches(data: list[bytes]) -> Iterator[list[bytes]]:
    for start in range(0, len(data), BATCH):
        yield data[start : start + BATCH]


def _apply(bench: Bench, data: list[bytes]) -> tuple[float, float]:
    """Verify and apply; returns wall and CPU seconds."""
    context, peer = bench.engine.context, site_key(2).site
    wall, cpu = time.perf_counter(), time.process_time()
    for batch in _batches(data):
        checked = bench.engine.verify(batch)
        context.transact(
            lambda tx, checked=checked: commit_events(
                context, tx, checked, author_stream=True, scope=Scope(), peer=peer
            )
        )
    return time.perf_counter() - wall, time.process_time() - cpu


def _built(folder: Path, size: int, rows: int) -> Bench:
    """A database with that many events in its log, closed."""
    folder.mkdir()
    bench = Bench(folder, durable=True)
    bench.engine.register_table(TABLE)
    for first in range(0, size, 20 * BATCH):
        _apply(bench, _events(bench, first, min(20 * BATCH, size - first), rows))
    bench.engine.close()
    return bench


def _measured(bench: Bench, size: int, count: int, rows: int) -> tuple[float, float]:
    """Further events into a copy of the database."""
    with tempfile.TemporaryDirectory(dir=bench.path.parent.parent) as folder:
        copy = Path(folder) / bench.path.name
        shutil.copyfile(bench.path, copy)
        bench.path, original = copy, bench.path
        bench.reopen()
        data = _events(bench, size, count, rows)
        seconds = _apply(bench, data)
        bench.engine.close()
        bench.path = original
    return seconds


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--sizes", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--measure", type=int, default=5_120)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    sizes = sorted(options.sizes)
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        rows = {size: options.rows or size // 10 for size in sizes}
        benches = {size: _built(Path(folder) / str(size), size, rows[size]) for size in sizes}
        taken: dict[int, list[tuple[float, float]]] = {size: [] for size in sizes}
        for _ in range(options.rounds):
            for size, bench in benches.items():
                taken[size].append(_measured(bench, size, options.measure, rows[size]))
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        wall = {size: statistics.median(each[0] for each in taken[size]) for size in sizes}
        cpu = {size: statistics.median(each[1] for each in taken[size]) for size in sizes}
        for size in sizes:
            rate = options.measure / wall[size]
            print(
                f"{size:9,} in the log: {rate:8,.0f} events/s ({wall[sizes[0]] / wall[size]:.2f}), "
                f"{cpu[size] / options.measure * 1e6:5.1f} µs of CPU each ({cpu[sizes[0]] / cpu[size]:.2f}), "
                f"{benches[size].path.stat().st_size / size:6.0f} bytes per event"
            )
        print(f"at most {memory:.0f} MiB of memory")


if __name__ == "__main__":
    main()
