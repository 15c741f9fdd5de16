"""Which tables take part: created or checked, registered, brought up to what was held or withheld (profile §5, §6)."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from meshnode.engine import growth
from meshnode.engine.context import Context
from meshnode.engine.materialize import Materializer
from meshnode.engine.policy import NOBODY, set_class
from meshnode.errors import NotFoundError, RegistrationError
from meshnode.limits import BATCH_EVENTS, KEY_COLUMNS, NAME_BYTES, PAYLOAD_COLUMNS
from meshnode.model.event import is_reserved
from meshnode.model.policy import TableClass
from meshnode.model.verdict import key_differs
from meshnode.model.wording import quoted
from meshnode.store import held, log, rows, watermarks
from meshnode.store.database import Tx
from meshnode.store.destinations import inspect, table_exists
from meshnode.store.names import TableEntry
from meshnode.store.tables import Destination, quote

_TYPE: Final = re.compile(r"[A-Za-z][A-Za-z0-9_ ]{0,63}(?:\([0-9]{1,9}(?:, ?[0-9]{1,9})?\))?\Z")
_CONSTRAINTS: Final = frozenset(
    ("AS", "CHECK", "COLLATE", "CONSTRAINT", "DEFAULT", "GENERATED", "NOT", "NULL", "PRIMARY", "REFERENCES", "UNIQUE")
)


@dataclass(frozen=True, slots=True)
class TableSpec:
    """A table to create and register; without a key, one that exists is registered as it is."""

    schema: str
    name: str
    key: Mapping[str, str] = field(default_factory=dict)  # column name to SQLite type
    columns: Mapping[str, str] = field(default_factory=dict)
    own_numbers: bool = False  # the application chooses INTEGER PRIMARY KEY values itself
    table_class: TableClass | None = None  # what it is to the mesh; None leaves what was said before

    @property
    def text(self) -> str:
        """The destination's name in SQL."""
        return self.name if self.schema == "main" else f"{self.schema}.{self.name}"


def register(
    context: Context,
    tx: Tx,
    spec: TableSpec,
    *,
    linked: Collection[bytes] = NOBODY,
    adopt: Callable[[Destination], None] = lambda _destination: None,
) -> Destination:
    """Make a table a destination and apply what was held for it; RegistrationError where it cannot be one.

    `linked` is for the case that its class becomes another (`engine.policy`). What `adopt` does comes before what was
    held: that may be about rows that the table has already.
    """
    _check_spec(spec)
    entry = context.tables.entry(tx, spec.schema, spec.name)
    if spec.key and not table_exists(tx, spec.text):
        tx.execute(_create_sql(spec))
    destination = inspect(tx, entry, own_numbers=spec.own_numbers)
    if spec.key:
        _check_same(spec, destination)
    if not entry.registered or entry.own_numbers != spec.own_numbers:
        context.tables.mark_registered(tx, entry, own_numbers=spec.own_numbers)
    if spec.table_class is not None:
        set_class(context, tx, entry, spec.table_class, linked=linked)
    context.forget_destinations()
    ready = context.destination(tx, entry)
    assert ready is not None
    growth.settle(tx, ready)
    adopt(ready)
    bring_up(context, tx, entry, ready)
    return ready


def refresh(context: Context, tx: Tx) -> None:
    """Look at every destination again, at start and after the schema changed (profile §5)."""
    growth.look(context, tx)
    for entry in context.tables.registered(tx):
        destination = context.destination(tx, entry)
        if destination is not None:
            bring_up(context, tx, entry, destination)


def bring_up(context: Context, tx: Tx, entry: TableEntry, destination: Destination) -> None:
    """Judge what was held again, from `unresolved-key` on, and try withheld rows again (profile §5, §6)."""
    _release(context, tx, entry, destination)
    withheld = rows.withheld(tx, destination.no)
    if withheld:
        materializer = Materializer(context, tx)
        materializer.retry(entry, destination, withheld)
        materializer.write(context.env.wall_ms())


