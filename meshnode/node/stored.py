"""What everything that a node is asked has in common: its home, its storage, and what a running node refines."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from meshnode.engine.membership import load_membership
from meshnode.errors import ClosedError, IdentityError, UsageError
from meshnode.model.member import Member
from meshnode.model.membership import Membership
from meshnode.node import syncing
from meshnode.node.home import Home
from meshnode.node.peering import Heard, Mesh, read_mesh
from meshnode.node.storage import LEFT, Storage, wall_ms
from meshnode.store import meta
from meshnode.store.database import Tx

if TYPE_CHECKING:  # of no use to who only reads
    from meshnode.engine.engine import Engine

T = TypeVar("T")

POLL_S = 0.2  # between two looks at a database that another process writes


class Stored:
    """A home and the store in it. Operations over it are grouped by subject in classes of their own."""

    def __init__(self, home: Home, storage: Storage | None) -> None:
        self.home = home
        self._storage = storage
        self._process = os.getpid()
        self._loop: asyncio.AbstractEventLoop | None = None  # of a node that runs: no other may use it
        self._collecting: set[asyncio.Task[Any] | None] = set()  # tasks in the middle of a transaction

    @property
    def storage(self) -> Storage:
        """The node's database; ClosedError before the node was entered, and in a process that was forked from its.

        UsageError on another event loop than its own.
        """
        if self._process != os.getpid():
            raise ClosedError(
                f"this node belongs to process {self._process}, of which this one is a fork: open what you need after "
                "forking, and in one process only"
            )
        if self._storage is None:
            raise ClosedError("enter the node first: `async with Node.open(…) as node:`")
        if self._loop is not None and _running_loop() not in (None, self._loop):
            raise UsageError(
                "this node belongs to another event loop: call it from there, or open a BlockingNode instead, which "
                "any thread may call"
            )
        return self._storage

    def refuse_ended(self) -> None:
        """What `storage` raises, and ClosedError once the node was left."""
        _ = self.storage
        if self._ended():
            raise ClosedError(LEFT)

    # --- for the running node to refine

    async def _write(self, job: Callable[[Engine], T]) -> T:
        return await self.storage.write(job)

    def _membership(self, tx: Tx) -> Membership:
        return load_membership(tx, meta.read_bytes(tx, meta.FOUNDER))

    def _heard(self) -> Mapping[bytes, Heard]:
        return {}

    def _poll_s(self) -> float | None:
        return POLL_S

    def _ended(self) -> bool:
        return False

    async def _ask(self) -> None:
        """New requests are stored: a running node sends them now, any other at its next links."""

    # --- the rest

    def _mesh(self, tx: Tx, heard: Mapping[bytes, Heard]) -> Mesh:
        return read_mesh(tx, self._membership(tx), meta.read_bytes(tx, meta.SITE), heard, wall_ms())

    def _others(self, tx: Tx, named: str | None) -> list[Member]:
        return syncing.others_named(tx, self._membership(tx), meta.read_bytes(tx, meta.SITE), named)

    def _incarnation(self) -> bytes | None:
        try:
            return self.home.incarnation()
        except IdentityError:
            return None  # `up` says what is wrong with the file


def refuse_no_number(since: int | None) -> None:
    """UsageError for what is no place in the change sequence."""
    if since is not None and not isinstance(since, int):
        raise UsageError(f"`since` is the number of a change, as `change.seq` has it, not {since!r}")


def _running_loop() -> asyncio.AbstractEventLoop | None:
    """The loop of this thread; the threads of queries have none."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
