"""The conflict ledger: what it holds, and what its owner decides."""

from __future__ import annotations

from typing import Final

from meshnode.control import requests as asked
from meshnode.control.operation import Call, Stream
from meshnode.errors import IdentityError, MembershipError, NotFoundError, RegistrationError
from meshnode.node.conflict_views import ConflictReceipt, ConflictView

CONFLICTS: Final = Call(
    "conflicts",
    asked.Conflicts,
    list[ConflictView],
    lambda node, a: node.conflicts(a.table, everything=a.everything, limit=a.limit),
    raises=(NotFoundError,),
    reads=True,
)
CONFLICT_CHANGES: Final = Stream(
    "conflict-changes",
    asked.ConflictChanges,
    ConflictView,
    lambda node, a: node.conflict_changes(since=a.since),
    reads=True,
)
RESOLVE_CONFLICT: Final = Call(
    "resolve-conflict",
    asked.ResolveConflict,
    ConflictReceipt,
    lambda node, a: node.resolve_conflict(a.id, prefer=a.prefer),
    raises=(NotFoundError, RegistrationError, MembershipError, IdentityError),
)
ACKNOWLEDGE_CONFLICT: Final = Call(
    "acknowledge-conflict",
    asked.OneConflict,
    ConflictReceipt,
    lambda node, a: node.acknowledge_conflict(a.id),
    raises=(NotFoundError,),
)
