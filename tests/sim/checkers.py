"""What must hold in every run, whatever goes wrong: one small class each, apart from what the runs do."""

from __future__ import annotations

from collections import defaultdict
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from support.store_jobs import Job

from meshnode.codec.cose import split_untrusted
from meshnode.engine.asking import covers
from meshnode.engine.check import check_store
from meshnode.errors import EnvelopeError
from meshnode.limits import NOTICE_ROWS, REQUESTS_PER_PEER, STORED_ACK_WINDOWS, WINDOW_FRAMES
from meshnode.model.delivery import PATH
from meshnode.model.event import CONTENT_TYPE, Event
from meshnode.model.frames import Batch, Inbound, Live, Records
from meshnode.model.hlc import ZERO, Hlc
from meshnode.model.record import Vouch, parse_record_untrusted, split_record_untrusted
from meshnode.store import delivery, inbound
from meshnode.store.backlog import backlog
from meshnode.store.delivery import PAST_EPOCHS, Outbound, StagedRow, Stream
from meshnode.store.log import HELD
from meshnode.store.reoffers import EVENT
from meshnode.store.u64 import from_sql
from meshnode.sync.effects import Advance, Commit
from meshnode.sync.resume import holds_more
from sim.books import name_of
from sim.conflicts import ConflictsTrue
from sim.convergence import Convergence
from sim.network import Host, Side
from sim.node import Node
from sim.tables import SHAPES
from sim.watch import Checker

if TYPE_CHECKING:
    from sim.world import World


_EVENTS: Final = (delivery.EVENTS, delivery.EVENTS_AGAIN, delivery.LIVE, delivery.OFFERED)


def stream_between(sender: Node, receiver: Host) -> Stream | None:
    """How the sender's database names its stream to the receiver; None where it knows nothing of it."""
    known = sender.running.streams.get(receiver.number)
    if known is None:
        found = sender.query("SELECT no FROM meshnode_sites WHERE site = ?", receiver.site)
        if not found:
            return None
        known = sender.running.streams[receiver.number] = Stream(receiver.site, found[0][0], PATH)
    return known


class Settled(Checker):
    """Once nothing fails any more, nothing stays in flight, to be offered again, or asked for."""

    def open_ends(self) -> list[str]:
        found = []
        for node in self.world.live():
            for peer in self.world.live():
                if peer is node or not node.is_linked(peer):
                    continue
                open_with = backlog(node, peer.site, PATH, lambda _schema, _table: True)
                waiting = open_with.reoffers - self._over_quota(node, peer)
                behind = open_with.events_behind + open_with.records_behind - open_with.reoffers
                if waiting or behind or open_with.staged or open_with.unanswered or open_with.requests:
                    found.append(f"node {node.number} for node {peer.number}: {open_with}")
        return found

    def _over_quota(self, node: Node, peer: Node) -> int:
        """What the peer goes on rejecting: events for tables that nobody has, beyond what one site may hold."""
        stream = stream_between(node, peer)
        if stream is None:
            return 0
        names = ", ".join(f"'{name}'" for name in SHAPES)
        sql = (
            "SELECT count(*) FROM meshnode_reoffers AS r JOIN meshnode_log AS l ON l.position = r.position"
            " JOIN meshnode_tables AS t ON t.no = l.table_no"
            f" WHERE r.site_no = ? AND r.path = ? AND r.kind = ? AND t.name NOT IN ({names})"
        )
        return int(node.query(sql, *stream.key, EVENT)[0][0])


class _Passed(NamedTuple):
    """Where the cursors of a stream are: of what its sender wrote, and of what others did (profile §14)."""

    epoch: bytes
    own: int = 0
    others: int = 0

    @classmethod
    def of(cls, outbound: Outbound) -> _Passed:
        others = outbound.cursor if outbound.offer_cursor is None else outbound.offer_cursor
        return cls(outbound.epoch, outbound.cursor, others)


