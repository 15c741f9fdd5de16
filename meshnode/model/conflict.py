"""What a conflict is: two concurrent writes of one cell by two sites, and what is known of their order.

SSP/1 lets the last writer win; the ledger keeps that the other one did not know (NEOTH, conflict records).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Any, Final, TypeAlias

from meshnode.codec import cbor
from meshnode.codec.digest import blake3_256
from meshnode.model.event import Scalar
from meshnode.model.hlc import Rank

ID_BYTES: Final = 16
SITE_OF_RANK: Final = slice(16, 32)
EVENT_ID_OF_RANK: Final = slice(32, 64)

_COMPARED_AS_THEY_ARE: Final = (type(None), bool, int, str, bytes)

Written: TypeAlias = "Scalar | dict[str, Scalar]"
"""A cell's value; where the row's existence is contested, the columns that were written, None for a delete."""


class Relation(Enum):
    """What a later look tells of two events of two sites."""

    SEQUENTIAL = "sequential"  # the author of one had seen the other
    CONCURRENT = "concurrent"  # neither had
    UNKNOWN = "unknown"  # nothing that is stored here tells


class Status(StrEnum):
    """How far a conflict is."""

    OPEN = "open"
    ACKNOWLEDGED = "acknowledged"  # a person has seen it, and leaves it as it is
    RESOLVED = "resolved"  # a later event superseded it, by somebody who had seen both sides
    WITHDRAWN = "withdrawn"  # it was none, or one of its events is not acceptable any more
    AGREED = "agreed"  # it is none, since both wrote the same; kept, and never shown, for what is written next


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two writes; `kept` is False where its value is known no more."""

    rank: Rank
    value: Written
    kept: bool = True

    @property
    def is_write(self) -> bool:
        """Where the row's existence is contested: whether this is no delete, whose null is always kept."""
        return not self.kept or self.value is not None

    @property
    def site(self) -> bytes:
        """Who wrote it."""
        return self.rank[SITE_OF_RANK]

    @property
    def event_id(self) -> bytes:
        """The event that it was written by."""
        return self.rank[EVENT_ID_OF_RANK]


def conflict_id(schema: str, table: str, key_bytes: bytes, column: str | None, one: Rank, other: Rank) -> bytes:
    """The same at both authors, whichever of the two events is theirs."""
    pair = sorted((one[EVENT_ID_OF_RANK], other[EVENT_ID_OF_RANK]))
    return blake3_256(cbor.encode([schema, table, key_bytes, column, *pair]))[:ID_BYTES]


def same(one: Any, other: Any) -> bool:
    """Whether two values are one as SSP/1 writes them: `true`, 1 and 1.0 are three, 0.0 and -0.0 two (profile §2)."""
    if type(one) is not type(other):
        return False
    return bool(one == other) if type(one) in _COMPARED_AS_THEY_ARE else cbor.encode(one) == cbor.encode(other)
