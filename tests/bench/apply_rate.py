"""How many events a second one core authors, verifies and applies, durably. A measurement, not a test:

    python tests/bench/apply_rate.py [--events 20000] [--batch 512] [--rows 20000] [--profile]

`durable` means as in production: WAL, synchronous=FULL, one transaction per batch.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from support.engines import Bench
from support.records import site_key

from meshnode.engine.commit import commit_events
from meshnode.engine.registry import TableSpec
from meshnode.engine.write import LocalChange
from meshnode.model.scope import Scope

TABLE = TableSpec(
    "main", "items", {"id": "TEXT"}, {"title": "TEXT", "done": "INTEGER", "amount": "REAL", "note": "TEXT"}
)


def _timed(what: str, count: int, work: Callable[[], object]) -> None:
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    print(f"{what:34} {count / wall:9,.0f} events/s   {cpu / count * 1e6:6.1f} µs of CPU each")


def _author(bench: Bench, events: int, rows: int, batch: int) -> list[bytes]:
    data: list[bytes] = []
    for start in range(0, events, batch):
        changes = [
            LocalChange(
                "main",
                "items",
                {"id": f"item-{number % rows:08}"},
                {"title": f"Title {number}", "done": number % 2, "amount": number / 2, "note": "some words of text"},
            )
            for number in range(start, min(start + batch, events))
        ]
        data.extend(event.data for event in bench.engine.write(changes))
    return data


def _apply(bench: Bench, data: list[bytes], batch: int, *, verify: bool) -> None:
    context, engine, scope, peer = bench.engine.context, bench.engine, Scope(), site_key(1).site
    batches = [data[start : start + batch] for start in range(0, len(data), batch)]
    ready = [] if verify else [engine.verify(each) for each in batches]
    whole = time.process_time()
    for index, each in enumerate(batches):
        checked = engine.verify(each) if verify else ready[index]
        context.transact(
            lambda tx, checked=checked: commit_events(  # type: ignore[misc]
                context, tx, checked, author_stream=True, scope=scope, peer=peer
            )
        )
    if not verify:
        print(f"{'  of it the commit':34} {(time.process_time() - whole) / len(data) * 1e6:9.1f} µs of CPU each")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--events", type=int, default=20_000)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        author = Bench(Path(folder), own=1, name="author.db", durable=True)
        author.engine.register_table(TABLE)
        data: list[bytes] = []
        _timed(
            "author", options.events, lambda: data.extend(_author(author, options.events, options.rows, options.batch))
        )
        print(f"{'  bytes per event':34} {sum(map(len, data)) / len(data):9.0f}")
        receiver = Bench(Path(folder), own=2, name="receiver.db", durable=True)
        receiver.engine.register_table(TABLE)
        _timed("verify", len(data), lambda: receiver.engine.verify(data))
        profile = cProfile.Profile()
        if options.profile:
            profile.enable()
        _timed("verify and apply", len(data), lambda: _apply(receiver, data, options.batch, verify=True))
        profile.disable()
        _timed(
            "verify and apply again (duplicates)", len(data), lambda: _apply(receiver, data, options.batch, verify=True)
        )
        other = Bench(Path(folder), own=3, name="other.db", durable=True)
        other.engine.register_table(TABLE)
        _apply(other, data, options.batch, verify=False)
        assert author.digest("items") == receiver.digest("items") == other.digest("items")
        if options.profile:
            pstats.Stats(profile).sort_stats("tottime").print_stats(30)


if __name__ == "__main__":
    main()
