"""What every job on the writer thread shares: numbers, counters, the clock, the membership; one transaction at a time.

Everything cached here is a copy of what is stored. A transaction that fails takes its copies with it: they are dropped
and loaded again before the next one, so memory never claims what the disk does not hold (profile §8, NEOTH).
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from meshnode.engine.environment import Environment
from meshnode.engine.known import Known
from meshnode.engine.shared import SharedBatches
from meshnode.model.hlc import Hlc
from meshnode.model.membership import Membership
from meshnode.model.site import SiteKey
from meshnode.model.verdict import Judgement
from meshnode.store import capture, conflicts, log, meta, notices, policies, takebacks
from meshnode.store.database import Database, Tx
from meshnode.store.destinations import open_destination
from meshnode.store.materialize import TransactionLostError
from meshnode.store.names import SiteNumbers, TableEntry, TableNumbers
from meshnode.store.notices import Notice, NoticeBook
from meshnode.store.tables import Destination

if TYPE_CHECKING:
    from meshnode.engine.backfill import Coverage

T = TypeVar("T")

LoadMembership = Callable[[Tx, bytes], Membership]
"""The record walk over what is stored, given the founder's public key (profile §9)."""

_SURFACED_KEPT = 1024  # notices that wait in memory to be handed on; stored they are all the same
_ROLLBACKS_PER_JOB = 8  # rows that may undo a whole job by their trigger before their table is left out of it


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Membership and its generation, read as one by any thread."""

    mesh_id: bytes
    membership: Membership
    generation: int


class Context:
    """The writer's view of the node. Used on the writer thread only; `snapshot` may be read from any."""

    def __init__(self, db: Database, env: Environment, key: SiteKey | None, load_membership: LoadMembership) -> None:
        self.db = db
        self.env = env
        self.key = key
        self.barred: Counter[tuple[int, bytes | None]] = Counter()
        self.surfaced: deque[Notice] = deque(maxlen=_SURFACED_KEPT)
        self.judged: Counter[Judgement] = Counter()  # events since somebody took the numbers
        self.judging: Counter[Judgement] = Counter()  # those of the open transaction
        self.snapshot: Snapshot | None = None
        self.untried = False  # rows wait because others of their table undid their job too often
        self.behind_schema = False  # rows are still to be brought up to a changed schema
        self.work: dict[str, object] = {}  # what is done in several transactions, as far as it is; a failed one ends it
        self.on_schema_change: Callable[[Tx], None] = lambda _tx: None
        self.settle: Callable[[Tx, Mapping[int, Collection[bytes]]], None] = lambda _tx, _keys: None
        self.silent: Callable[[], bool] = lambda: False  # whether nothing may be authored for the time being
        self.shared = SharedBatches()
        self.coverages: dict[tuple[str, str], Coverage] = {}  # by (schema, table), what backfills walk through
        self._load_membership = load_membership
        self._stale = True
        self._membership_saved = False
        self._kept_membership: Membership | None = None  # the one that is on disk
        self._restartable = False
        self.last_change = 0  # of the change sequence, as it is on disk; any thread may read it
        self._schema_changed = True
        self._followed_version = -1  # of the schema that was last looked at in a transaction that committed
        self._saved: tuple[Hlc, int, int] | None = None
        with self.transaction():
            pass

    # --- transactions

    @contextmanager
    def transaction(self) -> Iterator[Tx]:
        """One durable batch. StoreError where the database fails; every cache is loaded again after any failure."""
        try:
            with self.db.transaction() as tx:
                if self._stale:
                    self._load(tx)
                tx.adopted = self.db.shared = bool(self.adopted)
                self._notice_schema_change(tx)
                yield tx
                surfaced = self._save(tx)
                if tx.log_touched:
                    self.shared.clear()
            self.last_change = self.next_change - 1
            self._membership_saved, self._kept_membership = True, self.membership
            if not self._schema_changed:
                self._followed_version = self.schema_version
            self.surfaced.extend(surfaced)
            self.judged.update(self.judging)
            self.judging.clear()
        except BaseException:
            self._stale = True
            self.shared.clear()
            self.judging.clear()
            if not self._membership_saved and self._kept_membership is not None:
                self.set_membership(self._kept_membership)  # whoever reads it meanwhile takes nobody for a member
            raise

    def transact(self, work: Callable[[Tx], T]) -> T:
        """Run `work` in one transaction, again if a trigger of the application undid all of it by RAISE(ROLLBACK).

        The row at fault is then withheld. Whoever commits events uses this rather than `transaction`.
        """
        self._restartable = True
        try:
            while True:
                try:
                    with self.transaction() as tx:
                        return work(tx)
                except TransactionLostError as lost:
                    too_many = self.barred.total() >= _ROLLBACKS_PER_JOB
                    self.untried = self.untried or too_many
                    self.barred[(lost.table_no, None if too_many else lost.row)] += 1
        finally:
            self._restartable = False
            if not self.is_rewriting:  # what is done in several transactions begins again, and comes to that row again
                self.barred.clear()

    def drop_coverages(self, tx: Tx) -> None:
        """What was brought together for backfills may be ahead of what is stored: it is made again."""
        for coverage in self.coverages.values():
            coverage.drop(tx)
        self.coverages.clear()

    def _load(self, tx: Tx) -> None:
        self.drop_coverages(tx)
        self.mesh_id = meta.read_bytes(tx, meta.MESH_ID)
        self.founder = meta.read_bytes(tx, meta.FOUNDER)
        self.site = meta.read_bytes(tx, meta.SITE)
        self.incarnation: bytes = meta.read(tx, meta.INCARNATION) or b""
        self.sites = SiteNumbers()
        self.tables = TableNumbers()
        self.notices = NoticeBook()
        self._known: dict[tuple[int, str], Known] = {}
        self._newest: dict[int, Hlc] = {}
        self._destinations: dict[int, Destination | None] = {}
        self._contested: set[tuple[int, int]] | None = None
        self.schema_version = self._followed_version  # what a failed transaction looked at is looked at again
        self.work.clear()
        self.adopted = capture.adopted(tx)
        self.taking_back = bool(takebacks.pending(tx))  # events that are no longer acceptable are still to be taken out
        self.next_position = meta.read_counter(tx, meta.NEXT_POSITION)
        self.next_change = meta.read_counter(tx, meta.NEXT_CHANGE)
        self.policy = policies.read(tx)
        self.policy_generation = policies.generation(tx)
        saved = meta.read_clock(tx)
        # A snapshot of the clock may be older than the log beside it: start above both (SSP/1 §13.5).
        self.clock = max(saved, log.newest_of_all(tx))
        self._saved = (saved, self.next_position, self.next_change)
        if not self._membership_saved:  # else the failed transaction did not touch it
            self.set_membership(self._load_membership(tx, self.founder))
        self._stale = False

    def _save(self, tx: Tx) -> list[Notice]:
        """The clock, the counters and the notices go into the transaction that used them."""
        clock, position, change = now = (self.clock, self.next_position, self.next_change)
        before = self._saved
        surfaced = self.notices.flush(tx, self.env.wall_ms())
        if before is None or before[0] != clock:
            meta.write_clock(tx, clock)
        if before is None or before[1] != position:
            meta.write(tx, meta.NEXT_POSITION, position)
        if before is None or before[2] != change:
            meta.write(tx, meta.NEXT_CHANGE, change)
        self._saved = now
        return surfaced

    def _notice_schema_change(self, tx: Tx) -> None:
        """Destinations are looked at again whenever anything changed the schema (profile §5).

        What follows from it writes rows, so it waits for a job that can be done again.
        """
        version = tx.execute("PRAGMA schema_version").fetchone()[0]
        if version != self.schema_version:
            self.schema_version = version
            self._destinations.clear()
            self._schema_changed = True
        if self._schema_changed and self._restartable:
            self._schema_changed = False
            self.on_schema_change(tx)

    @property
    def is_behind(self) -> bool:
        """Whether rows wait for further transactions."""
        return self.is_rewriting or self.untried

    @property
    def is_rewriting(self) -> bool:
        """Whether they wait to follow the schema or the membership."""
        return self.behind_schema or self.taking_back

    def has_unsigned(self, tx: Tx) -> bool:
        """Whether something that was written to adopted tables by SQL may still have to be signed."""
        looking = any(place is not None for place in self.adopted.values())
        return looking or (bool(self.adopted) and capture.any_pending(tx))

    # --- membership

    @property
    def membership(self) -> Membership:
        """Who belongs to the mesh now."""
        assert self.snapshot is not None
        return self.snapshot.membership

    @property
    def generation(self) -> int:
        """The number of the membership; it grows with every change."""
        assert self.snapshot is not None
        return self.snapshot.generation

    def set_membership(self, membership: Membership) -> None:
        """Replace the snapshot; what was verified under an older generation is verified again at commit."""
        self._membership_saved = False
        self.snapshot = Snapshot(self.mesh_id, membership, 1 if self.snapshot is None else self.snapshot.generation + 1)

    # --- names, counters, notices

    def destination(self, tx: Tx, entry: TableEntry) -> Destination | None:
        """The SQL table behind a registered name, None where it is missing or cannot be one any more."""
        if entry.no is None or not entry.registered:
            return None
        if entry.no not in self._destinations:
            opened = open_destination(tx, entry)
            if isinstance(opened, str):
                self.surface(tx, "table-unusable", None, opened, table=entry.text)
                self._destinations[entry.no] = None
            else:
                notices.end(tx, "table-unusable", table=entry.text)
                self._destinations[entry.no] = opened
        return self._destinations[entry.no]

    def forget_destinations(self) -> None:
        """Look at every destination again before its next use."""
        self._destinations.clear()

    def newest(self, tx: Tx, site_no: int) -> Hlc | None:
        """The highest clock of a site in the log: anything above it is new without a look."""
        if site_no not in self._newest:
            found = log.newest(tx, site_no)
            if found is None:
                return None
            self._newest[site_no] = found
        return self._newest[site_no]

    def saw(self, site_no: int, hlc: Hlc) -> None:
        """Note an event that this transaction appends to the log."""
        before = self._newest.get(site_no)
        if before is None or hlc > before:
            self._newest[site_no] = hlc

    def contested(self, tx: Tx) -> set[tuple[int, int]]:
        """Rows that may have a conflict which is not over: the table, and Python's hash of the key bytes."""
        if self._contested is None:
            self._contested = {(table_no, hash(key)) for table_no, key in conflicts.watched_rows(tx)}
        return self._contested

    def known(self, stream: tuple[int, str]) -> Known:
        """What is remembered of the peer of a stream beside what is stored."""
        known = self._known.get(stream)
        if known is None:
            known = self._known[stream] = Known()
        return known

    def forget_known(self, stream: tuple[int, str]) -> None:
        """The peer may be another one by now, or the stream begins anew."""
        self._known.pop(stream, None)

    def take_position(self) -> int:
        """The next position of the log; never given out again (profile §1)."""
        position = self.next_position
        self.next_position = position + 1
        return position

    def take_change(self) -> int:
        """The next number of the change sequence."""
        change = self.next_change
        self.next_change = change + 1
        return change

    def surface(self, tx: Tx, kind: str, site: bytes | None, sample: str, *, table: str = "") -> None:
        """Note a condition; it is stored with this transaction (profile §6)."""
        self.notices.add(kind, site or b"", table, sample)

    def take_surfaced(self) -> list[Notice]:
        """What was surfaced since the last call, for the log and the application."""
        surfaced = list(self.surfaced)
        self.surfaced.clear()
        return surfaced

    def take_judged(self) -> Counter[Judgement]:
        """How many events came to which verdict since the last call."""
        judged, self.judged = self.judged, Counter()
        return judged
