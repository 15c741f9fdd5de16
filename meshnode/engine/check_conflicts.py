"""`check`, the conflict ledger: each conflict that is not over names two events that are here, or were taken out."""

from __future__ import annotations

from meshnode.codec import cbor
from meshnode.engine.findings import Findings
from meshnode.errors import CodecError, CorruptStateError
from meshnode.model.conflict import Side, conflict_id
from meshnode.model.hlc import hlc_of_rank
from meshnode.model.wording import key_text
from meshnode.store import conflicts, log, removed
from meshnode.store.conflicts import Conflict
from meshnode.store.database import Tx
from meshnode.store.names import SiteNumbers, TableNumbers


def check_conflicts(tx: Tx, findings: Findings) -> None:
    """Check every row of the ledger."""
    sites, tables = SiteNumbers(), TableNumbers()
    try:
        for conflict in conflicts.all_of(tx):
            entry = tables.numbered(tx, conflict.table_no)
            where = f"conflict {conflict.id.hex()} of row {_key_text(conflict)}"
            ranks = conflict.ours.rank, conflict.theirs.rank
            if conflict.id != conflict_id(entry.schema, entry.name, conflict.key_bytes, conflict.column, *ranks):
                findings.differ(entry.text, where, "its id is not that of its two events")
            for side, whose in ((conflict.ours, "ours"), (conflict.theirs, "theirs")):
                if conflict.watched and not _is_here(tx, sites, conflict, side):
                    findings.differ(
                        entry.text, where, f"the event that is {whose} is not in the log, and was not removed"
                    )
    except CorruptStateError as error:
        findings.differ("", "conflicts", str(error))


def _is_here(tx: Tx, sites: SiteNumbers, conflict: Conflict, side: Side) -> bool:
    number = sites.find(tx, side.site)
    if number is not None and log.holds(tx, number, hlc_of_rank(side.rank), side.event_id):
        return True
    if side is conflict.ours:
        return removed.is_recorded(tx, conflict.position)
    return removed.any_recorded(tx)  # where it was is not known


def _key_text(conflict: Conflict) -> str:
    try:
        return key_text(cbor.decode_untrusted(conflict.key_bytes))
    except CodecError:
        return "that cannot be read"
