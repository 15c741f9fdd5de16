"""Values by their ranks: a rank names the one event in the log that wrote the value (profile §5)."""

from __future__ import annotations

from collections.abc import Mapping

from meshnode.model.conflict import Side, Written
from meshnode.model.event import Scalar
from meshnode.model.hlc import Rank, hlc_of_rank
from meshnode.store import log
from meshnode.store.database import Tx
from meshnode.store.names import SiteNumbers

_CLOCK = slice(16, 32)
_EVENT_ID = slice(32, 64)


def recall(tx: Tx, sites: SiteNumbers, ranks: Mapping[str, Rank]) -> dict[str, Scalar]:
    """The winning values of these columns; one whose event is not in the log any more is left out."""
    values: dict[str, Scalar] = {}
    columns_of: dict[Rank, Mapping[str, Scalar]] = {}
    for name, rank in ranks.items():
        if rank not in columns_of:
            columns_of[rank] = _columns(tx, sites, rank)
        if name in columns_of[rank]:
            values[name] = columns_of[rank][name]
    return values


def recall_side(tx: Tx, sites: SiteNumbers, side: Side, column: str | None) -> Side:
    """A side of a conflict with its value, from the log where the ledger did not keep it and the log still has it."""
    if side.kept:
        return side
    columns = _columns(tx, sites, side.rank)
    if not columns:
        return side
    value: Written = dict(columns) if column is None else columns.get(column)
    return Side(side.rank, value)


def _columns(tx: Tx, sites: SiteNumbers, rank: Rank) -> Mapping[str, Scalar]:
    site_no = sites.find(tx, rank[_CLOCK])
    if site_no is None:
        return {}
    for _, data in log.find(tx, site_no, hlc_of_rank(rank), rank[_EVENT_ID]):
        event = log.parse(data)
        if event.event_id == rank[_EVENT_ID]:
            return event.columns or {}
    return {}
