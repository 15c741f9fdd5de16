"""Forgetting one row on this device: its events, its values and every trace of them in the file (NEOTH, content and
privacy; profile §6, `forgotten`).

One transaction takes the row out of its table, the bytes of its events out of the log, its changes and the frames in
flight that carry it out of their tables, and blanks samples of notices that may name it. What stays: the ids of the
events (receipts), and a hash of the key, by which later events of the row are acknowledged and not kept.

It also notes that an erasure is due: SQLite leaves what was deleted or moved in free space, so `erase` then writes the
whole file anew, empties the WAL, and takes the note away. Where the process ends before, or another program reads on,
the note stands, it is told (`erasure-due`), and the next start or look does the rest. Other devices keep what they
have, and what the application copied elsewhere (a full-text index, an audit table) is the application's.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from meshnode.codec import cbor
from meshnode.engine.context import Context
from meshnode.engine.outbox import reopen
from meshnode.engine.rebuild import abandon
from meshnode.engine.registry import required
from meshnode.engine.retention import ask_again
from meshnode.errors import NotFoundError, StoreError, UsageError
from meshnode.merge.rows import RowFold, RowState
from meshnode.model.event import KeyValue
from meshnode.model.hlc import Hlc
from meshnode.model.wording import value_text
from meshnode.store import capture, changes, conflicts, held, log, notices, removed, repeats, rows, traces
from meshnode.store.changes import RowChange
from meshnode.store.database import Tx
from meshnode.store.materialize import RowWrite, TableWriter
from meshnode.store.names import TableEntry
from meshnode.store.tables import Destination

ERASURE_DUE: Final = "erasure-due"  # a notice that stands until no file holds a trace of a forgotten row


def forget(context: Context, schema: str, name: str, key: Mapping[str, KeyValue]) -> int:
    """Forget one row until `unforget`; on disk, traces included, when this returns. Returns how many events it had.

    UsageError for what is no key of the table, or where a trigger keeps the row; StoreError where the traces could not
    be removed: the row is forgotten all the same, and they are due until `erase` has removed them.
    """
    count = context.transact(lambda tx: _forget(context, tx, schema, name, key))
    erase(context)
    return count


def erase(context: Context, wait_ms: int | None = None) -> None:
    """Do what a forgetting left to be done to the files, if anything, and tell it while that cannot be done.

    StoreError where it cannot, for instance because another program reads on for `wait_ms`.
    """
    with context.transaction() as tx:
        due = traces.erasure_due(tx)
    if due is None:
        return
    try:
        if due == traces.REWRITE:
            context.db.rewrite()
            context.transact(lambda tx: traces.note_erasure(tx, traces.EMPTY_WAL))
        context.db.empty_wal(wait_ms)
    except StoreError as error:
        with suppress(StoreError):  # a disk that is full may not even take the notice
            _tell_due(context, str(error))
        raise
    with context.transaction() as tx:
        traces.erasure_done(tx)
        notices.end(tx, ERASURE_DUE)


def go_on_erasing(context: Context, wait_ms: int) -> None:
    """What an earlier run, or a reader in the way, left to be done; told until it is."""
    with context.transaction() as tx:
        due = traces.erasure_due(tx)
    if due is not None:
        _tell_due(context, "a row was forgotten, and the files of the database may still hold traces of it")
        erase(context, wait_ms)


def _tell_due(context: Context, why: str) -> None:
    with context.transaction() as tx:
        if not notices.stands(tx, ERASURE_DUE):
            context.surface(tx, ERASURE_DUE, None, why)


def unforget(context: Context, schema: str, name: str, key: Mapping[str, KeyValue]) -> int:
    """Take events of the row again, and ask for those that were not kept; returns how many peers are asked."""
    with context.transaction() as tx:
        entry, destination = required(context, tx, schema, name)
        if not held.unforget(tx, destination.no, _key_bytes(destination, key)):
            raise NotFoundError(f"row {str(dict(key))[:100]} of table {entry.text!r} is not forgotten here")
        entry.forgotten = held.any_forgotten(tx, destination.no)
        return ask_again(context, tx, entry)


def _forget(context: Context, tx: Tx, schema: str, name: str, key: Mapping[str, KeyValue]) -> int:
    entry, destination = required(context, tx, schema, name)
    key_bytes = _key_bytes(destination, key)
    events = _remove_events(context, tx, destination.no, key_bytes)
    held.forget(tx, destination.no, key_bytes)
    entry.forgotten = True
    shown = _take_out(context, tx, entry, destination, key_bytes, key)
    capture.remove_row(tx, destination.no, [key[column.name] for column in destination.key])
    traces.remove_changes(tx, destination.no, key_bytes)
    conflicts.remove_row(tx, destination.no, key_bytes)
    if shown:
        # Who follows the changes learns that a row of the table is gone, and has to look which.
        gone = RowChange(changes.FORGET, cbor.encode({}), {}, [], context.site, *context.clock)
        changes.append(tx, [changes.row(context.take_change(), destination.no, gone)])
    traces.blank_notices(tx, entry.text, _shown_as(key))
    traces.note_erasure(tx, traces.REWRITE)
    return events


def _key_bytes(destination: Destination, key: Mapping[str, KeyValue]) -> bytes:
    if not destination.resolves(key):
        named = ", ".join(column.name for column in destination.key)
        raise UsageError(f"a key of table {destination.text!r} has exactly the columns {named}")
    return cbor.encode(dict(key))


def _remove_events(context: Context, tx: Tx, table_no: int, key_bytes: bytes) -> int:
    """Every event of the row goes, applied, held or unresolved; so do the frames in flight that carry one."""
    receipts: dict[int, bytes] = {}
    clocks: list[tuple[bytes, Hlc]] = []
    for position, site_no, state, data in traces.events_about(tx, table_no, key_bytes):
        event = log.parse(data)
        if event.key_bytes == key_bytes:
            receipts[position] = event.event_id
            clocks.append((event.site, event.hlc))
            if state == log.HELD:
                held.remove_held(tx, site_no, table_no, 1, len(data))
    log.remove(tx, receipts)
    removed.record(tx, receipts, removed.FORGOTTEN)
    repeats.note_removed(tx, context.site, clocks)
    abandon(context, tx)
    held.keep_receipts(tx, receipts.values())
    for stream in traces.streams_in_flight(tx, receipts, key_bytes):
        reopen(context, tx, stream)
    return len(receipts)


def _take_out(
    context: Context,
    tx: Tx,
    entry: TableEntry,
    destination: Destination,
    key_bytes: bytes,
    key: Mapping[str, KeyValue],
) -> bool:
    """Remove the row from SQL, and its state; whether it was shown."""
    before = rows.load(tx, destination.no, [key_bytes]).get(key_bytes)
    fold = RowFold(RowState())
    fold.tombstone_moved = True
    write = RowWrite(key_bytes, tuple([key[column.name] for column in destination.key]), fold)
    TableWriter(tx, context.env.sqlite, destination, context.sites, context.barred).write([write])
    if write.reason is not None:
        raise UsageError(f"table {entry.text!r} does not let the row go: {write.reason}")
    rows.remove(tx, destination.no, [key_bytes])
    return before is not None and before[0].exists and before[1] is None


def _shown_as(key: Mapping[str, Any]) -> list[str]:
    """How the samples of notices write the key's values, as far as they do."""
    forms = (value_text, repr)  # what notices said before they were written as they are now
    said = [form(value)[:60].rstrip("'\"") for value in key.values() for form in forms]
    return list(dict.fromkeys(said))
