"""What it costs to take back everything of one member: the longest transaction, and memory. A measurement, not a test:

    python tests/bench/takeback.py [--events 50000] [--others 50000] [--rows 0]

`--events` by the member that is retired and `--others` by another one lie in the log, over `--rows` rows (0: a quarter
of the former). Durable (WAL, synchronous=FULL). Without `--folder` the database lies in the temporary folder.
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from support.engines import Bench, members
from support.mesh_context import START_MS
from support.records import site_key

from meshnode.engine.registry import TableSpec
from meshnode.engine.standing import take_effect
from meshnode.store.database import Tx

BATCH = 512
TABLE = TableSpec(
    "main", "items", {"id": "TEXT"}, {"title": "TEXT", "done": "INTEGER", "amount": "REAL", "note": "TEXT"}
)


def _fill(bench: Bench, site: int, count: int, rows: int) -> None:
    for start in range(0, count, BATCH):
        bench.deliver(
            [
                bench.event(
                    site,
                    (START_MS - 10_000_000_000 + 2 * number + site, 0),
                    {"id": f"item-{number * 7919 % rows:08}"},
                    {
                        "title": f"Title {number}",
                        "done": number % 2,
                        "amount": number / 2,
                        "note": "some words of text",
                    },
                    table="items",
                )
                for number in range(start, min(start + BATCH, count))
            ],
            peer=site,
        )


def _memory_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--events", type=int, default=50_000)
    parser.add_argument("--others", type=int, default=50_000)
    parser.add_argument("--rows", type=int, default=0)
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        bench = Bench(Path(folder), durable=True)
        bench.engine.register_table(TABLE)
        rows = options.rows or options.events // 4
        _fill(bench, 3, options.others, rows)
        _fill(bench, 2, options.events, rows)
        context, before = bench.engine.context, bench.membership
        after = members(site_key(number).public_key for number in (1, 3))

        def decide(tx: Tx) -> None:
            context.set_membership(after)
            take_effect(context, tx, before, after)

        memory, started, taken = _memory_mib(), time.perf_counter(), []
        context.transact(decide)
        taken.append(time.perf_counter() - started)
        more = True
        while more:
            at = time.perf_counter()
            more = bench.engine.follow_schema()
            taken.append(time.perf_counter() - at)
        print(
            f"{options.events:,} events of {options.events + options.others:,} taken back from {rows:,} rows in "
            f"{time.perf_counter() - started:.1f} s and {len(taken)} transactions: the first took "
            f"{taken[0] * 1000:.0f} ms, the longest other {max(taken[1:]) * 1000:.0f} ms; "
            f"memory grew by {_memory_mib() - memory:.0f} MiB",
            flush=True,
        )
        bench.engine.close()


if __name__ == "__main__":
    main()
