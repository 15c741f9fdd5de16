"""Queries as views: what `get`, `rows`, `digest`, `tables`, `watch` and `status` show (profile §5)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import msgspec

from meshnode.codec import cbor
from meshnode.node.views import ChangeView, ColumnView, NoticeView, RowView, TableDigest, TableView, Values, table_text
from meshnode.store import changes, policies, queries
from meshnode.store.database import Tx
from meshnode.store.notices import Notice
from meshnode.store.rows import unpack_state
from meshnode.store.tables import Destination

NOTICES_SHOWN = 50  # of the latest, in a status


def table_views(tx: Tx) -> list[TableView]:
    """Every registered table; one that cannot be used shows no columns, and a notice says why."""
    views = []
    for entry, destination in queries.registered_tables(tx):
        usable = destination if isinstance(destination, Destination) else None
        rows, withheld = queries.row_counts(tx, usable) if usable else (0, 0)
        views.append(
            TableView(
                table=entry.text,
                key=[ColumnView(name=each.name, type=each.declared, not_null=True) for each in usable.key]
                if usable
                else [],
                columns=[
                    ColumnView(name=name, type=each.declared, not_null=each.shows_default)
                    for name, each in usable.columns.items()
                ]
                if usable
                else [],
                rows=rows,
                withheld=withheld,
                horizon=(entry.horizon.physical, entry.horizon.logical) if any(entry.horizon) else None,
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
    return None if row is None else RowView(key=row.key, columns=row.columns)


def row_page(tx: Tx, schema: str, name: str, limit: int, after: Values | None) -> list[RowView]:
    """Live rows in key-bytes order, from beyond `after` on."""
    found = queries.Table(tx, schema, name).rows(cbor.encode(after) if after is not None else b"")
    return [RowView(key=row.key, columns=row.columns) for row in islice(found, limit)]


def table_digest(tx: Tx, schema: str, name: str) -> TableDigest:
    """The digest of one table's live rows."""
    digest, rows = queries.Table(tx, schema, name).digest()
    return TableDigest(table=table_text(schema, name), digest=digest.hex(), rows=rows)


def table_names(tx: Tx) -> list[tuple[str, str]]:
    """Every registered table that can be read, as (schema, name)."""
    usable = [entry for entry, found in queries.registered_tables(tx) if isinstance(found, Destination)]
    return sorted((entry.schema, entry.name) for entry in usable)


def change_page(tx: Tx, since: int, limit: int) -> list[ChangeView]:
    """The changes that follow `since`."""
    return [_change_view(each) for each in queries.changes_since(tx, since, limit)]


def is_kept(tx: Tx, since: int) -> bool:
    """Whether the change sequence still reaches back to what follows `since`, and knows it at all."""
    return queries.oldest_change(tx) <= since + 1 and since <= queries.last_change(tx)


def whole_state(tx: Tx, since: int, table: str | None) -> tuple[int, list[ChangeView]]:
    """Where the change sequence stands, and every row as a change: for a subscriber older than the kept changes.

    Only the last one carries the new `seq`: whoever stops before it and goes on from what it saw gets all rows again.
    """
    seq = queries.last_change(tx)
    rows = [row for row in row_states(tx, since) if table in (None, row.table)]
    if rows:
        rows[-1] = msgspec.structs.replace(rows[-1], seq=seq)
    return seq, rows


def row_states(tx: Tx, seq: int) -> Iterator[ChangeView]:
    """Every row that there ever was as if it had just changed, under one number.

    Deleted rows are told too, so that nothing which went away meanwhile is missed.
    """
    for entry, found in queries.registered_tables(tx):
        if not isinstance(found, Destination):
            continue
        table = queries.Table(tx, entry.schema, entry.name)
        live = {row.key_bytes: row for row in table.rows()}
        for key_bytes, state in tx.execute("SELECT key, state FROM meshnode_rows WHERE table_no = ?", (found.no,)):
            row = live.get(key_bytes)
            if row is None and unpack_state(state).exists:
                continue  # withheld
            yield ChangeView(
                seq=seq,
                table=entry.text,
                key=_key(key_bytes),
                op="upsert" if row else "delete",
                exists=row is not None,
                columns=row.columns if row else {},
            )


def notice_views(tx: Tx) -> list[NoticeView]:
    """The latest surfaced conditions."""
    return [_notice_view(each) for each in queries.notices(tx, NOTICES_SHOWN)]


def _change_view(change: queries.Change) -> ChangeView:
    row = change.change
    cleared = dict.fromkeys(row.cleared) if row.op != changes.DELETE else {}
    return ChangeView(
        seq=change.seq,
        table=table_text(change.schema, change.table),
        key=change.key,
        op=row.op,
        exists=row.op in (changes.UPSERT, changes.RESURRECT),
        columns={name: queries.presentable(value) for name, value in {**cleared, **row.values}.items()},
        site=row.site.hex(),
        hlc=(row.physical, row.logical),
    )


def _notice_view(notice: Notice) -> NoticeView:
    return NoticeView(
        kind=notice.kind,
        site=notice.site.hex(),
        table=notice.table,
        count=notice.count,
        first_ms=notice.first_ms,
        last_ms=notice.last_ms,
        sample=notice.sample,
    )


def _key(key_bytes: bytes) -> Any:
    return cbor.decode_untrusted(key_bytes)
