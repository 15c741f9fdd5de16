"""The database of an attached app: one schema of a node, copied, with the position up to which it is.

Each page of the node is one transaction, with the position that it leads to: whatever ends the app in between, the next
page is the one that follows. The copy is not written to be on the disk at once: what a power cut takes, the node tells
again. The tables beside those of the schema are the app's own.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from itertools import groupby
from typing import Final

import msgspec

from meshnode.errors import BusyError, ConfigError, CorruptStateError, StoreError
from meshnode.node import projectiontables
from meshnode.node.databases import DatabaseFile
from meshnode.node.projectionrows import Feed, Rows, Sweep, Told
from meshnode.node.projectionviews import ProjectionPage, TableShape
from meshnode.store import changes, meta, schema
from meshnode.store.database import Tx

IDLE_PAGES: Final = 256  # changes of other schemas that are passed over before the position is written

_NAME: Final = meta.PROJECTION


class Attachment(msgspec.Struct, frozen=True, kw_only=True):
    """What the database is a copy of, and how far; without an epoch every row is to be told."""

    schema: str
    mesh: str = ""
    site: str = ""
    epoch: str = ""
    seq: int = 0
    erasing: bool = False  # a row was forgotten at the node, and which one shows only when all are told
    shapes: list[TableShape] = []

    def lost(self) -> Attachment:
        """Every row is to be told."""
        return msgspec.structs.replace(self, epoch="", seq=0)


class Projection:
    """Writes the database. Used on one thread, but for `at`."""

    def __init__(self, file: DatabaseFile, schema_name: str, wall_ms: Callable[[], int]) -> None:
        """ConfigError for a database of something else; StoreError where it cannot be used."""
        self._database = file.writer()
        try:
            self._database.commit_early()
            self._database.overwrite_deleted()
            with self._database.transaction() as tx:
                self.at = _opened(tx, file, schema_name, wall_ms)
        except BaseException:
            self._database.close()
            raise
        self._stored = self.at
        self._sweep: Sweep | None = None

    def apply(self, page: ProjectionPage) -> bool:
        """Make it as the page says, all of it or nothing; whether the pages that follow can be applied.

        Otherwise the node has to be asked again, from `at`. ConfigError for a page of another mesh.
        """
        if self.at.mesh not in ("", page.mesh):
            raise ConfigError("this database is a copy of another mesh: attach a database of its own to this node")
        if self._is_idle(page):
            self.at = msgspec.structs.replace(self.at, seq=page.seq)
            return True
        erased = self.at.erasing and page.rows in ("last", "all")
        sweep = self._sweep
        try:
            with self._database.transaction() as tx:
                now, sweep = self._applied(tx, page)
                meta.write(tx, meta.MESH_ID, bytes.fromhex(now.mesh))
                meta.write(tx, meta.SITE, bytes.fromhex(now.site))
                meta.write(tx, _NAME, msgspec.json.encode(now))
        except BaseException:
            self._sweep = None
            raise
        self.at, self._stored, self._sweep = now, now, sweep
        if erased:
            self._erase()
        return bool(now.epoch) or sweep is not None

    def close(self) -> None:
        """Keep the position, and close the database."""
        with suppress(StoreError):
            if self.at != self._stored:
                with self._database.transaction() as tx:
                    meta.write(tx, _NAME, msgspec.json.encode(self.at))
        self._database.close()

    def _is_idle(self, page: ProjectionPage) -> bool:
        """Whether it only tells that other schemas changed."""
        if page.changes or page.rows or page.tables is not None or page.site != self.at.site:
            return False
        return page.epoch == self.at.epoch and page.seq - self._stored.seq < IDLE_PAGES

    def _applied(self, tx: Tx, page: ProjectionPage) -> tuple[Attachment, Sweep | None]:
        begins = page.rows in ("first", "all")
        now, known = self.at, {each.name: each for each in self.at.shapes}
        again = now.site not in ("", page.site) or (self._sweep is None and page.rows in ("more", "last"))
        if page.tables is not None:
            again = projectiontables.follow(tx, known, page.tables) or again
            known.update({each.name: each for each in page.tables})
        now = msgspec.structs.replace(now, mesh=page.mesh, site=page.site, shapes=list(known.values()))
        if again and not begins:
            return now.lost(), None
        feed = Feed(tx)
        if not page.rows:
            forgot = _apply_changes(tx, feed, page)
            feed.end()
            if forgot:
                return msgspec.structs.replace(now.lost(), erasing=True), None
            return msgspec.structs.replace(now, epoch=page.epoch, seq=page.seq), None
        sweep = Sweep() if begins or self._sweep is None else self._sweep
        return self._told(tx, feed, page, now, sweep)

    def _told(
        self, tx: Tx, feed: Feed, page: ProjectionPage, now: Attachment, sweep: Sweep
    ) -> tuple[Attachment, Sweep | None]:
        """Rows in the place of changes: what differs is a change, and what is not told is not there any more."""
        if now.erasing and page.rows in ("first", "all"):
            tx.execute("DELETE FROM meshnode_changes")  # they have what the row held
        sweeping = feed.silent() if now.erasing else feed
        for name, group in groupby(page.changes, lambda each: each.change.table):
            rows, told = Rows(tx, name), [Told.of(each) for each in group]
            sweep.rows(tx, sweeping, name, rows, told)
            rows.compare(feed, told)
        if page.rows in ("first", "more"):
            feed.end()
            return now.lost(), sweep
        sweep.end(tx, sweeping, [each.name for each in now.shapes])
        feed.end()
        return msgspec.structs.replace(now, epoch=page.epoch, seq=page.seq, erasing=False), None

    def _erase(self) -> None:
        """Leave nothing of what was forgotten in free pages and WAL; as far as others let it."""
        with suppress(StoreError, BusyError):
            self._database.rewrite()
            self._database.empty_wal(wait_ms=0)


def _apply_changes(tx: Tx, feed: Feed, page: ProjectionPage) -> bool:
    """Each with its row as it is now; whether a row was forgotten."""
    tables: dict[str, tuple[Rows, list[Told]]] = {}
    for each in page.changes:
        name = each.change.table
        if name not in tables:
            tables[name] = Rows(tx, name), []
        rows, told = tables[name]
        told.append(change := Told.of(each))
        feed.told(rows.number, change)
    for rows, told in tables.values():
        rows.write([each for each in told if each.change.op != changes.FORGET])
    return any(each.change.op == changes.FORGET for each in page.changes)


def _opened(tx: Tx, file: DatabaseFile, schema_name: str, wall_ms: Callable[[], int]) -> Attachment:
    if schema.is_present(tx) and meta.read(tx, _NAME) is None:
        raise ConfigError(f"{file.path} is a node's own database: attach another file, which the app keeps for itself")
    schema.migrate(tx)
    stored = meta.read(tx, _NAME)
    if stored is None:
        # So high that a number from a copy that was lost is below, and whoever comes with it is told every row.
        meta.write(tx, meta.NEXT_CHANGE, wall_ms() * 1000)
        fresh = Attachment(schema=schema_name)
        meta.write(tx, _NAME, msgspec.json.encode(fresh))
        return fresh
    try:
        found = msgspec.json.decode(stored, type=Attachment)
    except msgspec.MsgspecError as error:
        raise CorruptStateError(f"what {file.path} is a copy of cannot be read: remove it, and it is made again") from (
            error
        )
    if found.schema != schema_name:
        raise ConfigError(f"{file.path} is a copy of schema {found.schema!r}: attach another file for {schema_name!r}")
    there = [each for each in found.shapes if projectiontables.is_there(tx, each.name)]
    return found if len(there) == len(found.shapes) else msgspec.structs.replace(found.lost(), shapes=there)
