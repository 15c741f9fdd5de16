"""What a node tells another member of the tables that both may compare, and which of the other's it goes into (§15)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Final

from meshnode.errors import NotFoundError, UsageError
from meshnode.limits import COMPARED_BYTES, COMPARED_COLUMNS, COMPARED_TABLES
from meshnode.model.comparison import ColumnTold, TableTold, shape_digest
from meshnode.model.hlc import Hlc
from meshnode.model.scope import Scope
from meshnode.store import meta, policies, removed
from meshnode.store.database import Tx
from meshnode.store.destinations import open_destination
from meshnode.store.names import TableEntry, TableNumbers
from meshnode.store.tables import Column, Destination

_FIRST_GENERATION: Final = 1  # of a policy that never changed
_TABLE_OVERHEAD: Final = 64  # bytes beside the names


@dataclass(frozen=True, slots=True)
class ToldTables:
    """One side of a comparison as it begins."""

    hlc: Hlc
    thinned: bool  # there may be less here than the history: what no row's state needs
    tables: tuple[TableTold, ...]
    more: int  # tables that do not fit


class Crossing:
    """Which tables cross whole between this node and one peer: of others either side may lack what it likes."""

    def __init__(self, tx: Tx, offered: Scope) -> None:
        self._policy = policies.read(tx)
        self._offered = offered

    def whole(self, entry: TableEntry) -> bool:
        """Whether every event of a table comes in and goes out."""
        return (
            not entry.reserved
            and self._policy.takes_whole(entry.schema, entry.name, entry.table_class)
            and self._policy.days(entry.table_class) == inf
            and self._offered.contains(entry.schema, entry.name)
        )


def tell(
    tx: Tx, offered: Scope, *, only: tuple[str, str] | None = None, named: Iterable[tuple[str, str]] = ()
) -> ToldTables:
    """What this side has to compare with a peer that wants `offered`: one table or all, and those that it named.

    NotFoundError for one table that nobody ever named, UsageError for one that does not cross whole.
    """
    crossing, numbers = Crossing(tx, offered), TableNumbers()
    if only is not None:
        entries = [numbers.entry(tx, *only)]
        if entries[0].no is None:
            raise NotFoundError(
                f"nothing is known of a table {entries[0].text!r}: `meshnode table list` has those here"
            )
        if not crossing.whole(entries[0]):
            raise UsageError(
                f"table {entries[0].text!r} does not cross whole between the two: its class, the scope or the replay "
                "budget keeps some of it from either, so it cannot be compared"
            )
    else:
        known = {(each.schema, each.name): each for each in numbers.known(tx)}
        known.update({name: numbers.entry(tx, *name) for name in named if name not in known})
        entries = [each for each in known.values() if crossing.whole(each)]
    told = _fitting([_told(tx, each) for each in entries])
    return ToldTables(meta.read_clock(tx), _is_thinned(tx), told, len(entries) - len(told))


def taken(tx: Tx, offered: Scope, theirs: Sequence[TableTold]) -> list[int]:
    """Of the tables that a peer told, those that this side goes into: unheard-of ones are empty here."""
    crossing, numbers = Crossing(tx, offered), TableNumbers()
    return [at for at, each in enumerate(theirs) if crossing.whole(numbers.entry(tx, each.schema, each.name))]


def _told(tx: Tx, entry: TableEntry) -> TableTold:
    destination = open_destination(tx, entry) if entry.registered else ""
    if isinstance(destination, str):
        return TableTold(entry.schema, entry.name, *entry.horizon)
    columns = tuple(ColumnTold(each.name, _shape(each)) for each in destination.columns.values())
    return TableTold(entry.schema, entry.name, *entry.horizon, _key_shape(destination), columns)


def _shape(column: Column) -> bytes:
    return shape_digest([column.affinity.value, column.strict])


def _key_shape(destination: Destination) -> bytes:
    columns = sorted([column.name, column.affinity.value, column.strict] for column in destination.key)
    return shape_digest([destination.rowid_key, *columns])


def _fitting(told: Sequence[TableTold]) -> tuple[TableTold, ...]:
    """As many as one frame takes; tables with rows first, since those people care for."""
    kept: list[TableTold] = []
    size = columns = 0
    for each in sorted(told, key=lambda table: not table.key):
        names = (each.schema, each.name, *(column.name for column in each.columns))
        size += sum(len(name.encode()) for name in names) + _TABLE_OVERHEAD + 12 * len(each.columns)
        columns += len(each.columns)
        if size > COMPARED_BYTES or columns > COMPARED_COLUMNS or len(kept) == COMPARED_TABLES:
            break
        kept.append(each)
    return tuple(kept)


def _is_thinned(tx: Tx) -> bool:
    """What was evicted or compacted here is gone; what was opted in came without its history."""
    return policies.generation(tx) > _FIRST_GENERATION or removed.any_of(tx, (removed.EVICTED, removed.COMPACTED))
