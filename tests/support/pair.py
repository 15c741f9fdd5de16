"""Reference driver of `Session`: nodes on real databases joined in memory, with crashes wherever a test wants them.

`Node` owns a database and its sessions, as the real node does; `Wire` is one link: two ordered byte streams each way.
A `Wire` offers its possible next steps; a test takes them in any order, or lets `Mesh.settle` run until all is quiet.
"""

from __future__ import annotations

import sqlite3
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from meshnode.engine.commit import commit_events
from meshnode.engine.context import Context
from meshnode.engine.environment import Environment
from meshnode.engine.links import ask_own_history, open_link, outstanding_requests
from meshnode.engine.membership import add_records, load_membership
from meshnode.engine.offer import Filter
from meshnode.engine.policy import PolicyChange, classify, take_policy
from meshnode.engine.verify import verify_untrusted
from meshnode.errors import CorruptStateError
from meshnode.model.delivery import PATH
from meshnode.model.event import Event, author_event
from meshnode.model.frames import FEATURES
from meshnode.model.hlc import Hlc, tick
from meshnode.model.policy import Policy, TableClass
from meshnode.model.scope import Scope
from meshnode.model.site import SiteKey
from meshnode.model.verdict import Judgement
from meshnode.store import meta
from meshnode.store.database import Database, Tx
from meshnode.store.schema import migrate
from meshnode.sync.effects import (
    Close,
    Effect,
    Introduced,
    Notice,
    PeerBye,
    PeerHello,
    PeerWatermarks,
    RolledBack,
    SendControl,
    SendEvents,
)
from meshnode.sync.greeting import Greeting
from meshnode.sync.session import Session
from support.mesh_context import TestTime
from support.records import FOUNDER, MESH_ID, founding, site_key, vouch
from support.store_jobs import Job, Lane, run_job

NOTES = ("main", "notes")


class Stopped(Exception):
    """Raised from the fault hook: the process dies at this statement."""