class CursorsBehindPeers(Checker):
    """A cursor never passes what its peer does not hold, or has a reason not to hold (profile §8)."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._passed: dict[tuple[int, int], _Passed] = {}
        self._epochs: dict[bytes, int] = {}  # the receiver's disk when the epoch was first seen

    def after(self, node: Node, name: str, side: Side | None, job: Job | None, outcome: Any) -> None:
        if isinstance(job, Advance) and side is not None and isinstance(side.peer, Node):
            # On a link that came after the receiver's disk was replaced, whatever the stream goes on from is there.
            met = side.made_us >= side.peer.replaced_us and job.room > 0
            self._check(node, side.peer, met=met)

    def booted(self, node: Node) -> None:
        for other in self.world.nodes:
            if other is not node and other.is_up:
                for pair in ((node, other), (other, node)):
                    self._passed.pop((pair[0].number, pair[1].number), None)
                    self._check(*pair)

    def at_rest(self) -> None:
        self._passed.clear()
        self._epochs.clear()
        for sender in self.world.live():
            for receiver in self.world.live():
                if sender is not receiver:
                    self._check(sender, receiver)

    def _check(self, sender: Node, receiver: Node, *, met: bool = False) -> None:
        stream = stream_between(sender, receiver)
        outbound = delivery.read_outbound(sender, stream) if stream else None
        if stream is None or outbound is None or not receiver.is_up:
            return
        pair = (sender.number, receiver.number)
        if self._epochs.setdefault(outbound.epoch, receiver.disks) != receiver.disks:
            if not met:
                return  # the receiver's disk is another one: what is passed will be sent again when they meet
            self._epochs[outbound.epoch] = receiver.disks
            self._passed.pop(pair, None)
        passed, now = self._passed.get(pair, _Passed(b"")), _Passed.of(outbound)
        if passed.epoch != now.epoch or passed.own > now.own or passed.others > now.others:
            passed = _Passed(now.epoch)
        self._passed[pair] = now
        books = self.world.watch.books
        held = books.held[sender.number]
        for position in range(min(passed.own, passed.others) + 1, max(now.own, now.others) + 1):
            data = held.data_at(position)
            if data is None or data in books.held[receiver.number].events:
                continue
            is_own = books.events[data].site == sender.site
            if (passed.own < position <= now.own) if is_own else (passed.others < position <= now.others):
                self._account_for(sender, receiver, stream, position, books.events[data])

    def _account_for(self, sender: Node, receiver: Node, stream: Stream, position: int, event: Event) -> None:
        books = self.world.watch.books
        if event.site == receiver.site or books.may_lack(receiver, event):
            return
        if event.data in books.taken_out[receiver.number]:
            return  # it was there
        if not sender.query("SELECT 1 FROM meshnode_log WHERE position = ?", position):
            return  # taken out since
        again = sender.query(
            "SELECT 1 FROM meshnode_reoffers WHERE site_no = ? AND path = ? AND kind = ? AND position = ?",
            *stream.key,
            EVENT,
            position,
        )
        if again or any(position in row.items.positions for row in staged_rows(sender, stream)):
            return
        if asks_for(receiver, event):
            return  # it has asked for what it dropped before
        if event.data in books.lost[receiver.number] and will_ask_for_everything(receiver, sender):
            return  # it offered it before it lost its disk, and learns of that from the sender's hello (profile §14)
        if event.table in receiver.dropped & books.thinned and books.superseded(receiver, event):
            return  # it asked for what it dropped, and got what the row needs
        self.fail(
            f"the cursor of node {sender.number} for node {receiver.number} passed {name_of(event)} at position "
            f"{position}, which is not there"
        )


def asks_for(node: Node, event: Event) -> bool:
    """Whether a node waits for an answer that brings an event."""
    asked = [inbound.read_request(body) for (body,) in node.query("SELECT body FROM meshnode_requests")]
    return any(covers(request, event.site, event.schema, event.table) for request in asked)


def will_ask_for_everything(node: Node, peer: Node) -> bool:
    """Whether a node that was restored has still to read that the peer holds more of its stream than it knows."""
    seen, own = stream_between(peer, node), stream_between(node, peer)
    held = inbound.read_inbound(peer, seen) if seen else None
    if held is None:
        return False
    stream, past = None, dict[bytes, int]()
    if own is not None:
        outbound, past = delivery.read_outbound(node, own), delivery.past_epochs(node, own)
        stream = delivery.stream_view(outbound, staged_rows(node, own)) if outbound else None
    return holds_more(Inbound(held.epoch, held.next, held.digest or b""), stream, past)


def staged_rows(sender: Node, stream: Stream) -> list[StagedRow]:
    """What the sender has in flight."""
    outbound = delivery.read_outbound(sender, stream)
    return delivery.read_staged(sender, stream, outbound) if outbound else []


class NothingAcknowledgedIsLost(Checker):
    """What a node acknowledged stays in its log, or its removal is on record, whatever dies (NEOTH commit contract)."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._acknowledged: defaultdict[int, set[bytes]] = defaultdict(set)
        self._staged: dict[int, dict[int, StagedRow]] = {}

    def before(self, node: Node, name: str, side: Side | None, job: Job | None) -> None:
        if isinstance(job, Advance) and job.settled and side is not None:
            stream = stream_between(node, side.peer)
            self._staged[node.number] = {row.no: row for row in staged_rows(node, stream)} if stream else {}

    def after(self, node: Node, name: str, side: Side | None, job: Job | None, outcome: Any) -> None:
        if not isinstance(job, Advance) or side is None or not isinstance(side.peer, Node):
            return
        books, peer = self.world.watch.books, side.peer
        for ack in job.settled:
            row = self._staged[node.number].get(ack.no)
            if row is None or row.digest != ack.digest or row.items.kind not in _EVENTS:
                continue
            for index, position in enumerate(row.items.positions):
                data = books.held[node.number].data_at(position)
                missing = index in ack.rejected or index in ack.wanted
                if data is not None and not missing and data in books.held[peer.number].events:
                    self._acknowledged[peer.number].add(data)

    def booted(self, node: Node) -> None:
        self._check(node)

    def restored(self, node: Node) -> None:
        self._acknowledged[node.number].clear()

    def at_rest(self) -> None:
        for node in self.world.live():
            self._check(node)

    def _check(self, node: Node) -> None:
        books = self.world.watch.books
        gone = self._acknowledged[node.number] - books.held[node.number].events.keys()
        lost = [books.events[data] for data in gone - books.taken_out[node.number]]
        if lost:
            first = name_of(min(lost, key=lambda event: event.rank))
            self.fail(f"node {node.number} acknowledged {len(lost)} events that it does not hold, first {first}")


