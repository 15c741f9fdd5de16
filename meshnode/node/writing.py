"""Rows that a program writes, planned on the writer thread: which columns change, and what has to be there (§4)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, TypeAlias

from meshnode.codec import cbor
from meshnode.engine.context import Context
from meshnode.engine.registry import required
from meshnode.engine.write import LocalChange, write_changes
from meshnode.errors import NotFoundError, UsageError
from meshnode.model.event import Event, Scalar
from meshnode.node.views import Receipt
from meshnode.node.where import EVERY_ROW, Condition, matching_keys
from meshnode.store import queries
from meshnode.store.database import Tx
from meshnode.store.tables import Destination

Key: TypeAlias = "Scalar | Mapping[str, Scalar]"
"""Which row: the value of the key column, or a mapping of all of them."""

_ABSENT: Final = object()


class Intent(Enum):
    """What is wanted of a row."""

    PUT = "put"  # these columns get these values
    UPSERT = "upsert"  # it is to be so: what is so already is not written again
    PATCH = "patch"  # these columns of a row that is there
    DELETE = "delete"
    DELETE_WHERE = "delete-where"  # every row that the condition is true of


@dataclass(frozen=True, slots=True)
class Write:
    """One row to write; where `key` is None, `columns` has the key columns too."""

    schema: str
    table: str
    intent: Intent
    columns: Mapping[str, Scalar]
    key: Key = None
    condition: Condition = EVERY_ROW


def named_key(destination: Destination, key: Key) -> dict[str, Any]:
    """A key with the names of its columns; UsageError for a single value where there are several."""
    if isinstance(key, Mapping):
        return dict(key)
    names = [column.name for column in destination.key]
    if len(names) > 1:
        raise UsageError(
            f"a key of table {destination.text!r} has the columns {', '.join(names)}: give a mapping of them, as "
            f"{{{', '.join(f'{name!r}: …' for name in names)}}}"
        )
    return {names[0]: key}


def write_rows(context: Context, tx: Tx, writes: Sequence[Write]) -> list[Event]:
    """All of them in order, or none and an error that names what is wrong; an upsert that changes nothing is no event.

    Reading and writing are one transaction, so nothing comes between.
    """
    plan = _Plan(context, tx)
    changes = [change for each in writes for change in plan.changes(each)]
    return write_changes(context, tx, changes) if changes else []


def receipt_of(context: Context, tables: Iterable[str], events: Sequence[Event]) -> Receipt:
    """Of what this transaction wrote; where nothing had to be written, the clock as it stands."""
    clock = events[-1].hlc if events else context.clock
    return Receipt(
        table=", ".join(sorted(set(tables))),
        events=len(events),
        hlc=(clock.physical, clock.logical),
        event_ids=[event.event_id.hex() for event in events],
        seq=context.next_change - 1,
    )


class _Plan:
    """Knows each row as the writes before left it."""

    def __init__(self, context: Context, tx: Tx) -> None:
        self._context = context
        self._tx = tx
        self._tables: dict[tuple[str, str], tuple[Destination, queries.Table]] = {}
        self._rows: dict[tuple[int, bytes], dict[str, Any] | None] = {}  # None: not there

    def changes(self, write: Write) -> list[LocalChange]:
        if write.intent is Intent.DELETE_WHERE:
            return self._deletions(write)
        change = self._change(write)
        return [] if change is None else [change]

    def _deletions(self, write: Write) -> list[LocalChange]:
        """Of rows that are there at this moment; what plain SQL put beside them is no row of the mesh."""
        destination, table = self._table(write.schema, write.table)
        keys = [key for key in matching_keys(self._tx, destination, write.condition) if destination.resolves(key)]
        if self._context.adopted:
            self._context.settle(self._tx, {destination.no: [cbor.encode(key) for key in keys]})
        live = [key for key in keys if table.get(key) is not None]
        return [LocalChange(write.schema, write.table, key, None) for key in live]

    def _change(self, write: Write) -> LocalChange | None:
        destination, table = self._table(write.schema, write.table)
        key, columns = _split(destination, write)
        change = LocalChange(write.schema, write.table, key, None if write.intent is Intent.DELETE else columns)
        if not destination.resolves(key):
            return change  # the engine says what is wrong with it
        at = (destination.no, cbor.encode(key))
        if at not in self._rows:
            found = table.get(key)
            self._rows[at] = None if found is None else found.columns
        before = self._rows[at]
        if write.intent is Intent.DELETE:
            self._rows[at] = None
            return change
        if write.intent is Intent.PATCH and before is None:
            raise NotFoundError(
                f"table {destination.text!r} has no row {str(key)[:100]} to patch: upsert a whole one instead"
            )
        self._rows[at] = {**(before or {}), **columns}
        if write.intent is not Intent.UPSERT or before is None:
            return change
        news = {name: value for name, value in columns.items() if not _same(before.get(name, _ABSENT), value)}
        return LocalChange(write.schema, write.table, key, news) if news else None

    def _table(self, schema: str, name: str) -> tuple[Destination, queries.Table]:
        if (schema, name) not in self._tables:
            _, destination = required(self._context, self._tx, schema, name)
            self._tables[schema, name] = (destination, queries.Table(self._tx, schema, name))
        return self._tables[schema, name]


def _split(destination: Destination, write: Write) -> tuple[dict[str, Any], Mapping[str, Scalar]]:
    if write.key is not None:
        return named_key(destination, write.key), write.columns
    names = destination.key_names
    return (
        {name: value for name, value in write.columns.items() if name in names},
        {name: value for name, value in write.columns.items() if name not in names},
    )


def _same(here: Any, wanted: Scalar) -> bool:
    """Whether a column shows this already; SQL has no bool, and -0.0 is a value of its own."""
    if isinstance(wanted, bool):
        wanted = int(wanted)
    if isinstance(here, bool):
        here = int(here)
    return type(here) is type(wanted) and repr(here) == repr(wanted)
