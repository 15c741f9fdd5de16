"""A node over its whole life: its key, its disk, its clock, and the process that runs on them, if one does."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

from support.records import site_key

from meshnode.model.scope import Scope
from meshnode.model.site import SiteKey
from sim import tables
from sim.chance import Chance
from sim.disk import Copy, Disk
from sim.end import End
from sim.network import Host, Side
from sim.process import Process

if TYPE_CHECKING:
    from sim.world import World


class Node:
    """One honest member."""

    def __init__(self, world: World, number: int, *, members: tuple[int, ...]) -> None:
        self.world, self.number = world, number
        self.key: SiteKey = site_key(number)
        self.chance: Chance = world.chance.branch(f"node {number}")
        self.scope = Scope()
        self.dropped: set[str] = set()  # tables that this copy of its database was once told to leave out
        self.job_us, self.sync_us = world.plan.job_us, world.plan.sync_us
        self.clock_error_us = 0
        self.boots = 0
        self.disks = 1  # copies of the database that this node has had: one more after each loss or restoration
        self.replaced_us = 0  # when the last of them was put in place
        self.shown: tuple[bytes, ...] = ()  # the records that it was let in with, if that was later
        self._first = tables.database(number, members)
        self.disk = Disk(world.folder / f"{number}", self._first)
        self.process: Process | None = None
        self.sweeps = 0  # compactions under way
        self._drawn = 0

    # --- as a host

    @property
    def site(self) -> bytes:
        """The site id."""
        return self.key.site

    @property
    def public_key(self) -> bytes:
        """The site's public key."""
        return self.key.public_key

    @property
    def is_up(self) -> bool:
        """Whether a process runs."""
        return self.process is not None

    def refuses(self, peer: Host) -> bool:
        """A retired site gets no link (profile §7)."""
        return self.running.context.membership.retired(peer.site) is not None

    def is_linked(self, peer: Host) -> bool:
        """Whether this node believes that it has a link to the peer."""
        return self.process is not None and peer.site in self.process.ends

    def linked(self, side: Side) -> End | None:
        """A link came."""
        if self.process is None:
            side.vanish()
            return None
        return self.process.linked(side)

    # --- life

    @property
    def running(self) -> Process:
        """The process, where it is known that there is one."""
        assert self.process is not None
        return self.process

    def boot(self) -> None:
        """Start a process."""
        self.boots += 1
        self.note(f"starts, boot {self.boots}")
        self.process = Process(self)
        self.process.open()
        self.dropped.update(table for table in tables.SHAPES if not self.scope.contains("main", table))
        self.world.watch.booted(self)

    def crash(self) -> None:
        """The process dies; what it had not synced may be lost in part."""
        process = self.running
        unsure = process.writer.unsure
        process.stop()
        self.sweeps = 0
        fate = self.disk.crash(self.chance, unsure=unsure)
        process.database.close()
        self.process = None
        self.world.happened[f"last commit {fate}" if unsure else "crash"] += 1
        self.note(f"dies{f', its last commit {fate}' if unsure else ''}")

    def first_copy(self) -> Copy:
        """The database that this node had in the beginning: what one has who lost everything and joins again."""
        return Copy(self._first, b"")

    def close(self) -> None:
        """The run is over."""
        if self.process is not None:
            self.process.stop()
            self.process.database.close()
        self.disk.close()

    def restore(self, copy: Copy, dropped: Iterable[str] = ()) -> None:
        """Another copy of the database is put in place while no process runs; it was told before to leave these out."""
        assert self.process is None
        self.disk.replace(copy)
        self.disks += 1
        self.replaced_us = self.world.schedule.now_us
        self.world.watch.restored(self)
        self.dropped = set(dropped)
        self.world.happened["another disk"] += 1
        self.note(f"has database number {self.disks}")

    def take_scope(self, patterns: tuple[str, ...]) -> None:
        """What the node takes from its next start on."""
        self.scope = Scope(patterns)
        self.note(f"will take {list(patterns) or 'everything'}")

    # --- looking, beside the process

    def execute(self, sql: str, values: Sequence[Any] = (), /) -> Any:
        """One statement on the process's connection that no fault stops: how checkers read."""
        return self.running.database._connection.execute(sql, values)

    def query(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """Rows of the database."""
        return self.execute(sql, values).fetchall()  # type: ignore[no-any-return]

    def log_after(self, position: int) -> list[tuple[int, bytes]]:
        """The events of the log behind a position."""
        sql = "SELECT position, event FROM meshnode_log WHERE position > ? ORDER BY position"
        return self.query(sql, position)

    def gain_column(self, table: str, column: str) -> None:
        """The application changes its table, by a connection of its own; the node finds out by itself."""
        if column not in [row[1] for row in self.query(f"PRAGMA table_info({table})")]:
            with closing(sqlite3.connect(self.disk.path, isolation_level=None)) as connection:
                connection.execute("PRAGMA synchronous = OFF")
                connection.execute(f"ALTER TABLE {table} ADD COLUMN {column}")
            self.note(f"table {table} gains column {column}")

    def has_table(self, name: str) -> bool:
        """Whether the application has made this table."""
        return bool(self.query("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", name))

    def random_bytes(self, length: int) -> bytes:
        """What the process draws from the operating system."""
        self._drawn += 1
        return self.chance.bytes_of(f"drawn {self._drawn}", length)

    def note(self, text: str) -> None:
        """A line of the trace."""
        self.world.note(f"node {self.number} {text}")
