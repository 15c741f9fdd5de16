"""Profile §5 as a plain fold over a set of events: what each row has to be, from the page alone."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

Clock = tuple[int, int]
Rank = tuple[int, int, bytes, bytes]
Key = tuple[tuple[str, str], ...]


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


@dataclass(frozen=True)
class Shape:
    """What the model has to know of a table: its key, its columns, and what its NOT NULL columns do."""

    key: frozenset[str]
    columns: frozenset[str]
    not_null: frozenset[str] = frozenset()  # withheld while one of these is null
    defaults: frozenset[str] = frozenset()  # of these, those that show a default while unmaterialized
    horizon: Clock = (0, 0)


@dataclass(frozen=True)
class Row:
    """Values of a live row: an unmaterialized column is absent, a cleared one is null."""

    columns: Mapping[str, Any]
    withheld: bool


def identity(key: Mapping[str, Any]) -> Key:
    """Keys of different types are different keys: 1 is not "1" and not b"1"."""
    return tuple(sorted((name, repr(value)) for name, value in key.items()))


def rows_of(facts: Iterable[Fact], table: str, shape: Shape) -> dict[Key, Row]:
    """Every row of a table that exists, by what was delivered: order, repeats and batches are unknown here."""
    by_row: dict[Key, list[Fact]] = {}
    for fact in set_of(facts):
        if fact.table == table and fact.key.keys() == shape.key and fact.hlc >= shape.horizon:
            by_row.setdefault(identity(fact.key), []).append(fact)
    found = {key: _row(events, shape) for key, events in by_row.items()}
    return {key: row for key, row in found.items() if row is not None}


def set_of(facts: Iterable[Fact]) -> Collection[Fact]:
    """Each event once, whatever was delivered twice."""
    return {fact.event_id: fact for fact in facts}.values()


def _row(events: Collection[Fact], shape: Shape) -> Row | None:
    upserts = [(event.rank, event.columns) for event in events if event.columns is not None]
    tombstone = max((event.rank for event in events if event.columns is None), default=None)
    if not upserts or (tombstone is not None and max(rank for rank, _ in upserts) < tombstone):
        return None
    values: dict[str, Any] = {}
    for name in shape.columns:
        carried = [(rank, columns[name]) for rank, columns in upserts if name in columns]
        surviving = [(rank, value) for rank, value in carried if tombstone is None or rank > tombstone]
        if surviving:
            value = max(surviving, key=lambda each: each[0])[1]
            values[name] = int(value) if isinstance(value, bool) else value
        elif tombstone is not None:
            values[name] = None
    missing = {name for name in shape.not_null if values.get(name) is None}
    shown = {name for name in shape.defaults if name not in values}
    return Row(values, withheld=bool(missing - shown))
