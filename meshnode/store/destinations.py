"""What makes a table fit to be a destination, looked at again at every start and schema change (profile §5)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple, NoReturn

from meshnode.errors import RegistrationError
from meshnode.limits import KEY_COLUMNS, NAME_BYTES
from meshnode.store import mending, shapes
from meshnode.store.affinity import affinity_of
from meshnode.store.capture import is_trigger
from meshnode.store.database import Tx, UnreadableText
from meshnode.store.names import TableEntry
from meshnode.store.tables import Column, Destination, quote

_AUTOINCREMENT: Final = re.compile(r"\bAUTOINCREMENT\b", re.IGNORECASE)
_QUOTED: Final = re.compile(
    r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|`(?:[^`]|``)*`|\[[^]]*\]|--[^\n]*|/\*.*?\*/", re.DOTALL
)
_HIDDEN_NORMAL: Final = 0


def open_destination(tx: Tx, entry: TableEntry) -> Destination | str:
    """The destination behind a registered name, or why there is none now."""
    try:
        return inspect(tx, entry, own_numbers=entry.own_numbers)
    except RegistrationError as error:
        return str(error)


class Fault(NamedTuple):
    """What keeps a table from being a destination, and the SQL that mends it, where there is any."""

    reason: str
    sql: str = ""

    @property
    def text(self) -> str:
        """Both, for a person."""
        return f"{self.reason}; {self.sql}" if self.sql else self.reason


def inspect(tx: Tx, entry: TableEntry, *, own_numbers: bool) -> Destination:
    """Look at the table; RegistrationError names what keeps it from being a destination and the SQL that mends it."""
    strict = _table_kind(tx, entry)
    described, key_rows = _described(tx, entry)
    fault = next(_faults(tx, entry, described, key_rows, own_numbers=own_numbers), None)
    if fault is not None:
        raise RegistrationError(fault.text)
    key = tuple(_column(row, strict=strict) for row in key_rows)
    others = [_column(row, strict=strict) for row in described if not row[4] and row[5] == _HIDDEN_NORMAL]
    return Destination(
        no=entry.no or 0,
        text=entry.text,
        quoted="main." + quote(entry.text),
        key=key,
        columns={column.name: column for column in others},
        rowid_key=_is_rowid_key(tx, entry),
        strict=strict,
        has_triggers=_has_triggers(tx, entry.text),
        key_names=frozenset(column.name for column in key),
        shows_defaults=tuple(column.name for column in others if column.shows_default),
    )


def faults(tx: Tx, entry: TableEntry, *, own_numbers: bool) -> list[Fault]:
    """All that keeps a table from being a destination, each with the SQL that mends it alone."""
    try:
        _table_kind(tx, entry)
    except RegistrationError as error:
        return [Fault(str(error))]
    return list(_faults(tx, entry, *_described(tx, entry), own_numbers=own_numbers))


def _described(tx: Tx, entry: TableEntry) -> tuple[list[Sequence[Any]], list[Sequence[Any]]]:
    """Every column, and those of the primary key in its order."""
    described = tx.execute(
        "SELECT name, type, \"notnull\", dflt_value, pk, hidden FROM pragma_table_xinfo(?, 'main')", (entry.text,)
    ).fetchall()
    return described, sorted((row for row in described if row[4]), key=lambda row: int(row[4]))


def _faults(
    tx: Tx,
    entry: TableEntry,
    described: Sequence[Sequence[Any]],
    key_rows: Sequence[Sequence[Any]],
    *,
    own_numbers: bool,
) -> Iterator[Fault]:
    unreadable = [value for row in described for value in row if isinstance(value, UnreadableText)]
    if unreadable:
        yield Fault(
            f"table {entry.text!r} has {bytes(unreadable[0])!r} in its columns, which is not UTF-8: rename that"
        )
        return
    yield from _name_faults(tx, entry, [row[0] for row in described], len(key_rows))
    yield from _index_faults(tx, entry, [row[0] for row in key_rows])
    if key_rows and not own_numbers and _is_rowid_key(tx, entry):
        yield _numbering_fault(tx, entry, key_rows[0][0])


def _is_rowid_key(tx: Tx, entry: TableEntry) -> bool:
    """Whether the key is an alias of the rowid: then it has no index."""
    found = tx.execute(
        "SELECT 1 FROM pragma_index_list(?, 'main') WHERE \"unique\" = 1 AND origin = 'pk'", (entry.text,)
    ).fetchone()
    return found is None


def table_exists(tx: Tx, name: str) -> bool:
    """Whether the database has a table or view of this name in any letter case."""
    found = tx.execute("SELECT 1 FROM main.sqlite_master WHERE name = ? COLLATE NOCASE", (name,)).fetchone()
    return found is not None


def _column(row: Sequence[Any], *, strict: bool) -> Column:
    name, declared, not_null, default = row[0], row[1] or "", bool(row[2]), row[3]
    strict_type = {"INT": "INTEGER"}.get(declared.upper(), declared.upper()) if strict else None
    shows_default = not_null and default is not None and default.strip().upper() != "NULL"
    return Column(name, declared, affinity_of(declared, strict=strict), strict_type, not_null, shows_default, default)


def _known(tx: Tx, entry: TableEntry) -> shapes.Shape | None:
    """What the table was when it was last a destination."""
    return None if entry.no is None else shapes.read(tx, entry.no)[0]


def _table_kind(tx: Tx, entry: TableEntry) -> bool:
    """Whether the table is STRICT; RegistrationError unless it is an ordinary table of exactly this name."""
    row = tx.execute(
        "SELECT type, strict FROM pragma_table_list WHERE schema = 'main' AND name = ?", (entry.text,)
    ).fetchone()
    if row is None:
        _refuse_missing(tx, entry)
    kind, refused = row[0], "only ordinary tables can be synced"
    if kind == "view":
        mend = mending.in_place_of_view(entry.text, _known(tx, entry))
        raise RegistrationError(f"{entry.text!r} is a view; {refused}; {mend}")
    if kind == "virtual":
        mend = mending.in_place_of_virtual(tx, entry.text, _known(tx, entry))
        raise RegistrationError(f"{entry.text!r} is a virtual table; {refused}; {mend}")
    if kind != "table":
        raise RegistrationError(f"{entry.text!r} is a part of a virtual table; {refused}: choose another name")
    return bool(row[1])


def _refuse_missing(tx: Tx, entry: TableEntry) -> NoReturn:
    missing = f"there is no table {entry.text!r} in the database"
    found = tx.execute(
        "SELECT name, type FROM main.sqlite_master WHERE name = ? COLLATE NOCASE", (entry.text,)
    ).fetchone()
    if found:
        mend = f"; {mending.renamed(tx, found[0], entry.text)}" if found[1] == "table" else ""
        raise RegistrationError(f"{missing}; there is {found[0]!r}, and names match byte for byte{mend}")
    known = _known(tx, entry)
    if known is None:
        raise RegistrationError(f"{missing}: CREATE it, or name its key and its columns")
    raise RegistrationError(f"{missing} any more; {mending.created(entry.text, known)}")


def _name_faults(tx: Tx, entry: TableEntry, names: Iterable[str], key_columns: int) -> Iterator[Fault]:
    if key_columns == 0:
        yield Fault(
            f"table {entry.text!r} has no primary key, so no event can name a row of it; recreate it with one",
            mending.keyed(tx, entry.text, _known(tx, entry)),
        )
    if key_columns > KEY_COLUMNS:
        yield Fault(
            f"table {entry.text!r} has {key_columns} key columns, and an event has at most {KEY_COLUMNS}; recreate it "
            "with fewer",
            mending.keyed(tx, entry.text, _known(tx, entry)),
        )
    for name in names:
        if not name or len(name.encode()) > NAME_BYTES:
            yield Fault(
                f"column {name[:40]!r} of table {entry.text!r}: an event's column names have 1 to {NAME_BYTES} bytes",
                mending.renamed_column(tx, entry.text, name, NAME_BYTES),
            )


def _index_faults(tx: Tx, entry: TableEntry, key_names: Sequence[str]) -> Iterator[Fault]:
    """A key's collation, and every other UNIQUE."""
    for name, origin in tx.execute(
        "SELECT name, origin FROM pragma_index_list(?, 'main') WHERE \"unique\" = 1", (entry.text,)
    ).fetchall():
        parts = tx.execute(
            "SELECT name, coll FROM pragma_index_xinfo(?, 'main') WHERE key = 1 ORDER BY seqno", (name,)
        ).fetchall()
        if origin == "pk":
            for column, collation in parts:
                if collation != "BINARY":
                    yield Fault(
                        f"key column {column!r} of table {entry.text!r} has the collation {collation}, with which two "
                        "keys that differ would be one row; recreate the table with COLLATE BINARY, which is the usual "
                        "one",
                        mending.binary_key(tx, entry.text, key_names),
                    )
        elif {column for column, _ in parts} != set(key_names) or any(coll != "BINARY" for _, coll in parts):
            columns = ", ".join(repr(column or "an expression") for column, _ in parts)
            yield Fault(
                f"column {columns} of table {entry.text!r} is UNIQUE: two devices may write the same value while "
                "apart, and both rows must stand",
                "" if isinstance(name, UnreadableText) else mending.plain_index(tx, entry.text, name),
            )


def _numbering_fault(tx: Tx, entry: TableEntry, column: str) -> Fault:
    sql = tx.execute("SELECT sql FROM main.sqlite_master WHERE type = 'table' AND name = ?", (entry.text,)).fetchone()[
        0
    ]
    what = (
        "AUTOINCREMENT"
        if _AUTOINCREMENT.search(_QUOTED.sub("", mending.written(sql)))
        else "a bare INTEGER PRIMARY KEY"
    )
    return Fault(
        f"key column {column!r} of table {entry.text!r} is {what}, numbered by SQLite: two devices would both make "
        "row 5 and merge two different things into one; register the table with own numbers if the application chooses "
        "them itself, or recreate it with a TEXT PRIMARY KEY and random ids",
        mending.own_key(tx, entry.text, column, _known(tx, entry)),
    )


def _has_triggers(tx: Tx, name: str) -> bool:
    """Whether it has any of the application's: those that capture its writes are idle while the node writes."""
    found = tx.execute(
        "SELECT name FROM main.sqlite_master WHERE type = 'trigger' AND tbl_name = ? COLLATE NOCASE", (name,)
    ).fetchall()
    return not all(is_trigger(trigger) for (trigger,) in found)
