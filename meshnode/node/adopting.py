"""An application's database becomes the node's own, and is given back: `adopt` and `release` (profile §5).

While nothing runs here. The node's tables are copied into the other file, the settings name that, and only then are
they taken out of the first one, so a stop anywhere leaves one whole node; done again, it goes on. The application may
run meanwhile: it waits for one transaction, which is short unless the node's own log is long.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TypeAlias

from meshnode.engine.engine import Engine
from meshnode.engine.registry import TableSpec
from meshnode.errors import NotFoundError, RegistrationError, StoreError, UsageError
from meshnode.node.adoptviews import AdoptedView, ReleasedView
from meshnode.node.databases import DatabaseFile, create_private, database_of, is_encrypted
from meshnode.node.home import Home
from meshnode.node.homepath import DATABASE
from meshnode.node.moved import refuse_moved
from meshnode.node.storage import environment
from meshnode.node.views import parse_class, parse_table, table_text
from meshnode.store import meta, schema, transplant
from meshnode.store.database import Database, Timing, Tx
from meshnode.store.unfit import all_faults, ordinary

Tell: TypeAlias = Callable[[int, int], None]
"""How many rows are signed, and of how many."""


class UnfitError(RegistrationError):
    """Tables that cannot be adopted as they stand: a text for each thing that is wrong, with the SQL that mends it."""

    def __init__(self, path: Path, problems: Sequence[str]) -> None:
        super().__init__(f"nothing of {path} was adopted: {len(problems)} to mend; " + "; ".join(problems))
        self.problems = list(problems)


async def adopt(
    home: Home,
    path: Path,
    tables: Sequence[str] = (),
    *,
    own_numbers: bool = False,
    table_class: str | None = None,
    tell: Tell = lambda _signed, _rows: None,
) -> AdoptedView:
    """Make these tables of a database sync, or all that it has; `home` is locked and its node does not run.

    Raises UnfitError, with nothing changed, where one cannot. `tell` hears on another thread how far signing is.
    """
    return await asyncio.to_thread(_adopt, home, path, tables, own_numbers, table_class, tell)


async def release(home: Home, path: Path | None = None) -> ReleasedView:
    """Take the node's tables out of an adopted database and leave the application's as they are."""
    return await asyncio.to_thread(_release, home, path)


def _adopt(
    home: Home, path: Path, tables: Sequence[str], own_numbers: bool, table_class: str | None, tell: Tell
) -> AdoptedView:
    path = path.absolute()
    wanted = None if table_class is None else parse_class(table_class)
    _refuse_strange(home, path)
    names = _fit_tables(path, tables, own_numbers=own_numbers)
    if not _is_same(path, home.database_path):
        if home.config.database:
            raise UsageError(
                f"the node's tables are in {home.database_path}: adopt that, or `meshnode release` it first"
            )
        _move_in(home, path)
    _remove_leftover(home)
    with _engine(home) as engine:
        before = engine.context.next_position
        engine.adopt_tables([TableSpec(*name, own_numbers=own_numbers, table_class=wanted) for name in names])
        rows = _rows_of(engine, names)
        tell(0, rows)
        engine.context.db.commit_early()  # nobody was told of these events: what a power cut undoes is signed anew
        while engine.sign_captured():
            tell(engine.context.next_position - before, rows)
        engine.context.db.commit_durably()
        signed = engine.context.next_position - before
        tell(signed, signed)
    return AdoptedView(
        database=str(path),
        tables=[table_text(*name) for name in names],
        signed=signed,
        readable_by_others=os.name == "posix" and bool(path.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH)),
    )


def _refuse_strange(home: Home, path: Path) -> None:
    if not path.is_file():
        raise NotFoundError(f"there is no database {path}")
    if is_encrypted(path):
        raise UsageError(
            f"{path} is an encrypted database, or none at all: tables of an encrypted one cannot be adopted, since "
            "the node has no key to it; let the node keep a copy of them in its own database (`meshnode table add`)"
        )
    if is_encrypted(home.database_path):
        raise UsageError(
            "a node whose own database is encrypted cannot adopt tables: whoever writes them by plain SQL has no key; "
            "register them with `meshnode table add` and write through the node"
        )
    refuse_moved(home)


def _is_same(path: Path, other: Path) -> bool:
    return other.exists() and path.samefile(other)


# --- which tables


def _fit_tables(path: Path, tables: Sequence[str], *, own_numbers: bool) -> list[tuple[str, str]]:
    """The names of those to adopt; UnfitError with all that is wrong with any of them."""
    with closing(DatabaseFile(path).reader()) as reader, reader.snapshot() as tx:
        named = [parse_table(table) for table in tables] or [parse_table(name) for name in ordinary(tx)]
        problems = [fault.text for fault in all_faults(tx, sqlite3, named, own_numbers=own_numbers)]
    if problems:
        raise UnfitError(path, problems)
    if not named:
        raise NotFoundError(f"{path} has no tables to adopt")
    return named


def _rows_of(engine: Engine, names: Sequence[tuple[str, str]]) -> int:
    """How many rows there are to look at."""
    with engine.context.transaction() as tx:
        return sum(
            int(tx.execute(f"SELECT count(*) FROM {destination.quoted} NOT INDEXED").fetchone()[0])  # noqa: S608
            for entry in engine.context.tables.registered(tx)
            if (entry.schema, entry.name) in names
            and (destination := engine.context.destination(tx, entry)) is not None
        )


# --- in


def _move_in(home: Home, path: Path) -> None:
    """The node's tables go into the application's file; there is one copy that the settings name, at any moment."""
    old = home.database_path
    with _engine(home) as engine:  # brings its format up to date
        site = engine.context.site
        tables = [entry.text for entry, destination in engine.tables() if destination is not None]
    journal = _journal_of(path)
    with closing(DatabaseFile(path).writer()) as database, database.beside(old), database.transaction() as tx:
        _clear(tx, path, site)
        transplant.bring(tx, tables)
        meta.write(tx, transplant.JOURNAL, journal)
    home.change_setting("database", str(path))  # from here on the file that it had is a leftover


def _clear(tx: Tx, path: Path, site: bytes) -> None:
    """What an attempt that was cut short left there; nothing of an application's, whatever its name."""
    if not schema.is_present(tx):
        if names := schema.names_in_use(tx):
            raise StoreError(
                f"{path} has {', '.join(map(repr, names))}: tables of the node are named so, rename or drop yours first"
            )
        return
    _refuse_copy(tx, path)
    found = transplant.site_in(tx)
    if found not in (None, site):
        raise StoreError(f"the database {path} belongs to another node: release it there first")
    transplant.clear(tx)


