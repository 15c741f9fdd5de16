"""Profile §5 as a plain fold over a set of events: what each row has to be, from the page alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

Clock = tuple[int, int]
Rank = tuple[Any, ...]  # (physical, logical, site, event id); the empty one, which every rank beats, stands for none
Key = tuple[tuple[str, str], ...]
Cells = tuple[Any, ...]


@dataclass(frozen=True)
class Fact:
    """One signed event, without its bytes; `columns` is None for a delete."""

    site: bytes
    event_id: bytes
    table: str
    key: Mapping[str, Any]
    columns: Mapping[str, Any] | None
    hlc: Clock

    @property
    def rank(self) -> Rank:
        return (*self.hlc, self.site, self.event_id)


class Table(Protocol):
    """What the model asks of a SQL table; SQLite itself answers (`support.judge`)."""

    @property
    def columns(self) -> Iterable[str]: ...  # without those of the key
    def resolves(self, key: Mapping[str, Any]) -> bool: ...  # exactly the key columns, and each keeps its value
    def takes(self, column: str, value: Any) -> bool: ...  # False where a STRICT type refuses it
    def shown(self, key: Mapping[str, Any], values: Mapping[str, Any]) -> Cells | None: ...  # None: not allowed


@dataclass(frozen=True)
class Row:
    """The clocks of one row and its values; a row that a delete ended has a tombstone alone."""

    key: Mapping[str, Any]
    tombstone: Rank = ()
    upsert: Rank = ()  # of the newest upsert above the tombstone
    columns: Mapping[str, tuple[Rank, Any]] = field(default_factory=dict)  # what won above the tombstone

    def values(self, table: Table) -> dict[str, Any]:
        """A cleared column is null, an unmaterialized one is absent."""
        cleared = dict.fromkeys(table.columns) if self.tombstone else {}
        return {**cleared, **{name: value for name, (_, value) in self.columns.items()}}

    def cells(self, table: Table) -> Cells | None:
        """What the SQL table holds of the row, None where it does not exist or has to be withheld."""
        return table.shown(self.key, self.values(table)) if self.upsert else None


def identity(key: Mapping[str, Any]) -> Key:
    """Keys of different types are different keys: 1 is not "1" and not b"1"."""
    return tuple(sorted((name, repr(value)) for name, value in key.items()))


def rows_of(facts: Iterable[Fact], name: str, table: Table, given: Mapping[Key, Row] = {}) -> dict[Key, Row]:
    """Every row with clocks, by what was delivered: order, repeats and batches are unknown here.

    `given` is what a horizon froze: rows as they stood, whose events are not among `facts` any more.
    """
    by_row: dict[Key, list[Fact]] = {key: [] for key in given}
    for fact in {fact.event_id: fact for fact in facts}.values():
        if fact.table == name and table.resolves(fact.key):
            by_row.setdefault(identity(fact.key), []).append(fact)
    return {key: _fold(events, table, given.get(key)) for key, events in by_row.items()}


def _fold(events: list[Fact], table: Table, given: Row | None) -> Row:
    given = given or Row(events[0].key)
    upserts = [(event.rank, event.columns) for event in events if event.columns is not None]
    tombstone = max((event.rank for event in events if event.columns is None), default=())
    tombstone = max(tombstone, given.tombstone)
    upsert = max([given.upsert, *(rank for rank, _ in upserts)])
    columns: dict[str, tuple[Rank, Any]] = {}
    for name in table.columns:
        carried = [(rank, written[name]) for rank, written in upserts if name in written]
        taken = [(rank, value) for rank, value in carried if table.takes(name, value)]
        winner = max([given.columns.get(name, ((), None)), *taken], key=lambda each: each[0])
        if winner[0] > tombstone:
            columns[name] = winner
    return Row(given.key, tombstone, upsert if upsert > tombstone else (), columns)
