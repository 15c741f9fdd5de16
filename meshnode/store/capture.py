"""Writes to adopted tables by plain SQL, noted by triggers that any program's SQLite carries out (profile §5).

A trigger notes only which row was written: its table, its key, and whether the key still names a row. What the row says
is read when that is signed, so an application pays for one short row, and several writes of one row in between become
one event. The note commits and rolls back with the write itself. No trigger uses a function, a clause or an affinity
that an older SQLite, another language's, or a connection with other settings does not know: REPLACE without recursive
triggers fires no DELETE trigger, but the INSERT of the same key says all that is needed.

The node's own writes are not noted: its transaction puts a row into `meshnode_gate` first and takes it out before it
commits, so no other connection ever sees one.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from meshnode.errors import CorruptStateError
from meshnode.limits import KEY_COLUMNS
from meshnode.store.affinity import Affinity
from meshnode.store.database import Tx, UnreadableText
from meshnode.store.tables import Column, Destination, quote

PREFIX: Final = "meshnode_capture_"
_TRIGGER: Final = re.compile(f"{PREFIX}[0-9]+_(insert|update|move|delete)")
BEGINNING: Final = b""
"""No row was compared yet."""

_GATE: Final = "NOT EXISTS (SELECT 1 FROM meshnode_gate)"
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[tuple[bool, Any]]).decode


class Captured(NamedTuple):
    """One write of one row."""

    seq: int
    table_no: int
    gone: bool
    key: tuple[Any, ...]  # in the order of the primary key; of tables with fewer columns, null follows


# --- triggers


def triggers(destination: Destination) -> dict[str, str]:
    """The SQL of each trigger of a table, by name. They name key columns alone, so other columns come and go."""
    moved = " OR ".join(_differs(column) for column in destination.key)
    parts = {
        "insert": ("INSERT", "", _note(destination, "NEW", gone=False)),
        "update": ("UPDATE", "", _note(destination, "NEW", gone=False)),
        # UPDATE may name the rowid, by any of its names, in place of the column that is an alias of it.
        "move": (_moves(destination), f" AND ({moved})", _note(destination, "OLD", gone=True)),
        "delete": ("DELETE", "", _note(destination, "OLD", gone=True)),
    }
    return {
        f"{PREFIX}{destination.no}_{name}": (
            f"CREATE TRIGGER {PREFIX}{destination.no}_{name} AFTER {event} ON {quote(destination.text)} "
            f"WHEN {_GATE}{condition} BEGIN {note}; END"
        )
        for name, (event, condition, note) in parts.items()
    }


def _note(destination: Destination, row: str, *, gone: bool) -> str:
    places = ", ".join(f"k{at}" for at in range(len(destination.key)))
    values = ", ".join(f"{row}.{quote(column.name)}" for column in destination.key)
    return f"INSERT INTO meshnode_captured (table_no, gone, {places}) VALUES ({destination.no}, {int(gone)}, {values})"  # noqa: S608


def _moves(destination: Destination) -> str:
    names = [quote(column.name) for column in destination.key]
    if destination.rowid_key:
        names += ["rowid", "oid", "_rowid_"]
    return f"UPDATE OF {', '.join(names)}"


def _differs(column: Column) -> str:
    """1 IS 1.0, but a column that makes nothing of its values holds either."""
    name = quote(column.name)
    exact = f" OR typeof(OLD.{name}) <> typeof(NEW.{name})" if column.affinity is Affinity.BLOB else ""
    return f"OLD.{name} IS NOT NEW.{name}{exact}"


def is_trigger(name: str | UnreadableText) -> bool:
    """Whether this names one of them; an application's own name may begin alike."""
    return isinstance(name, str) and _TRIGGER.fullmatch(name) is not None


def is_watched(tx: Tx, destination: Destination) -> bool:
    """Whether every trigger of a table is there, and on it."""
    own = f"{PREFIX}{destination.no}_"
    found = tx.execute(
        "SELECT name, sql FROM main.sqlite_master WHERE type = 'trigger' AND tbl_name = ? AND substr(name, 1, ?) = ?",
        (destination.text, len(own), own),
    )
    return dict(found.fetchall()) == triggers(destination)


def watch(tx: Tx, destination: Destination) -> None:
    """Make the triggers of a table, in place of any that are there."""
    have = {row[1] for row in tx.execute("PRAGMA main.table_info(meshnode_captured)")}
    for at in range(1, min(len(destination.key), KEY_COLUMNS)):
        if f"k{at}" not in have:
            tx.execute(f"ALTER TABLE meshnode_captured ADD COLUMN k{at}")
    unwatch(tx, destination.no)
    for sql in triggers(destination).values():
        tx.execute(sql)


