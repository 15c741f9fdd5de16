"""What two members compare, and the words in which they do: feature `verify` (profile §15). Pure.

Either side holds three sets of *items*, 16 bytes each: its events, the states of its rows, and apart from those the
rows that reach below a horizon (*frozen*). An item is a BLAKE3 of an event's bytes, or of a row's key, clocks and
values, under a key that both sides' nonces make: nobody can have chosen an event so that it cancels another out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from meshnode.codec import cbor
from meshnode.codec.digest import blake3_256, derive_key, keyed, keyed_numbers
from meshnode.model.hlc import Hlc

EVENTS: Final = 0
ROWS: Final = 1
FROZEN: Final = 2
SETS: Final = (EVENTS, ROWS, FROZEN)

ID_BYTES: Final = 8
NONCE_BYTES: Final = 16
SHAPE_BYTES: Final = 8
ITEM_BYTES: Final = 16
_NAME_BYTES: Final = 128  # of a name without its key and columns
_CONTEXT: Final = "meshnode 2026 compare v1"

# What is asked, in this order.
CANNOT_READ: Final = "it cannot read what is to be compared"  # why the other side ended it: its store
TABLES: Final = "tables"
RANGES: Final = "ranges"
ITEMS: Final = "items"
NAMES: Final = "names"
WHY: Final = "why"
AGAIN: Final = "again"


class ColumnTold(NamedTuple):
    """A column, and a digest of what decides which values it holds."""

    name: str
    shape: bytes


class TableTold(NamedTuple):
    """One table as a side tells it: its horizon, and its columns where it is a table there; `key` empty: it is none."""

    schema: str
    name: str
    physical: int
    logical: int
    key: bytes = b""
    columns: tuple[ColumnTold, ...] = ()

    @property
    def horizon(self) -> Hlc:
        """Below it the side keeps no events."""
        return Hlc(self.physical, self.logical)


class Range(NamedTuple):
    """The items of one set that begin with so many half bytes."""

    set: int
    depth: int
    prefix: int


class EventName(NamedTuple):
    """One event: `columns` None deletes; `state` as below."""

    set: int  # EVENTS
    table: int  # among those that were agreed on
    site: bytes
    physical: int
    logical: int
    id: bytes
    key: bytes
    columns: tuple[str, ...] | None
    state: int

    @property
    def hlc(self) -> Hlc:
        """Its clock."""
        return Hlc(self.physical, self.logical)


# States of an event at the side that has it.
DELIVERED: Final = 0  # as far as it knows the other side has got it
PENDING: Final = 1  # it is still to be delivered
DAMAGED: Final = 2  # its bytes cannot be read


class RowName(NamedTuple):
    """One row: the lowest and highest HLC among its clocks, a digest of those, and whether it is there."""

    set: int  # ROWS or FROZEN
    table: int
    key: bytes
    lowest: Hlc
    highest: Hlc
    clocks: bytes
    state: int


# States of a row.
ABSENT: Final = 0  # deleted
SHOWN: Final = 1
WITHHELD: Final = 2
MISSING: Final = 3  # its clocks say that it is there, and SQL does not show it

Name: TypeAlias = EventName | RowName


def name_bytes(name: Name) -> int:
    """About how many bytes a name takes in a frame."""
    columns = name.columns or () if isinstance(name, EventName) else ()
    return _NAME_BYTES + len(name.key) + sum(3 + len(each.encode()) for each in columns)


# Why a side does not have what the other names.
UNEXPLAINED: Final = 0
HORIZON: Final = 1  # it does not keep it: below its horizon, compacted, forgotten
POLICY: Final = 2  # it does not take it: class, scope, its author's standing
SCHEMA: Final = 3  # it names no row of the table as that is there
WAITED_FOR: Final = 4  # it was rejected, or is asked for


class Total(NamedTuple):
    """Of one set, of all or of one table or range: how many items, and their sum."""

    size: int
    digest: bytes


class TableTotals(NamedTuple):
    """What a side has of one table, and what it left out: above the bound, and below the horizon of either side."""

    sets: tuple[Total, ...]
    above: int
    below: int


@dataclass(frozen=True, slots=True)
class AgreedTable:
    """A table that is compared, as both sides see it alike."""

    schema: str
    name: str
    horizon: Hlc  # the later of both: events below it are left out
    rows: bool  # whether it is a table on both sides, with the same key
    columns: tuple[str, ...]  # those that both have alike, in bytewise order


@dataclass(frozen=True, slots=True)
class Agreement:
    """What is compared, and under which key."""

    key: bytes
    bound: Hlc  # what is later may be under way and is left out
    tables: tuple[AgreedTable, ...]
    thinned: bool  # on either side there may be less than the history: what no row's state needs


def agree(
    nonces: tuple[bytes, bytes], hlcs: tuple[Hlc, Hlc], pairs: Iterable[tuple[TableTold, TableTold]], *, thinned: bool
) -> Agreement:
    """Of what the two sides told, who opened first; the same on both."""
    key = derive_key(_CONTEXT, b"".join(nonces))
    return Agreement(key, min(hlcs), tuple(_agreed(*pair) for pair in pairs), thinned)


def paired(own: Sequence[TableTold], theirs: Sequence[TableTold]) -> dict[tuple[str, str], tuple[TableTold, TableTold]]:
    """The tables that the second side lists, each with what the first told of it."""
    told = {(each.schema, each.name): each for each in own}
    blank = {(each.schema, each.name): TableTold(each.schema, each.name, 0, 0) for each in theirs}
    return {name: (told.get(name, blank[name]), each) for each in theirs for name in [(each.schema, each.name)]}


def _agreed(one: TableTold, other: TableTold) -> AgreedTable:
    alike = set(one.columns) & set(other.columns)
    return AgreedTable(
        one.schema,
        one.name,
        max(one.horizon, other.horizon),
        bool(one.key) and one.key == other.key,
        tuple(sorted((each.name for each in alike), key=str.encode)),
    )


def shape_digest(shape: list[object]) -> bytes:
    """What a table told stands for with a column, or with its key."""
    return blake3_256(cbor.encode(list(shape)))[:SHAPE_BYTES]


def items_of(key: bytes, pieces: Iterable[bytes]) -> list[int]:
    """The items of many events, or of rows in their one encoding, as numbers."""
    return keyed_numbers(key, pieces, ITEM_BYTES)


def item_of(key: bytes, data: bytes) -> bytes:
    """The item of an event, or of a row in its one encoding."""
    return keyed(key, data)[:ITEM_BYTES]
