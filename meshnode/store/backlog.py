"""How far a peer is behind this node and this node behind it, for `peers`, `status` and `wait` (NEOTH operations).

Reads only, over the writer's transaction or any read-only connection. Evidence for people: no cursor depends on it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from meshnode.model.hlc import ZERO, Hlc
from meshnode.store.delivery import (
    EVENTS_AGAIN,
    RECORDS_AGAIN,
    Outbound,
    Reads,
    Stream,
    read_outbound,
    read_staged,
)
from meshnode.store.inbound import read_inbound
from meshnode.store.reoffers import EVENT, RECORD
from meshnode.store.u64 import from_sql, to_sql

Allows = Callable[[str, str], bool]
"""Whether the peer should get events of this schema and table: its scope and our policy."""

Told = Mapping[tuple[bytes, str, str], Hlc]
"""What a peer's watermarks say per (site, schema, table)."""


@dataclass(frozen=True, slots=True)
class Backlog:
    """Both streams between this node and one peer, as they are on disk."""

    epoch: bytes | None = None  # None before anything was opened to the peer
    cursor: int = 0
    offer_cursor: int | None = None  # of events by others, where they are offered; then `cursor` is of our own
    settled_no: int = 0
    events_behind: int = 0  # events that the peer should get and has not acknowledged, re-offers included
    waiting: int = 0  # further ones that wait to be offered, since the peer gets them from their authors
    records_behind: int = 0
    staged: int = 0  # frames in flight
    attempts: int = 0  # how often the oldest of them was sent again
    reoffers: int = 0  # events and records that the peer rejected or asked for
    unanswered: int = 0  # requests of the peer that are not marked answered
    requests: int = 0  # requests of ours that the peer has not answered
    inbound_epoch: bytes | None = None
    next_inbound: int = 0  # number of the peer's next frame, 0 before it opened a stream

    @property
    def settled(self) -> bool:
        """Whether the peer has acknowledged all that this node holds for it."""
        return not (self.events_behind or self.waiting or self.records_behind or self.staged or self.unanswered)


def backlog(reads: Reads, peer: bytes, path: str, allows: Allows, linked: Collection[bytes] = ()) -> Backlog:
    """What is open between this node and `peer`, which is `linked` to these sites.

    Raises CorruptStateError where the peer's rows cannot be read.
    """
    row = reads.execute("SELECT no FROM meshnode_sites WHERE site = ?", (peer,)).fetchone()
    stream = Stream(peer, row[0] if row else -1, path)
    outbound = read_outbound(reads, stream)
    staged = read_staged(reads, stream, outbound) if outbound else []
    inbound = read_inbound(reads, stream)
    again = {kind: sum(len(each.items.positions) for each in staged if each.items.kind == kind) for kind in _AGAIN}
    behind, waiting = _events_open(reads, stream, outbound or Outbound(b""), allows, linked)
    events_again, records_again = (_count(reads, stream, "meshnode_reoffers", "kind = ?", kind) for kind in _KINDS)
    return Backlog(
        epoch=outbound.epoch if outbound else None,
        cursor=outbound.cursor if outbound else 0,
        offer_cursor=outbound.offer_cursor if outbound else None,
        settled_no=outbound.settled_no if outbound else 0,
        events_behind=behind + events_again + again[EVENTS_AGAIN],
        waiting=waiting,
        records_behind=_records_after(reads, outbound.record_cursor if outbound else 0)
        + records_again
        + again[RECORDS_AGAIN],
        staged=len(staged),
        attempts=staged[0].attempts if staged else 0,
        reoffers=events_again + records_again,
        unanswered=_count(reads, stream, "meshnode_answers", "?", 1),
        requests=int(
            reads.execute("SELECT count(*) FROM meshnode_requests WHERE site_no = ?", (stream.no,)).fetchone()[0]
        ),
        inbound_epoch=inbound.epoch if inbound else None,
        next_inbound=inbound.next if inbound else 0,
    )


def groups_ahead(reads: Reads, told: Told, allows: Allows) -> int:
    """In how many groups a peer's watermarks tell of events later than anything that is here."""
    return sum(
        1
        for (site, schema, table), hlc in told.items()
        if allows(schema, table) and not _reached(reads, site, schema, table, hlc)
    )


