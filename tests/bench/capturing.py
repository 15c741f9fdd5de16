"""What adopting costs an application, and how late its SQL is a row elsewhere, on a machine that does nothing else.

`python tests/bench/capturing.py` times the same writes to a plain table and to an adopted one, a transaction each and
in bulk, from this process and with no node running; then how long a write by SQL takes to be a visible row of another
node on loopback, at the median; and what the pair costs while nothing happens.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from support.nodes import free_port, linked, loopback

from meshnode import Config, Home, Node, join
from meshnode.cli.main import main as meshnode
from meshnode.node.founding import found

ROWS = 100_000  # of a bulk write
SINGLE = 2_000  # writes in a transaction each
ROUNDS = 3
WRITES = 60  # that are followed to the other node
IDLE_S = 10.0
CREATE = "CREATE TABLE notes (id TEXT PRIMARY KEY, title TEXT, body TEXT, done INTEGER, at REAL)"

Work = Callable[[sqlite3.Connection], None]


def row(number: int) -> tuple[str, str, str, int, float]:
    """One row as an application might have it."""
    return f"row-{number:08}", f"title {number}", "some text of a note, not long", number % 2, number * 1.5


def _bulk(sql: str, rows: Callable[[], Iterator[tuple[object, ...]]]) -> Work:
    def work(app: sqlite3.Connection) -> None:
        app.execute("BEGIN")
        app.executemany(sql, rows())
        app.execute("COMMIT")

    return work


def _one_by_one(sql: str, rows: Callable[[], Iterator[tuple[object, ...]]]) -> Work:
    def work(app: sqlite3.Connection) -> None:
        for values in rows():
            app.execute(sql, values)

    return work


INSERT, UPDATE = "INSERT INTO notes VALUES (?, ?, ?, ?, ?)", "UPDATE notes SET title = ?, done = 1 WHERE id = ?"
WORKS: dict[str, Work] = {
    "bulk insert": _bulk(INSERT, lambda: map(row, range(ROWS))),
    "bulk update": _bulk(UPDATE, lambda: ((f"new {n}", f"row-{n:08}") for n in range(ROWS))),
    "one statement": lambda app: app.execute("UPDATE notes SET title = title || '.'") and None,
    "one number": lambda app: app.execute("UPDATE notes SET done = 1 - done") and None,
    "single insert": _one_by_one(INSERT, lambda: map(row, range(ROWS, ROWS + SINGLE))),
    "single update": _one_by_one(UPDATE, lambda: ((f"newer {n}", f"row-{n:08}") for n in range(SINGLE))),
    "bulk delete": lambda app: app.execute("DELETE FROM notes WHERE at >= 0") and None,
}


def costs(path: Path) -> dict[str, float]:
    """Seconds of each kind of write."""
    found = {}
    with closing(sqlite3.connect(path, isolation_level=None)) as app:
        app.execute("PRAGMA synchronous = NORMAL")
        for name, work in WORKS.items():
            begun = time.perf_counter()
            work(app)
            found[name] = time.perf_counter() - begun
            app.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return found


def database(path: Path) -> Path:
    """An application's database without rows."""
    with closing(sqlite3.connect(path)) as app:
        app.execute("PRAGMA journal_mode = WAL")
        app.execute(CREATE)
    path.chmod(0o600)
    return path


def adopt(home: Path, path: Path) -> None:
    """As the verb does."""
    with contextlib.redirect_stdout(io.StringIO()):
        assert meshnode(["--home", str(home), "adopt", str(path)]) == 0


async def founded(home: Path) -> None:
    """A home with a mesh of its own."""
    place = Home(home, Config())
    place.prepare()
    await found(place, name="bench")


def measure_costs(folder: Path) -> None:
    """Plain and adopted in turn, the best of a few rounds."""
    best: list[dict[str, float]] = [{}, {}]
    for number in range(ROUNDS):
        home = folder / f"home{number}"
        asyncio.run(founded(home))
        for at, adopted in enumerate((False, True)):
            path = database(folder / f"{number}-{at}.db")
            if adopted:
                adopt(home, path)
            for name, seconds in costs(path).items():
                best[at][name] = min(seconds, best[at].get(name, seconds))
    for name in WORKS:
        count = SINGLE if name.startswith("single") else ROWS
        plain, captured = (each[name] * 1e6 / count for each in best)
        print(f"{name:14} plain {plain:7.2f} µs a row, adopted {captured:7.2f}, {captured / plain:.2f} times")


async def measure_latency(folder: Path) -> None:
    """From the commit of one application to a row that another one reads, and then a while of nothing."""
    ports = [free_port(), free_port()]
    homes, apps = [folder / "a", folder / "b"], [database(folder / "a.db"), database(folder / "b.db")]
    async with Node(homes[0], config=loopback(port=ports[0], name="a")) as a:
        await join(homes[1], (await a.invite()).invite, name="b")
    for home, app in zip(homes, apps, strict=True):
        await asyncio.to_thread(adopt, home, app)
    one, two = Node(homes[0], config=loopback(ports[1], port=ports[0])), Node(homes[1], config=loopback(port=ports[1]))
    async with one, two:
        await linked(one, two)
        with (
            closing(sqlite3.connect(apps[0], isolation_level=None)) as writer,
            closing(sqlite3.connect(apps[1])) as reader,
        ):
            late = []
            for number in range(WRITES):
                await asyncio.sleep(0.1 + number % 7 * 0.003)
                writer.execute(INSERT, row(number))
                begun = time.perf_counter()
                while reader.execute("SELECT count(*) FROM notes").fetchone()[0] <= number:  # noqa: ASYNC110
                    await asyncio.sleep(0.001)
                late.append(time.perf_counter() - begun)
        print(
            f"SQL to a visible row elsewhere: median {statistics.median(late) * 1e3:.0f} ms, "
            f"worst {max(late) * 1e3:.0f} ms"
        )
        await asyncio.sleep(2.0)
        begun = time.process_time()
        await asyncio.sleep(IDLE_S)
        print(f"two idle nodes: {(time.process_time() - begun) / IDLE_S * 100:.2f} % of a core")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as given:
        measure_costs(Path(given))
    with tempfile.TemporaryDirectory() as given:
        asyncio.run(measure_latency(Path(given)))
