"""`verify`: compare this node with a linked member, tell what differs and why, and have it mended (profile §15)."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from meshnode.codec import cbor
from meshnode.errors import CodecError, TransportError, UsageError
from meshnode.model import comparison as words
from meshnode.model.comparison import EventName, TableTold, TableTotals
from meshnode.model.delivery import PATH
from meshnode.model.hlc import Hlc
from meshnode.model.member import Member
from meshnode.model.site import short_text, site_text
from meshnode.model.wording import clock_text
from meshnode.node.bell import Bell
from meshnode.node.compare_asking import Asking, Outcome
from meshnode.node.network import Network
from meshnode.node.storage import Storage
from meshnode.node.verifyviews import (
    ComparedEvent,
    ComparedRowView,
    ComparedTableView,
    VerifyProgress,
    VerifyReport,
)
from meshnode.node.views import Values, table_text
from meshnode.store import log, peers
from meshnode.store.database import Tx
from meshnode.store.delivery import Stream
from meshnode.store.names import SiteNumbers
from meshnode.store.reoffers import count as reoffers_of
from meshnode.sync.diverging import Difference, Divergence, Kind, divergence, schema_note

ROWS_NAMED: Final = 200  # rows that a report names
EVENTS_NAMED: Final = 8  # events of each of them
TRIES: Final = 4  # links that a comparison may go through: those of one peer settle within seconds
RELINK_S: Final = 5.0  # seconds that another link may take to be there
REPAIR_S: Final = 30.0  # seconds at most until what was asked for again has come
PROGRESS_S: Final = 0.2  # seconds between two words of progress
LOOK_S: Final = 0.5  # seconds between two looks that no bell asked for

Tell = Callable[[VerifyProgress], None]


class Verification:
    """One `verify`, from the question to the report."""

    def __init__(
        self, network: Network, storage: Storage, site: bytes, name: str, only: tuple[str, str] | None, tell: Tell
    ) -> None:
        self._network = network
        self._storage = storage
        self._site = site
        self._name = name
        self._only = only
        self._tell = tell

    async def run(self, *, repair: bool) -> VerifyReport:
        """Compare; with `repair`, send each other what is missing, and compare again."""
        begun = time.monotonic()
        report, repaired = await self._patiently(repair=repair)
        if any(repaired):
            report, _ = await self._patiently(repair=False)
        return msgspec.structs.replace(
            report, sent_again=repaired[0], asked_again=repaired[1], seconds=round(time.monotonic() - begun, 3)
        )

    async def _patiently(self, *, repair: bool) -> tuple[VerifyReport, tuple[int, int]]:
        """Again where the link was replaced by another one: of two that were dialed at once only one stays."""
        for left in reversed(range(TRIES)):
            driver = self._network.driver_to(self._site)
            try:
                return await self._once(repair=repair)
            except TransportError:
                replaced = driver is not None and driver.link.closed and await self._linked_again()
                if not left or not replaced:
                    raise
        raise AssertionError("the last try returns or raises")

    async def _linked_again(self) -> bool:
        loop = asyncio.get_running_loop()
        end = loop.time() + RELINK_S
        while self._network.driver_to(self._site) is None and loop.time() < end:
            rung = self._storage.changed.listen()
            await Bell.wait(rung, LOOK_S)
        return self._network.driver_to(self._site) is not None

    async def _once(self, *, repair: bool) -> tuple[VerifyReport, tuple[int, int]]:
        """The report, and how many events were sent again, by this side and by the other."""
        driver = self._network.driver_to(self._site)
        if driver is None:
            raise UsageError(
                f"{self._name!r} ({short_text(self._site)}) is not linked, so it cannot be compared with: "
                "`meshnode peers` says why"
            )
        progress = _Progress(self._tell)
        asking = self._network.comparisons.open(driver, self._only, progress.read)
        try:
            self._tell(VerifyProgress(state="waiting"))
            outcome = await asking.run()
            self._tell(VerifyProgress(state="comparing", items=progress.items))
            found = divergence(outcome.narrowed, outcome.agreement)
            report = _report(self._site, self._name, outcome, found)
            ours, theirs = found.missing
            if not repair or not (ours or theirs):
                return report, (0, 0)
            self._tell(VerifyProgress(state="repairing", items=len(ours) + len(theirs)))
            await _repair(self._storage, asking, outcome, found)
            return report, (len(ours), len(theirs))
        finally:
            self._network.comparisons.close(asking)


def named_peer(tx: Tx, members: Sequence[Member]) -> tuple[bytes, str]:
    """The one member that was named, and what it calls itself."""
    (member,) = members
    heard = peers.all_heard(tx)
    return member.site, heard[member.site].name if member.site in heard else member.name


class _Progress:
    """Tells, from the loop, what a thread reads."""

    def __init__(self, tell: Tell) -> None:
        self.items = 0
        self._tell = tell
        self._loop = asyncio.get_running_loop()
        self._next = 0.0

    def read(self, items: int) -> None:
        self.items += items
        now = time.monotonic()
        if now >= self._next:
            self._next = now + PROGRESS_S
            self._loop.call_soon_threadsafe(self._tell, VerifyProgress(state="reading", items=self.items))


# --- repair


async def _repair(storage: Storage, asking: Asking, outcome: Outcome, found: Divergence) -> None:
    """Have what is missing sent both ways, and wait until it came, for a while."""
    narrowed, peer = outcome.narrowed, asking.driver.peer
    narrowed.send_again(*found.missing)
    await asking.narrow(narrowed, outcome.agreement)
    wanted = [name for name in map(narrowed.theirs.names.get, found.missing[1]) if isinstance(name, EventName)]

    def settled(tx: Tx) -> bool:
        sites = SiteNumbers()
        stream = Stream(peer, sites.find(tx, peer) or 0, PATH)
        here = (
            (number := sites.find(tx, each.site)) is not None and log.holds(tx, number, each.hlc, each.id)
            for each in wanted
        )
        staged = tx.execute("SELECT 1 FROM meshnode_staged WHERE site_no = ? AND path = ? LIMIT 1", stream.key)
        return reoffers_of(tx, stream)[0] == 0 and staged.fetchone() is None and all(here)

    loop = asyncio.get_running_loop()
    end = loop.time() + REPAIR_S
    while True:
        rung = storage.changed.listen()
        left = end - loop.time()
        if await storage.read(settled) or left <= 0:
            return
        await Bell.wait(rung, min(left, LOOK_S))


# --- the report


def _report(site: bytes, name: str, outcome: Outcome, found: Divergence) -> VerifyReport:
    narrowed, agreement = outcome.narrowed, outcome.agreement
    counts = Counter(each.kind.text for each in found.differences)
    if found.moved:
        counts[Kind.PENDING.text] += found.moved
    tables = [
        _table(*pair, own, theirs)
        for pair, own, theirs in zip(outcome.pairs, narrowed.own_totals, narrowed.their_totals, strict=True)
    ]
    texts = [table_text(each.schema, each.name) for each in agreement.tables]
    refused = [
        ComparedTableView(
            table=table_text(schema, name),
            compared=False,
            kind=Kind.POLICY.text,
            note=f"does not cross whole {'here' if here else 'there'}",
        )
        for schema, name, here in outcome.refused
    ]
    return VerifyReport(
        site=site_text(site),
        short=short_text(site),
        name=name,
        up_to=(agreement.bound.physical, agreement.bound.logical),
        equal=not counts and not narrowed.left_out,
        fault=bool(counts[Kind.FAULT.text] or narrowed.left_out),
        counts={kind: number for kind, number in counts.items() if number},
        rows=[_row(each, texts) for each in found.differences[:ROWS_NAMED]],
        rows_more=max(len(found.differences) - ROWS_NAMED, 0),
        unnamed=narrowed.left_out,
        tables=[*tables, *refused],
        tables_more=outcome.own.more,
        exchanges=narrowed.steps,
    )


def _table(own: TableTold, theirs: TableTold, here: TableTotals, there: TableTotals) -> ComparedTableView:
    note, kind = schema_note(own, theirs), ""
    if note and (own.key or theirs.key):
        kind = Kind.SCHEMA.text
    if own.horizon != theirs.horizon:
        kind = kind or Kind.HORIZON.text
        note = "; ".join(filter(None, [note, _horizons(own.horizon, theirs.horizon)]))
    rows_here, rows_there = (sum(each.sets[at].size for at in (words.ROWS, words.FROZEN)) for each in (here, there))
    return ComparedTableView(
        table=table_text(own.schema, own.name),
        compared=True,
        equal=here.sets == there.sets,
        events_here=here.sets[words.EVENTS].size,
        events_there=there.sets[words.EVENTS].size,
        rows_here=rows_here,
        rows_there=rows_there,
        above_here=here.above,
        above_there=there.above,
        below_here=here.below,
        below_there=there.below,
        kind=kind,
        note=note,
    )


def _horizons(own: Hlc, theirs: Hlc) -> str:
    here, there = (
        f"horizon {where} {clock_text(each)}" if any(each) else f"no horizon {where}"
        for each, where in ((own, "here"), (theirs, "there"))
    )
    return f"{here}, {there}"


def _row(each: Difference, texts: Sequence[str]) -> ComparedRowView:
    events = [("here", event) for event in each.ours] + [("there", event) for event in each.theirs]
    return ComparedRowView(
        table=texts[each.table],
        key=_key(each.key),
        kind=each.kind.text,
        what=each.what,
        events=[
            ComparedEvent(
                id=event.id.hex(),
                site=site_text(event.site),
                short=short_text(event.site),
                hlc=(event.physical, event.logical),
                where=where,
                columns=None if event.columns is None else list(event.columns),
            )
            for where, event in events[:EVENTS_NAMED]
        ],
        events_more=max(len(events) - EVENTS_NAMED, 0),
    )


def _key(key_bytes: bytes) -> Values | None:
    """The row key; the bytes may be the peer's."""
    try:
        key = cbor.decode_untrusted(key_bytes)
    except CodecError:
        return None
    return key if isinstance(key, dict) and all(isinstance(name, str) for name in key) else None
