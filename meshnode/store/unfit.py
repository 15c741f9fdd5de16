"""All that keeps tables from being destinations, with SQL that mends one thing after the other (profile §5).

Some of it makes a table again from its own text, so what mends the second thing has to be made of the text that the
first left behind. It is tried out on a database in memory that has the same tables and no rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from types import ModuleType
from typing import Any, Final

from meshnode.errors import RegistrationError
from meshnode.store.database import Tx, UnreadableText, no_fault
from meshnode.store.destinations import Fault, faults
from meshnode.store.mending import written
from meshnode.store.names import TableEntry

_MOST: Final = 64  # things wrong with one table that are told


def ordinary(tx: Tx) -> list[str]:
    """The tables of the application: no views or virtual tables, none of SQLite's or the node's.

    RegistrationError where no event can say the name of one.
    """
    found = tx.execute("SELECT name FROM pragma_table_list WHERE schema = 'main' AND type = 'table' ORDER BY name")
    names = [name for (name,) in found.fetchall()]
    for name in names:
        if isinstance(name, UnreadableText):
            raise RegistrationError(
                f"the name of table {bytes(name)!r} is not UTF-8: rename it, or name the tables to adopt"
            )
    return [name for name in names if not name.lower().startswith(("sqlite_", "meshnode_"))]


def all_faults(tx: Tx, sqlite: ModuleType, tables: Iterable[tuple[str, str]], *, own_numbers: bool) -> Iterator[Fault]:
    """What is wrong with each, in the order in which it is to be mended."""
    with closing(sqlite.connect(":memory:", isolation_level=None)) as scratch:
        _copy_schema(tx, sqlite, scratch)
        for schema, name in tables:
            entry = TableEntry(schema, name, None)
            found = faults(tx, entry, own_numbers=own_numbers)
            for _ in range(_MOST):
                if not found:
                    break
                yield found[0]
                if not _is_mended(sqlite, scratch, found[0]):
                    yield from found[1:]
                    break
                found = faults(Tx(scratch, no_fault), entry, own_numbers=own_numbers)


def _copy_schema(tx: Tx, sqlite: ModuleType, scratch: Any) -> None:
    found = tx.execute("SELECT sql FROM main.sqlite_master WHERE sql IS NOT NULL ORDER BY rowid").fetchall()
    for (sql,) in found:
        with suppress(sqlite.Error):  # a module or a function that only the application has
            scratch.execute(written(sql))


def _is_mended(sqlite: ModuleType, scratch: Any, fault: Fault) -> bool:
    if not fault.sql:
        return False
    try:
        scratch.executescript(fault.sql)
    except sqlite.Error:
        if scratch.in_transaction:
            scratch.execute("ROLLBACK")
        return False
    return True
