"""`check` as a view: what the engine found in one snapshot of the store (profile §5)."""

from __future__ import annotations

from types import ModuleType

from meshnode.engine.check import check_store
from meshnode.model.membership import Membership
from meshnode.node.views import CheckReport, DifferenceView
from meshnode.store.database import Tx


def check_report(tx: Tx, sqlite: ModuleType, membership: Membership) -> CheckReport:
    """Recompute rows and clocks from the log; signatures are verified under the keys of `membership`."""
    found = check_store(tx, sqlite, membership.key_of)
    return CheckReport(
        events=found.events,
        tables=found.tables,
        rows=found.rows,
        given=found.given,
        count=found.count,
        differences=[DifferenceView(table=each.table, where=each.where, what=each.what) for each in found.differences],
    )
