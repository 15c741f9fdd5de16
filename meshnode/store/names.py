"""Small numbers for sites and tables, given out once and kept; what is cached here is dropped when a batch fails."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from meshnode.model.event import is_reserved
from meshnode.model.hlc import ZERO, Hlc
from meshnode.model.policy import TableClass
from meshnode.store.database import Tx
from meshnode.store.u64 import from_sql, to_sql

CACHED_NAMES: Final = 8192  # entries of one cache; a peer may invent names without end


class SiteNumbers:
    """Site ids to numbers and back; a site gets its number when something is first stored about it."""

    __slots__ = ("_numbers", "_sites")

    def __init__(self) -> None:
        self._numbers: dict[bytes, int] = {}
        self._sites: dict[int, bytes] = {}

    def find(self, tx: Tx, site: bytes) -> int | None:
        """The number of a site, None where nothing is stored about it."""
        number = self._numbers.get(site)
        if number is None:
            row = tx.execute("SELECT no FROM meshnode_sites WHERE site = ?", (site,)).fetchone()
            if row is None:
                return None
            number = self._remember(site, row[0])
        return number

    def number(self, tx: Tx, site: bytes) -> int:
        """The number of a site, given now if it had none."""
        number = self.find(tx, site)
        if number is None:
            cursor = tx.execute("INSERT INTO meshnode_sites (site) VALUES (?)", (site,))
            number = self._remember(site, cursor.lastrowid)
        return number

    def site_of(self, tx: Tx, number: int) -> bytes:
        """The site behind a number that a row holds."""
        site = self._sites.get(number)
        if site is None:
            site = bytes(tx.execute("SELECT site FROM meshnode_sites WHERE no = ?", (number,)).fetchone()[0])
            self._remember(site, number)
        return site

    def _remember(self, site: bytes, number: int) -> int:
        if len(self._numbers) >= CACHED_NAMES:
            self._numbers.clear()
            self._sites.clear()
        self._numbers[site] = number
        self._sites[number] = site
        return number


@dataclass(slots=True)
class TableEntry:
    """What is stored about one (schema, table); `no` is None where nothing is."""

    schema: str
    name: str
    no: int | None
    registered: bool = False
    own_numbers: bool = False
    horizon: Hlc = ZERO
    forgotten: bool = False  # whether any row of it was forgotten here
    reserved: bool = False
    table_class: TableClass = TableClass.SHARED

    @property
    def text(self) -> str:
        """`name` in schema main, else `schema.name`: also the destination's name in SQL (profile §5)."""
        return self.name if self.schema == "main" else f"{self.schema}.{self.name}"


_COLUMNS: Final = "no, schema, name, registered, own_numbers, horizon_physical, horizon_logical, class"


class TableNumbers:
    """(schema, table) pairs to what is stored about them."""

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries: dict[tuple[str, str], TableEntry] = {}

    def entry(self, tx: Tx, schema: str, name: str) -> TableEntry:
        """What is known of a table; names match byte for byte."""
        entry = self._entries.get((schema, name))
        if entry is None:
            row = tx.execute(
                f"SELECT {_COLUMNS} FROM meshnode_tables WHERE schema = ? AND name = ?",  # noqa: S608
                (schema, name),
            ).fetchone()
            entry = self._remember(_entry(tx, row) if row else TableEntry(schema, name, None))
            entry.reserved = is_reserved(schema, name)
        return entry

    def numbered(self, tx: Tx, number: int) -> TableEntry:
        """What is known of the table of this number, which a row holds."""
        return self.entry(
            tx, *tx.execute("SELECT schema, name FROM meshnode_tables WHERE no = ?", (number,)).fetchone()
        )

    def number(self, tx: Tx, entry: TableEntry) -> int:
        """The number of a table, given now if it had none."""
        if entry.no is None:
            cursor = tx.execute("INSERT INTO meshnode_tables (schema, name) VALUES (?, ?)", (entry.schema, entry.name))
            entry.no = int(cursor.lastrowid)
        return entry.no

    def registered(self, tx: Tx) -> list[TableEntry]:
        """Every destination, in the order of their names."""
        rows = tx.execute(
            f"SELECT {_COLUMNS} FROM meshnode_tables WHERE registered = 1 ORDER BY schema, name"  # noqa: S608
        ).fetchall()
        return [self.entry(tx, row[1], row[2]) for row in rows]

    def known(self, tx: Tx) -> list[TableEntry]:
        """Every table that an event or this node ever named, in the order of their names."""
        rows = tx.execute("SELECT schema, name FROM meshnode_tables ORDER BY schema, name").fetchall()
        return [self.entry(tx, *row) for row in rows]

    def mark_registered(self, tx: Tx, entry: TableEntry, *, own_numbers: bool) -> None:
        """Make a table a destination."""
        number = self.number(tx, entry)
        tx.execute(
            "UPDATE meshnode_tables SET registered = 1, own_numbers = ? WHERE no = ?", (int(own_numbers), number)
        )
        entry.registered, entry.own_numbers = True, own_numbers

    def set_horizon(self, tx: Tx, entry: TableEntry, horizon: Hlc) -> None:
        """Freeze what is below `horizon` (profile §5)."""
        tx.execute(
            "UPDATE meshnode_tables SET horizon_physical = ?, horizon_logical = ? WHERE no = ?",
            (to_sql(horizon.physical), to_sql(horizon.logical), self.number(tx, entry)),
        )
        entry.horizon = horizon

    def set_class(self, tx: Tx, entry: TableEntry, table_class: TableClass) -> None:
        """Say what a table is to the mesh (NEOTH, content and privacy)."""
        tx.execute("UPDATE meshnode_tables SET class = ? WHERE no = ?", (table_class.value, self.number(tx, entry)))
        entry.table_class = table_class

    def _remember(self, entry: TableEntry) -> TableEntry:
        if len(self._entries) >= CACHED_NAMES:
            self._entries.clear()
        self._entries[(entry.schema, entry.name)] = entry
        return entry


def _entry(tx: Tx, row: tuple[int, str, str, int, int, int | bytes, int | bytes, str]) -> TableEntry:
    forgotten = tx.execute("SELECT 1 FROM meshnode_forgotten WHERE table_no = ? LIMIT 1", (row[0],)).fetchone()
    return TableEntry(
        row[1],
        row[2],
        row[0],
        registered=bool(row[3]),
        own_numbers=bool(row[4]),
        horizon=Hlc(from_sql(row[5]), from_sql(row[6])),
        forgotten=forgotten is not None,
        table_class=TableClass(row[7]),
    )