class PositionsUsedOnce(Checker):
    """A position of a log names one event for ever, removed or not (profile §1)."""

    def after(self, node: Node, name: str, side: Side | None, job: Job | None, outcome: Any) -> None:
        self._check(node)

    def booted(self, node: Node) -> None:
        self._check(node)

    def _check(self, node: Node) -> None:
        reused = self.world.watch.books.held[node.number].reused
        if reused:
            self.fail(f"node {node.number} gave out the log positions {sorted(reused)} twice")


class WatermarksTrue(Checker):
    """Of a group, all at or below its watermark is there, or has a reason not to be (profile §6, SSP/1 §14.2)."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._claimed: defaultdict[int, dict[tuple[bytes, str], Hlc]] = defaultdict(dict)

    def after(self, node: Node, name: str, side: Side | None, job: Job | None, outcome: Any) -> None:
        if job is None or isinstance(job, Commit):
            self._check(node)

    def booted(self, node: Node) -> None:
        self._claimed[node.number].clear()
        self._check(node, opted_in=True)

    def at_rest(self) -> None:
        for node in self.world.live():
            self._claimed[node.number].clear()
            self._check(node)

    def _check(self, node: Node, *, opted_in: bool = False) -> None:
        books, known = self.world.watch.books, self._claimed[node.number]
        for group, hlc in watermarks_of(node).items():
            before = known.get(group)
            if hlc == before:
                continue
            known[group] = hlc
            for event in books.authored.get(group[0], ()):
                if event.table == group[1] and event.hlc <= hlc and event.data not in books.held[node.number].events:
                    if opted_in and event.table in node.dropped and asks_for(node, event):
                        continue  # to be told to leave it out was a verdict too; nothing rises before the answer
                    self._account_for(node, event, hlc)

    def _account_for(self, node: Node, event: Event, hlc: Hlc) -> None:
        books = self.world.watch.books
        # What was compacted or taken back anywhere need not be sent from there: no row needs it, or none may have it.
        if books.may_lack(node, event) or any(event.data in each for each in books.taken_out.values()):
            return
        if any(books.may_not_have(other, event) for other in self.world.nodes if other.is_up):
            return  # a relay dropped it; the record that says so is on its way here, or waits for this node's clock
        if books.wrote_blindly(event, hlc):
            return  # its author's stream is whole as far as its author knows
        if event.table in books.thinned and books.superseded(node, event):
            return  # a relay has, and had to send, no more than the row needs
        hostile = self.world.hostile
        if hostile is not None and hlc <= hostile.lies.claimed.get((event.site, event.table), ZERO):
            return  # a member's claim is believed: evidence that decides nothing
        self.fail(f"node {node.number} claims {tuple(hlc)} and lacks {name_of(event)}")


def watermarks_of(node: Node) -> dict[tuple[bytes, str], Hlc]:
    """What a node claims, by site and table."""
    rows = node.query(
        "SELECT s.site, t.name, w.physical, w.logical FROM meshnode_watermarks AS w"
        " JOIN meshnode_sites AS s ON s.no = w.site_no JOIN meshnode_tables AS t ON t.no = w.table_no"
    )
    return {(site, table): Hlc(from_sql(physical), from_sql(logical)) for site, table, physical, logical in rows}


class HonestGroupsMove(Checker):
    """At rest every live node claims each honest author's groups up to their last event (SSP/1 §14.2)."""

    def open_ends(self) -> list[str]:
        books, nodes = self.world.watch.books, self.world.live()
        # Who lost a disk knows of its own writes only what peers gave back, and claims nothing until it writes again.
        authors = {node.site: node.number for node in nodes if node.disks == 1 and not self._was_lied_to(node)}
        found = []
        for node in nodes:
            claimed = watermarks_of(node)
            newest: dict[tuple[bytes, str], Hlc] = {}
            for data in books.held[node.number].events:
                event = books.events[data]
                group = (event.site, event.table)
                newest[group] = max(newest.get(group, event.hlc), event.hlc)
            for group, hlc in sorted(newest.items()):
                if group[0] in authors and group[1] in SHAPES and claimed.get(group, Hlc(0, 0)) < hlc:
                    author, at = authors[group[0]], claimed.get(group)
                    found.append(f"node {node.number} claims {at} of {group[1]} by node {author}, not {tuple(hlc)}")
        return found

    def _was_lied_to(self, node: Node) -> bool:
        """Whether it asks the hostile member for its own events, which never come: until then it tells no claims."""
        hostile = self.world.hostile
        if hostile is None:
            return False
        sql = "SELECT body FROM meshnode_requests AS r JOIN meshnode_sites AS s ON s.no = r.site_no WHERE s.site = ?"
        asked = [inbound.read_request(body) for (body,) in node.query(sql, hostile.site)]
        return any(request is not None and request.site == node.site for request in asked)


