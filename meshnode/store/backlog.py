"""How far a peer is behind this node and this node behind it, for `peers`, `status` and `wait` (NEOTH operations).

Reads only, over the writer's transaction or any read-only connection. Evidence for people: no cursor depends on it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Final

from meshnode.model.bundle import BUNDLE_PATH
from meshnode.model.delivery import GroupName
from meshnode.model.hlc import ZERO, Hlc
from meshnode.model.policy import TableClass
from meshnode.store import logcounts, policies
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

REACHED_LOOKED_AT = 8_192  # events of a site among which one as late as a peer told is looked for: it is the first
OLDEST_LOOKED_AT = 8_192  # log rows among which the first unacknowledged event is looked for


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
    backfills: int = 0  # tables whose events are still to be put among those to offer again
    requests: int = 0  # requests of ours that the peer has not answered
    inbound_epoch: bytes | None = None
    next_inbound: int = 0  # number of the peer's next frame, 0 before it opened a stream

    @property
    def settled(self) -> bool:
        """Whether the peer has acknowledged all that this node holds for it."""
        return not (
            self.events_behind
            or self.waiting
            or self.records_behind
            or self.staged
            or self.unanswered
            or self.backfills
        )


def backlog(
    reads: Reads, peer: bytes, path: str, allows: Allows, now_ms: int = 0, linked: Collection[bytes] = ()
) -> Backlog:
    """What is open between this node and `peer`, which is `linked` to these sites, of what our policy lets out now.

    Raises CorruptStateError where the peer's rows cannot be read.
    """
    row = reads.execute("SELECT no FROM meshnode_sites WHERE site = ?", (peer,)).fetchone()
    stream = Stream(peer, row[0] if row else -1, path)
    outbound = read_outbound(reads, stream)
    staged = read_staged(reads, stream, outbound) if outbound else []
    inbound = read_inbound(reads, stream)
    again = {kind: sum(len(each.items.positions) for each in staged if each.items.kind == kind) for kind in _AGAIN}
    at = _acknowledged(reads, stream, outbound or Outbound(b""))
    behind, waiting = events_open(reads, stream, at, allows, now_ms, linked)
    events_again, records_again = (_count(reads, stream, "meshnode_reoffers", "kind = ?", kind) for kind in _KINDS)
    return Backlog(
        epoch=outbound.epoch if outbound else None,
        cursor=outbound.cursor if outbound else 0,
        offer_cursor=outbound.offer_cursor if outbound else None,
        settled_no=outbound.settled_no if outbound else 0,
        events_behind=behind + events_again + again[EVENTS_AGAIN],
        waiting=waiting,
        records_behind=records_after(reads, at.record_cursor) + records_again + again[RECORDS_AGAIN],
        staged=len(staged),
        attempts=staged[0].attempts if staged else 0,
        reoffers=events_again + records_again,
        unanswered=_count(reads, stream, "meshnode_answers", "?", 1),
        backfills=_count(reads, stream, "meshnode_backfills", "?", 1),
        requests=int(
            reads.execute("SELECT count(*) FROM meshnode_requests WHERE site_no = ?", (stream.no,)).fetchone()[0]
        ),
        inbound_epoch=inbound.epoch if inbound else None,
        next_inbound=inbound.next if inbound else 0,
    )


def groups_ahead(reads: Reads, told: Mapping[GroupName, Hlc], allows: Allows) -> int:
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
        " WHERE s.site = ? AND (w.rejected_low IS NOT NULL OR w.rejected_high IS NOT NULL)",
        (site,),
    ).fetchone()
    return int(row[0])


def sites_ahead(reads: Reads, newest: Mapping[bytes, Hlc]) -> list[bytes]:
    """The sites of which a peer's hello tells later events than are here (`max_hlc`: a hint)."""
    return [site for site, hlc in newest.items() if hlc > _newest(reads, site)]


_KINDS = (EVENT, RECORD)
_AGAIN = (EVENTS_AGAIN, RECORDS_AGAIN)
_NOBODY: Final = -1  # no number of a site


def _acknowledged(reads: Reads, stream: Stream, at: Outbound) -> Outbound:
    """How far the peer acknowledged, on links or by a bundle of its."""
    bundle = read_outbound(reads, replace(stream, path=BUNDLE_PATH))
    if bundle is None:
        return at
    return replace(
        at,
        cursor=max(at.cursor, bundle.cursor),
        record_cursor=max(at.record_cursor, bundle.record_cursor),
        offer_cursor=None if at.offer_cursor is None else max(at.offer_cursor, bundle.cursor),
    )


