"""`check` as a view: what the engine found in one snapshot of the store (profile §5)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Final

from meshnode.engine.check import check_store
from meshnode.engine.findings import Difference, Findings
from meshnode.model.membership import Membership
from meshnode.node.storage import Storage
from meshnode.node.views import CheckReport, DifferenceView
from meshnode.store.database import Tx

ROUNDS: Final = 3  # of mending: what stood on damaged events is seen only once these are out of the log


def check_report(tx: Tx, sqlite: ModuleType, membership: Membership) -> CheckReport:
    """Recompute rows and clocks from the log; signatures are verified under the keys of `membership`."""
    return view_of(check_store(tx, sqlite, membership.key_of))


async def repaired(storage: Storage, membership: Callable[[Tx], Membership]) -> CheckReport:
    """Check, mend what can be mended, and check again: what is left may be so only until other members answered."""
    from meshnode.engine.mending import Mending  # of no use to who only reads

    async def check() -> Findings:
        return await storage.read_apart(lambda tx: check_store(tx, storage.file.sqlite, membership(tx).key_of))

    first = found = await check()
    for _ in range(ROUNDS):
        if not found.mendable:
            break
        mendable = found.mendable
        mending = await storage.write(lambda engine, mendable=mendable: Mending(engine.context, mendable))  # type: ignore[misc]
        while await storage.write(lambda _, mending=mending: mending.step()):  # type: ignore[misc]
            pass
        found = await check()
    return view_of(found, first)


def view_of(found: Findings, before: Findings | None = None) -> CheckReport:
    """What a check found, and what one before it had found that is mended now."""
    left = {(each.table, each.where) for each in found.differences}
    gone = [each for each in before.differences if (each.table, each.where) not in left] if before else []
    return CheckReport(
        events=found.events,
        tables=found.tables,
        rows=found.rows,
        given=found.given,
        count=found.count,
        differences=_views(found.differences),
        mended=max(before.count - found.count, len(gone)) if before else 0,
        mendings=_views(gone),
        mendable=bool(found.mendable),
    )


def _views(differences: Iterable[Difference]) -> list[DifferenceView]:
    return [DifferenceView(table=each.table, where=each.where, what=each.what) for each in differences]