class ClocksRise(Checker):
    """An honest site's events have ever later clocks, unless its disk was lost with those before (SSP/1 §5)."""

    def after(self, node: Node, name: str, side: Side | None, job: Job | None, outcome: Any) -> None:
        if name == "write":
            self._check(node)

    def booted(self, node: Node) -> None:
        self._check(node)

    def _check(self, node: Node) -> None:
        books = self.world.watch.books
        for event, before in books.clocks_fallen.pop(node.number, ()):
            if before.data not in books.unseen.get(event.data, ()):
                self.fail(f"node {node.number} wrote {name_of(event)} after {name_of(before)}")


class RecordsFirst(Checker):
    """An event never comes to a node before the vouch for its signer was offered to that node (profile §8)."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._vouched: defaultdict[int, set[bytes]] = defaultdict(set)

    def booted(self, node: Node) -> None:
        for (record,) in node.query("SELECT record FROM meshnode_records"):
            self._learn(node, record)

    def restored(self, node: Node) -> None:
        self._vouched[node.number].clear()

    def after(self, node: Node, name: str, side: Side | None, job: Job | None, outcome: Any) -> None:
        if name in ("record", "introduce"):
            self.booted(node)
        if not isinstance(job, Commit) or side is None or not isinstance(side.peer, Node):
            return
        for frame in job.frames:
            if isinstance(frame.content, Records):
                for record in frame.content.records:
                    self._learn(node, record)
            elif isinstance(frame.content, Batch | Live):
                for data in frame.content.events:
                    self._check(node, side.peer, data)

    def _learn(self, node: Node, data: bytes) -> None:
        site = _site_vouched_for(data)
        if site is not None:
            self._vouched[node.number].add(site)

    def _check(self, node: Node, peer: Node, data: bytes) -> None:
        try:
            signer = split_untrusted(data, CONTENT_TYPE).kid
        except EnvelopeError:
            return
        if signer not in self._vouched[node.number]:
            self.fail(f"node {peer.number} sent node {node.number} an event of {signer.hex()[:8]} before its vouch")


@lru_cache(maxsize=10_000)
def _site_vouched_for(data: bytes) -> bytes | None:
    try:
        record = parse_record_untrusted(split_record_untrusted(data), data)
    except EnvelopeError:
        return None
    return record.body.site if isinstance(record.body, Vouch) else None


class FrontierIsOurs(Checker):
    """A node's own slot of the causal frontier counts the batches that it staged, whatever peers say (NEOTH)."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._before: dict[int, int | None] = {}

    def before(self, node: Node, name: str, side: Side | None, job: Job | None) -> None:
        if isinstance(job, Commit):
            self._before[node.number] = self._slot(node)

    def after(self, node: Node, name: str, side: Side | None, job: Job | None, outcome: Any) -> None:
        if isinstance(job, Commit):
            before, now = self._before[node.number], self._slot(node)
            if now != before:
                self.fail(f"what a peer sent moved the own slot of node {node.number} from {before} to {now}")

    def _slot(self, node: Node) -> int | None:
        found = node.query("SELECT counter FROM meshnode_frontier WHERE site = ?", node.site)
        return int(found[0][0]) if found else None