def unwatch(tx: Tx, table_no: int) -> None:
    """Drop the triggers of a table, wherever a renaming took them."""
    found = tx.execute(
        "SELECT name FROM main.sqlite_master WHERE type = 'trigger' AND substr(name, 1, ?) = ?",
        (len(f"{PREFIX}{table_no}_"), f"{PREFIX}{table_no}_"),
    ).fetchall()
    for (name,) in found:
        tx.execute(f"DROP TRIGGER main.{quote(name)}")


# --- which tables, and how far their rows were looked at


def adopted(tx: Tx) -> dict[int, bytes | None]:
    """Every adopted table, with the place up to which its rows were compared; None: all of them."""
    return dict(tx.execute("SELECT table_no, looked FROM meshnode_adopted").fetchall())


def adopt(tx: Tx, table_no: int, looked: bytes | None) -> None:
    """Note a table, or how far it is."""
    tx.execute("INSERT OR REPLACE INTO meshnode_adopted VALUES (?, ?)", (table_no, looked))


def release(tx: Tx, table_no: int) -> None:
    """Watch a table no longer."""
    unwatch(tx, table_no)
    tx.execute("DELETE FROM meshnode_adopted WHERE table_no = ?", (table_no,))
    tx.execute("DELETE FROM meshnode_captured WHERE table_no = ?", (table_no,))


def pack_place(key: Sequence[Any]) -> bytes:
    """The place behind a row."""
    unreadable = [isinstance(value, UnreadableText) for value in key]
    return _encode([(text, bytes(value) if text else value) for text, value in zip(unreadable, key, strict=True)])


def unpack_place(place: bytes) -> list[Any]:
    """The key of the last row that was compared."""
    try:
        return [UnreadableText(value) if text else value for text, value in _decode(place)]
    except msgspec.DecodeError as error:
        raise CorruptStateError(f"how far an adopted table was read cannot be read: {error}") from error


def has_keyless(tx: Tx, destination: Destination) -> bool:
    """Whether a row has null in its key, as SQLite allows it in a table with a rowid."""
    null = " OR ".join(f"{quote(column.name)} IS NULL" for column in destination.key)
    found = tx.execute(f"SELECT 1 FROM {destination.quoted} WHERE {null} LIMIT 1")  # noqa: S608
    return found.fetchone() is not None


# --- what was captured


def pending(tx: Tx, table_nos: Collection[int], limit: int) -> list[Captured]:
    """The oldest writes of these tables that are not signed yet."""
    places = ", ".join("?" * len(table_nos))
    found = tx.execute(
        f"SELECT * FROM meshnode_captured WHERE table_no IN ({places}) ORDER BY seq LIMIT ?",  # noqa: S608
        (*table_nos, limit),
    )
    return [Captured(row[0], row[1], bool(row[2]), tuple(row[3:])) for row in found]


def last_of(tx: Tx, table_no: int, key: Sequence[Any]) -> Captured | None:
    """The last of them of one row; reads all there are."""
    same = "".join(f" AND k{at} IS ?" for at in range(len(key)))
    row = tx.execute(
        f"SELECT * FROM meshnode_captured WHERE table_no = ?{same} ORDER BY seq DESC LIMIT 1",  # noqa: S608
        (table_no, *key),
    ).fetchone()
    return None if row is None else Captured(row[0], row[1], bool(row[2]), tuple(row[3:]))


def remove_row(tx: Tx, table_no: int, key: Sequence[Any]) -> None:
    """Keep nothing of what was written to a row."""
    if any_pending(tx):
        same = "".join(f" AND k{at} IS ?" for at in range(len(key)))
        tx.execute(f"DELETE FROM meshnode_captured WHERE table_no = ?{same}", (table_no, *key))  # noqa: S608


def any_pending(tx: Tx) -> bool:
    """Whether there is one."""
    return tx.execute("SELECT 1 FROM meshnode_captured LIMIT 1").fetchone() is not None


def is_unsigned(tx: Tx, table_no: int) -> bool:
    """Whether rows of a table may say what no event does."""
    looking = tx.execute("SELECT 1 FROM meshnode_adopted WHERE table_no = ? AND looked IS NOT NULL", (table_no,))
    if looking.fetchone() is not None:
        return True
    noted = tx.execute("SELECT 1 FROM meshnode_captured WHERE table_no = ? LIMIT 1", (table_no,))
    return noted.fetchone() is not None


def count_pending(tx: Tx, most: int) -> int:
    """How many there are, up to `most`."""
    return int(tx.execute("SELECT count(*) FROM (SELECT 1 FROM meshnode_captured LIMIT ?)", (most,)).fetchone()[0])


def signed(tx: Tx, seqs: Sequence[int]) -> None:
    """These are events now, or can be none."""
    tx.executemany("DELETE FROM meshnode_captured WHERE seq = ?", [(seq,) for seq in seqs])
