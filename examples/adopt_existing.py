"""An application that knows nothing of a mesh: its database is adopted, and what is written by SQL appears elsewhere.

Two devices in one folder. The desk's database has rows; the lap's has the same table and none. Once both are adopted,
one of them is written by SQLite's own command-line tool and the other by Python.
"""

import asyncio
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path

from meshnode import Node, join

TABLE = "CREATE TABLE tasks (id TEXT PRIMARY KEY, title TEXT, done INTEGER NOT NULL DEFAULT 0)"


def by_python(database: Path, *statements: str) -> list[tuple[object, ...]]:
    """What an application does; returns the rows of the last statement."""
    with closing(sqlite3.connect(database)) as connection, connection:
        for statement in statements:
            rows = connection.execute(statement).fetchall()
        return rows


def by_shell(database: Path, sql: str) -> None:
    """The same with the tool that comes with SQLite, where it is installed."""
    tool = shutil.which("sqlite3")
    if tool:
        subprocess.run([tool, "-cmd", ".timeout 5000", database, sql], check=True)
    else:
        by_python(database, sql)


def meshnode(home: Path, *arguments: str) -> None:
    """One verb, as on the command line."""
    subprocess.run(
        [sys.executable, "-m", "meshnode", "--home", home, *arguments], check=True, stdout=subprocess.DEVNULL
    )


async def main(folder: Path) -> None:
    desk, lap = folder / "desk.db", folder / "lap.db"
    for database in (desk, lap):
        database.touch(0o600)
    by_python(desk, TABLE, "INSERT INTO tasks (id, title) VALUES ('t1', 'Milk'), ('t2', 'Bread')")
    by_python(lap, TABLE)

    async with Node(folder / "desk") as node:  # found a mesh, and let the other device in
        invite = await node.invite()
        await join(folder / "lap", invite.invite, name="lap")
    for home, database in ((folder / "desk", desk), (folder / "lap", lap)):
        await asyncio.to_thread(meshnode, home, "adopt", str(database))

    async with Node(folder / "desk") as at_desk, Node(folder / "lap") as at_lap:
        await at_lap.until("SELECT id FROM tasks", when=lambda tasks: len(tasks) == 2)
        by_shell(lap, "UPDATE tasks SET done = 1 WHERE id = 't1'")
        await at_desk.until("SELECT id FROM tasks WHERE id = 't1' AND done")
        by_python(desk, "DELETE FROM tasks WHERE id = 't2'")
        await at_lap.until("SELECT id FROM tasks", when=lambda tasks: tasks == [{"id": "t1"}])
        print("both devices have", by_python(lap, "SELECT * FROM tasks"))

    await asyncio.to_thread(meshnode, folder / "desk", "release")  # an ordinary database again
    print("left on the desk:", by_python(desk, "SELECT name FROM sqlite_master WHERE type = 'table'"))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        asyncio.run(main(Path(name)))
