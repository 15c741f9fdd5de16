"""What a comparison with another member reads: the log in its order, and rows with their clocks (profile §15).

Millions of rows go through here, so what is done to each is kept short: a page of clocks, one look for all its values.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from meshnode.codec import cbor
from meshnode.errors import CodecError, CorruptStateError
from meshnode.merge.rows import clock_groups
from meshnode.model.comparison import ABSENT, MISSING, SHOWN, WITHHELD
from meshnode.model.hlc import RANK_BYTES, Rank
from meshnode.store import log
from meshnode.store.affinity import Affinity
from meshnode.store.database import Tx
from meshnode.store.queries import presentable
from meshnode.store.tables import Destination, quote

PAGE: Final = 512
_SHORT: Final = 32  # keys of a look that is not a whole page: few shapes, so that prepared statements are used again
_SHORT_TEXT: Final = 0x60  # the head of a CBOR text of less than 24 bytes is this and its length
_SHORT_TEXT_BYTES: Final = 24

LoggedRow: TypeAlias = tuple[int, int, "int | bytes", "int | bytes", bytes]
"""Position, number of its table, clock as SQLite holds it, and the bytes."""

_Groups: TypeAlias = list[tuple[Rank, list[str]]]


def logged(tx: Tx, first: int, last: int) -> Any:
    """A cursor over the events from one position up to another; those that named no row are left out."""
    return tx.execute(
        "SELECT position, table_no, physical, logical, event FROM meshnode_log"
        " WHERE position BETWEEN ? AND ? AND state <> ? ORDER BY position",
        (first, last, log.UNRESOLVED),
    )


class ComparedRow(NamedTuple):
    """One row that there ever was, with its clocks in the one order in which nodes compare them."""

    key: bytes
    tombstone: Rank | None
    groups: _Groups  # by rank: the columns that each won, the last being the highest upsert
    shown: int | tuple[Any, ...]  # its values in the order of the columns, or why it shows none

    @property
    def lowest(self) -> Rank:
        """The lowest of its ranks."""
        ranks = [rank for rank in (self.groups[0][0] if self.groups else None, self.tombstone) if rank is not None]
        return min(ranks, default=bytes(RANK_BYTES))

    @property
    def highest(self) -> Rank:
        """The highest of them."""
        ranks = [rank for rank in (self.groups[-1][0] if self.groups else None, self.tombstone) if rank is not None]
        return max(ranks, default=bytes(RANK_BYTES))

    @property
    def state(self) -> int:
        """Whether it is there."""
        return self.shown if isinstance(self.shown, int) else SHOWN


class ComparedTable:
    """The rows of one table, over these columns alone."""

    def __init__(self, tx: Tx, destination: Destination, columns: Sequence[str]) -> None:
        self._tx = tx
        self.destination = destination
        self._columns = columns
        names = [column.name for column in destination.key]
        self._size = len(names)
        self._kept = None if len(columns) == len(destination.columns) else frozenset(columns)
        self._defaults = [at for at, name in enumerate(columns) if name in destination.shows_defaults]
        selected, key = ", ".join(map(quote, [*names, *columns])), ", ".join(map(quote, names))
        rows = f"SELECT {selected} FROM {destination.quoted} WHERE"  # noqa: S608
        self._one = "?" if len(names) == 1 else "(" + ", ".join("?" * len(names)) + ")"
        self._select = f"{rows} {key} IN (" if len(names) == 1 else f"{rows} ({key}) IN (VALUES "
        # Keys of one column often have one length, or are numbers: then both have the same order.
        self._in_order = len(names) == 1
        self._following = f"{rows} {key} >= ? ORDER BY {key} LIMIT ?"
        self._key_of = _key_reader(destination)

    def page(self, after: bytes) -> list[ComparedRow]:
        """The next rows in key-bytes order, beyond a key."""
        return self._read("key > ? ORDER BY key LIMIT ?", after, PAGE)

    def between(self, first: bytes, end: bytes | None) -> list[ComparedRow]:
        """The rows from one key on, up to but without another; so many that there is an end to it."""
        if end is None:
            return self._read("key >= ? ORDER BY key LIMIT ?", first, PAGE)
        return self._read("key >= ? AND key < ? ORDER BY key LIMIT ?", first, end, PAGE)

    def row(self, key: bytes) -> ComparedRow | None:
        """One row by its key."""
        found = self._read("key = ?", key)
        return found[0] if found else None

    def _read(self, where: str, *bounds: object) -> list[ComparedRow]:
        sql = f"SELECT key, state, reason FROM meshnode_rows WHERE table_no = ? AND {where}"  # noqa: S608
        found = self._tx.execute(sql, (self.destination.no, *bounds)).fetchall()
        shown = self._values([self._key_of(key) for key, _, _ in found])
        rows = []
        for (key, _, reason), (tombstone, groups), values in zip(found, self._clocks(found), shown, strict=True):
            if not groups or reason is not None:
                values = WITHHELD if groups else ABSENT  # whatever SQL shows of it
            elif self._defaults and values != MISSING:
                values = self._without_defaults(groups, values)
            rows.append(ComparedRow(key, tombstone, groups, values))
        return rows

    def _clocks(self, found: Sequence[tuple[bytes, bytes, str | None]]) -> list[tuple[Rank | None, _Groups]]:
        """The clocks of each row, in their one order."""
        try:
            clocks = clock_groups([state for _, state, _ in found])
        except (msgspec.DecodeError, TypeError) as error:
            raise CorruptStateError(f"the clocks of rows in the database cannot be read: {error}") from error
        if self._kept is not None:
            clocks = [(tombstone, _restricted(groups, self._kept)) for tombstone, groups in clocks]
        for _, groups in clocks:
            for _, names in groups:
                names.sort()
            if len(groups) > 1:
                groups.sort()
        return clocks

    def _without_defaults(self, groups: _Groups, values: tuple[Any, ...]) -> tuple[Any, ...]:
        """What an unmaterialized column shows is each node's own."""
        won = {name for _, names in groups for name in names}
        hidden = {at for at in self._defaults if self._columns[at] not in won}
        return tuple(None if at in hidden else value for at, value in enumerate(values))

    def _values(self, keys: Sequence[Any]) -> list[Any]:
        """The values that SQL shows of the rows with these keys, or that it shows none."""
        size = self._size
        if self._in_order and len(keys) > _SHORT and keys[0] is not None:
            rows = self._tx.execute(self._following, (keys[0], len(keys))).fetchall()
            if [row[0] for row in rows] == keys:
                return [row[size:] for row in rows]
            self._in_order = False
        wanted = [key for key in keys if key is not None]
        if not wanted:
            return [MISSING] * len(keys)
        if len(wanted) > 1:
            wanted += [wanted[-1]] * ((_SHORT if len(wanted) <= _SHORT else PAGE) - len(wanted))
        sql = self._select + ", ".join([self._one] * len(wanted)) + ")"
        if size == 1:
            shown = {row[0]: row[1:] for row in self._tx.execute(sql, wanted)}
        else:
            shown = {
                row[:size]: row[size:] for row in self._tx.execute(sql, [value for key in wanted for value in key])
            }
        return [shown.get(key, MISSING) for key in keys]