def groups_rejected(reads: Reads, site: bytes) -> int:
    """In how many groups events of a site were rejected and not settled since: they are not here."""
    row = reads.execute(
        "SELECT count(*) FROM meshnode_watermarks AS w JOIN meshnode_sites AS s ON s.no = w.site_no"
        " WHERE s.site = ? AND w.rejected_low IS NOT NULL",
        (site,),
    ).fetchone()
    return int(row[0])


def sites_ahead(reads: Reads, newest: Mapping[bytes, Hlc]) -> list[bytes]:
    """The sites of which a peer's hello tells later events than are here (`max_hlc`: a hint)."""
    return [site for site, hlc in newest.items() if hlc > _newest(reads, site)]


_KINDS = (EVENT, RECORD)
_AGAIN = (EVENTS_AGAIN, RECORDS_AGAIN)


def _events_open(
    reads: Reads, stream: Stream, outbound: Outbound, allows: Allows, linked: Collection[bytes]
) -> tuple[int, int]:
    """Events that the peer has not acknowledged, and of others than this node those that wait to be offered."""
    own = reads.execute(
        "SELECT s.no FROM meshnode_meta AS m JOIN meshnode_sites AS s ON s.site = m.value WHERE m.name = 'site'"
    ).fetchone()
    others_from = outbound.cursor if outbound.offer_cursor is None else outbound.offer_cursor
    rows = reads.execute(
        "SELECT t.schema, t.name, s.site, n.events FROM (SELECT table_no, site_no, count(*) AS events FROM meshnode_log"
        " WHERE position > ? AND position > CASE WHEN site_no = ? THEN ? ELSE ? END"
        " AND site_no <> ? AND state <> 2 GROUP BY table_no, site_no) AS n"
        " JOIN meshnode_tables AS t ON t.no = n.table_no JOIN meshnode_sites AS s ON s.no = n.site_no",
        (min(outbound.cursor, others_from), own and own[0], outbound.cursor, others_from, stream.no),
    )
    behind = waiting = 0
    for schema, table, author, events in rows:
        if allows(schema, table):
            if outbound.offer_cursor is not None and author in linked:
                waiting += events
            else:
                behind += events
    return behind, waiting


def _records_after(reads: Reads, cursor: int) -> int:
    return int(reads.execute("SELECT count(*) FROM meshnode_records WHERE position > ?", (cursor,)).fetchone()[0])


def _count(reads: Reads, stream: Stream, table: str, condition: str, value: int) -> int:
    sql = f"SELECT count(*) FROM {table} WHERE site_no = ? AND path = ? AND {condition}"  # noqa: S608  # our own text
    return int(reads.execute(sql, (*stream.key, value)).fetchone()[0])


def _reached(reads: Reads, site: bytes, schema: str, table: str, hlc: Hlc) -> bool:
    """Whether a group is here up to `hlc`: claimed by our own watermark, or an event at least as late is logged."""
    numbers = reads.execute(
        "SELECT s.no, t.no FROM meshnode_sites AS s, meshnode_tables AS t"
        " WHERE s.site = ? AND t.schema = ? AND t.name = ?",
        (site, schema, table),
    ).fetchone()
    if numbers is None:
        return False
    clock = (*numbers, to_sql(hlc.physical), to_sql(hlc.logical))
    for source in ("meshnode_watermarks", "meshnode_log"):
        sql = (
            f"SELECT 1 FROM {source} WHERE site_no = ? AND table_no = ?"  # noqa: S608  # one of two names of ours
            " AND (physical, logical) >= (?, ?) LIMIT 1"
        )
        if reads.execute(sql, clock).fetchone() is not None:
            return True
    return False


def _newest(reads: Reads, site: bytes) -> Hlc:
    newest = ZERO
    for source in ("meshnode_log", "meshnode_watermarks"):
        sql = (
            f"SELECT physical, logical FROM {source} JOIN meshnode_sites AS s ON s.no = site_no"  # noqa: S608
            " WHERE s.site = ? ORDER BY physical DESC, logical DESC LIMIT 1"
        )
        row = reads.execute(sql, (site,)).fetchone()
        if row is not None:
            newest = max(newest, Hlc(from_sql(row[0]), from_sql(row[1])))
    return newest
