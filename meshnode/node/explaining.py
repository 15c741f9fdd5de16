"""Why one row is as it is: the clock behind every column, the clocks of its existence, and why nobody sees it (§5)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from meshnode.model.hlc import Rank, hlc_of_rank
from meshnode.model.site import site_text
from meshnode.node.views import CellView, ClockView, RowExplanation, Values
from meshnode.store import queries
from meshnode.store.database import Tx

_SITE: Final = slice(16, 32)  # of a rank
_EVENT: Final = slice(32, 64)
_TAKEN_OUT: Final = "it is not in the table: something other than this node took it out"


def explanation(tx: Tx, schema: str, name: str, key: Values) -> RowExplanation | None:
    """One row, live, deleted or withheld; None where nothing was ever heard of it."""
    table = queries.Table(tx, schema, name)
    stored = table.find(key)
    if stored is None:
        return None
    state, row, horizon = stored.state, stored.row, table.entry.horizon
    values = row.columns if row is not None else table.recalled(state)
    return RowExplanation(
        table=table.entry.text,
        key=key,
        exists=row is not None,
        withheld=state.exists and stored.reason is not None,
        reason=stored.reason or (_TAKEN_OUT if state.exists and row is None else ""),
        existence=_clock(state.upsert or state.tombstone),
        tombstone=_clock(state.tombstone),
        horizon=(horizon.physical, horizon.logical) if any(horizon) else None,
        columns=[
            _cell(column, state.columns.get(column), state.tombstone, values) for column in table.destination.columns
        ],
    )


def _cell(name: str, rank: Rank | None, tombstone: Rank | None, values: Mapping[str, Any]) -> CellView:
    """A surviving winner, else cleared where there was any delete, else unmaterialized (profile §5)."""
    if rank is not None:
        return CellView(name=name, state="written", value=values.get(name, msgspec.UNSET), clock=_clock(rank))
    if tombstone is not None:
        return CellView(name=name, state="cleared", value=None, clock=_clock(tombstone))
    return CellView(name=name, state="unmaterialized")


def _clock(rank: Rank | None) -> ClockView | None:
    if rank is None:
        return None
    return ClockView(site=site_text(rank[_SITE]), hlc=hlc_of_rank(rank)[:], event=rank[_EVENT].hex())
