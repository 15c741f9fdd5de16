"""Adopted tables: what any program wrote into them by plain SQL becomes signed events (profile §5, SSP/1 §12).

Triggers note which rows were written (`store/capture.py`). Draining reads what these say now and signs what differs
from what was signed before, through the same door as every local write; nothing of it is written to SQL again. Three
things keep a write from being lost:

- the note commits with the write, and goes only in the transaction in which its event comes;
- before an event touches a row of which something may be unsigned, that is signed (`settle`), so it has a clock of its
  own, from before anything of that batch was seen;
- a table that was not watched for a time, or never was, is looked at row by row (`look`), up to a place that is kept:
  at adoption that publishes the rows that are there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from meshnode.codec import cbor
from meshnode.engine.adopt import read_page
from meshnode.engine.context import Context
from meshnode.engine.unsigned import Unsigned, key_of
from meshnode.engine.write import UNSIGNED, LocalChange, author_seen
from meshnode.model.hlc import tick
from meshnode.store import capture, catalog, held, rows
from meshnode.store.capture import BEGINNING, Captured
from meshnode.store.database import Tx
from meshnode.store.destinations import table_exists
from meshnode.store.names import TableEntry
from meshnode.store.tables import Destination

ROWS_A_STEP: Final = 128  # signed in one transaction, which keeps the application from writing for as long
UNWATCHED: Final = "unwatched"
"""The notice of a table whose triggers were gone."""


def begin(context: Context, tx: Tx, destination: Destination) -> None:
    """Adopt a table: it is watched from this transaction on, and the rows that it has will be looked at."""
    if not capture.is_watched(tx, destination):
        capture.watch(tx, destination)
        catalog.write_seen(tx, catalog.read_now(tx))
    if destination.no not in context.adopted:
        _look_again(context, tx, destination.no)


def watch_again(context: Context, tx: Tx) -> None:
    """Make triggers again that a schema change took along, and look at what was written meanwhile."""
    for entry in context.tables.registered(tx):
        if entry.no in context.adopted and not table_exists(tx, entry.text):
            capture.unwatch(tx, entry.no)  # they went with the table, under another name of it
    for entry, destination in _usable(context, tx):
        if not capture.is_watched(tx, destination):
            capture.watch(tx, destination)
            _look_again(context, tx, destination.no)
            sample = "its triggers were gone and are there again: its rows are compared with what was signed"
            context.surface(tx, UNWATCHED, None, sample, table=entry.text)


def step(context: Context, tx: Tx) -> bool:
    """One bounded step of signing; whether there may be more."""
    if not context.adopted or context.silent():
        return False
    return drain(context, tx) == ROWS_A_STEP or look(context, tx)


def _look_again(context: Context, tx: Tx, table_no: int, place: bytes | None = BEGINNING) -> None:
    capture.adopt(tx, table_no, place)
    context.adopted[table_no] = place
    tx.adopted = True


def _usable(context: Context, tx: Tx) -> list[tuple[TableEntry, Destination]]:
    """The adopted tables that are there; what was captured of others waits for them."""
    found = [(entry, context.destination(tx, entry)) for entry in context.tables.registered(tx)]
    return [
        (entry, destination)
        for entry, destination in found
        if destination is not None and destination.no in context.adopted
    ]


def _may_write(context: Context) -> bool:
    if context.key is None:
        return False
    return context.membership.judge(context.site, tick(context.clock, context.env.wall_ms())) is None


# --- what was captured


def drain(context: Context, tx: Tx) -> int:
    """Sign the oldest writes; how many there were."""
    usable = {destination.no: (entry, destination) for entry, destination in _usable(context, tx)}
    found = capture.pending(tx, usable, ROWS_A_STEP) if usable else []
    if not found:
        return 0
    if _may_write(context):
        changes: list[tuple[int, LocalChange]] = []
        for table_no in dict.fromkeys(each.table_no for each in found):
            notes = [each for each in found if each.table_no == table_no]
            changes.extend(_drained(context, tx, *usable[table_no], notes))
        changes.sort(key=lambda change: change[0])
        author_seen(context, tx, [change for _, change in changes])
    else:
        _leave(context, tx, {usable[each.table_no][0].text: each.table_no for each in found})
    capture.signed(tx, [each.seq for each in found])
    return len(found)


def _leave(context: Context, tx: Tx, tables: Mapping[str, int]) -> None:
    """This device may not write: its tables are looked at again once it may."""
    for text, table_no in tables.items():
        _look_again(context, tx, table_no)
        sample = "this device may not write to the mesh: what is written here stays here until it may"
        context.surface(tx, UNSIGNED, None, sample, table=text)


def _drained(
    context: Context, tx: Tx, entry: TableEntry, destination: Destination, notes: Sequence[Captured]
) -> Iterator[tuple[int, LocalChange]]:
    unsigned = Unsigned(context, tx, entry, destination)
    keyed = [
        (key, cbor.encode(dict(key)), gone, written)
        for values, gone, written in _turns(notes, len(destination.key))
        if (key := unsigned.key(values, surface=written is not None)) is not None
    ]
    states = rows.load(tx, destination.no, [key_bytes for _, key_bytes, _, _ in keyed])
    for key, key_bytes, gone, written in keyed:
        state, reason = states.get(key_bytes, (None, None))
        if _is_forgotten(tx, entry, destination, key_bytes):
            unsigned.surface_forgotten()  # which one is told nowhere
            continue
        if gone is not None and (written is not None or not unsigned.is_there(key)):
            if state is not None and state.exists:
                yield gone, LocalChange(entry.schema, entry.name, key, None)
            state = reason = None
        if written is not None:
            for columns in unsigned.payloads(key, state, withheld=reason is not None) or ():
                yield written, LocalChange(entry.schema, entry.name, key, columns)


def _turns(notes: Iterable[Captured], width: int) -> list[tuple[tuple[Any, ...], int | None, int | None]]:
    """Of each row the last time that it went, and the first time that it was written after that."""
    turns: dict[tuple[tuple[type, Any], ...], tuple[int | None, int | None]] = {}
    for note in notes:
        key = tuple((type(value), value) for value in note.key[:width])  # 1 == 1.0 in Python
        gone, written = turns.get(key, (None, None))
        if note.gone:
            turns[key] = (note.seq, None)
        elif written is None:
            turns[key] = (gone, note.seq)
    return [(tuple(value for _, value in key), *turn) for key, turn in turns.items()]


# --- before an event touches a row


def settle(context: Context, tx: Tx, keys: Mapping[int, Collection[bytes]]) -> None:
    """Sign what is unsigned of these rows, by the numbers of their tables.

    Nothing has to be found in the notes for it, however many there are: of a watched table a row that says something
    else than its clocks was written here.
    """
    if not context.has_unsigned(tx) or context.silent() or not _may_write(context):
        return
    pending = capture.any_pending(tx)
    changes: list[LocalChange] = []
    for entry, destination in _usable(context, tx):
        looking = context.adopted[destination.no] is not None
        if destination.no in keys and (pending or looking):
            rows_of = dict.fromkeys(keys[destination.no])
            changes.extend(_unsettled(context, tx, entry, destination, list(rows_of), watched=not looking))
    author_seen(context, tx, changes)


def _unsettled(
    context: Context, tx: Tx, entry: TableEntry, destination: Destination, keys: Sequence[bytes], *, watched: bool
) -> Iterator[LocalChange]:
    unsigned = Unsigned(context, tx, entry, destination)
    states = rows.load(tx, destination.no, keys)
    for key_bytes in keys:
        key = key_of(destination, key_bytes)
        state, reason = states.get(key_bytes, (None, None))
        if key is None or _is_forgotten(tx, entry, destination, key_bytes):
            continue
        there = unsigned.is_there(key)
        certain = watched and not unsigned.follows and reason is None
        if not certain and there == (reason is not None):  # what SQL shows may be nobody's doing: did somebody do it?
            last = capture.last_of(tx, destination.no, [key[column.name] for column in destination.key])
            if last is None or last.gone == there:
                continue
        if there:
            for columns in unsigned.payloads(key, state, withheld=reason is not None, sure=False) or ():
                yield LocalChange(entry.schema, entry.name, key, columns)
        elif state is not None and state.exists:
            yield LocalChange(entry.schema, entry.name, key, None)


# --- row by row


def look(context: Context, tx: Tx) -> bool:
    """Compare the next rows of a table with what was signed; whether there was one to compare."""
    if not any(place is not None for place in context.adopted.values()) or not _may_write(context):
        return False
    for entry, destination in _usable(context, tx):
        place = context.adopted[destination.no]
        if place is not None:
            _look_at(context, tx, entry, destination, place)
            return True
    return False


def _look_at(context: Context, tx: Tx, entry: TableEntry, destination: Destination, place: bytes) -> None:
    after = None if place == BEGINNING else capture.unpack_place(place)
    page = read_page(tx, destination, after, ROWS_A_STEP)
    width = len(destination.key)
    unsigned = Unsigned(context, tx, entry, destination)
    if after is None and capture.has_keyless(tx, destination):
        unsigned.surface_row({}, "a value of its key is null")
    keys = [key for row in page if (key := unsigned.key(row[:width])) is not None]
    states = rows.load(tx, destination.no, [cbor.encode(dict(key)) for key in keys])
    changes = []
    for key in keys:
        key_bytes = cbor.encode(dict(key))
        state, reason = states.get(key_bytes, (None, None))
        if reason is None and not _is_forgotten(tx, entry, destination, key_bytes):
            payloads = unsigned.payloads(key, state, sure=False) or ()
            changes += [LocalChange(entry.schema, entry.name, key, columns) for columns in payloads]
    author_seen(context, tx, changes)
    behind = capture.pack_place(page[-1][:width]) if len(page) == ROWS_A_STEP else None
    _look_again(context, tx, destination.no, behind)


def _is_forgotten(tx: Tx, entry: TableEntry, destination: Destination, key_bytes: bytes) -> bool:
    return entry.forgotten and held.is_forgotten(tx, destination.no, key_bytes)
