"""Destinations: real SQLite tables that events are written to (profile §5)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from meshnode.model.event import KeyValue, Scalar
from meshnode.store.affinity import Affinity, key_survives, strict_accepts


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
    not_null: bool
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