def _restricted(groups: _Groups, kept: Collection[str]) -> _Groups:
    """The clocks of these columns alone; the highest upsert says that the row is there, even if it won none of them."""
    found = [(rank, [name for name in names if name in kept]) for rank, names in groups]
    return [(rank, names) for rank, names in found if names or rank == groups[0][0]]


def pages(table: ComparedTable) -> Iterator[list[ComparedRow]]:
    """Every row, a page at a time."""
    after = b""
    while page := table.page(after):
        yield page
        after = page[-1].key


def encoded(table: int, rows: Sequence[ComparedRow]) -> list[bytes]:
    """The one encoding of each row, of which its item is made: MessagePack in its shortest forms, floats of 64 bits."""
    try:
        return [_encode((table, row)) for row in rows]
    except TypeError:  # a text that is not UTF-8, made by a trigger
        return [_encode((table, _presentable(row))) for row in rows]


def encoded_clocks(row: ComparedRow) -> bytes:
    """The clocks alone."""
    return _encode((row.tombstone, row.groups))


def _presentable(row: ComparedRow) -> ComparedRow:
    return row if isinstance(row.shown, int) else row._replace(shown=tuple(map(presentable, row.shown)))


def _key_reader(destination: Destination) -> Callable[[bytes], Any]:
    """What makes of key bytes the value of the key column, of several a tuple; None of an earlier primary key."""
    names = [column.name for column in destination.key]

    def read(key_bytes: bytes) -> Any:
        try:
            key = cbor.load_untrusted(key_bytes)
            values = tuple([key[name] for name in names])
        except (CodecError, KeyError, TypeError):
            return None
        if len(key) > len(values):
            return None
        return values if len(values) > 1 else values[0]

    if len(names) > 1 or destination.key[0].affinity is not Affinity.TEXT:
        return read
    prefix = cbor.encode({names[0]: ""})[:-1]
    start = len(prefix)

    def read_short_text(key_bytes: bytes) -> Any:
        """The common key: one short text, which is what follows its head."""
        if key_bytes.startswith(prefix) and 0 <= key_bytes[start] - _SHORT_TEXT < _SHORT_TEXT_BYTES:
            return key_bytes[start + 1 :].decode()
        return read(key_bytes)

    return read_short_text


_encode = msgspec.msgpack.Encoder().encode
