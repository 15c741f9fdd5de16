"""Rows of the conflict ledger: pairs of concurrent events, one of them by this node, and what became of each pair.

Bounded per other site and in all; what is over first is dropped first. Each row carries the number of its last change,
so that whoever follows the ledger goes on from a number.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from meshnode.codec import cbor
from meshnode.errors import CodecError, CorruptStateError
from meshnode.limits import CONFLICT_VALUE_BYTES, CONFLICTS, CONFLICTS_PER_SITE
from meshnode.model.conflict import Side, Status
from meshnode.model.hlc import RANK_BYTES, Rank
from meshnode.store import meta
from meshnode.store.database import Tx
from meshnode.store.delivery import Reads

_COLUMNS: Final = (
    "id, table_no, key, column_name, ours, our_value, position, theirs, their_value, their_no, certain, status, reason,"
    " watched, recorded_ms, change"
)


@dataclass(frozen=True, slots=True)
class Conflict:
    """One row of the ledger."""

    id: bytes
    table_no: int
    key_bytes: bytes
    column: str | None  # None: whether the row exists
    ours: Side
    position: int  # of our event in the log
    theirs: Side
    their_no: int
    certain: bool
    status: Status
    reason: str
    watched: bool
    recorded_ms: int
    change: int = 0


def add(tx: Tx, conflict: Conflict) -> bool:
    """Keep one more; False where the pair is known, which stays as it is."""
    cursor = tx.execute(
        f"INSERT OR IGNORE INTO meshnode_conflicts ({_COLUMNS}) VALUES ({', '.join('?' * 16)})",  # noqa: S608
        (
            conflict.id,
            conflict.table_no,
            conflict.key_bytes,
            conflict.column,
            conflict.ours.rank,
            _packed(conflict.ours),
            conflict.position,
            conflict.theirs.rank,
            _packed(conflict.theirs),
            conflict.their_no,
            int(conflict.certain),
            conflict.status.value,
            conflict.reason,
            int(conflict.watched),
            conflict.recorded_ms,
            _next_change(tx),
        ),
    )
    return bool(cursor.rowcount > 0)


def end(tx: Tx, conflict: Conflict, status: Status, reason: str) -> None:
    """No later event goes on from it; one that was acknowledged stays so."""
    if conflict.status is Status.AGREED:
        tx.execute("DELETE FROM meshnode_conflicts WHERE id = ?", (conflict.id,))
        return
    kept = conflict.status if conflict.status is Status.ACKNOWLEDGED else status
    _change(tx, conflict.id, "status = ?, reason = ?, watched = 0", kept.value, reason)


def acknowledge(tx: Tx, conflict_id: bytes) -> None:
    """A person leaves it as it is."""
    _change(tx, conflict_id, "status = ?", Status.ACKNOWLEDGED.value)


def resolve(tx: Tx, conflict_id: bytes, reason: str) -> None:
    """A person chose one of the sides."""
    _change(tx, conflict_id, "status = ?, reason = ?, watched = 0", Status.RESOLVED.value, reason)


def be_certain(tx: Tx, conflict_id: bytes) -> None:
    """Neither author had seen the other's event."""
    _change(tx, conflict_id, "certain = 1")


def watched(tx: Reads, table_no: int, key_bytes: bytes) -> list[Conflict]:
    """Those of one row that later events may go on from."""
    return _select(tx, "table_no = ? AND key = ? AND watched = 1 ORDER BY no", table_no, key_bytes)


def watched_rows(tx: Reads) -> Iterator[tuple[int, bytes]]:
    """The rows that have any."""
    yield from tx.execute("SELECT DISTINCT table_no, key FROM meshnode_conflicts WHERE watched = 1")


def possible(tx: Reads, their_no: int, first: int, last: int) -> list[Conflict]:
    """Those with a site, of our events at these positions, of which it is not known whether they are any."""
    return _select(
        tx, "certain = 0 AND watched = 1 AND their_no = ? AND position BETWEEN ? AND ?", their_no, first, last
    )


def get(tx: Reads, conflict_id: bytes) -> Conflict | None:
    """The one with this id."""
    return next(iter(_select(tx, "id = ? AND status <> 'agreed'", conflict_id)), None)


def beginning(tx: Reads, text: str) -> list[Conflict]:
    """The first two whose ids begin so in hexadecimal."""
    lowest = bytes.fromhex(text if len(text) % 2 == 0 else text + "0")
    return [
        each
        for each in _select(tx, "id >= ? AND status <> 'agreed' ORDER BY id LIMIT 2", lowest)
        if each.id.hex().startswith(text)
    ]


def page(tx: Reads, *, table_no: int | None, everything: bool, limit: int) -> list[Conflict]:
    """The latest, newest first: open ones, or all."""
    wanted, values = ["status <> 'agreed'" if everything else "status = 'open'"], list[Any]()
    if table_no is not None:
        wanted.append("table_no = ?")
        values.append(table_no)
    return _select(tx, f"{' AND '.join(wanted)} ORDER BY no DESC LIMIT ?", *values, limit)


