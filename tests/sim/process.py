"""One run of a node: from the moment its database was opened until it dies. Knows what `node.network` knows.

Nothing of it survives but the disk. Its death may come at any statement of a transaction (`fuse`) and before any effect
of a session (`effects_left`).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from support.mesh_context import START_MS
from support.store_jobs import Job

from meshnode.engine.engine import Engine
from meshnode.engine.environment import Environment
from meshnode.engine.membership import add_records, introduction_of
from meshnode.engine.policy import take_policy
from meshnode.engine.write import LocalChange
from meshnode.errors import CloseCode, MeshError
from meshnode.limits import INTRODUCE_BYTES
from meshnode.model.delivery import Committed
from meshnode.model.event import Event
from meshnode.model.frames import Batch, Live
from meshnode.model.policy import Policy
from meshnode.store.database import Database
from meshnode.store.delivery import Stream
from meshnode.sync.effects import Commit
from meshnode.sync.greeting import Greeting
from sim.end import End
from sim.network import Side
from sim.schedule import MS, SECOND, Timer
from sim.writer import Failed, Writer

if TYPE_CHECKING:
    from sim.node import Node

RECOVERY_S = 30  # as the real node: how long a restored one waits for its own history before it writes again


def _events_in(job: Job | None) -> int:
    """How many events a job is given to apply."""
    if not isinstance(job, Commit):
        return 0
    return sum(len(frame.content.events) for frame in job.frames if isinstance(frame.content, Batch | Live))


class Died(BaseException):
    """The process dies here; nothing may catch this on its way."""

    def __init__(self, process: Process) -> None:
        super().__init__()
        self.process = process


class Process:
    """Made when the node starts."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.alive = True
        self.fuse: int | None = None  # statements left until it dies
        self.effects_left: int | None = None  # effects left until it dies
        self.refusals: list[str | None] = []  # what the disk answers to the next statements
        self.ends: dict[bytes, End] = {}
        self.streams: dict[int, Stream] = {}  # by peer, for checkers: sites keep their numbers while a process lives
        self.met: set[bytes] = set()  # sites that know us: no introduction for them
        self.unknown_to: set[bytes] = set()  # sites that turned us away as strangers
        self.writer = Writer(
            node.world.schedule, node.chance.branch(f"writer {node.boots}"), job_us=node.job_us, sync_us=node.sync_us
        )
        self._boot = node.random_bytes(8)
        self._following = False
        self._rolled_back_by: set[bytes] = set()
        self._asked: set[bytes] = set()
        self._waits_until_us = 0
        self._introduction: tuple[bytes, ...] = ()
        self._generation = -1
        self.database = Database(node.disk.path, sqlite=sqlite3, fault=self._fault)
        self.database._connection.execute("PRAGMA synchronous = OFF")  # `Disk` keeps account of what would be synced
        node.disk.opened()

    def open(self) -> None:
        """Start on what is in the database."""
        environment = Environment(self.wall_ms, self.node.random_bytes, sqlite3, self._fault)
        self.engine = Engine.open(self.database, environment, self.node.key)
        self.context = self.engine.context
        if self.node.shown and not self.node.query("SELECT 1 FROM meshnode_records"):
            self.context.transact(lambda tx: add_records(self.context, tx, self.node.shown, peer=None))
        take_policy(self.context, Policy(self.node.scope))
        self._introduce_as(self._shown())

    # --- time and jobs

    def wall_ms(self) -> int:
        """What this device's clock shows."""
        return START_MS + (self.node.world.schedule.now_us + self.node.clock_error_us) // MS

    def after(self, delay_us: float, what: Callable[[], None], *, idle: bool = False) -> Timer:
        """Do something later, if the process still lives."""
        return self.node.world.schedule.after(delay_us, lambda: what() if self.alive else None, idle=idle)

    def submit(
        self,
        name: str,
        work: Callable[[], Any],
        done: Callable[[Any], None],
        failed: Failed | None = None,
        *,
        side: Side | None = None,
        job: Job | None = None,
    ) -> None:
        """Queue a job on the writer; checkers see it before and after."""
        watch = self.node.world.watch

        def run() -> Any:
            watch.before(self.node, name, side, job)
            return work()

        def finished(outcome: Any) -> None:
            watch.after(self.node, name, side, job, outcome)
            done(outcome)
            self._follow_schema()

        def gave_up(error: MeshError) -> None:
            self.note(f"{name} failed: {error}")
            if failed is not None:
                failed(error)

        events = _events_in(job) * self.node.world.plan.event_us
        self.writer.submit(name, run, finished, gave_up, events)

    def may_die(self) -> None:
        """A point between two effects."""
        if self.effects_left is not None:
            self.effects_left -= 1
            if self.effects_left < 0:
                raise Died(self)

    def _fault(self, point: str) -> None:
        """The fault hook of the store: called before each statement."""
        if point.startswith("BEGIN"):
            self.node.disk.begin()
        if self.fuse is not None:
            self.fuse -= 1
            if self.fuse < 0:
                raise Died(self)
        if self.refusals and not point.startswith(("SAVEPOINT", "RELEASE")):
            refusal = self.refusals.pop()
            if refusal is not None:
                self.node.world.happened["refused write"] += 1
                raise sqlite3.OperationalError(refusal)

    def note(self, text: str) -> None:
        """A line of the trace."""
        self.node.note(text)

    def stop(self) -> None:
        """Dead: no timer, no job, no link of this process does anything any more."""
        self.alive = False
        self.writer.stop()
        for end in list(self.ends.values()):
            end.side.vanish()
        self.ends.clear()

    # --- links

    def greeting(self, peer: bytes) -> Greeting:
        """What this node says of itself."""
        return Greeting(
            site=self.node.site,
            name=f"node {self.node.number}",
            software="sim",
            boot=self._boot,
            scope=self.context.policy.scope.patterns,
            features=self.node.world.features_of(self.node),
            introduce=() if self._is_known_to(peer) else self._introduction,
        )

    def linked(self, side: Side) -> End:
        """A link came; it replaces one to the same peer."""
        before = self.ends.get(side.peer.site)
        if before is not None:
            before.close(CloseCode.DUPLICATE, "a newer link to the same site")
        admitted = self.context.membership.is_peer(side.peer.site, side.peer.public_key)
        end = self.ends[side.peer.site] = End(self, side, admitted=admitted)
        return end

    def unlinked(self, end: End) -> None:
        """A link ended."""
        if self.ends.get(end.peer.site) is end:
            del self.ends[end.peer.site]
            self.tell_links()
        self._asked.discard(end.peer.site)

    @property
    def linked_to(self) -> list[bytes]:
        """Whom this node says that it is linked to (profile §14)."""
        return [end.peer.site for end in self.ends.values() if end.session.hello is not None]

    def tell_links(self) -> None:
        """Peers offer us at once what we do not hear of from its author."""
        for end in list(self.ends.values()):
            end.tell_links()

    def committed(self, end: End, result: Committed) -> None:
        """A session's commit that may concern the other sessions."""
        if result.answered:
            self._asked.clear()
        if result.membership_changed or self.context.generation != self._generation:
            self._generation = self.context.generation
            self.membership_changed()
        if result.added:
            self.log_grew(but=end)

    def took_in(self) -> None:
        """A bundle was: as the running node does, whatever came of it."""
        if self.context.generation != self._generation:
            self.membership_changed()
        self.log_grew()
        for end in list(self.ends.values()):
            end.ask()

    def log_grew(self, but: End | None = None) -> None:
        """Something new is there to be offered."""
        for end in list(self.ends.values()):
            if end is not but:
                end.log_grew()

    def membership_changed(self) -> None:
        """Judge links again, and ask for what a new standing makes acceptable (profile §9)."""
        self.submit("introduction", self._shown, self._introduce_as)
        for end in list(self.ends.values()):
            if self.context.membership.retired(end.peer.site) is not None:
                end.close(CloseCode.RETIRED, "the site is retired")
            else:
                end.ask()

    def _shown(self) -> tuple[bytes, ...]:
        with self.context.transaction() as tx:
            return tuple(introduction_of(self.context, tx, self.node.site))

    def _introduce_as(self, shown: tuple[bytes, ...]) -> None:
        self._generation = self.context.generation
        self._introduction = shown if sum(map(len, shown)) + 8 * len(shown) < INTRODUCE_BYTES else ()

    def rolled_back(self, peer: bytes) -> None:
        """A peer knows later events of this site: nothing is written until it answered (profile §8)."""
        if peer not in self._rolled_back_by:
            self._rolled_back_by.add(peer)
            self._asked.add(peer)
            self._waits_until_us = self.node.world.schedule.now_us + RECOVERY_S * SECOND

    @property
    def recovering(self) -> bool:
        """Whether this node must not write yet."""
        return bool(self._asked) and self.node.world.schedule.now_us < self._waits_until_us

    def _is_known_to(self, peer: bytes) -> bool:
        by_site, own = self.context.membership.by_site, self.node.site
        pairs = ((own, peer), (peer, own))
        if peer in self.unknown_to:
            return False
        return peer in self.met or any(one in by_site and by_site[one].vouched_by == other for one, other in pairs)

    # --- what the application does

    def write(self, changes: Sequence[LocalChange], done: Callable[[list[Event]], None]) -> None:
        """Local writes: acknowledged to the application when `done` is called."""

        def written(events: list[Event]) -> None:
            done(events)
            self.log_grew()

        self.submit("write", lambda: self.engine.write(changes), written)

    def change(self, name: str, work: Callable[[Engine], Any], *, records: bool = False) -> None:
        """Any other work of the node's owner or of its application."""

        def changed(_: Any) -> None:
            if records:
                self.membership_changed()
            self.log_grew()

        self.submit(name, lambda: work(self.engine), changed)

    def _follow_schema(self) -> None:
        """Bring rows up to a changed schema, one step between the other jobs."""
        if self.alive and self.context.is_behind and not self._following:
            self._following = True

            def followed(_: Any) -> None:
                self._following = False

            self.submit("follow schema", self.engine.follow_schema, followed, lambda _: followed(None))
