"""The log by itself: every row is the event that it holds, and counters are beyond what is there (profile §1, §8)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final, NamedTuple, TypeAlias

from meshnode.engine.findings import Findings, note
from meshnode.errors import EnvelopeError
from meshnode.model.event import Event, open_event_untrusted
from meshnode.model.hlc import Hlc
from meshnode.model.wording import clock_text
from meshnode.store import log, logcounts, meta, removed
from meshnode.store.database import Tx
from meshnode.store.names import SiteNumbers
from meshnode.store.u64 import from_sql

KeyOf: TypeAlias = Callable[[bytes], bytes | None]

_MISLABELLED: Final = "its columns are not those of the event"


class StoredRow(NamedTuple):
    """One row of the log as it is on disk."""

    site: bytes | None
    hlc: Hlc
    prefix: int
    table: tuple[str, str] | None
    data: bytes


def check_log(tx: Tx, findings: Findings, key_of: KeyOf) -> None:
    """Each event is what its row says it is, and the clock and the next position are beyond all of them."""
    mesh_id, sites = meta.read_bytes(tx, meta.MESH_ID), SiteNumbers()
    names = {row[0]: (row[1], row[2]) for row in tx.execute("SELECT no, schema, name FROM meshnode_tables")}
    newest, last = Hlc(0, 0), 0
    counts = _Counts()
    for position, site_no, physical, logical, prefix, table_no, state, data in tx.execute(
        "SELECT position, site_no, physical, logical, id_prefix, table_no, state, CAST(event AS BLOB)"
        " FROM meshnode_log ORDER BY position"
    ):
        findings.events += 1
        counts.add(position, site_no, table_no, state)
        _check_gap(tx, findings, last, position)
        last = position
        site, hlc = sites.site_of(tx, site_no), Hlc(from_sql(physical), from_sql(logical))
        event, fault = examine(StoredRow(site, hlc, prefix, names.get(table_no), bytes(data)), mesh_id, key_of)
        newest = newest if event is None else max(newest, hlc)
        if fault:
            findings.differ("", f"log position {position}", fault)
            note(findings.mendable.damaged if fault != _MISLABELLED else findings.mendable.mislabelled, position)
    counts.check(tx, findings)
    if meta.read_clock(tx) < newest:
        findings.differ("", "clock", f"{clock_text(meta.read_clock(tx))} is behind the log's {clock_text(newest)}")
        findings.mendable.clock = True
    upcoming = meta.read_counter(tx, meta.NEXT_POSITION)
    if upcoming <= last:
        findings.differ("", "next position", f"{upcoming} was given out before: the log ends at {last}")
        findings.mendable.last = last
    _check_gap(tx, findings, last, upcoming)


def examine(row: StoredRow, mesh_id: bytes, key_of: KeyOf) -> tuple[Event | None, str]:
    """The event of a row, None where its bytes are none; and what is wrong with the two, empty where nothing is."""
    try:
        event = _opened(row.data, mesh_id, key_of)
    except EnvelopeError as error:
        return None, f"{error.reason}: {error}"
    stored = (row.site, row.hlc, row.prefix, row.table)
    if stored != (event.site, event.hlc, log.id_prefix(event.event_id), (event.schema, event.table)):
        return event, _MISLABELLED
    return event, ""


def _check_gap(tx: Tx, findings: Findings, before: int, position: int) -> None:
    """Positions without an event are those that were taken out on purpose, and no others."""
    for first, last in removed.unrecorded(tx, before + 1, position - 1):
        where = f"log position {first}" if first == last else f"log positions {first} to {last}"
        whose = "its event is" if first == last else "their events are"
        findings.differ("", where, f"{whose} not there, and nothing says that it was taken out on purpose")
        note(findings.mendable.gaps, (first, last))


class _Counts:
    """What is kept counted of the log (`store/logcounts.py`), counted again."""

    def __init__(self) -> None:
        self._events: Counter[tuple[int, int, int]] = Counter()
        self._unresolved: Counter[tuple[int, int, int]] = Counter()

    def add(self, position: int, site_no: int, table_no: int, state: int) -> None:
        """One more row of the log."""
        part = position >> logcounts.CHUNK_BITS, site_no, table_no
        self._events[part] += 1
        self._unresolved[part] += state == log.UNRESOLVED

    def check(self, tx: Tx, findings: Findings) -> None:
        """Compare."""
        kept = logcounts.every(tx)
        found = {part: (events, self._unresolved[part]) for part, events in self._events.items()}
        wrong = [part for part in found.keys() | kept.keys() if found.get(part) != kept.get(part)]
        if wrong:
            findings.mendable.counted = True
            noted = sum(events for events, _ in kept.values())
            what = f"{findings.events} events are there and {noted} are noted, {len(wrong)} of the counts are wrong"
            findings.differ("", "counters of the log", what)


def _opened(data: bytes, mesh_id: bytes, key_of: KeyOf) -> Event:
    """The event; its signature is verified unless its signer is no member any more."""
    event = log.parse(data)
    return open_event_untrusted(data, mesh_id=mesh_id, key_of=key_of) if key_of(event.site) is not None else event


def check_held(tx: Tx, findings: Findings) -> None:
    """The meters that bound a site's share of the disk, counted again (profile §6)."""
    counted = "SELECT site_no, table_no, count(*), sum(length(event)) FROM meshnode_log WHERE state = 1 GROUP BY 1, 2"
    metered = "SELECT site_no, table_no, events, bytes FROM meshnode_held WHERE events > 0"
    found = {(row[0], row[1]): (row[2], row[3]) for row in tx.execute(counted)}
    noted = {(row[0], row[1]): (row[2], row[3]) for row in tx.execute(metered)}
    for group in sorted(found.keys() | noted.keys()):
        if found.get(group) != noted.get(group):
            findings.mendable.metered = True
            findings.differ("", f"held events of group {group}", f"{found.get(group)} held, {noted.get(group)} noted")
