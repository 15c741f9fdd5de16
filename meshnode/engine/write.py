"""Local writes: checked, stamped, signed, and then through the same door as everybody's (profile §4, §6)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from meshnode.codec import cbor
from meshnode.engine.commit import Batch
from meshnode.engine.context import Context
from meshnode.engine.registry import required
from meshnode.engine.verify import Verified
from meshnode.errors import MembershipError, NotFoundError, UsageError
from meshnode.model.event import Event, KeyValue, Scalar, author_event
from meshnode.model.hlc import tick
from meshnode.model.issuing import NO_MEMBER_HERE, READER_HERE, RETIRED_HERE
from meshnode.model.scope import Scope
from meshnode.model.site import SiteKey
from meshnode.model.verdict import Verdict
from meshnode.model.wording import key_text, quoted
from meshnode.store import rows
from meshnode.store.database import Tx
from meshnode.store.tables import Destination

UNSIGNED: Final = "unsigned"
"""The notice of rows that an application wrote and that this device may not sign."""

_WHY = {"unknown-signer": NO_MEMBER_HERE, "role": READER_HERE}  # what the reasons of a judgement mean here


@dataclass(frozen=True, slots=True)
class LocalChange:
    """One row to write: these columns get these values, the others stay; None deletes the row."""

    schema: str
    table: str
    key: Mapping[str, KeyValue]
    columns: Mapping[str, Scalar] | None


def write_changes(context: Context, tx: Tx, changes: Sequence[LocalChange]) -> list[Event]:
    """Author one event per change, in order; all of them or, with an error that names what is wrong, none."""
    key = context.key
    if key is None:
        raise UsageError("this device's site key is not loaded: nothing can be written")
    if context.membership.retired(key.site) is not None:
        raise MembershipError(RETIRED_HERE)
    destinations = [required(context, tx, change.schema, change.table)[1] for change in changes]
    for change, destination in zip(changes, destinations, strict=True):
        _check(change, destination)
    _settle(context, tx, changes, destinations)
    now_ms = context.env.wall_ms()
    events = [_author(context, key, change, now_ms) for change in changes]
    _check_deleted(tx, changes, destinations, events)
    batch = Batch(context, tx, author_stream=True, scope=Scope(), peer=None)
    judgements = batch.run([Verified(event, context.generation) for event in events])
    for event, judgement in zip(events, judgements, strict=True):
        if judgement.reason == "forgotten":
            raise UsageError(
                f"row {key_text(event.key)} of table {event.table!r} is forgotten on this device: end that with "
                "`meshnode forget … --undo` first"
            )
        if judgement.verdict is not Verdict.APPLIED:
            why = _WHY.get(judgement.reason or "", judgement.text())
            raise MembershipError(f"this device may not write to {event.table!r}: {why}")
    for entry, row in batch.rows.withheld:
        if row.reason_before is None:
            shown = key_text(cbor.decode_untrusted(row.key_bytes))
            raise UsageError(f"table {entry.text!r} does not allow row {shown}: {row.reason}")
    return events


def author_seen(context: Context, tx: Tx, changes: Sequence[LocalChange]) -> None:
    """Author what somebody wrote to adopted tables: SQL shows it, and goes on where it cannot be signed."""
    key = context.key
    if key is None or not changes:
        return
    now_ms = context.env.wall_ms()
    events = [_author(context, key, change, now_ms) for change in changes]
    batch = Batch(context, tx, author_stream=True, scope=Scope(), peer=None, seen=True)
    judgements = batch.run([Verified(event, context.generation) for event in events])
    for event, judgement in zip(events, judgements, strict=True):
        if judgement.verdict is not Verdict.APPLIED:
            sample = f"row {str(event.key)[:100]} was written here and could not be signed: {judgement.text()}"
            entry = context.tables.entry(tx, event.schema, event.table)
            context.surface(tx, UNSIGNED, None, sample, table=entry.text)


def _settle(context: Context, tx: Tx, changes: Sequence[LocalChange], destinations: Sequence[Destination]) -> None:
    if not context.adopted:
        return
    keys: dict[int, list[bytes]] = {}
    for change, destination in zip(changes, destinations, strict=True):
        keys.setdefault(destination.no, []).append(cbor.encode(dict(change.key)))
    context.settle(tx, keys)


def _author(context: Context, key: SiteKey, change: LocalChange, now_ms: int) -> Event:
    context.clock = tick(context.clock, now_ms)
    return author_event(
        key,
        context.mesh_id,
        schema=change.schema,
        table=change.table,
        row_key=change.key,
        columns=change.columns,
        hlc=context.clock,
    )


def _check(change: LocalChange, destination: Destination) -> None:
    """A peer's unknown column is ignored; one's own is a mistake to be told about."""
    if not destination.resolves(change.key):
        named = ", ".join(f"{column.name} {column.declared}".rstrip() for column in destination.key)
        raise UsageError(
            f"{key_text(change.key) or 'nothing'} is no key of table {destination.text!r}: it has exactly the key "
            f"columns {named}, each a value of that type"
        )
    for name, value in (change.columns or {}).items():
        if name in destination.key_names:
            raise UsageError(
                f"column {quoted(name)} is part of the key of table {destination.text!r}: it cannot be changed"
            )
        if name not in destination.columns:
            raise UsageError(f"table {destination.text!r} has no column {quoted(name)}")
        if not destination.accepts(name, value):
            declared = destination.columns[name].declared
            raise UsageError(
                f"column {quoted(name)} of table {destination.text!r} is {declared} and takes no such value"
            )


def _check_deleted(
    tx: Tx, changes: Sequence[LocalChange], destinations: Sequence[Destination], events: Sequence[Event]
) -> None:
    """Deleting what is not there is a mistake of the caller, except right after writing it in the same call."""
    exists: dict[tuple[int, bytes], bool] = {}
    for change, destination, event in zip(changes, destinations, events, strict=True):
        row = (destination.no, event.key_bytes)
        if change.columns is None:
            if row not in exists:
                found = rows.load(tx, destination.no, [event.key_bytes]).get(event.key_bytes)
                exists[row] = found is not None and found[0].exists
            if not exists[row]:
                raise NotFoundError(f"table {destination.text!r} has no row {key_text(change.key)}")
        exists[row] = change.columns is not None