class Node:
    """One device: a database, what it knows in memory, and the sessions that it has."""

    def __init__(self, folder: Path, number: int, time: TestTime, features: tuple[str, ...] = FEATURES) -> None:
        self.folder, self.number, self.time = folder, number, time
        self.key: SiteKey = site_key(number)
        self.features: tuple[str, ...] = features
        self.ends: list[End] = []
        self.notices: list[Notice] = []
        self.fuse: int | None = None  # statements until the process dies
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / "meshnode.db"
        self.open()

    @property
    def site(self) -> bytes:
        return self.key.site

    @property
    def scope(self) -> Scope:
        return self.context.policy.scope

    @scope.setter
    def scope(self, scope: Scope) -> None:
        self.take(replace(self.context.policy, scope=scope))

    def open(self) -> None:
        """Start the process."""
        database = Database(self.path, sqlite=sqlite3, fault=self._fault)
        with database.transaction() as tx:
            migrate(tx)
            if meta.read(tx, meta.SITE) is None:
                meta.write(tx, meta.MESH_ID, MESH_ID)
                meta.write(tx, meta.FOUNDER, FOUNDER.public_key)
                meta.write(tx, meta.SITE, self.key.site)
                meta.write(tx, meta.INCARNATION, bytes([self.number]) * 16)
        env = Environment(self.time.wall_ms, self.time.random_bytes, sqlite3, self._fault)
        self.context = Context(database, env, self.key, load_membership)

    def crash(self) -> None:
        """Kill the process and start it again: memory and links are gone, the disk is not."""
        self.fuse = None
        for end in list(self.ends):
            end.wire.cut()
        self.context.db.close()
        self.open()

    def lose(self, backup: bytes | None = None) -> None:
        """The database is gone, or an old copy was put in its place."""
        for end in list(self.ends):
            end.wire.cut()
        self.context.db.close()
        for each in self.folder.iterdir():
            each.unlink()
        if backup is not None:
            self.path.write_bytes(backup)
        self.open()

    def backup(self) -> bytes:
        """A copy of the database as it is now."""
        copy = self.folder / "copy.db"
        with sqlite3.connect(self.path) as source, sqlite3.connect(copy) as target:
            source.backup(target)
        source.close()
        target.close()
        data = copy.read_bytes()
        copy.unlink()
        return data

    def _fault(self, _statement: str) -> None:
        if self.fuse is not None:
            self.fuse -= 1
            if self.fuse < 0:
                raise Stopped

    # --- Membership and tables.

    def admit(self, *records: bytes) -> None:
        """Records that this node has from elsewhere."""
        with self.context.transaction() as tx:
            add_records(self.context, tx, records, peer=None)
        self.grew()

    def create_notes(self) -> None:
        """The table that the tests write."""
        with self.context.transaction() as tx:
            tx.execute("CREATE TABLE notes (id TEXT NOT NULL PRIMARY KEY, title TEXT) WITHOUT ROWID")
            self.context.tables.mark_registered(tx, self.context.tables.entry(tx, *NOTES), own_numbers=False)

    # --- Policy, changed while links are up as the node does it.

    def take(self, policy: Policy) -> PolicyChange:
        """Put a policy in force."""
        return self._told(take_policy(self.context, policy, linked=self.linked))

    def classify(self, table_class: TableClass, table: tuple[str, str] = NOTES) -> PolicyChange:
        """Say what a table is to the mesh."""
        return self._told(classify(self.context, *table, table_class, linked=self.linked))

    @property
    def linked(self) -> frozenset[bytes]:
        return frozenset(end.peer.site for end in self.ends)

    def _told(self, change: PolicyChange) -> PolicyChange:
        for end in list(self.ends):
            if change.scope:
                end.wire.cut()
            elif change.any:
                end.carry_out(end.session.policy_changed(self.time.now_ms, widened=not change.narrowed))
        self.ask()
        return change

    # --- Events.

    def event(self, row: str, title: str | None, *, table: tuple[str, str] = NOTES, hlc: Hlc | None = None) -> Event:
        """A signed write of this site; `title` None deletes."""
        return author_event(
            self.key,
            MESH_ID,
            schema=table[0],
            table=table[1],
            row_key={"id": row},
            columns=None if title is None else {"title": title},
            hlc=hlc or tick(self.context.clock, self.time.now_ms),
        )

    def write(self, row: str, title: str | None, *, table: tuple[str, str] = NOTES) -> Event:
        """Author one event and tell the sessions."""
        event: list[Event] = []

        def work(tx: Tx) -> list[Judgement]:
            self.context.clock = tick(self.context.clock, self.time.now_ms)
            event[:] = [self.event(row, title, table=table, hlc=self.context.clock)]
            checked = verify_untrusted(
                [event[0].data],
                mesh_id=MESH_ID,
                keyring=self.context.membership,
                generation=self.context.generation,
            )
            return commit_events(self.context, tx, checked, author_stream=True, scope=Scope())

        self.context.transact(work)
        self.grew()
        return event[0]

    def grew(self, but: Session | None = None) -> None:
        """Tell every session that there may be something to send, and what this node asks for."""
        for end in self.ends:
            if end.session is not but and not end.session.closed:
                end.carry_out(end.session.log_grew(self.time.now_ms))

    @property
    def linked_to(self) -> list[bytes]:
        """Whom this node says that it is linked to."""
        return [end.peer.site for end in self.ends if end.session.hello is not None]

    def tell_links(self) -> None:
        """Tell every session whom this node is linked to."""
        linked = self.linked_to
        for end in list(self.ends):
            end.carry_out(end.session.linked(linked, self.time.now_ms))

    def ask(self) -> None:
        """Tell every session what this node asks of its peer."""
        for end in self.ends:
            asked = outstanding_requests(self.context, end.peer.site, PATH)
            end.carry_out(end.session.requests(asked, self.time.now_ms))

    # --- Looking.

    def rows(self) -> dict[str, str | None]:
        """The table as SQL shows it."""
        return dict(self.query("SELECT id, title FROM notes ORDER BY id"))

    def events(self) -> set[bytes]:
        """Every event in the log."""
        return {row[0] for row in self.query("SELECT event FROM meshnode_log")}

    def query(self, sql: str, *values: object) -> list[tuple[object, ...]]:
        """Rows of this node's database."""
        with self.context.transaction() as tx:
            return tx.execute(sql, values).fetchall()  # type: ignore[no-any-return]


