"""The tables of an attached app's database, made as those of the node are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from meshnode.errors import RegistrationError
from meshnode.node.projectionviews import ColumnShape, TableShape
from meshnode.store.database import Tx
from meshnode.store.destinations import open_destination, table_exists
from meshnode.store.names import TableEntry, TableNumbers
from meshnode.store.tables import Destination, quote

SCHEMA: Final = "main"  # of all of them here, whatever it is at the node


def entry_of(tx: Tx, name: str) -> TableEntry:
    """What is stored of one table here."""
    return TableNumbers().entry(tx, SCHEMA, name)


def is_there(tx: Tx, name: str) -> bool:
    """Whether it is still as it was made: the file is the app's, too."""
    entry = entry_of(tx, name)
    return entry.registered and isinstance(open_destination(tx, entry), Destination)


def follow(tx: Tx, known: Mapping[str, TableShape], told: Iterable[TableShape]) -> bool:
    """Make what is new, and anew what is another; whether rows of what was there already are to be told again.

    RegistrationError where the app has a table of its own under such a name.
    """
    again = False
    for shape in told:
        before = known.get(shape.name)
        if before == shape:
            continue
        again = again or before is not None
        if before is not None and _only_gained(before, shape):
            for column in shape.columns[len(before.columns) :]:
                tx.execute(f"ALTER TABLE main.{quote(shape.name)} ADD COLUMN {_declared(column)}")
        else:
            _make(tx, shape)
    return again


def _make(tx: Tx, shape: TableShape) -> None:
    entry = entry_of(tx, shape.name)
    if entry.registered:
        tx.execute(f"DROP TABLE IF EXISTS main.{quote(shape.name)}")
        tx.execute("DELETE FROM meshnode_rows WHERE table_no = ?", (entry.no,))
    elif table_exists(tx, shape.name):
        raise RegistrationError(
            f"the app's database has a table {shape.name!r} of its own, and the schema has one of that name: rename "
            "the app's, or attach another database"
        )
    parts = [*(f"{_declared(each)} NOT NULL" for each in shape.key), *map(_declared, shape.columns)]
    parts.append(f"PRIMARY KEY ({', '.join(quote(each.name) for each in shape.key)})")
    options = ["STRICT"] if shape.strict else []
    if len(shape.key) == 1 and shape.key[0].type == "INTEGER" and not shape.rowid_key:
        options.append("WITHOUT ROWID")  # else the key would be the rowid, which keeps integers alone
    tx.execute(f"CREATE TABLE main.{quote(shape.name)} ({', '.join(parts)}) {', '.join(options)}")
    numbers = TableNumbers()
    numbers.mark_registered(tx, numbers.entry(tx, SCHEMA, shape.name), own_numbers=True)


def _only_gained(before: TableShape, now: TableShape) -> bool:
    same = (before.key, before.strict, before.rowid_key) == (now.key, now.strict, now.rowid_key)
    return same and now.columns[: len(before.columns)] == before.columns


def _declared(column: ColumnShape) -> str:
    return f"{quote(column.name)} {column.type}"
