"""What further events of one row mean to the writes of this node that it holds, and to the conflicts that it has.

- Two upserts with different values for a column: a conflict about the column.
- A delete against an upsert: a conflict about the row's existence (its column is None), one for the whole row. The
  value of a write is then what it says of its columns; that of a delete is None.
- A later event of the other author that still had not seen ours takes the place of its earlier one. One whose author
  had seen both sides ends the conflict; so does whatever this node writes there, since it has both.
- Two writes that say the same are none; but it is kept that they did, for what the other author writes next.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from meshnode.engine.concurrency import Concurrency
from meshnode.engine.context import Context
from meshnode.limits import CONFLICTS_PER_SITE
from meshnode.merge.rows import RowFold, RowState
from meshnode.model.conflict import SITE_OF_RANK, Relation, Side, Written, same
from meshnode.model.event import Scalar
from meshnode.model.hlc import Rank
from meshnode.store.conflicts import Conflict
from meshnode.store.database import Tx
from meshnode.store.names import TableEntry
from meshnode.store.recall import recall, recall_side

Columns: TypeAlias = Mapping[str, Scalar]
Applied: TypeAlias = Sequence[tuple[Rank, Columns | None]]
"""Events of one row in the order of their arrival: the columns that the destination takes, None for a delete."""

OVERWRITTEN: Final = "a later write had seen both sides"
WRITTEN_HERE: Final = "written again on this device, which had both sides"
CONTINUED: Final = "the other device wrote again without having seen ours"
AGREED: Final = "both devices say the same now"


@dataclass(slots=True)
class Found:
    """A pair that belongs into the ledger."""

    column: str | None
    ours: Side
    position: int  # of ours in the log
    theirs: Side
    relation: Relation
    agreed: bool = False  # they say the same
    over: str | None = None  # why it is over already


@dataclass(frozen=True, slots=True)
class _Pair:
    """One that a later event may go on from: stored before, or found just now."""

    column: str | None
    ours: Side
    position: int
    theirs: Side
    stored: Conflict | Found


class ContestedRow:
    """One row of a batch. Afterwards `found` is what is to be recorded, and `ended` what is over, with the reason."""

    def __init__(
        self,
        context: Context,
        tx: Tx,
        entry: TableEntry,
        before: RowState,
        known: Iterable[Conflict],
        evidence: Concurrency,
        *,
        local: bool,
    ) -> None:
        self.found: list[Found] = []
        self.ended: list[tuple[Conflict, str]] = []
        self.beyond: list[bytes] = []  # whose were more than may be recorded
        self._context = context
        self._tx = tx
        self._entry = entry
        self._fold = RowFold(before)
        self._evidence = evidence
        self._own = context.site
        self._local = local
        self._pairs: dict[str | None, list[_Pair]] = {}
        for each in known:
            ours = recall_side(tx, context.sites, each.ours, each.column)
            self._watch(_Pair(each.column, ours, each.position, each.theirs, each))

    def meet(self, rank: Rank, columns: Columns | None) -> None:
        """The next event meets the row as the ones before left it."""
        open_before = self._touched(columns)
        if rank[SITE_OF_RANK] != self._own:
            self._meet_ours(rank, columns)
        for pair in open_before:
            self._go_on(pair, rank, columns)
        if columns is None:
            self._fold.delete(rank)
        else:
            self._fold.upsert(rank, columns)

    # --- what the row holds of ours

    def _meet_ours(self, rank: Rank, columns: Columns | None) -> None:
        state = self._fold.state
        own = {name: won for name, won in state.columns.items() if won[SITE_OF_RANK] == self._own}
        if columns is None:
            self._meet_delete(own, rank)
            return
        ours = {name: won for name, won in own.items() if name in columns}
        tombstone = state.tombstone
        if tombstone is not None and tombstone[SITE_OF_RANK] == self._own:
            lost = rank < tombstone and len(ours) < len(columns)  # to the delete, not to what we wrote since
            if lost or not state.exists:
                self._compare_rows(tombstone, {}, Side(rank, dict(columns)))
        if ours:
            self._compare_columns(ours, rank, columns)

    def _meet_delete(self, own: Mapping[str, Rank], rank: Rank) -> None:
        """A delete is against all that we wrote of the row: how it stands to the newest of that decides."""
        upsert = self._fold.state.upsert
        ranks = [*own.values(), *([upsert] if upsert is not None and upsert[SITE_OF_RANK] == self._own else [])]
        if ranks:
            self._compare_rows(max(ranks), own, Side(rank, None))

    def _compare_rows(self, won: Rank, own: Mapping[str, Rank], theirs: Side) -> None:
        """Whether the row exists; values are read last, and where ours is not in the log there is nothing to say."""
        relation, position = self._stands(won, theirs.rank)
        values = recall(self._tx, self._context.sites, own) if relation is not None else {}
        if relation is not None and position is not None and len(values) == len(own):
            ours = Side(won, None if theirs.is_write else values)
            self._find(Found(None, ours, position, theirs, relation))

    def _compare_columns(self, ours: Mapping[str, Rank], rank: Rank, columns: Columns) -> None:
        stands = {won: self._stands(won, rank) for won in set(ours.values())}
        asked = {name: won for name, won in ours.items() if None not in stands[won]}
        for name, value in recall(self._tx, self._context.sites, asked).items():
            relation, position = stands[asked[name]]
            if relation is not None and position is not None:
                mine, theirs = Side(asked[name], value), Side(rank, columns[name])
                self._find(Found(name, mine, position, theirs, relation, same(value, theirs.value)))

    def _stands(self, won: Rank, rank: Rank) -> tuple[Relation | None, int | None]:
        """How one of ours stands to theirs, None where it is no conflict; and where it is in the log."""
        relation = self._evidence.relation(self._entry, won, rank)
        if relation is None or relation is Relation.SEQUENTIAL:
            return None, None
        return relation, self._evidence.position(won)

    # --- conflicts that are not over

    def _go_on(self, pair: _Pair, rank: Rank, columns: Columns | None) -> None:
        """What one more event of the row means to a conflict."""
        site = rank[SITE_OF_RANK]
        if site == self._own:
            if self._local:
                self._end(pair, WRITTEN_HERE)
            return
        if site == pair.theirs.site and rank <= pair.theirs.rank:
            return
        relation = self._evidence.relation(self._entry, pair.ours.rank, rank)
        if relation is Relation.SEQUENTIAL:
            if rank > max(pair.ours.rank, pair.theirs.rank):
                self._end(pair, OVERWRITTEN)
        elif relation is not None and site == pair.theirs.site:
            self._continue(pair, rank, columns, relation)

    def _continue(self, pair: _Pair, rank: Rank, columns: Columns | None, relation: Relation) -> None:
        """The other author wrote once more, and had still not seen ours."""
        column, ours = pair.column, pair.ours
        if column is None and columns is not None and ours.is_write:
            self._write_after_delete(pair, rank, columns, relation)
            return
        value: Written = None if columns is None else dict(columns) if column is None else columns[column]
        if columns is None and column is not None:  # from now on it is about the row
            if any(each.theirs.rank == rank for each in self._pairs.get(None, ())):
                self._end(pair, CONTINUED)
                return
            ours, column = replace(ours, value=_one(column, ours.value)), None
        agreed = ours.kept and same(ours.value, value)
        self._find(Found(column, ours, pair.position, Side(rank, value), relation, agreed))
        self._end(pair, AGREED if agreed else CONTINUED)

    def _write_after_delete(self, pair: _Pair, rank: Rank, columns: Columns, relation: Relation) -> None:
        """What it had deleted it wrote anew: the columns are contested, and the row no more if it wrote all of ours."""
        written = pair.ours.value if isinstance(pair.ours.value, dict) else {}
        for name in written.keys() & columns.keys():
            mine, theirs = Side(pair.ours.rank, written[name]), Side(rank, columns[name])
            self._find(Found(name, mine, pair.position, theirs, relation, same(mine.value, theirs.value)))
        if pair.ours.kept and written.keys() <= columns.keys():
            self._end(pair, CONTINUED)

    # --- the books

    def _touched(self, columns: Columns | None) -> list[_Pair]:
        """The conflicts that an event of these columns bears on; a delete bears on all."""
        names = list(self._pairs) if columns is None else [None, *columns]
        return [pair for name in names for pair in self._pairs.get(name, ())]

    def _find(self, found: Found) -> None:
        known = self._pairs.get(found.column, ())
        if any((each.ours.rank, each.theirs.rank) == (found.ours.rank, found.theirs.rank) for each in known):
            return
        if len(self.found) >= CONFLICTS_PER_SITE:
            self.beyond.append(found.theirs.site)
            return
        self.found.append(found)
        self._watch(_Pair(found.column, found.ours, found.position, found.theirs, found))

    def _watch(self, pair: _Pair) -> None:
        self._pairs.setdefault(pair.column, []).append(pair)

    def _end(self, pair: _Pair, reason: str) -> None:
        self._pairs[pair.column].remove(pair)
        if isinstance(pair.stored, Conflict):
            self.ended.append((pair.stored, reason))
        elif pair.stored.agreed or reason is CONTINUED:  # nobody has seen it, and a later one stands for it
            self.found.remove(pair.stored)
        else:
            pair.stored.over = reason


def _one(column: str, value: Written) -> Written:
    """A cell's value as part of a row's."""
    assert not isinstance(value, dict)
    return {column: value}
