"""Rows follow the application's schema: noticed at start and while running, done in batches (SSP/1 §13.6, profile §5).

A schema change that leaves a table what it was (`store/catalog.py`) costs nothing. Of every other table, one that is
empty now included, all rows are compared with SQL: one that is gone is written again from the log, a dropped column
forgets its clocks. Columns that are new, and tables whose primary key is another, are then fed from the log, its newest
events first, so that nearly every row is written once; what names a row only now is offered to peers again. Both passes
may be interrupted anywhere: events that arrive meanwhile fold into the same states, and to fold an event twice changes
nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from meshnode.engine.context import Context
from meshnode.engine.materialize import Materializer
from meshnode.engine.outbox import offer_again
from meshnode.engine.rebuild import BYTES_A_STEP, POSITIONS_A_STEP, Rebuild, given, key_values
from meshnode.engine.restate import Restated, Restater
from meshnode.limits import BATCH_EVENTS
from meshnode.merge.rows import RowState
from meshnode.model.hlc import ZERO, hlc_of_rank
from meshnode.model.wording import clock_text, key_text
from meshnode.store import catalog, log, rows, shapes
from meshnode.store.database import Tx
from meshnode.store.names import TableEntry
from meshnode.store.shapes import Progress
from meshnode.store.tables import Destination

STEPS_AT_ONCE: Final = 8  # steps made in the transaction that notices a change; the rest has transactions of its own
_WHOLE: Final = "whole table"


def look(context: Context, tx: Tx) -> None:
    """Compare every destination with its stored shape, begin what follows, and finish it where that is short."""
    seen = catalog.read_seen(tx)
    now = seen if seen is not None and seen.version == catalog.version_now(tx) else catalog.read_now(tx)
    same = None if now == seen else catalog.same_tables(seen, now)
    for entry in context.tables.registered(tx):
        destination = context.destination(tx, entry)
        if destination is not None:
            changed = same is not None and (entry.text not in same or _is_emptied(tx, destination))
            _compare(context, tx, entry, destination, changed=changed)
        elif same is not None and entry.no is not None:
            shapes.compare_later(tx, entry.no, context.next_position)
    if same is not None:
        catalog.write_seen(tx, now)
    if context.has_unsigned(tx):  # that is signed first: what a row shows then is not put back
        context.behind_schema = True
        return
    for _ in range(1 if context.adopted else STEPS_AT_ONCE):  # an application waits for the end of this transaction
        if not step(context, tx):
            break


def settle(tx: Tx, destination: Destination) -> None:
    """A table was made or registered in this transaction: its shape is known, and no other table changed."""
    stored, _ = shapes.read(tx, destination.no)
    if stored is None:
        shapes.write_shape(tx, destination.no, shapes.shape_of(destination))
        catalog.write_seen(tx, catalog.read_now(tx))


def step(context: Context, tx: Tx) -> bool:
    """One bounded step of what is unfinished; whether there may be more."""
    for entry, destination in _unfinished(context, tx):
        progress = shapes.read(tx, destination.no)[1]
        assert progress is not None
        following: Progress | None
        if progress.whole:
            following = _step_whole(context, tx, entry, destination, progress)
        elif progress.after is not None:
            following = _step_rows(context, tx, entry, destination, progress)
        else:
            following = _step_log(context, tx, entry, destination, progress)
        shapes.write_progress(tx, destination.no, following)
        context.behind_schema = True
        return True
    context.behind_schema = False
    return False


def _unfinished(context: Context, tx: Tx) -> list[tuple[TableEntry, Destination]]:
    numbers = shapes.unfinished(tx)
    if not numbers:
        return []
    found = [(entry, context.destination(tx, entry)) for entry in context.tables.registered(tx) if entry.no in numbers]
    return [(entry, destination) for entry, destination in found if destination is not None]


def _is_emptied(tx: Tx, destination: Destination) -> bool:
    """Whether the application took out every row: that is no wish about each of them."""
    found = tx.execute(f"SELECT EXISTS (SELECT 1 FROM {destination.quoted} NOT INDEXED)").fetchone()  # noqa: S608
    return not found[0] and bool(rows.keys_after(tx, destination.no, b"", 1))


def _compare(context: Context, tx: Tx, entry: TableEntry, destination: Destination, *, changed: bool) -> None:
    stored, progress = shapes.read(tx, destination.no)
    shape = shapes.shape_of(destination)
    if stored == shape and not changed:
        return
    names = [] if stored is None else shapes.renewed(stored, shape)
    shapes.forget_ignored(tx, destination.no, names)
    whole, refold = (progress.whole, progress.refold) if progress is not None else (False, False)
    if progress is not None and names is not None:  # what was under way goes on with the columns that are still there
        names = None if progress.names is None else sorted({*names, *progress.names} & shape.columns.keys())
    if stored != shape:
        shapes.write_shape(tx, destination.no, shape)
    shapes.write_progress(tx, destination.no, Progress(names, b"", context.next_position, whole, refold))


def _step_whole(context: Context, tx: Tx, entry: TableEntry, destination: Destination, progress: Progress) -> Progress:
    """The rows up to `progress.after` are recomputed: after a restart it goes on behind them."""
    done = progress.after or b""
    rebuild = context.work.get(_WHOLE)
    if not (isinstance(rebuild, Rebuild) and rebuild.after == done and rebuild.fits(entry, destination)):
        rebuild = context.work[_WHOLE] = Rebuild(context, tx, entry, destination, after=done)
    if rebuild.step(tx):
        return progress._replace(after=rebuild.after)
    del context.work[_WHOLE]
    return progress._replace(after=b"", whole=False)


# --- the rows


def _step_rows(
    context: Context, tx: Tx, entry: TableEntry, destination: Destination, progress: Progress
) -> Progress | None:
    assert progress.after is not None
    page = rows.page(tx, destination.no, progress.after, BATCH_EVENTS)
    restater = Restater(context, tx, entry, destination)
    restated, strange = [], []
    for key_bytes, state, reason in page:
        key = key_values(destination, key_bytes)
        if key is None:
            strange.append(key_bytes)
            continue
        lost = reason is None and state.exists and restater.shown(key) is None
        after = _kept(context, entry, destination, state, progress.names, lost=lost)
        partial = lost and after != state and entry.horizon > ZERO
        if partial:
            sample = f"row {key_text(key)} came back without what lies below the horizon {clock_text(entry.horizon)}"
            context.surface(tx, "partial", None, sample, table=entry.text)
        if reason is None or after != state:  # what is withheld was tried again when the change was noticed
            restated.append(Restated(key_bytes, key, state, reason, after, partial=partial))
    restater.write(restated)
    rows.remove(tx, destination.no, strange)  # of an earlier primary key: another destination (profile §5)
    if len(page) == BATCH_EVENTS:
        return progress._replace(after=page[-1][0])
    if progress.names == [] and not progress.refold:
        return None
    return progress._replace(after=None, top=context.next_position)


def _kept(
    context: Context,
    entry: TableEntry,
    destination: Destination,
    state: RowState,
    names: Sequence[str] | None,
    *,
    lost: bool,
) -> RowState:
    """The clocks that still hold: not those of columns that were dropped or are declared otherwise, which the log gives
    again, nor what the horizon cut from a row that is lost."""
    if names is None:  # another key: all of it is fed from the log again
        return RowState() if lost else given(state, entry.horizon, context.membership)
    if not state.exists:
        return state
    columns = {
        name: rank
        for name, rank in state.columns.items()
        if name in destination.columns and (name not in names if hlc_of_rank(rank) >= entry.horizon else not lost)
    }
    upsert = state.upsert
    if lost and upsert is not None and hlc_of_rank(upsert) < entry.horizon:
        upsert = None
    return RowState(state.tombstone, upsert, columns)


# --- the log


def _step_log(
    context: Context, tx: Tx, entry: TableEntry, destination: Destination, progress: Progress
) -> Progress | None:
    bottom = max(progress.top - POSITIONS_A_STEP, 0)
    found, bottom = log.read_table_down(tx, destination.no, bottom, progress.top, BYTES_A_STEP)
    names = None if progress.names is None or progress.refold else frozenset(progress.names)
    materializer = Materializer(context, tx, again=True)
    resolved = []
    for each in found:
        event = log.parse(each.event)
        if event.hlc < entry.horizon or not event.key or not destination.resolves(event.key):
            continue
        if names is None or (event.columns is not None and not names.isdisjoint(event.columns)):
            materializer.add(entry, destination, event)
            resolved.append(each.position)
    materializer.write(context.env.wall_ms())
    if names is None and log.set_states(tx, log.APPLIED, resolved) > 0:
        offer_again(context, tx, entry.schema, entry.name)  # the streams have passed what named no row
    return progress._replace(top=bottom) if bottom else None
