"""Which tables are certainly the same as at the last look at the schema: their rows are not looked at (SSP/1 §13.6).

A table that was dropped and made again, a column that was dropped and added again, may leave no trace in
`sqlite_master`. But every statement that changes the schema adds one to SQLite's `schema_version`. So the statements
that what differs must have taken are counted, and where there were so many more that something may have been undone and
done again, no table is certain.
"""

from __future__ import annotations

from typing import Final, NamedTuple, TypeAlias

import msgspec

from meshnode.codec.digest import blake3_256
from meshnode.errors import CorruptStateError
from meshnode.store import meta
from meshnode.store.database import Tx

Objects: TypeAlias = dict[str, tuple[int, bytes]]
"""By type and name: the row in `sqlite_master`, and a digest of what it says there."""

_SEEN: Final = "catalog"
_TABLE: Final = "table "
_UNDONE_AND_DONE: Final = 2  # statements at least: DROP and CREATE, or two ALTER
_DIGEST_BYTES: Final = 8


class Catalog(NamedTuple):
    """What the schema looks like, without what SQLite makes by itself."""

    version: int
    objects: Objects


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Catalog).decode


def read_now(tx: Tx) -> Catalog:
    """The schema as it is."""
    found = tx.execute(
        "SELECT rowid, CASE WHEN type = 'table' AND rootpage = 0 THEN 'virtual' ELSE type END, name, tbl_name, sql "
        "FROM main.sqlite_master WHERE name NOT LIKE 'sqlite#_%' ESCAPE '#'"
    )
    objects = {f"{kind} {name}": (row, _digest(table, sql)) for row, kind, name, table, sql in found}
    return Catalog(version_now(tx), objects)


def version_now(tx: Tx) -> int:
    """SQLite's number of the schema."""
    return int(tx.execute("PRAGMA main.schema_version").fetchone()[0])


def read_seen(tx: Tx) -> Catalog | None:
    """The schema that every table was last looked at under."""
    stored = meta.read(tx, _SEEN)
    try:
        return None if stored is None else _decode(stored)
    except msgspec.DecodeError as error:
        raise CorruptStateError(f"the schema that was last seen cannot be read from the database: {error}") from error


def write_seen(tx: Tx, catalog: Catalog) -> None:
    """Every table was looked at under this schema."""
    meta.write(tx, _SEEN, _encode(catalog))


def same_tables(before: Catalog | None, now: Catalog) -> frozenset[str]:
    """The names of the tables that are the same, and have the same columns, as before."""
    if before is None or now.version < before.version:
        return frozenset()
    if now.version - before.version - _statements(before.objects, now.objects) >= _UNDONE_AND_DONE:
        return frozenset()
    vacuumed = _is_renumbered(before.objects, now.objects)
    return frozenset(
        name.removeprefix(_TABLE)
        for name, (row, digest) in _tables(before.objects).items()
        if name in now.objects and now.objects[name][1] == digest and (vacuumed or now.objects[name][0] == row)
    )


def _statements(before: Objects, now: Objects) -> int:
    """How many statements it took at least to make one of the other. A renamed object is a new name for an old one."""
    new, gone = now.keys() - before.keys(), before.keys() - now.keys()
    created = max(len(new) - len(gone), 0)
    common = before.keys() & now.keys()
    differs = len(new) > created or bool(gone) or any(before[name] != now[name] for name in common)
    # VACUUM numbers tables anew, in their order and without gaps: one with a higher number was made again, which takes
    # two, unless the old one is there under a name that counts already.
    again = not new and any(now[name][0] > row for name, (row, _) in _tables(before).items() if name in common)
    return created + differs + again


def _is_renumbered(before: Objects, now: Objects) -> bool:
    """Whether other numbers of tables are those of VACUUM: none is gone, none is higher, all are in the same order."""
    old = _tables(before)
    if not old.keys() <= now.keys() or any(now[name][0] > row for name, (row, _) in old.items()):
        return False
    return sorted(old, key=lambda name: old[name][0]) == sorted(old, key=lambda name: now[name][0])


def _tables(objects: Objects) -> Objects:
    return {name: each for name, each in objects.items() if name.startswith(_TABLE)}


def _digest(table: str, sql: str | None) -> bytes:
    return blake3_256(f"{table}\0{sql}".encode())[:_DIGEST_BYTES]