def events_open(
    reads: Reads, stream: Stream, at: Outbound, allows: Allows, now_ms: int, linked: Collection[bytes] = ()
) -> tuple[int, int]:
    """How many events the peer should get by now, and of others than this node those that wait to be offered."""
    policy = policies.read(reads)
    own_no, others_from = own_number(reads) or _NOBODY, _others_from(at)
    oldest_raw = policy.oldest_ms(TableClass.RAW, now_ms) if policy.replicate_raw_ingress else 0
    behind = waiting = 0
    for after, of_own in ((at.cursor, True), (others_from, False)):
        for part in logcounts.parts_after(reads, after, own_no, of_author=of_own):
            named = _names(reads, part)
            if named is None:
                continue
            schema, table, text, author = named
            table_class = TableClass(text)
            if author == stream.peer or not policy.days(table_class) or not allows(schema, table):
                continue
            bounded = table_class is TableClass.RAW and oldest_raw > 0
            count = _recent(reads, part, after, oldest_raw) if bounded else part.events
            if at.offer_cursor is not None and author in linked:
                waiting += count
            else:
                behind += count
    return behind, waiting


def _names(reads: Reads, part: logcounts.Part) -> tuple[str, str, str, bytes] | None:
    """Schema, table, class and author."""
    found = reads.execute(
        "SELECT t.schema, t.name, t.class, s.site FROM meshnode_tables AS t, meshnode_sites AS s"
        " WHERE t.no = ? AND s.no = ?",
        (part.table_no, part.site_no),
    )
    named: tuple[str, str, str, bytes] | None = found.fetchone()
    return named


def _recent(reads: Reads, part: logcounts.Part, after: int, oldest_ms: int) -> int:
    """Of raw tables with a budget, what is not too old: as many are read as the author wrote within it."""
    found = reads.execute(
        "SELECT count(*) FROM meshnode_log INDEXED BY meshnode_log_clock"
        " WHERE site_no = ? AND physical >= ? AND table_no = ? AND position > ? AND state <> 2",
        (part.site_no, to_sql(oldest_ms), part.table_no, after),
    )
    return int(found.fetchone()[0])


def oldest_after(reads: Reads, stream: Stream, at: Outbound, allowed: Callable[[int, int | bytes], bool]) -> int | None:
    """The HLC in milliseconds of the first event beyond the cursors that the peer should get, of those looked at."""
    own_no, others_from = own_number(reads), _others_from(at)
    rows = reads.execute(
        "SELECT table_no, physical, site_no = ? OR state = 2 OR position <= CASE WHEN site_no = ? THEN ? ELSE ? END"
        " FROM meshnode_log WHERE position > ? ORDER BY position LIMIT ?",
        (stream.no, own_no, at.cursor, others_from, min(at.cursor, others_from), OLDEST_LOOKED_AT),
    )
    return next((from_sql(row[1]) for row in rows if not row[2] and allowed(row[0], row[1])), None)


def own_number(reads: Reads) -> int | None:
    """The number of this node's own site, None before it has one."""
    row = reads.execute(
        "SELECT s.no FROM meshnode_meta AS m JOIN meshnode_sites AS s ON s.site = m.value WHERE m.name = 'site'"
    ).fetchone()
    return None if row is None else int(row[0])


def _others_from(at: Outbound) -> int:
    return at.cursor if at.offer_cursor is None else at.offer_cursor


def records_after(reads: Reads, cursor: int) -> int:
    """How many records there are beyond a cursor."""
    return int(reads.execute("SELECT count(*) FROM meshnode_records WHERE position > ?", (cursor,)).fetchone()[0])


def _count(reads: Reads, stream: Stream, table: str, condition: str, value: int) -> int:
    sql = f"SELECT count(*) FROM {table} WHERE site_no = ? AND path = ? AND {condition}"  # noqa: S608  # our own text
    return int(reads.execute(sql, (*stream.key, value)).fetchone()[0])


def _reached(reads: Reads, site: bytes, schema: str, table: str, hlc: Hlc) -> bool:
    """Whether a group is here up to `hlc`: claimed by our own watermark, or an event at least as late is logged.

    What a peer told is the clock of an event, so where that is here nothing else is looked at.
    """
    numbers = reads.execute(
        "SELECT s.no, t.no FROM meshnode_sites AS s, meshnode_tables AS t"
        " WHERE s.site = ? AND t.schema = ? AND t.name = ?",
        (site, schema, table),
    ).fetchone()
    if numbers is None:
        return False
    site_no, table_no = numbers
    clock = (to_sql(hlc.physical), to_sql(hlc.logical))
    claimed = reads.execute(
        "SELECT 1 FROM meshnode_watermarks WHERE site_no = ? AND table_no = ? AND (physical, logical) >= (?, ?)",
        (site_no, table_no, *clock),
    ).fetchone()
    if claimed is not None:
        return True
    logged = reads.execute(
        "SELECT 1 FROM (SELECT table_no FROM meshnode_log WHERE site_no = ? AND (physical, logical) >= (?, ?)"
        " ORDER BY physical, logical LIMIT ?) WHERE table_no = ? LIMIT 1",
        (site_no, *clock, REACHED_LOOKED_AT, table_no),
    ).fetchone()
    return logged is not None


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
