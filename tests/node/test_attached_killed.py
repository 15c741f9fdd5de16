"""An attached app that dies at any moment goes on where its database is: nothing is missing, and nothing is twice."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

from support.attached import Item, attached, serving_node
from support.nodes import PATIENCE_S

from meshnode import Node, RowChange
from meshnode.node.bell import Bell
from meshnode.node.databases import DatabaseFile
from meshnode.node.projection import Projection
from meshnode.node.projectionviews import ProjectionPage
from meshnode.store import changes

APP = """
import asyncio, sys
from meshnode import attach

async def main():
    async with attach(sys.argv[1], schema="notes", home=sys.argv[2]):
        await asyncio.Event().wait()

asyncio.run(main())
"""
BATCH = 200


async def test_an_app_that_is_killed_goes_on_without_gap_or_duplicate(tmp_path: Path) -> None:
    home, database = tmp_path / "desk", tmp_path / "notes.db"
    async with serving_node(home) as node:
        async with attached(tmp_path, home) as app:
            await app.table("items", Item).create(key="id")
        load = asyncio.create_task(_write(node))
        for _ in range(3):
            before = len(_changes(database))
            process = await asyncio.create_subprocess_exec(sys.executable, "-c", APP, str(database), str(home))
            async with asyncio.timeout(PATIENCE_S):
                while len(_changes(database)) == before:  # it applies
                    await Bell.wait(node.storage.changed.listen(), 0.2)
            process.send_signal(signal.SIGKILL)
            assert await process.wait() == -signal.SIGKILL
            assert not load.done()
            assert (await node.status()).running
        load.cancel()
        await asyncio.gather(load, return_exceptions=True)
        async with attached(tmp_path, home) as app:
            here = sorted([repr(row) async for row in app.table("items").rows()])
        there, after = [], None
        while page := await node.rows("notes.items", after=after):
            there += [repr(row.key | row.columns) for row in page]
            after = page[-1].key
        assert here == sorted(there)
        assert len(here) > 3 * BATCH
        assert _changes(database) == _changes(node.home.database_path)


def _changes(path: Path) -> list[changes.RowChange]:
    """The change sequence, which has each change once, in the order of the node."""
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as plain:
        found = plain.execute("SELECT change FROM meshnode_changes ORDER BY seq").fetchall()
    return [changes.unpack(each) for (each,) in found]


async def _write(node: Node) -> None:
    number = 0
    while True:
        rows = [
            RowChange(key={"id": f"n{number + each:06}"}, columns={"title": f"title {each}", "number": each})
            for each in range(BATCH)
        ]
        await node.import_rows("notes.items", rows)
        await node.put("notes.items", {"id": "the same"}, {"title": "again", "number": number})
        number += BATCH
        await asyncio.sleep(0.05)


async def test_wherever_a_page_is_cut_short_it_is_applied_once(tmp_path: Path) -> None:
    """Every statement of it is one at which the process may end."""
    async with serving_node(tmp_path / "desk") as node:
        await node.add_table("notes.items", {"id": "TEXT"}, {"title": "TEXT", "number": "INTEGER"})
        await node.put("notes.items", {"id": "a"}, {"title": "Milk"})
        pages = [first := await _page(node)]
        await node.put("notes.items", {"id": "a"}, {"title": "Rye", "number": 1})
        await node.put("notes.items", {"id": "b"}, {"title": "Oat"})
        await node.remove("notes.items", {"id": "a"})
        pages.append(await _page(node, first))
    app = _App(tmp_path / "app.db")
    for cut in range(1000):
        app.path.unlink(missing_ok=True)
        ended = app.apply(pages, cut)
        assert app.apply(pages, None) is False
        assert app.holds() == (["b"], 4)
        if not ended:
            break
    assert 20 < cut < 999


class _EndedError(Exception):
    """The process ends here."""


class _App:
    """Applies pages as an app does, and ends at a statement."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._left: int | None = None

    def apply(self, pages: list[ProjectionPage], cut: int | None) -> bool:
        """Those that the database does not have; whether it ended before all were applied."""
        self._left = cut
        projection = Projection(DatabaseFile(self.path), "notes", lambda: 1)
        projection._database._fault = self._fault
        try:
            for page in pages:
                if not projection.at.epoch or projection.at.seq < page.seq:
                    assert projection.apply(page)
        except _EndedError:
            return True
        finally:
            projection._database.close()
        return False

    def holds(self) -> tuple[list[str], int]:
        """The ids of the rows, and how many changes were told."""
        with closing(sqlite3.connect(self.path)) as plain:
            ids = [each for (each,) in plain.execute("SELECT id FROM items ORDER BY id")]
            return ids, plain.execute("SELECT count(*) FROM meshnode_changes").fetchone()[0]

    def _fault(self, _statement: str) -> None:
        if self._left is not None:
            self._left -= 1
            if self._left < 0:
                raise _EndedError


async def _page(node: Node, beyond: ProjectionPage | None = None) -> ProjectionPage:
    position = {} if beyond is None else {"epoch": beyond.epoch, "since": beyond.seq}
    async for page in node.project("notes", **position):  # type: ignore[arg-type]
        return page
    raise AssertionError("the node ended")
