"""`BlockingNode`: a node on a thread of its own, for Tk, Qt, wx and plain scripts; every call waits for its result.

It may be called from any thread, callbacks included. What follows something is a plain iterator, or a callback on the
thread that `deliver` names.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Self, TypeVar, Unpack

from meshnode.limits import INVITE_TTL_MS, NEARBY_TTL_MS
from meshnode.node.blocking_tables import BlockingTables
from meshnode.node.callbacks import Deliver, Subscription
from meshnode.node.config import PolicyName, PolicyValue
from meshnode.node.conflict_views import ConflictReceipt, ConflictView
from meshnode.node.home import Home
from meshnode.node.lock import LOCK_WAIT_S
from meshnode.node.loopthread import LoopThread
from meshnode.node.memberviews import MemberView
from meshnode.node.node import Node
from meshnode.node.opening import Settings
from meshnode.node.pairing_views import CandidateView, InvitedView, InviteView, NearbyView, OpenInviteView
from meshnode.node.threaded import BlockingIterator, Failed
from meshnode.node.views import (
    AcknowledgedView,
    ChangeView,
    NoticeView,
    PeerView,
    PolicyView,
    Receipt,
    RetentionReport,
    RowView,
    Status,
    TableView,
    Values,
    WaitResult,
)

T = TypeVar("T")


class BlockingNode(BlockingTables[Node]):
    """A running node: `with BlockingNode.open(folder) as node:`.

    Methods are those of `Node`, and wait; `run` reaches those that are not here. They raise errors of
    `meshnode.errors`: ClosedError once the node was closed, from whatever thread, and in a forked process, UsageError
    where a call would wait for itself.
    """

    @classmethod
    def open(
        cls,
        home: Home | str | os.PathLike[str] | None = None,
        *,
        database: str | os.PathLike[str] | None = None,
        invite: str = "",
        patience_s: float = LOCK_WAIT_S,
        freeze: bool = True,
        deliver: Deliver | None = None,
        **settings: Unpack[Settings],
    ) -> Self:
        """Open the node of this device, as `Node.open` does, and return when it runs.

        `deliver` says where callbacks run: an executor, or a function that lets a call be run soon, such as
        `CallQueue.put`; without it, one after the other on a thread of their own. Where the program ends without
        `close`, the node is left then.
        """
        loop = LoopThread("meshnode-node")
        try:
            opened = Node.open(home, database=database, invite=invite, patience_s=patience_s, freeze=freeze, **settings)
            node = loop.call(lambda: _entered(opened, loop))
        except BaseException:
            loop.close()
            raise
        return cls(node, loop, deliver)

    # --- tables

    def tables(self) -> list[TableView]:
        """The registered tables, by name."""
        return self.run(lambda node: node.tables())

    def add_table(
        self,
        table: str,
        key: Mapping[str, str],
        columns: Mapping[str, str],
        *,
        own_numbers: bool = False,
        table_class: str | None = None,
    ) -> TableView:
        """Create and register a table, or register one that exists."""
        return self.run(
            lambda node: node.add_table(table, key, columns, own_numbers=own_numbers, table_class=table_class)
        )

    def adopt(self, *tables: str, own_numbers: bool = False, table_class: str | None = None) -> list[str]:
        """Make tables of the node's own database sync whoever writes them by SQL, or all that it has; their names."""
        return self.run(lambda node: node.adopt(*tables, own_numbers=own_numbers, table_class=table_class))

    def evict(self, table: str, *, before_ms: int, everything: bool = False) -> RetentionReport:
        """Freeze a table below a time (ms since 1970) and take older events out of its log; rows stay."""
        return self.run(lambda node: node.evict(table, before_ms=before_ms, everything=everything))

    def put(self, table: str, key: Values, columns: Values) -> Receipt:
        """Write these columns of one row."""
        self._refuse_in_transaction()
        return self.run(lambda node: node.put(table, key, columns))

    def remove(self, table: str, key: Values) -> Receipt:
        """Delete one row."""
        self._refuse_in_transaction()
        return self.run(lambda node: node.remove(table, key))

    def get(self, table: str, key: Values) -> RowView | None:
        """One live row."""
        return self.run(lambda node: node.get(table, key))

    # --- following

    def changes(self, *, since: int | None = None, table: str | None = None) -> BlockingIterator[ChangeView]:
        """Changes beyond `since` as they happen; the iterator waits for the next."""
        since = self.beginning(since)
        return self.follow(lambda node: node.changes(since=since, table=table))

    def on_changes(
        self,
        callback: Callable[[ChangeView], object],
        *,
        since: int | None = None,
        table: str | None = None,
        failed: Failed | None = None,
    ) -> Subscription[ChangeView]:
        """The same as calls of `callback`, until it is cancelled or the node ends."""
        since = self.beginning(since)
        return self.subscribe(lambda node: node.changes(since=since, table=table), callback, failed)

    def on_notices(
        self, callback: Callable[[NoticeView], object], *, kind: str | None = None, failed: Failed | None = None
    ) -> Subscription[NoticeView]:
        """Notices, those there are first, then each as it arises."""
        return self.subscribe(lambda node: node.follow_notices(kind=kind), callback, failed)

    def on_conflicts(
        self, callback: Callable[[ConflictView], object], *, since: int | None = None, failed: Failed | None = None
    ) -> Subscription[ConflictView]:
        """Conflicts as they are recorded and change."""
        return self.subscribe(lambda node: node.conflict_changes(since=since), callback, failed)

    # --- itself and the others

    def status(self) -> Status:
        """How the node is."""
        return self.run(lambda node: node.status())

    def peers(self) -> list[PeerView]:
        """The other members, linked or not."""
        return self.run(lambda node: node.peers())

    def members(self) -> list[MemberView]:
        """Every device that is or was a member."""
        return self.run(lambda node: node.members())

    def wait_synced(self, peer: str | None = None, *, timeout_s: float = 60.0) -> WaitResult:
        """Until a member, or every one, and this node have all of each other."""
        return self.run(lambda node: node.wait_synced(peer, timeout_s=timeout_s))

    def set_online(self, online: bool) -> None:
        """Cut the node off, or let it talk again."""
        self.run(lambda node: node.set_online(online))

    def set_policy(self, setting: PolicyName, value: PolicyValue) -> PolicyView:
        """Change one setting of what may cross the mesh, in `config.toml` and at once."""
        return self.run(lambda node: node.set_policy(setting, value))

    # --- letting devices in

    def invite(self, ttl_ms: int = INVITE_TTL_MS, *, confirm: bool = False) -> InviteView:
        """Open an invite."""
        return self.run(lambda node: node.invite(ttl_ms, confirm=confirm))

    def invited(self, invite_id: str, *, seen: str = "open", timeout_s: float = 0.0) -> InvitedView:
        """What became of an invite, as soon as its state is not `seen`, or after `timeout_s` seconds."""
        return self.run(lambda node: node.invited(invite_id, seen=seen, timeout_s=timeout_s))

    def invites(self) -> list[OpenInviteView]:
        """The invites that somebody may still come in by."""
        return self.run(lambda node: node.invites())

    def withdraw_invite(self, invite_id: str) -> OpenInviteView:
        """Take an open invite back."""
        return self.run(lambda node: node.withdraw_invite(invite_id))

    def decide(self, named: str, *, approve: bool) -> CandidateView:
        """Say yes or no to a device that holds an invite and asks."""
        return self.run(lambda node: node.decide(named, approve=approve))

    def nearby_open(self, ttl_ms: int = NEARBY_TTL_MS) -> NearbyView:
        """Let one nearby device pair without an invite, for a short time."""
        return self.run(lambda node: node.nearby_open(ttl_ms))

    def nearby(self, *, seen: str = "", timeout_s: float = 0.0) -> NearbyView:
        """How far that is, as soon as its state is not `seen`, or after `timeout_s` seconds."""
        return self.run(lambda node: node.nearby(seen=seen, timeout_s=timeout_s))

    def nearby_answer(self, code: str, *, yes: bool) -> NearbyView:
        """Whether these digits are on the other screen too."""
        return self.run(lambda node: node.nearby_answer(code, yes=yes))

    def nearby_close(self) -> NearbyView:
        """Let nobody pair without an invite any more."""
        return self.run(lambda node: node.nearby_close())

    # --- what came up

    def notices(self, *, kind: str | None = None, everything: bool = False) -> list[NoticeView]:
        """Surfaced conditions, the latest first."""
        return self.run(lambda node: node.notices(kind=kind, everything=everything))

    def acknowledge(self, ids: Sequence[int] | None = None) -> AcknowledgedView:
        """Show these notices, or all there are, no more until they arise again."""
        return self.run(lambda node: node.acknowledge(ids))

    def conflicts(self, table: str | None = None, *, everything: bool = False) -> list[ConflictView]:
        """Concurrent writes of one cell that nobody decided yet, the latest first."""
        return self.run(lambda node: node.conflicts(table, everything=everything))

    def resolve_conflict(self, conflict_id: str, *, prefer: str) -> ConflictReceipt:
        """Let the value of one of the two sites show."""
        return self.run(lambda node: node.resolve_conflict(conflict_id, prefer=prefer))

    def acknowledge_conflict(self, conflict_id: str) -> ConflictReceipt:
        """Leave a conflict as it is."""
        return self.run(lambda node: node.acknowledge_conflict(conflict_id))


async def _entered(node: Node, loop: LoopThread) -> Node:
    """From here on the loop's end is the node's."""
    loop.last = node.close
    return await node.__aenter__()
