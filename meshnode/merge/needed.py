"""Which events of one row can still decide something, whatever arrives later (profile §5; an extension of ours).

Fed one row's events from the highest rank down, an event E is *not needed* where events that are needed stand above it
in rank and

1. a delete is among them, or
2. E is an upsert, another upsert is among them, and each column that E names is also named by one of them whose value
   every column that takes E's value takes too (`Acceptance`: a STRICT column may refuse the later value).

A delete is needed exactly if no delete stands above it.

Proof that leaving E out changes no state. Let F be any set of further events, and the local schema, horizon H and
membership whatever they are, the same with and without E. Existence is decided by the highest existence event: in both
cases a kept event of a higher rank exists, so E is never it. The tombstone T is the highest delete: a delete E has a
kept delete above it, so E is never T. A column c has the value of the highest upsert that carries c, is taken by the
column, and beats T. In case 1 T is above E, so E never is that upsert. In case 2 a kept E' above E carries c and is
taken wherever E is; whatever beats E' beats E, and if E beats T so does E', so E never is it. Cleared and
unmaterialized differ by T alone. Horizons compare clocks, and E' has no lower clock than E: where E counts, E' counts.
Only events that are kept dominate, so the argument holds for each of the others, however many are left out.

What the proof takes as given is that the kept events stay: an event that is taken back later (profile §9) no longer
brings back what it had superseded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from meshnode.model.event import Scalar

Acceptance: TypeAlias = Callable[[Scalar], int]
"""The kinds of column that take a value, as bits: what takes the later value of two must take the earlier one's."""


class Needed:
    """One row's events, from the highest rank down."""

    __slots__ = ("_acceptance", "_columns", "_deleted", "_upserted")

    def __init__(self, acceptance: Acceptance) -> None:
        self._acceptance = acceptance
        self._columns: dict[str, list[int]] = {}  # what takes the needed values so far
        self._deleted = False
        self._upserted = False

    def needs(self, columns: Mapping[str, Scalar] | None) -> bool:
        """Whether the next lower event (None: a delete) is needed."""
        if self._deleted:
            return False
        if columns is None:
            self._deleted = True
            return True
        kinds = {name: self._acceptance(value) for name, value in columns.items()}
        new = [name for name, mask in kinds.items() if not self._covered(name, mask)]
        if self._upserted and not new:
            return False
        self._upserted = True
        for name in new:
            self._columns.setdefault(name, []).append(kinds[name])
        return True

    def _covered(self, name: str, mask: int) -> bool:
        return any(mask & ~taken == 0 for taken in self._columns.get(name, ()))
