"""Which events a peer may get, and how: the scope it asked for within our policy, and the agreed features.

Sources: profile §8; NEOTH, content and privacy.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from meshnode.model.frames import FEATURE_OFFER
from meshnode.model.policy import DAY_MS, NEVER, Policy, TableClass
from meshnode.model.scope import Scope
from meshnode.store import policies
from meshnode.store.database import Tx
from meshnode.store.u64 import from_sql

if TYPE_CHECKING:  # of no use to who only reads
    from meshnode.engine.context import Context

_FOR_EVER: Final = 0


@dataclass(frozen=True, slots=True)
class Filter:
    """What a peer asked for on one link; the node's own policy is read anew for every staging and resend."""

    scope: Scope = field(default_factory=Scope)
    features: frozenset[str] = frozenset()  # agreed with the peer: how events are sent to it

    @property
    def offers(self) -> bool:
        """Whether events of others are offered before they are sent (profile §14)."""
        return FEATURE_OFFER in self.features


class TableFilter:
    """Both together, for one transaction, by table number; `text` tells a frame that was staged under another one."""

    __slots__ = ("_budget_ms", "_expires_ms", "_now_ms", "_offered", "_oldest", "_policy", "_tx", "text")

    def __init__(self, tx: Tx, offered: Filter, policy: Policy, generation: int, now_ms: int) -> None:
        self.text = f"{generation}{list(offered.scope.patterns)!r}{sorted(offered.features)!r}"
        self._tx = tx
        self._offered = offered
        self._policy = policy
        self._now_ms = now_ms
        self._budget_ms = policy.replay_budget_days * DAY_MS
        self._oldest: dict[int, int] = {}
        self._expires_ms = _FOR_EVER

    @classmethod
    def now(cls, context: Context, tx: Tx, offered: Filter) -> TableFilter:
        """Under what is in force in the writer's transaction."""
        return cls(tx, offered, context.policy, context.policy_generation, context.env.wall_ms())

    @classmethod
    def read(cls, tx: Tx, offered: Filter, now_ms: int) -> TableFilter:
        """The same from any snapshot."""
        return cls(tx, offered, policies.read(tx), policies.generation(tx), now_ms)

    def __call__(self, table_no: int, physical: int | bytes) -> bool:
        """Whether an event of this table and HLC (as SQLite holds it) may be offered."""
        oldest = self._oldest.get(table_no)
        if oldest is None:
            oldest = self._oldest[table_no] = self._oldest_of(table_no)
        if not oldest:
            return True
        written = from_sql(physical)
        if written < oldest:
            return False
        expires = written + self._budget_ms
        self._expires_ms = min(self._expires_ms, expires) if self._expires_ms else expires
        return True

    @property
    def expires(self) -> bool:
        """Whether what was let through since the last `take_expiry` may go out only for a time."""
        return self._expires_ms != _FOR_EVER

    def take_expiry(self) -> int:
        """Until when what was let through since the last call may go out; 0 for ever."""
        expires, self._expires_ms = self._expires_ms, _FOR_EVER
        return expires

    def _oldest_of(self, table_no: int) -> int:
        row = self._tx.execute("SELECT schema, name, class FROM meshnode_tables WHERE no = ?", (table_no,)).fetchone()
        if row is None or not self._offered.scope.contains(row[0], row[1]):
            return NEVER
        return self._policy.oldest_ms(TableClass(row[2]), self._now_ms)
