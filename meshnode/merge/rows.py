"""What a row becomes: per-column last writer wins bounded by the tombstone clock (SSP/1 §13.1 to §13.3, profile §5).

A row's state keeps only what can still decide something. A column whose rank the tombstone beats is dropped: it is
*cleared*, and a late write below the tombstone loses to that, not to the column. So a row that has any rank above its
tombstone exists, and a row that does not exist is its tombstone alone. Every column's rank survives a delete that it
beats, hence a resurrection needs no rebuild from the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from meshnode.model.event import Scalar
from meshnode.model.hlc import Rank

_LOWEST: Final = b""
_encode = msgspec.msgpack.Encoder().encode
_ARRAY_32: Final = b"\xdd"  # how MessagePack begins an array, before its length of 4 bytes
_decode_all = msgspec.msgpack.Decoder(list[tuple[bytes | None, list[tuple[bytes, list[str]]]]]).decode
_decode = msgspec.msgpack.Decoder(tuple[bytes | None, list[tuple[bytes, list[str]]]]).decode


class RowState:
    """The clocks of one row: highest delete, highest upsert above it, and each column's winner above it."""

    __slots__ = ("columns", "tombstone", "upsert")

    def __init__(
        self, tombstone: Rank | None = None, upsert: Rank | None = None, columns: dict[str, Rank] | None = None
    ) -> None:
        self.tombstone = tombstone
        self.upsert = upsert
        self.columns = {} if columns is None else columns

    @property
    def exists(self) -> bool:
        """Whether the highest existence event is an upsert (SSP/1 §13.2)."""
        return self.upsert is not None

    def cleared(self, names: Iterable[str]) -> list[str]:
        """Of these columns, those that a delete cleared and nothing wrote since: a null with a clock (profile §5)."""
        return [] if self.tombstone is None else [name for name in names if name not in self.columns]

    def unmaterialized(self, names: Iterable[str]) -> list[str]:
        """Of these columns, those that nothing ever wrote or cleared: no value, and no clock (SSP/1 §13.6)."""
        return [] if self.tombstone is not None else [name for name in names if name not in self.columns]

    def pack(self) -> bytes:
        """The stored form: each rank once, with the columns that it won."""
        upsert = self.upsert
        if upsert is None:
            return _encode((self.tombstone, ()))
        groups: dict[Rank, list[str]] = {upsert: []}
        for name, rank in self.columns.items():
            names = groups.get(rank)
            if names is None:
                groups[rank] = [name]
            else:
                names.append(name)
        return _encode((self.tombstone, list(groups.items())))

    @classmethod
    def unpack(cls, data: bytes) -> RowState:
        """The state behind a stored form; raises msgspec.DecodeError for anything else."""
        tombstone, groups = _decode(data)
        if not groups:
            return cls(tombstone)
        columns: dict[str, Rank] = {}
        for rank, names in groups:
            for name in names:
                columns[name] = rank
        return cls(tombstone, groups[0][0], columns)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RowState):
            return NotImplemented
        return (self.tombstone, self.upsert, self.columns) == (other.tombstone, other.upsert, other.columns)

    __hash__ = None  # type: ignore[assignment]  # mutable


def clock_groups(states: Sequence[bytes]) -> list[tuple[Rank | None, list[tuple[Rank, list[str]]]]]:
    """Of each stored state the tombstone, and each rank with the columns that it won, the highest upsert first.

    For whoever reads so many that a `RowState` each is too much; raises msgspec.DecodeError as `unpack` does.
    """
    return _decode_all(_ARRAY_32 + len(states).to_bytes(4, "big") + b"".join(states))


class RowFold:
    """Folds any number of events into one row; afterwards says what differs from before."""

    __slots__ = ("_upsert_before", "cleared", "existed", "state", "tombstone_before", "tombstone_moved", "values")

    def __init__(self, state: RowState | None) -> None:
        self.state = RowState() if state is None else state
        self._upsert_before = self.state.upsert
        self.existed = self._upsert_before is not None
        self.tombstone_before = self.state.tombstone
        self.tombstone_moved = False
        self.values: dict[str, Scalar] = {}
        """Columns that a folded event won, with its value."""
        self.cleared: set[str] = set()
        """Columns that a folded delete beat."""

    def upsert(self, rank: Rank, columns: Mapping[str, Scalar]) -> None:
        """Write `columns`, all of which the destination can take, if they beat what is there."""
        state = self.state
        if state.tombstone is not None and rank <= state.tombstone:
            return
        if state.upsert is None or rank > state.upsert:
            state.upsert = rank
        ranks, values = state.columns, self.values
        if not ranks and not values:
            ranks.update(dict.fromkeys(columns, rank))
            values.update(columns)
            return
        for name, value in columns.items():
            if rank > ranks.get(name, _LOWEST):
                ranks[name] = rank
                values[name] = value

    def delete(self, rank: Rank) -> None:
        """Move the tombstone and clear what it beats, whether or not the delete wins existence (SSP/1 §13.3)."""
        state = self.state
        if state.tombstone is not None and rank <= state.tombstone:
            return
        state.tombstone = rank
        self.tombstone_moved = True
        if state.upsert is not None and state.upsert < rank:
            state.upsert = None
        for name in [name for name, won in state.columns.items() if won < rank]:
            del state.columns[name]
            self.values.pop(name, None)
            self.cleared.add(name)

    @property
    def changed(self) -> bool:
        """Whether anything that a reader can see may differ from before."""
        exists = self.state.exists
        return exists != self.existed or (exists and bool(self.values or self.tombstone_moved))

    @property
    def touched(self) -> bool:
        """Whether the stored state differs from before."""
        return self.tombstone_moved or bool(self.values) or self.state.upsert != self._upsert_before

    @property
    def resurrected(self) -> bool:
        """Whether a row that had been deleted exists again."""
        return self.state.exists and not self.existed and self.tombstone_before is not None


def fold(state: RowState | None, events: Iterable[tuple[Rank, Mapping[str, Any] | None]]) -> RowFold:
    """Fold `(rank, columns or None for a delete)` in any order."""
    result = RowFold(state)
    for rank, columns in events:
        if columns is None:
            result.delete(rank)
        else:
            result.upsert(rank, columns)
    return result
