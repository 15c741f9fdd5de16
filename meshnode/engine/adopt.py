"""Rows that a table had before it was registered become this device's own writes: nothing in SQL stays unsigned."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from meshnode.codec import cbor
from meshnode.engine.context import Context
from meshnode.engine.registry import required
from meshnode.engine.write import LocalChange, write_changes
from meshnode.limits import BATCH_EVENTS, PAYLOAD_COLUMNS
from meshnode.model.hlc import tick
from meshnode.store import held, rows
from meshnode.store.database import Tx, UnreadableText
from meshnode.store.tables import Destination, quote


def adopt_rows(context: Context, schema: str, name: str) -> int:
    """Write every row of SQL that no event made, a batch per transaction; returns how many.

    Done again it goes on where it was interrupted. A device that may not write leaves such rows as they are.
    """
    adopted = 0
    after: tuple[Any, ...] | None = None
    while True:
        count, after = context.transact(lambda tx, after=after: _adopt_batch(context, tx, schema, name, after))  # type: ignore[misc]
        adopted += count
        if after is None:
            return adopted


def _adopt_batch(
    context: Context, tx: Tx, schema: str, name: str, after: tuple[Any, ...] | None
) -> tuple[int, tuple[Any, ...] | None]:
    """Adopt the next rows behind the key `after`; returns the last key looked at, None at the end."""
    if context.key is None or context.membership.judge(context.site, tick(context.clock, context.env.wall_ms())):
        return 0, None
    entry, destination = required(context, tx, schema, name)
    found = read_page(tx, destination, after, BATCH_EVENTS)
    keyed = [(key, row) for row in found if (key := _key(destination, row)) is not None]
    known = rows.load(tx, destination.no, [cbor.encode(dict(key)) for key, _ in keyed])
    changes = [
        LocalChange(schema, name, key, columns)
        for key, row in keyed
        if (key_bytes := cbor.encode(dict(key))) not in known
        and not (entry.forgotten and held.is_forgotten(tx, destination.no, key_bytes))
        for columns in _columns(destination, row)
    ]
    if changes:
        write_changes(context, tx, changes)
    end = len(found) < BATCH_EVENTS
    return len(changes), None if end else tuple(found[-1][: len(destination.key)])


def read_page(tx: Tx, destination: Destination, after: Sequence[Any] | None, limit: int) -> list[Sequence[Any]]:
    """The next rows behind the key `after`, the values of the key first."""
    key = [quote(column.name) for column in destination.key]
    names = ", ".join([*key, *map(quote, destination.columns)])
    listed = ", ".join(key)
    places = ["CAST(? AS TEXT)" if isinstance(value, UnreadableText) else "?" for value in after or ()]
    beyond = f"({listed}) > ({', '.join(places)})" if after is not None else "1"
    present = " AND ".join(f"{name} IS NOT NULL" for name in key)
    sql = f"SELECT {names} FROM {destination.quoted} WHERE {present} AND {beyond} ORDER BY {listed} LIMIT ?"  # noqa: S608
    return list(tx.execute(sql, (*(after or ()), limit)).fetchall())


def _key(destination: Destination, row: Sequence[Any]) -> Mapping[str, Any] | None:
    """The row key, None where it holds a value that no event's key has (profile §4)."""
    key = {column.name: value for column, value in zip(destination.key, row, strict=False)}
    return key if all(type(value) in (int, str, bytes) for value in key.values()) else None


def _columns(destination: Destination, row: Sequence[Any]) -> Iterator[dict[str, Any]]:
    """The values that an event can carry, in as many payloads as their number takes; null is simply not written."""
    values = row[len(destination.key) :]
    carried = {
        name: value
        for name, value in zip(destination.columns, values, strict=True)
        if not (
            value is None or isinstance(value, UnreadableText) or (type(value) is float and not math.isfinite(value))
        )
    }
    names = list(carried)
    for start in range(0, max(len(names), 1), PAYLOAD_COLUMNS):
        yield {name: carried[name] for name in names[start : start + PAYLOAD_COLUMNS]}
