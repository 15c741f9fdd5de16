"""How fast verbs answer on a node with a long log, start-up included. A measurement, not a test:

    python tests/bench/answering.py [--events 1000000] [--rows 200000] [--rounds 5] [--folder DIR] [--verbs status]

A home is founded in which this device wrote every event and two members, who were let in and never linked, have none
of them: the most that a peer can be behind. With `--folder` it is kept there, and found again. Each verb is run in a
process of its own, without a running node and with one; told are the shortest of the rounds, what the process used of
a processor in the best of them, and the load of the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from support.records import site_key

from meshnode.engine.engine import Engine
from meshnode.engine.registry import TableSpec
from meshnode.engine.write import LocalChange
from meshnode.node.databases import database_of
from meshnode.node.founding import found
from meshnode.node.home import Home
from meshnode.node.local import open_local
from meshnode.node.storage import environment

ROOT = Path(__file__).parent.parent.parent
BATCH = 5_000
TABLES = ("items", "notes")
VERBS: dict[str, tuple[str, ...]] = {
    "status": ("status",),
    "peers": ("peers",),
    "members": ("members",),
    "tables": ("table", "list"),
    "sync-state": ("sync-state",),
    "frontier": ("frontier",),
    "policy": ("policy", "show"),
    "metrics": ("metrics",),
}


async def _founded(home: Home) -> None:
    await found(home, name="desk")
    async with open_local(home.reloaded(), writing=True) as node:
        for number, name in ((2, "lap"), (3, "pad")):
            await node.vouch(site_key(number).public_key.hex(), name=name)


def build(folder: Path, events: int, rows: int) -> None:
    """Write the home, once."""
    home = Home(folder)
    if not home.founded:
        home.prepare()
        asyncio.run(_founded(home))
    home = home.reloaded()
    key = home.site_key()
    file = database_of(home, key)
    engine = Engine.open(file.writer(), environment(file), key)
    with closing(engine):
        engine.context.db._connection.execute("PRAGMA synchronous = OFF")  # nobody pulls the plug on a measurement
        for name in TABLES:
            engine.register_table(TableSpec("main", name, {"id": "TEXT"}, {"title": "TEXT", "done": "INTEGER"}))
        with file.reader().snapshot() as tx:
            there = tx.execute("SELECT count(*) FROM meshnode_log").fetchone()[0]
        for first in range(there, events, BATCH):
            engine.write([_change(number, rows) for number in range(first, min(first + BATCH, events))])
            if sys.stderr.isatty() or first % 50_000 == 0:
                print(f"{first:,} events", file=sys.stderr)


def _change(number: int, rows: int) -> LocalChange:
    key = {"id": f"row-{number * 7919 % rows:08}"}
    return LocalChange("main", TABLES[number % 2], key, {"title": f"Title {number}", "done": number % 2})


def _environment() -> dict[str, str]:
    """With compiled modules kept, as an installed program has them."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPATH": str(ROOT)}


def _once(folder: Path, verb: tuple[str, ...]) -> tuple[float, float]:
    begun, before = time.perf_counter(), os.times()
    subprocess.run(
        [sys.executable, "-m", "meshnode", "--home", str(folder), *verb],
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=_environment(),
    )
    after = os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return time.perf_counter() - begun, cpu


def measure(folder: Path, verbs: dict[str, tuple[str, ...]], rounds: int) -> dict[str, tuple[float, float]]:
    """The least seconds of the rounds of each verb, by the clock and of a processor; the verbs take turns."""
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in verbs}
    for _ in range(rounds):
        for name, verb in verbs.items():
            taken[name].append(_once(folder, verb))
    return {name: (min(each)[0], min(cpu for _, cpu in each)) for name, each in taken.items()}


def _told(head: str, least: dict[str, tuple[float, float]]) -> None:
    print(f"{head} (load {os.getloadavg()[0]:.1f}):")
    for name, (wall, cpu) in least.items():
        print(f"  {name:12} {wall * 1000:6.0f} ms, {cpu * 1000:6.0f} of a processor")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--verbs", nargs="+", default=list(VERBS), choices=list(VERBS))
    options = parser.parse_args()
    verbs = {name: VERBS[name] for name in options.verbs}
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.folder or Path(scratch) / "home"
        build(folder, options.events, options.rows)
        _told("the program alone, `--version`", measure(folder, {"--version": ("--version",)}, options.rounds))
        _told("without a running node", measure(folder, verbs, options.rounds))
        node = subprocess.Popen(
            [sys.executable, "-m", "meshnode", "--home", str(folder), "up", "--no-mdns"],
            stderr=subprocess.PIPE,
            text=True,
            env=_environment(),
        )
        try:
            assert node.stderr is not None
            while "is up on UDP port" not in (line := node.stderr.readline()):
                assert line, "the node did not start"
            _told("with a running node", measure(folder, verbs, options.rounds))
        finally:
            node.terminate()
            node.wait()


if __name__ == "__main__":
    main()
