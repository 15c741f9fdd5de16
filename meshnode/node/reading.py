"""Queries as views: what `get`, `rows`, `digest`, `tables` and `status` show (profile §5)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from meshnode.codec import cbor
from meshnode.node.api import PAGE_BYTES
from meshnode.node.paging import values_size
from meshnode.node.views import (
    ChangeView,
    ColumnView,
    NoticeView,
    RowView,
    TableDigest,
    TableView,
    Values,
    parse_table,
    table_text,
)
from meshnode.store import notices, policies, queries
from meshnode.store.database import Tx
from meshnode.store.notices import Notice
from meshnode.store.tables import Destination

NOTICES_SHOWN = 50  # of the latest, in a status


def table_views(tx: Tx) -> list[TableView]:
    """Every registered table; one that cannot be used shows no columns, and says why.

    Rows are counted up to a bound, so that an answer does not take as long as the tables are.
    """
    views = []
    left = queries.ROWS_COUNTED
    for entry, destination in queries.registered_tables(tx):
        horizon = (entry.horizon.physical, entry.horizon.logical) if any(entry.horizon) else None
        if not isinstance(destination, Destination):
            views.append(
                TableView(
                    table=entry.text,
                    key=[],
                    columns=[],
                    horizon=horizon,
                    table_class=entry.table_class.value,
                    unusable=destination,
                )
            )
            continue
        rows, withheld = queries.row_counts(tx, destination, left)
        left -= rows
        views.append(
            TableView(
                table=entry.text,
                key=[ColumnView(name=each.name, type=each.declared, not_null=True) for each in destination.key],
                columns=[
                    ColumnView(name=name, type=each.declared, not_null=each.not_null)
                    for name, each in destination.columns.items()
                ],
                rows=rows,
                rows_more=not left,
                withheld=withheld,
                horizon=horizon,
                table_class=entry.table_class.value,
            )
        )
    return views


def table_classes(tx: Tx) -> dict[str, str]:
    """The tables that are not simply shared, by name."""
    return {table_text(*name): each.value for name, each in sorted(policies.classes(tx).items())}


def one_row(tx: Tx, schema: str, name: str, key: Values) -> RowView | None:
    """One live row."""
    row = queries.Table(tx, schema, name).get(key)
    return None if row is None else row_view(row)


def rows_of(tx: Tx, found: Sequence[ChangeView]) -> list[RowView | None]:
    """Of each of these changes the row as it is now."""
    tables = {name: queries.Table(tx, *parse_table(name)) for name in {each.table for each in found}}
    return [_row_of(tables[each.table], each) for each in found]


def row_page(tx: Tx, schema: str, name: str, limit: int, after: Values | None) -> list[RowView]:
    """Live rows in key-bytes order, from beyond `after` on."""
    found = queries.Table(tx, schema, name).rows(cbor.encode(after) if after is not None else b"")
    return [row_view(row) for row in _page(found, limit)]


def row_page_back(tx: Tx, schema: str, name: str, limit: int, before: Values) -> list[RowView]:
    """The live rows next below a key, in key-bytes order."""
    found = queries.Table(tx, schema, name).rows_back(cbor.encode(before))
    return [row_view(row) for row in _page(found, limit)][::-1]


def _page(found: Iterator[queries.Row], limit: int) -> Iterator[queries.Row]:
    """At most `limit` rows, and no more than fill a page; a row that is larger than one is a page."""
    room = PAGE_BYTES
    for row in islice(found, limit):
        yield row
        room -= len(row.key_bytes) + values_size(row.columns)
        if room <= 0:
            return


def table_digest(tx: Tx, schema: str, name: str) -> TableDigest:
    """The digest of one table's live rows."""
    digest, rows = queries.Table(tx, schema, name).digest()
    return TableDigest(table=table_text(schema, name), digest=digest.hex(), rows=rows)


def table_names(tx: Tx) -> list[tuple[str, str]]:
    """Every registered table that can be read, as (schema, name)."""
    usable = [entry for entry, found in queries.registered_tables(tx) if isinstance(found, Destination)]
    return sorted((entry.schema, entry.name) for entry in usable)


def notice_views(tx: Tx) -> list[NoticeView]:
    """The latest surfaced conditions that nobody acknowledged."""
    return [notice_view(each) for each in notices.latest(tx, NOTICES_SHOWN)]


def _row_of(table: queries.Table, change: ChangeView) -> RowView | None:
    if not change.exists or not table.destination.resolves(change.key):
        return None
    row = table.get(change.key)
    return None if row is None else row_view(row)


def row_view(row: queries.Row) -> RowView:
    """One live row."""
    return RowView(key=row.key, columns=row.columns, cleared=row.cleared, unmaterialized=row.unmaterialized)


def notice_view(notice: Notice) -> NoticeView:
    """One surfaced condition."""
    return NoticeView(
        id=notice.no,
        kind=notice.kind,
        site=notice.site.hex(),
        table=notice.table,
        count=notice.count,
        first_ms=notice.first_ms,
        last_ms=notice.last_ms,
        sample=notice.sample,
        acknowledged=notice.acknowledged,
    )
