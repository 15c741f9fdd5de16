"""Destinations: real SQLite tables that events are written to, and what makes a table fit to be one (profile §5)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from meshnode.errors import RegistrationError
from meshnode.limits import KEY_COLUMNS, NAME_BYTES
from meshnode.model.event import KeyValue, Scalar
from meshnode.store.affinity import Affinity, affinity_of, key_survives, strict_accepts
from meshnode.store.database import Tx
from meshnode.store.names import TableEntry

_AUTOINCREMENT: Final = re.compile(r"\bAUTOINCREMENT\b", re.IGNORECASE)
_QUOTED: Final = re.compile(
    r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|`(?:[^`]|``)*`|\[[^]]*\]|--[^\n]*|/\*.*?\*/", re.DOTALL
)
_HIDDEN_NORMAL: Final = 0


def quote(name: str) -> str:
    """A name as an SQL identifier, whatever is in it."""
    return '"' + name.replace('"', '""') + '"'


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a destination, as SQLite declares it."""

    name: str
    declared: str
    affinity: Affinity
    strict: str | None  # the STRICT type; None in an ordinary table
    shows_default: bool  # NOT NULL with a default: what an unmaterialized column shows in SQL
    default: str | None = None  # the expression of its default


@dataclass(frozen=True, slots=True)
class Destination:
    """A registered table that events can be written to. Names match byte for byte."""

    no: int
    text: str  # the table's name
    quoted: str
    key: tuple[Column, ...]  # in the order of the primary key
    columns: dict[str, Column]  # the others, in the order of the table
    rowid_key: bool  # the key is an alias of the rowid
    strict: bool
    has_triggers: bool
    key_names: frozenset[str] = field(default=frozenset())
    shows_defaults: tuple[str, ...] = ()

    def resolves(self, key: Mapping[str, KeyValue]) -> bool:
        """Whether a row key names exactly the key columns and its values survive them (SSP/1 §13.6)."""
        if key.keys() != self.key_names:
            return False
        for column in self.key:
            value = key[column.name]
            if type(value) is str and column.affinity is Affinity.TEXT:
                continue  # the common case
            if not key_survives(value, column.affinity, strict=column.strict, rowid=self.rowid_key):
                return False
        return True

    def accepts(self, name: str, value: Scalar) -> bool:
        """Whether there is such a column and it can store the value."""
        column = self.columns.get(name)
        return column is not None and (column.strict is None or strict_accepts(value, column.strict))

    def accepted(self, columns: Mapping[str, Scalar]) -> Mapping[str, Scalar]:
        """The part of an event's payload that is applied; the rest is ignored and metered (SSP/1 §13.6)."""
        if not self.strict and columns.keys() <= self.columns.keys():
            return columns
        return {name: value for name, value in columns.items() if self.accepts(name, value)}


def open_destination(tx: Tx, entry: TableEntry) -> Destination | str:
    """The destination behind a registered name, or why there is none now."""
    try:
        return inspect(tx, entry, own_numbers=entry.own_numbers)
    except RegistrationError as error:
        return str(error)


def inspect(tx: Tx, entry: TableEntry, *, own_numbers: bool) -> Destination:
    """Look at the table; RegistrationError names what keeps it from being a destination and the SQL that mends it."""
    strict = _table_kind(tx, entry)
    described = tx.execute(
        "SELECT name, type, \"notnull\", dflt_value, pk, hidden FROM pragma_table_xinfo(?, 'main')", (entry.text,)
    ).fetchall()
    key_rows = sorted((row for row in described if row[4]), key=lambda row: int(row[4]))
    _check_names(entry, [row[0] for row in described], len(key_rows))
    pk_index = _check_indexes(tx, entry, [row[0] for row in key_rows])
    rowid_key = pk_index is None
    _check_numbering(tx, entry, key_rows[0][0], rowid_key=rowid_key, own_numbers=own_numbers)
    key = tuple(_column(row, strict=strict) for row in key_rows)
    others = [_column(row, strict=strict) for row in described if not row[4] and row[5] == _HIDDEN_NORMAL]
    return Destination(
        no=entry.no or 0,
        text=entry.text,
        quoted="main." + quote(entry.text),
        key=key,
        columns={column.name: column for column in others},
        rowid_key=rowid_key,
        strict=strict,
        has_triggers=_has_triggers(tx, entry.text),
        key_names=frozenset(column.name for column in key),
        shows_defaults=tuple(column.name for column in others if column.shows_default),
    )


def table_exists(tx: Tx, name: str) -> bool:
    """Whether the database has a table or view of this name in any letter case."""
    found = tx.execute("SELECT 1 FROM main.sqlite_master WHERE name = ? COLLATE NOCASE", (name,)).fetchone()
    return found is not None


def _column(row: Sequence[Any], *, strict: bool) -> Column:
    name, declared, not_null, default = row[0], row[1] or "", bool(row[2]), row[3]
    strict_type = {"INT": "INTEGER"}.get(declared.upper(), declared.upper()) if strict else None
    shows_default = not_null and default is not None and default.strip().upper() != "NULL"
    return Column(name, declared, affinity_of(declared, strict=strict), strict_type, shows_default, default)


