"""A writer's context on a real database, with a clock and a source of randomness that the test holds."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from meshnode.codec.digest import derive_key
from meshnode.engine.authority import found_mesh
from meshnode.engine.engine import Engine
from meshnode.engine.environment import Environment
from meshnode.engine.membership import RecordsOutcome, add_records
from meshnode.model.site import SiteKey
from meshnode.store.database import Database, Tx, no_fault
from support.records import FOUNDER, MESH_ID

START_MS = 1_800_000_000_000

T = TypeVar("T")


@dataclass
class TestTime:
    """Wall time that moves only when told; randomness that repeats from run to run."""

    __test__ = False

    now_ms: int = START_MS
    drawn: int = 0
    created: set[Path] = field(default_factory=set)

    def wall_ms(self) -> int:
        return self.now_ms

    def random_bytes(self, length: int) -> bytes:
        self.drawn += 1
        return derive_key("meshnode tests", self.drawn.to_bytes(8, "big"), length)


class Device:
    """One node's database and context."""

    def __init__(self, path: Path, key: SiteKey, time: TestTime) -> None:
        self.path, self.key, self.time = path, key, time
        self.fault = no_fault
        database = Database(path, sqlite=sqlite3, fault=lambda point: self.fault(point))
        env = Environment(time.wall_ms, time.random_bytes, sqlite3)
        if path in time.created:
            self.engine = Engine.open(database, env, key)
        else:
            time.created.add(path)
            self.engine = Engine.create(
                database, env, key=key, mesh_id=MESH_ID, founder_public_key=FOUNDER.public_key, incarnation=bytes(16)
            )
        self.context = self.engine.context

    @classmethod
    def founded(cls, path: Path, key: SiteKey, time: TestTime) -> Device:
        """The first device of the mesh."""
        device = cls(path, key, time)
        device.run(lambda tx: found_mesh(device.context, tx, FOUNDER, "first"))
        return device

    def run(self, work: Callable[[Tx], T]) -> T:
        """One transaction."""
        with self.context.transaction() as tx:
            return work(tx)

    def add(self, *records: bytes, peer: bytes | None = b"p" * 16) -> RecordsOutcome:
        """Records as a peer would send them."""
        return self.run(lambda tx: add_records(self.context, tx, records, peer=peer))

    def notices(self) -> dict[str, int]:
        """How often each kind of condition was surfaced."""
        sql = "SELECT kind, sum(count) FROM meshnode_notices GROUP BY kind"
        return self.run(lambda tx: dict(tx.execute(sql).fetchall()))

    def reopened(self) -> Device:
        """The same node after a restart."""
        self.context.db.close()
        return Device(self.path, self.key, self.time)
