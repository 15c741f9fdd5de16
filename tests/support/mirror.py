"""An application that keeps a copy of a table by its changes alone, as `watch` prints them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from meshnode.node import following
from meshnode.node.following import Place
from meshnode.node.views import ChangeView, RowView
from support.engines import Bench


class Mirror:
    """Live rows by key, each with its values and which of its columns are cleared."""

    def __init__(self) -> None:
        self.values: dict[Any, dict[str, Any]] = {}
        self.cleared: dict[Any, set[str]] = {}

    def take(self, change: ChangeView) -> None:
        """Apply one change."""
        key = tuple(change.key.items())
        if not change.exists:
            assert (change.columns, change.cleared, change.unmaterialized) == ({}, [], [])
            self.values.pop(key, None)
            self.cleared.pop(key, None)
            return
        assert all(change.columns[name] is None for name in change.cleared)
        assert change.columns.keys().isdisjoint(change.unmaterialized)
        values, cleared = self.values.setdefault(key, {}), self.cleared.setdefault(key, set())
        values |= change.columns
        cleared.difference_update(change.columns, change.unmaterialized)
        cleared.update(change.cleared)
        for name in change.unmaterialized:
            values.pop(name, None)

    def rows(self) -> dict[Any, tuple[dict[str, Any], set[str]]]:
        """The copy, to be compared with `as_rows` of the table."""
        return {key: (values, self.cleared[key]) for key, values in self.values.items()}


def as_rows(rows: list[RowView]) -> dict[Any, tuple[dict[str, Any], set[str]]]:
    """A table's rows as a mirror has them."""
    return {tuple(row.key.items()): (row.columns, set(row.cleared)) for row in rows}


def follow(bench: Bench, place: Place, *, limit: int = 1000, table: str | None = None) -> Iterator[ChangeView]:
    """What a subscriber at this place is told until nothing is new; every page is read over a snapshot of its own."""
    while True:
        page, after = bench.read(following.read_on, place, lambda text: table in (None, text), limit)
        assert len(page) <= limit
        yield from page
        if after == place:
            return
        place = after


def told(bench: Bench, since: int = 0) -> list[ChangeView]:
    """Every change beyond `since`."""
    return list(follow(bench, bench.read(following.begin, since)))