def required(context: Context, tx: Tx, schema: str, name: str) -> tuple[TableEntry, Destination]:
    """The registered table of this name; NotFoundError says what to do."""
    entry = context.tables.entry(tx, schema, name)
    destination = context.destination(tx, entry)
    if destination is None:
        state = "cannot be used as it stands: see its notice" if entry.registered else "is not registered: add it first"
        raise NotFoundError(f"table {entry.text!r} {state}")
    return entry, destination


def _release(context: Context, tx: Tx, entry: TableEntry, destination: Destination) -> None:
    position, released = 0, False
    while batch := log.read_table_after(tx, destination.no, log.HELD, position, BATCH_EVENTS):
        position, released = batch[-1].position, True
        events = [(each.position, log.parse(each.event)) for each in batch]
        context.settle(tx, {destination.no: [event.key_bytes for _, event in events if event.key]})
        materializer = Materializer(context, tx)
        applied, unresolved = [], []
        for at, event in events:
            if event.key and destination.resolves(event.key):
                materializer.add(entry, destination, event)
                applied.append(at)
            else:
                unresolved.append(at)
                sample = f"the held event {event.event_id.hex()[:16]} names no row: {key_differs(entry.text)}"
                context.surface(tx, "unresolved-key", event.site, sample, table=entry.text)
        log.set_states(tx, log.APPLIED, applied)
        log.set_states(tx, log.UNRESOLVED, unresolved)
        materializer.write(context.env.wall_ms())
    if released:
        context.work.clear()  # a rebuild under way has read past them while they were held: it begins again
        held.release_table(tx, destination.no)
        watermarks.advance_table(tx, destination.no)


def _check_spec(spec: TableSpec) -> None:
    for name in (spec.schema, spec.name, *spec.key, *spec.columns):
        if not name or "\0" in name or len(name.encode("utf-8", "replace")) > NAME_BYTES:
            raise RegistrationError(f"{name[:40]!r} cannot be a name: it has 1 to {NAME_BYTES} bytes and no NUL")
    if is_reserved(spec.schema, spec.name):
        raise RegistrationError(
            f"{spec.schema}.{spec.name} is reserved: a name holds no dot and does not begin with sqlite_ or meshnode_"
        )
    if len(spec.key) > KEY_COLUMNS or len(spec.columns) > PAYLOAD_COLUMNS:
        raise RegistrationError(f"a table has at most {KEY_COLUMNS} key columns and {PAYLOAD_COLUMNS} others")
    if spec.columns and not spec.key:
        raise RegistrationError(f"table {spec.text!r} needs a key: --key id:TEXT")
    for name, declared in (*spec.key.items(), *spec.columns.items()):
        if declared and (not _TYPE.match(declared) or not _CONSTRAINTS.isdisjoint(declared.upper().split())):
            raise RegistrationError(
                f"column {quoted(name)}: {declared[:40]!r} is no SQLite type name; for constraints, CREATE the "
                "table in SQL and register it as it is"
            )
    folded = [name.lower() for name in (*spec.key, *spec.columns)]
    if len(set(folded)) != len(folded):
        raise RegistrationError(f"two columns of table {spec.text!r} have the same name, letter case aside")


def _create_sql(spec: TableSpec) -> str:
    """WITHOUT ROWID: rows are found by their key in one step, and no key is numbered by SQLite."""
    columns = [f"{quote(name)} {declared}".rstrip() for name, declared in (*spec.key.items(), *spec.columns.items())]
    key = ", ".join(quote(name) for name in spec.key)
    return f"CREATE TABLE main.{quote(spec.text)} ({', '.join(columns)}, PRIMARY KEY ({key})) WITHOUT ROWID"


def _check_same(spec: TableSpec, destination: Destination) -> None:
    """Adding a table again changes nothing, so it must be the same table."""
    found = _shape((column.name, column.declared) for column in destination.key)
    others = _shape((column.name, column.declared) for column in destination.columns.values())
    if found != _shape(spec.key.items()) or not _shape(spec.columns.items()) <= others:
        raise RegistrationError(
            f"table {spec.text!r} exists with other columns: key {sorted(dict(found))}, others {sorted(dict(others))}; "
            "register it as it is by naming no columns, or ALTER TABLE first"
        )


def _shape(columns: Iterable[tuple[str, str]]) -> set[tuple[str, str]]:
    return {(name, declared.upper()) for name, declared in columns}