def _refuse_copy(tx: Tx, path: Path) -> None:
    """The file of an attached app has tables of the same names."""
    if schema.is_present(tx) and meta.read(tx, meta.PROJECTION) is not None:
        raise StoreError(f"{path} is the copy that an attached app has of this mesh: it is not adopted, nor released")


def _journal_of(path: Path) -> str:
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as connection:
        return str(connection.execute("PRAGMA journal_mode").fetchone()[0])


def _unlink(path: Path) -> None:
    for suffix in ("-wal", "-shm", ""):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def _remove_leftover(home: Home) -> None:
    """The node's own file, where it is not the one that counts any more."""
    own = home.path / DATABASE
    if home.database_path != own:
        _unlink(own)


# --- out


def _release(home: Home, path: Path | None) -> ReleasedView:
    used = home.database_path
    adopted = home.config.database != ""
    path = path.absolute() if path is not None else used if adopted else None
    if path is None:
        raise UsageError("no database is adopted here: name the one to take the node's tables out of")
    if not path.is_file():
        raise NotFoundError(f"there is no database {path}")
    tables: list[str] = []
    if adopted and _is_same(path, used):
        site, tables = _move_out(home, path)
    else:
        with closing(database_of(home).reader()) as reader, reader.snapshot() as tx:
            site = transplant.site_in(tx) or b""
    with closing(DatabaseFile(path).writer()) as database:
        _take_out(database, site)
    return ReleasedView(database=str(path), tables=tables)


def _move_out(home: Home, path: Path) -> tuple[bytes, list[str]]:
    """The node's tables go back into a file of their own; what the application wrote until now is signed first."""
    with _engine(home) as engine:
        while engine.sign_captured():
            pass
        site = engine.context.site
        tables = [entry.text for entry, _ in engine.tables()]
    own = home.path / DATABASE
    _unlink(own)
    create_private(own)
    with closing(DatabaseFile(own).writer()) as database, database.beside(path), database.transaction() as tx:
        transplant.bring(tx, ())
        transplant.unregister(tx, tables)
    home.change_setting("database", "")
    return site, tables


def _take_out(database: Database, site: bytes) -> None:
    database.overwrite_deleted()
    with database.transaction() as tx:
        _refuse_copy(tx, database.path)
        if transplant.site_in(tx) not in (None, site):
            raise StoreError(f"the database {database.path} belongs to another node: release it there")
        journal = meta.read(tx, transplant.JOURNAL) if transplant.site_in(tx) is not None else None
        transplant.take_out(tx)
    with suppress(StoreError):  # another program reads on: what was deleted is in the WAL until its next checkpoint
        database.empty_wal(0)
    if journal is not None:
        database.keep_journal(str(journal))


@contextmanager
def _engine(home: Home) -> Iterator[Engine]:
    key = home.site_key()
    file = database_of(home, key)
    turns = Timing(time.monotonic, sleep=time.sleep)  # the application has its own between two transactions
    engine = Engine.open(file.writer(turns), environment(file), key)
    try:
        yield engine
    finally:
        engine.close()
