"""Which conflicts there are, which of two values shows, and what changes among them: what only reads of the ledger."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Final

from meshnode.codec import cbor
from meshnode.errors import NotFoundError
from meshnode.limits import CONFLICT_LIST_BYTES, CONFLICT_VALUE_BYTES
from meshnode.merge.rows import RowState
from meshnode.model.conflict import Side, same
from meshnode.model.hlc import hlc_of_rank
from meshnode.model.membership import Membership
from meshnode.model.site import site_text
from meshnode.model.wording import quoted
from meshnode.node.api import CONFLICTS_PER_PAGE
from meshnode.node.conflict_views import ConflictView, SideView
from meshnode.node.naming import known_of
from meshnode.node.stored import Stored, refuse_no_number
from meshnode.node.views import parse_table
from meshnode.store import conflicts, rows
from meshnode.store.conflicts import Conflict
from meshnode.store.database import Tx
from meshnode.store.names import SiteNumbers, TableNumbers
from meshnode.store.recall import recall, recall_side

_PAGE: Final = 64  # read at a time for one subscriber


class Contested(Stored):
    """These operations over a node's storage."""

    async def conflicts(
        self, table: str | None = None, *, everything: bool = False, limit: int = CONFLICTS_PER_PAGE
    ) -> list[ConflictView]:
        """The open ones of one table or of all, the latest first; `everything`: those that are over too."""
        named = None if table is None else parse_table(table)
        most = max(0, min(limit, CONFLICTS_PER_PAGE))

        def read(tx: Tx) -> list[ConflictView]:
            number = None
            if named is not None:
                number = TableNumbers().entry(tx, *named).no
                if number is None:
                    raise NotFoundError(f"no table is called {quoted(table)} here")
            page = conflicts.page(tx, table_no=number, everything=everything, limit=most)
            return _views(tx, self._membership(tx), page)

        return await self.storage.read(read)

    async def conflict_changes(self, *, since: int | None = None) -> AsyncIterator[ConflictView]:
        """Each conflict as it is recorded or changes, beyond the change `since`; with None, from now on.

        One that changed again before it was told is told once, as it is then. Ends with the node.
        """
        refuse_no_number(since)
        if self._ended():
            return
        newest = await self.storage.read(conflicts.last_change)
        after = newest if since is None else since if since <= newest else 0
        while not self._ended():
            rung = self.storage.changed.listen()

            def read(tx: Tx, after: int = after) -> list[ConflictView]:
                return _views(tx, self._membership(tx), conflicts.changed_after(tx, after, _PAGE))

            page = await self.storage.read(read)
            for each in _whole(page):
                after = each.change
                yield each
            if not page:
                await self.storage.changed.wait(rung, self._poll_s())


def _views(tx: Tx, membership: Membership, found: list[Conflict]) -> list[ConflictView]:
    names = {each.site: each.name for each in known_of(tx, membership.members())} if found else {}
    sites, tables, room = SiteNumbers(), TableNumbers(), _Room()
    return [_view(tx, each, names, sites, tables.numbered(tx, each.table_no).text, room) for each in found]


def _whole(page: list[ConflictView]) -> list[ConflictView]:
    """Those up to the first that lacks something: it comes with the next page, and there is room for one always."""
    lacks = (at for at, each in enumerate(page) if at and (each.ours.left_out or each.theirs.left_out or not each.key))
    return page[: next(lacks, len(page))]


class _Room:
    """What keys and values a list has room for."""

    def __init__(self) -> None:
        self._left = CONFLICT_LIST_BYTES

    def takes(self, value: Any) -> bool:
        """Whether there is room for it; what is small has some always, since the number of conflicts is bounded."""
        size = _size(value)
        self._left = max(self._left - size, 0)
        return self._left > 0 or size <= CONFLICT_VALUE_BYTES

    @property
    def is_over(self) -> bool:
        """Nothing large is looked for any more."""
        return not self._left


def _size(value: Any) -> int:
    if isinstance(value, dict):
        return sum(len(name) + _size(item) for name, item in value.items())
    return len(value) if isinstance(value, str | bytes) else 0


def _view(
    tx: Tx, found: Conflict, names: dict[bytes, str], sites: SiteNumbers, table: str, room: _Room
) -> ConflictView:
    key: Any = cbor.decode_untrusted(found.key_bytes) if room.takes(found.key_bytes) else {}
    (ours, left_out), (theirs, also) = (_recalled(tx, sites, each, found, room) for each in (found.ours, found.theirs))
    shown, other = shown_of(tx, sites, found, ours, theirs)
    return ConflictView(
        id=found.id.hex(),
        table=table,
        key=key,
        column=found.column,
        ours=_side(ours, names, left_out=left_out),
        theirs=_side(theirs, names, left_out=also),
        shown=shown,
        other=other if room.takes(other) else None,
        certainty="certain" if found.certain else "possible",
        status=found.status.value,
        reason=found.reason,
        recorded_ms=found.recorded_ms,
        change=found.change,
    )


def _recalled(tx: Tx, sites: SiteNumbers, side: Side, found: Conflict, room: _Room) -> tuple[Side, bool]:
    """A side with its value, unless that is too much; and whether it is."""
    if not side.kept and room.is_over:
        return side, True
    recalled = recall_side(tx, sites, side, found.column)
    return (recalled, False) if room.takes(recalled.value) else (side, True)


def _side(side: Side, names: dict[bytes, str], *, left_out: bool) -> SideView:
    return SideView(
        site=site_text(side.site),
        name=names.get(side.site, ""),
        value=side.value,
        hlc=hlc_of_rank(side.rank)[:],
        event=side.event_id.hex(),
        kept=side.kept or left_out,
        left_out=left_out,
    )


def shown_of(tx: Tx, sites: SiteNumbers, conflict: Conflict, ours: Side, theirs: Side) -> tuple[str, Any]:
    """Which of the two a reader of the table sees now: that write, or what was written since and says the same.

    Where it is neither, with the value that the reader sees instead.
    """
    stored = rows.load(tx, conflict.table_no, [conflict.key_bytes]).get(conflict.key_bytes)
    state = RowState() if stored is None else stored[0]
    if conflict.column is None:
        who = "ours" if ours.is_write is state.exists else "theirs" if theirs.is_write is state.exists else "neither"
        return who, None
    winner = state.columns.get(conflict.column)
    if winner is None:
        return "neither", None
    for name, side in (("ours", ours), ("theirs", theirs)):
        if side.rank == winner:
            return name, None
    value = recall(tx, sites, {conflict.column: winner})
    for name, side in (("ours", ours), ("theirs", theirs)):
        if side.kept and conflict.column in value and same(value[conflict.column], side.value):
            return name, None
    return "neither", value.get(conflict.column)