class Bounded(Checker):
    """Tables that peers make grow stay within their bounds (profile §12)."""

    EVERY: Final = 50  # jobs

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._jobs = 0

    def after(self, node: Node, name: str, side: Side | None, job: Job | None, outcome: Any) -> None:
        self._jobs += 1
        if self._jobs % self.EVERY == 0:
            self._check(node)

    def at_rest(self) -> None:
        for node in self.world.live():
            self._check(node)

    def _check(self, node: Node) -> None:
        per_stream = {
            "meshnode_staged": WINDOW_FRAMES,
            "meshnode_acks": STORED_ACK_WINDOWS * WINDOW_FRAMES,
            "meshnode_epochs": PAST_EPOCHS,
            "meshnode_answers": REQUESTS_PER_PEER,
        }
        for table, bound in per_stream.items():
            sql = f"SELECT max(n) FROM (SELECT count(*) AS n FROM {table} GROUP BY site_no, path)"
            self._compare(node, table, sql, bound)
        self._compare(node, "notices", "SELECT count(*) FROM meshnode_notices", NOTICE_ROWS)
        offered = (
            "SELECT (SELECT count(*) FROM meshnode_log) + (SELECT count(*) FROM meshnode_records)"
            " + (SELECT coalesce(sum(last - first + 1), 0) FROM meshnode_removed)"
        )
        again = "SELECT max(n) FROM (SELECT count(*) AS n FROM meshnode_reoffers GROUP BY site_no, path)"
        self._compare(node, "re-offers", again, int(node.query(offered)[0][0]))
        for end in node.running.ends.values():
            if end.session.in_flight > WINDOW_FRAMES:
                self.fail(f"a session of node {node.number} has {end.session.in_flight} frames in flight")

    def _compare(self, node: Node, what: str, sql: str, bound: int) -> None:
        found = node.query(sql)[0][0] or 0
        if found > bound:
            self.fail(f"node {node.number} keeps {found} rows of {what}, beyond {bound}")


class CheckIsClean(Checker):
    """What `meshnode check` recomputes from the log is what the node has, and SQLite finds its file whole."""

    def at_rest(self) -> None:
        for node in self.world.live():
            context = node.running.context
            with context.transaction() as tx:
                found = check_store(tx, context.env.sqlite, context.membership.key_of)
            if found.count:
                first = found.differences[0]
                self.fail(f"node {node.number}: {found.count} differences, first {first}")
            held = node.query("SELECT count(*) FROM meshnode_log WHERE state = ?", HELD)[0][0]
            if held and not self.world.has_strangers:
                self.fail(f"node {node.number} still holds {held} events for tables that it has")


CHECKERS: Final[tuple[type[Checker], ...]] = (
    PositionsUsedOnce,
    CursorsBehindPeers,
    NothingAcknowledgedIsLost,
    WatermarksTrue,
    ClocksRise,
    RecordsFirst,
    FrontierIsOurs,
    Bounded,
    Convergence,
    HonestGroupsMove,
    Settled,
    CheckIsClean,
    ConflictsTrue,
)
