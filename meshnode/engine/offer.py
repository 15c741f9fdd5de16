"""Which events a peer may get, and how: the scope it asked for within our policy, the agreed features (profile §8)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from meshnode.model.frames import FEATURE_OFFER
from meshnode.model.scope import Scope
from meshnode.store.database import Tx

Policy: TypeAlias = Callable[[str, str], bool]
"""Whether events of this schema and table may leave the node at all."""


def everything(_schema: str, _table: str) -> bool:
    """The policy of a node that has none."""
    return True


@dataclass(frozen=True, slots=True)
class Filter:
    """Resolved anew for every staging and resend; `text` tells whether a staged frame was made under another one."""

    scope: Scope = field(default_factory=Scope)
    policy: Policy = everything
    policy_name: str = ""  # changes whenever the policy does
    features: frozenset[str] = frozenset()  # agreed with the peer: how events are sent to it

    @property
    def text(self) -> str:
        """What a staged frame keeps of it."""
        with_features = f" with {', '.join(sorted(self.features))}" if self.features else ""
        return f"{self.policy_name}{list(self.scope.patterns)!r}{with_features}"

    @property
    def offers(self) -> bool:
        """Whether events of others are offered before they are sent (profile §14)."""
        return FEATURE_OFFER in self.features


class TableFilter:
    """The same by table number, for one transaction."""

    __slots__ = ("_filter", "_known", "_tx")

    def __init__(self, tx: Tx, offered: Filter) -> None:
        self._tx = tx
        self._filter = offered
        self._known: dict[int, bool] = {}

    def __call__(self, table_no: int) -> bool:
        """Whether events of this table may be offered."""
        allowed = self._known.get(table_no)
        if allowed is None:
            row = self._tx.execute("SELECT schema, name FROM meshnode_tables WHERE no = ?", (table_no,)).fetchone()
            allowed = row is not None and self.allows(row[0], row[1])
            self._known[table_no] = allowed
        return allowed

    def allows(self, schema: str, table: str) -> bool:
        """Whether events of this schema and table may be offered."""
        return self._filter.scope.contains(schema, table) and self._filter.policy(schema, table)
