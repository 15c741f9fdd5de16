"""The rows that every scenario writes, and signed events of them: four columns and a key, about 350 bytes an event."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random
from typing import Final

from meshnode.model.event import author_event
from meshnode.model.hlc import Hlc
from meshnode.model.site import SiteKey
from meshnode.node.api import Operations
from meshnode.node.views import RowChange

TABLE: Final = "notes"
KEY: Final = {"id": "TEXT"}
COLUMNS: Final = {"title": "TEXT", "body": "TEXT", "done": "INTEGER", "rank": "REAL"}
TRANSACTION_ROWS: Final = 500
_BODY: Final = 74  # characters
_TEXT: Final = "".join(Random(7).choices("abcdefghijklmnopqrstuvwxyz     ", k=4096))  # noqa: S311  # no secret


def key(number: int) -> dict[str, str | int | bytes]:
    """The row that change `number` writes: each transaction is followed by one that writes the same rows again."""
    at = number // (2 * TRANSACTION_ROWS) * TRANSACTION_ROWS + number % TRANSACTION_ROWS
    return {"id": f"row-{at:08}"}


def row(number: int) -> RowChange:
    """Change `number`."""
    return RowChange(key=key(number), columns=values(number))


def values(number: int) -> dict[str, str | int | float]:
    """What that change writes."""
    at = number * 131 % (len(_TEXT) - _BODY)
    return {
        "title": f"note {number}",
        "body": _TEXT[at : at + _BODY],
        "done": number % 2,
        "rank": number * 0.5 + 0.25,
    }


def signed(author: SiteKey, mesh_id: bytes, first: int, count: int, now_ms: int) -> list[bytes]:
    """The exact bytes of the events of these changes, one after the other by their clocks."""
    return [
        author_event(
            author,
            mesh_id,
            schema="main",
            table=TABLE,
            row_key=key(number),
            columns=values(number),
            hlc=Hlc(now_ms, number),
        ).data
        for number in range(first, first + count)
    ]


def batches(data: Sequence[bytes], size: int) -> Iterator[Sequence[bytes]]:
    """So many at a time."""
    for start in range(0, len(data), size):
        yield data[start : start + size]


async def add_table(node: Operations) -> None:
    """The table, at a node."""
    await node.add_table(TABLE, KEY, COLUMNS)


async def write_rows(node: Operations, first: int, count: int) -> None:
    """Write changes in transactions of TRANSACTION_ROWS."""
    for start in range(first, first + count, TRANSACTION_ROWS):
        changes = range(start, min(start + TRANSACTION_ROWS, first + count))
        await node.import_rows(TABLE, [row(number) for number in changes])