def changed_after(tx: Reads, change: int, limit: int) -> list[Conflict]:
    """The next ones that changed after a number, in the order of their last change."""
    return _select(tx, "change > ? AND status <> 'agreed' ORDER BY change LIMIT ?", change, limit)


def last_change(tx: Tx) -> int:
    """The number of the last change; it is never used again, not even where its conflict is gone."""
    return meta.read_counter(tx, meta.NEXT_CONFLICT_CHANGE) - 1


def open_ones(tx: Reads) -> tuple[int, int]:
    """How many are open: those that are certain, and those that are only possible."""
    sql = "SELECT coalesce(sum(certain), 0), count(*) FROM meshnode_conflicts WHERE status = 'open'"
    certain, every = tx.execute(sql).fetchone()
    return int(certain), int(every - certain)


def of_sites(tx: Reads, sites: Iterable[bytes]) -> list[Conflict]:
    """Those that are watched and that an event of one of these sites is part of."""
    wanted = frozenset(sites)
    found = _select(tx, "watched = 1")
    return [each for each in found if each.ours.site in wanted or each.theirs.site in wanted]


def remove_row(tx: Tx, table_no: int, key_bytes: bytes) -> None:
    """Nothing is kept of one row any more."""
    tx.execute("DELETE FROM meshnode_conflicts WHERE table_no = ? AND key = ?", (table_no, key_bytes))


def trim(tx: Tx, sites: Iterable[int]) -> dict[int, int]:
    """Keep to the bounds; returns how many that were still open had to go, by site."""
    gone: dict[int, int] = {}
    for their_no in sites:
        _drop(tx, gone, their_no, _count(tx, their_no) - CONFLICTS_PER_SITE)
    beyond = int(tx.execute("SELECT count(*) FROM meshnode_conflicts").fetchone()[0]) - CONFLICTS
    if beyond > 0:  # whoever has the most pays for it
        sql = "SELECT their_no, count(*) FROM meshnode_conflicts GROUP BY their_no ORDER BY 2 DESC LIMIT 1"
        _drop(tx, gone, tx.execute(sql).fetchone()[0], beyond)
    return gone


def all_of(tx: Reads) -> Iterator[Conflict]:
    """Every one, in the order in which they were recorded."""
    for row in tx.execute(f"SELECT {_COLUMNS} FROM meshnode_conflicts ORDER BY no"):  # noqa: S608
        yield _conflict(row)


def _count(tx: Tx, their_no: int) -> int:
    sql = "SELECT count(*) FROM meshnode_conflicts WHERE their_no = ?"
    return int(tx.execute(sql, (their_no,)).fetchone()[0])


def _drop(tx: Tx, gone: dict[int, int], their_no: int, beyond: int) -> None:
    """The oldest of a site: what is over first."""
    if beyond <= 0:
        return
    rows = tx.execute(
        "SELECT no, status FROM meshnode_conflicts WHERE their_no = ?"
        " ORDER BY status = 'open', status <> 'agreed', no LIMIT ?",
        (their_no, beyond),
    ).fetchall()
    tx.executemany("DELETE FROM meshnode_conflicts WHERE no = ?", [(no,) for no, _ in rows])
    was_open = sum(status == Status.OPEN.value for _, status in rows)
    if was_open:
        gone[their_no] = gone.get(their_no, 0) + was_open


def _next_change(tx: Tx) -> int:
    change = meta.read_counter(tx, meta.NEXT_CONFLICT_CHANGE)
    meta.write(tx, meta.NEXT_CONFLICT_CHANGE, change + 1)
    return change


def _change(tx: Tx, conflict_id: bytes, assignments: str, *values: Any) -> None:
    tx.execute(
        f"UPDATE meshnode_conflicts SET {assignments}, change = ? WHERE id = ?",  # noqa: S608
        (*values, _next_change(tx), conflict_id),
    )


def _select(tx: Reads, where: str, *values: Any) -> list[Conflict]:
    rows = tx.execute(f"SELECT {_COLUMNS} FROM meshnode_conflicts WHERE {where}", values).fetchall()  # noqa: S608
    return [_conflict(row) for row in rows]


def _conflict(row: Sequence[Any]) -> Conflict:
    conflict_id, table_no, key, column, ours, our_value, position, theirs, their_value, their_no, *rest = row
    certain, status, reason, is_watched, recorded_ms, change = rest
    try:
        return Conflict(
            conflict_id,
            table_no,
            key,
            column,
            _side(ours, our_value),
            position,
            _side(theirs, their_value),
            their_no,
            bool(certain),
            Status(status),
            reason,
            bool(is_watched),
            recorded_ms,
            change,
        )
    except (CodecError, ValueError) as error:
        raise CorruptStateError(f"a conflict in the database cannot be read: {error}") from error


def _side(rank: Rank, packed: bytes | None) -> Side:
    if type(rank) is not bytes or len(rank) != RANK_BYTES:
        raise ValueError("it names no event")
    if packed is None:
        return Side(rank, None, kept=False)
    value: Any = cbor.decode_untrusted(packed)
    return Side(rank, value)


def _packed(side: Side) -> bytes | None:
    packed = cbor.encode(side.value)
    return packed if side.kept and len(packed) <= CONFLICT_VALUE_BYTES else None
