"""What SQL says of a row and no event says yet: the columns that somebody wrote by plain SQL (profile §5).

A state names the event of every value by its rank, so the value that was signed last is in the log; what the row shows
otherwise is unsigned. Nothing is written here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from meshnode.codec import cbor
from meshnode.engine.context import Context
from meshnode.engine.restate import Restater
from meshnode.limits import EVENT_BYTES, KIB, PAYLOAD_COLUMNS
from meshnode.merge.rows import RowState
from meshnode.model.event import KeyValue, Scalar
from meshnode.store import shapes
from meshnode.store.affinity import Affinity, reads_as_number
from meshnode.store.database import Tx, UnreadableText
from meshnode.store.names import TableEntry
from meshnode.store.recall import recall
from meshnode.store.tables import Column, Destination

_FRAME_BYTES: Final = 4 * KIB  # of an event besides its key and its values, with names of columns
VALUES_BYTES: Final = EVENT_BYTES - _FRAME_BYTES
KIND: Final = "unsyncable"
"""The notice of a value or a row that no event can carry: it stays on this device."""

Payload = dict[str, Scalar]


class Unsigned:
    """Looks at rows of one adopted table."""

    def __init__(self, context: Context, tx: Tx, entry: TableEntry, destination: Destination) -> None:
        self._context = context
        self._tx = tx
        self._entry = entry
        self._table = destination
        self._restater = Restater(context, tx, entry, destination)
        self._new = _new_columns(tx, destination)
        self.follows = self._new != frozenset() or shapes.read(tx, destination.no)[1] is not None
        """Whether its rows are to be brought up to a changed schema: what they show may be nobody's wish."""

    def key(self, values: Sequence[Any], *, surface: bool = True) -> Mapping[str, KeyValue] | None:
        """The row key; None, and surfaced, where no event can have it (profile §4)."""
        key = {column.name: value for column, value in zip(self._table.key, values, strict=False)}
        plain = all(type(value) in (int, str, bytes) for value in key.values())
        if plain and sum(map(_size, key.values())) <= VALUES_BYTES // 2 and self._table.resolves(key):
            return key
        if surface:
            self.surface_row(key, "a key is an integer, text or a byte string, of at most 512 KiB")
        return None

    def surface_row(self, key: Mapping[str, Any], why: str) -> None:
        """A row that no event can carry stays on this device."""
        self._surface(f"row {str(dict(key))[:100]} stays on this device: {why}")

    def surface_forgotten(self) -> None:
        """Nothing of such a row is kept, nor sent."""
        self._surface("a row that was forgotten here was written again: it stays on this device")

    def is_there(self, key: Mapping[str, KeyValue]) -> bool:
        """Whether SQL has the row."""
        return self._restater.shown(self._ordered(key)) is not None

    def payloads(
        self, key: Mapping[str, KeyValue], state: RowState | None, *, withheld: bool = False, sure: bool = True
    ) -> list[Payload] | None:
        """The columns to sign, in as many events as their number and size take; None where SQL has no such row.

        Where there is nothing to sign the list is empty; a new row without values is one empty event. A value whose
        event is not in the log any more counts as another one only where somebody is `sure` to have written the row.
        """
        shown = self._restater.shown(self._ordered(key))
        if shown is None:
            return None
        existed = state is not None and state.exists
        ranks = state.columns if existed and state is not None else {}
        signed = recall(self._tx, self._context.sites, {name: ranks[name] for name in ranks if name in shown})
        changed: Payload = {}
        for name, column in self._table.columns.items():
            value, is_default = shown[name]
            if withheld:
                differs = True  # nobody saw what it had: the row is what it says now
            elif name not in ranks:
                differs = value is not None and not (existed and is_default and self._is_filled(column))
            elif name in signed:
                differs = not stored_alike(column, signed[name], value)
            else:
                differs = sure
            if differs and self._carries(key, name, value):
                changed[name] = value
        if not changed and existed and not withheld:
            return []
        return list(_parted(changed, sum(map(_size, key.values()))))

    def _is_filled(self, column: Column) -> bool:
        """Whether a default in this column may be nobody's: shown for what was never written, or only just added."""
        return column.shows_default or column.name in self._new

    def _carries(self, key: Mapping[str, KeyValue], name: str, value: Any) -> bool:
        fault = _fault(name, value, sum(map(_size, key.values())))
        if fault:
            self._surface(f"column {name!r} of row {str(dict(key))[:100]}: {fault}, so it stays on this device")
        return not fault

    def _surface(self, sample: str) -> None:
        self._context.surface(self._tx, KIND, None, sample, table=self._entry.text)

    def _ordered(self, key: Mapping[str, KeyValue]) -> tuple[KeyValue, ...]:
        return tuple(key[column.name] for column in self._table.key)


def _new_columns(tx: Tx, destination: Destination) -> frozenset[str]:
    """The columns that the rows do not follow yet."""
    shape, progress = shapes.read(tx, destination.no)
    names = None if shape is None else shapes.renewed(shape, shapes.shape_of(destination))
    if names is None or (progress is not None and progress.names is None):
        return frozenset(destination.columns)
    return frozenset(names).union((progress and progress.names) or ())


def _fault(name: str, value: Any, key_bytes: int) -> str:
    if isinstance(value, UnreadableText):
        return "its text is not UTF-8"
    if type(value) is float and not math.isfinite(value):
        return "it is infinite"
    if _size(value) + len(name.encode()) + key_bytes > VALUES_BYTES:
        return f"with its key it is larger than an event can be ({EVENT_BYTES} bytes)"
    return ""


def _parted(columns: Payload, key_bytes: int) -> Iterator[Payload]:
    part: Payload = {}
    size = key_bytes
    for name, value in columns.items():
        cost = _size(value) + len(name.encode()) + 8
        if part and (len(part) == PAYLOAD_COLUMNS or size + cost > VALUES_BYTES):
            yield part
            part, size = {}, key_bytes
        part[name] = value
        size += cost
    yield part


def _size(value: Any) -> int:
    if isinstance(value, str):
        return len(value.encode())
    return len(value) if isinstance(value, bytes) else 9


def key_of(destination: Destination, key_bytes: bytes) -> Mapping[str, KeyValue] | None:
    """The row key behind its bytes, None where it is of an earlier primary key."""
    key: Any = cbor.decode_untrusted(key_bytes)
    return key if destination.resolves(key) else None


def stored_alike(column: Column, signed: Scalar, shown: Any) -> bool:
    """Whether SQL shows what the column makes of a signed value (https://www.sqlite.org/datatype3.html §3)."""
    if isinstance(signed, bool):
        signed = int(signed)
    if type(signed) is type(shown):
        return bool(signed == shown)
    affinity = column.affinity
    if affinity is Affinity.BLOB or signed is None or shown is None:
        return False
    if isinstance(signed, bytes) or isinstance(shown, bytes | UnreadableText):
        return False
    if affinity is Affinity.TEXT:
        return isinstance(shown, str) and _is_number(shown) and _equal(float(shown), signed)
    if isinstance(signed, str):
        return _is_number(signed) and not isinstance(shown, str) and _equal(float(signed), shown)
    return not isinstance(shown, str) and _equal(signed, shown)


def _is_number(text: str) -> bool:
    return reads_as_number(text)


def _equal(one: Any, other: Any) -> bool:
    """As far as SQLite's own text of a number tells them apart: it has 15 digits."""
    return bool(one == other) or (isinstance(other, int | float) and f"{float(one):.15g}" == f"{float(other):.15g}")
