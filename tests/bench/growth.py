"""How the store grows: apply rate, bytes and memory with ever more events in the log. A measurement, not a test:

    python tests/bench/growth.py [--sizes 10000 100000 1000000] [--measure 10000] [--rows 0]

Events are made and verified on the way, and applied durably (WAL, synchronous=FULL, a transaction per batch). At each
size the next `--measure` events are timed; `--rows` is the number of rows that they are spread over, 0 a tenth of the
largest size. Without `--folder` the database lies in the temporary folder.
"""

from __future__ import annotations

import argparse
import resource
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
            lambda tx, checked=checked: commit_events(  # type: ignore[misc]
                context, tx, checked, author_stream=True, scope=Scope(), peer=peer
            )
        )
    return time.perf_counter() - wall, time.process_time() - cpu


def _report(bench: Bench, size: int, count: int, seconds: tuple[float, float]) -> None:
    disk = sum(path.stat().st_size for path in bench.path.parent.glob(bench.path.name + "*"))
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{size:9,} in the log: {count / seconds[0]:8,.0f} events/s ({seconds[1] / count * 1e6:5.1f} µs of CPU each), "
        f"{disk / (size + count):6.0f} bytes per event, at most {memory:5.0f} MiB of memory",
        flush=True,
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--sizes", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--measure", type=int, default=10_000)
    parser.add_argument("--rows", type=int, default=0)
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    rows = options.rows or max(options.sizes) // 10
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        bench = Bench(Path(folder), durable=True)
        bench.engine.register_table(TABLE)
        written = 0
        for size in sorted(options.sizes):
            while written < size:
                count = min(size - written, 20 * BATCH)
                _apply(bench, _events(bench, written, count, rows))
                written += count
            data = _events(bench, written, options.measure, rows)
            _report(bench, written, len(data), _apply(bench, data))
            written += len(data)
        bench.engine.close()


if __name__ == "__main__":
    main()