class End:
    """One node's end of a wire: its session, what has arrived and is unread, and the jobs it waits for."""

    def __init__(self, wire: Wire, node: Node, peer: Node, *, introduce: tuple[bytes, ...] = ()) -> None:
        self.wire, self.node, self.peer = wire, node, peer
        self.control: deque[bytes] = deque()
        self.events: deque[bytes] = deque()
        self.jobs: deque[Job] = deque()
        self.effects: list[Effect] = []
        self.closed: Close | None = None
        greeting = Greeting(
            site=node.site,
            name=f"node {node.number}",
            software="test",
            boot=bytes(8),
            scope=node.scope.patterns,
            features=node.features,
            introduce=introduce,
        )
        self.admitted = node.context.membership.key_of(peer.site) is not None
        self.session = Session(greeting, peer.site, admitted=self.admitted)
        self.session.linked(node.linked_to, node.time.now_ms)
        self.lane = Lane(node.context, peer.site)
        node.ends.append(self)

    def start(self) -> None:
        """The peer is authenticated and a member."""
        self.carry_out(self.session.start(open_link(self.node.context, self.peer.site, PATH), self.now_ms))

    @property
    def now_ms(self) -> int:
        return self.node.time.now_ms

    @property
    def other(self) -> End:
        return self.wire.right if self is self.wire.left else self.wire.left

    def carry_out(self, effects: list[Effect]) -> None:
        """What the real link does with effects."""
        for effect in effects:
            self.effects.append(effect)
            match effect:
                case SendControl(data):
                    self.other.control.append(data)
                case SendEvents(data):
                    self.other.events.append(data)
                case Introduced(records):
                    self._introduced(records)
                case PeerHello():
                    self.lane = Lane(self.node.context, self.peer.site, Filter(effect.scope, effect.features))
                    self.node.tell_links()
                case RolledBack(_, everything):
                    asked = ask_own_history(self.node.context, self.peer.site, PATH, everything=everything)
                    self.carry_out(self.session.requests(asked, self.now_ms))
                case Notice():
                    self.node.notices.append(effect)
                case Close():
                    self.closed = effect
                    self.wire.cut()
                case PeerWatermarks() | PeerBye():
                    pass
                case _:
                    self.jobs.append(effect)

    def _introduced(self, records: tuple[bytes, ...]) -> None:
        with self.node.context.transaction() as tx:
            add_records(self.node.context, tx, records, peer=self.peer.site)
        if self.admitted:
            return
        if self.node.context.membership.key_of(self.peer.site) is None:
            self.closed = Close(3, "not a member")  # type: ignore[arg-type]
            self.wire.cut()
        else:
            self.admitted = True
            self.start()

    def steps(self) -> list[Callable[[], None]]:
        """What may happen next at this end, in no particular order."""
        if self.wire.is_cut:
            return []
        possible: list[Callable[[], None]] = []
        if self.control:
            possible.append(self.read_control)
        if self.events:
            possible.append(self.read_events)
        if self.jobs:
            possible.append(self.run_job)
        return possible

    def read_control(self) -> None:
        """The next bytes of the control stream arrive."""
        self.carry_out(self.session.control_untrusted(self.control.popleft(), self.now_ms))

    def read_events(self) -> None:
        """The next bytes of the event stream arrive."""
        self.carry_out(self.session.events_untrusted(self.events.popleft(), self.now_ms))

    def run_job(self) -> None:
        """The writer thread runs the oldest job."""
        job = self.jobs.popleft()
        try:
            reply, committed = run_job(self.lane, job)
        except CorruptStateError as error:
            self.node.notices.append(Notice("unreadable-state", str(error)))
            self.wire.cut()
            return
        self.carry_out(reply(self.session, self.now_ms))
        if committed is not None and committed.added:
            self.node.grew(but=self.session)
        if committed is not None and committed.membership_changed:
            self.node.ask()

    def timer(self) -> None:
        """The moment that the session waits for, if it has come."""
        due = self.session.next_timer()
        if due is not None and due <= self.now_ms:
            self.carry_out(self.session.timer(self.now_ms))
            again = self.session.next_timer()
            assert again is None or again > self.now_ms, "a timer that comes again at once would spin"


class Wire:
    """One link between two nodes; cutting it loses all that is under way."""

    def __init__(self, left: Node, right: Node, *, introduce: tuple[bytes, ...] = (), start: bool = True) -> None:
        self.is_cut = False
        self.left = End(self, left, right, introduce=introduce)
        self.right = End(self, right, left)
        if start:
            for end in (self.left, self.right):
                if end.admitted and not self.is_cut:
                    end.start()

    def cut(self) -> None:
        """The link is lost."""
        self.is_cut = True
        for end in (self.left, self.right):
            end.control.clear()
            end.events.clear()
            end.jobs.clear()
            if end in end.node.ends:
                end.node.ends.remove(end)
                end.node.tell_links()

    def steps(self) -> list[Callable[[], None]]:
        """What may happen next on this link."""
        return [] if self.is_cut else self.left.steps() + self.right.steps()

    def settle(self, limit: int = 10_000) -> None:
        """Run until nothing is under way."""
        settle([self], limit)


def settle(wires: list[Wire], limit: int = 10_000) -> None:
    """Run all links, one step each in turn, until nothing is under way."""
    for _ in range(limit):
        possible = [step for wire in wires for step in wire.steps()[:1]]
        if not possible:
            return
        for step in possible:
            step()
    raise AssertionError("the links do not come to rest")


def mesh(folder: Path, count: int, *, tables: bool = True, features: tuple[str, ...] = FEATURES) -> list[Node]:
    """Nodes that are members of one mesh, each with the table."""
    time = TestTime()
    nodes = [Node(folder / str(number), number, time, features) for number in range(1, count + 1)]
    first = nodes[0]
    records = [*founding(first.key), *(vouch(first.key, node.key, 2 + node.number) for node in nodes[1:])]
    for node in nodes:
        node.admit(*records)
        if tables:
            node.create_notes()
    return nodes


__all__ = ["FOUNDER", "MESH_ID", "NOTES", "End", "Node", "Stopped", "Wire", "mesh", "settle"]