def _table_kind(tx: Tx, entry: TableEntry) -> bool:
    """Whether the table is STRICT; RegistrationError unless it is an ordinary table of exactly this name."""
    row = tx.execute(
        "SELECT type, strict FROM pragma_table_list WHERE schema = 'main' AND name = ?", (entry.text,)
    ).fetchone()
    if row is None:
        found = tx.execute(
            "SELECT name FROM main.sqlite_master WHERE name = ? COLLATE NOCASE", (entry.text,)
        ).fetchone()
        hint = f"; there is {found[0]!r}, and names match byte for byte" if found else ""
        raise RegistrationError(f"there is no table {entry.text!r} in the database{hint}")
    if row[0] != "table":
        raise RegistrationError(f"{entry.text!r} is a {row[0]} table or view; only ordinary tables can be synced")
    return bool(row[1])


def _check_names(entry: TableEntry, names: Iterable[str], key_columns: int) -> None:
    if key_columns == 0:
        raise RegistrationError(
            f"table {entry.text!r} has no primary key, so no event can name a row of it; recreate it with one: "
            f"CREATE TABLE {quote(entry.text + '_new')} (…, PRIMARY KEY (…))"
        )
    if key_columns > KEY_COLUMNS:
        raise RegistrationError(
            f"table {entry.text!r} has {key_columns} key columns; an event has at most {KEY_COLUMNS}"
        )
    for name in names:
        if not name or len(name.encode()) > NAME_BYTES:
            raise RegistrationError(
                f"column {name[:40]!r} of table {entry.text!r}: an event's column names have 1 to {NAME_BYTES} bytes; "
                f"ALTER TABLE {quote(entry.text)} RENAME COLUMN {quote(name[:40])}… TO …"
            )


def _check_indexes(tx: Tx, entry: TableEntry, key_names: Sequence[str]) -> str | None:
    """The primary key's index (None for a rowid alias); RegistrationError for a collation or another UNIQUE."""
    pk_index = None
    for name, origin in tx.execute(
        "SELECT name, origin FROM pragma_index_list(?, 'main') WHERE \"unique\" = 1", (entry.text,)
    ).fetchall():
        parts = tx.execute(
            "SELECT name, coll FROM pragma_index_xinfo(?, 'main') WHERE key = 1 ORDER BY seqno", (name,)
        ).fetchall()
        if origin == "pk":
            pk_index = name
            for column, collation in parts:
                _check_collation(entry, column, collation)
        elif {column for column, _ in parts} != set(key_names) or any(coll != "BINARY" for _, coll in parts):
            _refuse_unique(entry, name, origin, [column or "an expression" for column, _ in parts])
    return pk_index


def _check_collation(entry: TableEntry, column: str, collation: str) -> None:
    if collation != "BINARY":
        raise RegistrationError(
            f"key column {column!r} of table {entry.text!r} has the collation {collation}: two keys that differ would "
            f"be one row; recreate the table with {quote(column)} … COLLATE BINARY"
        )


def _refuse_unique(entry: TableEntry, index: str, origin: str, columns: Sequence[str]) -> None:
    if origin == "c":
        listed = ", ".join(quote(column) for column in columns)
        mend = f"DROP INDEX {quote(index)}; CREATE INDEX {quote(index)} ON {quote(entry.text)} ({listed})"
    else:
        mend = f"recreate the table without UNIQUE: CREATE TABLE {quote(entry.text + '_new')} (…)"
    raise RegistrationError(
        f"column {', '.join(map(repr, columns))} of table {entry.text!r} is UNIQUE: two devices may write the same "
        f"value while apart, and both rows must stand; {mend}"
    )


def _check_numbering(tx: Tx, entry: TableEntry, column: str, *, rowid_key: bool, own_numbers: bool) -> None:
    if not rowid_key or own_numbers:
        return
    sql = tx.execute("SELECT sql FROM main.sqlite_master WHERE type = 'table' AND name = ?", (entry.text,)).fetchone()[
        0
    ]
    what = "AUTOINCREMENT" if _AUTOINCREMENT.search(_QUOTED.sub("", sql)) else "a bare INTEGER PRIMARY KEY"
    raise RegistrationError(
        f"key column {column!r} of table {entry.text!r} is {what}, numbered by SQLite: two devices would both make "
        "row 5 and merge two different things into one; recreate it with "
        f"{quote(column)} TEXT PRIMARY KEY NOT NULL and random ids, or register the table with own numbers "
        "if the application chooses them itself"
    )


def _has_triggers(tx: Tx, name: str) -> bool:
    found = tx.execute(
        "SELECT 1 FROM main.sqlite_master WHERE type = 'trigger' AND tbl_name = ? COLLATE NOCASE LIMIT 1", (name,)
    ).fetchone()
    return found is not None
