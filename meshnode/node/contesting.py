"""What a person decides about a conflict: which side is to show, or that it stays as it is."""

from __future__ import annotations

from typing import Final

from meshnode.engine.conflicts import acknowledge, resolve
from meshnode.engine.engine import Engine
from meshnode.errors import NotFoundError, UsageError
from meshnode.model.conflict import ID_BYTES, Status
from meshnode.model.membership import Membership
from meshnode.model.site import site_text
from meshnode.model.wording import quoted
from meshnode.node.conflict_views import ConflictReceipt
from meshnode.node.contested import Contested, shown_of
from meshnode.node.naming import Known, known_of, site_called
from meshnode.store import conflicts
from meshnode.store.conflicts import Conflict
from meshnode.store.database import Tx
from meshnode.store.names import SiteNumbers
from meshnode.store.recall import recall_side

_ID_DIGITS: Final = 8  # of an id that is cut short


class Contesting(Contested):
    """These operations over a node's storage."""

    async def resolve_conflict(self, conflict_id: str, *, prefer: str) -> ConflictReceipt:
        """Let the value of this site show: written anew where it does not. UsageError where the site has none there."""

        def decide(engine: Engine) -> ConflictReceipt:
            context = engine.context
            with context.transaction() as tx:
                found = _named(tx, conflict_id)
                site = site_called(prefer, _sites(tx, context.membership, found))
            done = resolve(context, found.id, site)
            event = None if done.event is None else done.event.event_id.hex()
            with context.transaction() as tx:
                return _receipt(tx, found.id, site_text(site), event)

        return await self._write(decide)

    async def acknowledge_conflict(self, conflict_id: str) -> ConflictReceipt:
        """Leave it as it is; this pair of writes is not opened anew."""

        def decide(engine: Engine) -> ConflictReceipt:
            context = engine.context
            with context.transaction() as tx:
                found = _named(tx, conflict_id)
            acknowledge(context, found.id)
            with context.transaction() as tx:
                return _receipt(tx, found.id, None, None)

        return await self._write(decide)


def _named(tx: Tx, text: str) -> Conflict:
    """The one of this id, or whose id begins so."""
    wanted = text.lower()
    if not (_ID_DIGITS <= len(wanted) <= 2 * ID_BYTES) or wanted.strip("0123456789abcdef"):
        raise UsageError(f"{quoted(text)} is no id of a conflict: {_ID_DIGITS} to {2 * ID_BYTES} hexadecimal digits")
    found = conflicts.beginning(tx, wanted)
    if not found:
        raise NotFoundError(f"no conflict has the id {wanted}: `meshnode conflicts --all` lists them")
    if len(found) > 1:
        raise UsageError(f"several conflicts have ids that begin with {wanted}: give more of it")
    return found[0]


def _sites(tx: Tx, membership: Membership, conflict: Conflict) -> list[Known]:
    """Whom a person may name: every member, and who wrote although it is none any more."""
    known = known_of(tx, membership.members())
    sites = {each.site for each in known}
    return known + [Known(each.site, "") for each in (conflict.ours, conflict.theirs) if each.site not in sites]


def _receipt(tx: Tx, conflict_id: bytes, preferred: str | None, event: str | None) -> ConflictReceipt:
    found = conflicts.get(tx, conflict_id)
    if found is None:  # the ledger is full, and it was dropped
        return ConflictReceipt(
            id=conflict_id.hex(), status=Status.RESOLVED, preferred=preferred, event=event, shown="neither"
        )
    sites = SiteNumbers()
    ours, theirs = (recall_side(tx, sites, side, found.column) for side in (found.ours, found.theirs))
    return ConflictReceipt(
        id=conflict_id.hex(),
        status=found.status.value,
        preferred=preferred,
        event=event,
        shown=shown_of(tx, sites, found, ours, theirs)[0],
    )
