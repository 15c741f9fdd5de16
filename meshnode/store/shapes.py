"""What each destination looked like when its rows were last brought up to it, and how far bringing up has come (§13.6).

Profile §5: a column gained is rebuilt from the log, a dropped one forgets its clocks, a changed primary key is a new
destination. The shape is kept with the rows, so a change made while the node was down is seen as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from meshnode.errors import CorruptStateError
from meshnode.store.database import Tx
from meshnode.store.tables import Column, Destination


class Shape(NamedTuple):
    """The key columns, and every other column, with what decides which values they take."""

    key: list[tuple[str, str]]  # with all that decides which values it takes
    columns: dict[str, tuple[str, str | None]]  # declared type, STRICT type


class Progress(NamedTuple):
    """Bringing one table up: every row in the order of the keys, then the log from its end."""

    names: list[str] | None  # columns that are rebuilt from the log, None: all, the key is another
    after: bytes | None  # rows are done up to this key; None: all of them
    top: int  # positions of the log above this one are done
    whole: bool = False  # before all that: the states themselves are recomputed from the log
    refold: bool = False  # after the rows, every event of the log is folded in again, whatever columns it names


_encode = msgspec.msgpack.Encoder().encode
_shape = msgspec.msgpack.Decoder(Shape).decode
_progress = msgspec.msgpack.Decoder(Progress).decode


def shape_of(destination: Destination) -> Shape:
    """The shape of a destination as it stands."""
    return Shape(
        [(column.name, _key_declaration(destination, column)) for column in destination.key],
        {column.name: _declaration(column) for column in destination.columns.values()},
    )


def renewed(old: Shape, new: Shape) -> list[str] | None:
    """The columns that are new or declared otherwise; None where the primary key is another."""
    if old.key != new.key:
        return None
    return [name for name, declaration in new.columns.items() if old.columns.get(name) != declaration]


def read(tx: Tx, table_no: int) -> tuple[Shape | None, Progress | None]:
    """What is stored of one table."""
    shape, progress = tx.execute("SELECT shape, progress FROM meshnode_tables WHERE no = ?", (table_no,)).fetchone()
    try:
        return (None if shape is None else _shape(shape)), (None if progress is None else _progress(progress))
    except msgspec.DecodeError as error:
        raise CorruptStateError(f"the shape of a table in the database cannot be read: {error}") from error


def write_shape(tx: Tx, table_no: int, shape: Shape) -> None:
    """Note the shape that the rows are brought up to."""
    tx.execute("UPDATE meshnode_tables SET shape = ? WHERE no = ?", (_encode(shape), table_no))


def write_progress(tx: Tx, table_no: int, progress: Progress | None) -> None:
    """Note how far bringing up has come; None: it is done."""
    stored = None if progress is None else _encode(progress)
    tx.execute("UPDATE meshnode_tables SET progress = ? WHERE no = ?", (stored, table_no))


def recompute_later(tx: Tx, table_no: int, top: int) -> None:
    """The log lost events of a table that cannot be used now: recompute its states once it can be (profile §9)."""
    progress = read(tx, table_no)[1] or Progress([], b"", top)
    write_progress(tx, table_no, progress._replace(after=b"", top=top, whole=True))


def refold_later(tx: Tx, table_no: int, top: int) -> None:
    """A horizon was dropped: events from below it that are still in the log count again (SSP/1 §13.5)."""
    progress = read(tx, table_no)[1] or Progress([], None, top)
    write_progress(tx, table_no, progress._replace(top=top, refold=True))


def compare_later(tx: Tx, table_no: int, top: int) -> None:
    """The table cannot be used now, so what is done to it is not looked at: compare its rows once it can be."""
    stored, progress = read(tx, table_no)
    if stored is not None:
        write_progress(tx, table_no, (progress or Progress([], b"", top))._replace(after=b""))


def unfinished(tx: Tx) -> list[int]:
    """The tables that are being brought up."""
    return [no for (no,) in tx.execute("SELECT no FROM meshnode_tables WHERE progress IS NOT NULL ORDER BY no")]


def forget_ignored(tx: Tx, table_no: int, names: Sequence[str] | None) -> None:
    """Columns that are there now are not ignored any more: their meters go."""
    if names is None:
        tx.execute("DELETE FROM meshnode_ignored WHERE table_no = ?", (table_no,))
        return
    tx.executemany(
        "DELETE FROM meshnode_ignored WHERE table_no = ? AND column_name = ?", [(table_no, name) for name in names]
    )


def _key_declaration(destination: Destination, column: Column) -> str:
    """An alias of the rowid and a STRICT type refuse keys that the same type takes elsewhere."""
    kinds = [*(["ROWID"] if destination.rowid_key else []), *(["STRICT"] if destination.strict else [])]
    return " ".join([column.declared.upper(), *kinds])


def _declaration(column: Column) -> tuple[str, str | None]:
    return column.declared.upper(), column.strict
