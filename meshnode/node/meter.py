"""The one object in which a node counts and measures what it does; `node/metrics.py` shows it.

Made with the node's storage and handed down from there: no part knows of any other, and nothing is measured per event.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from meshnode.errors import TransportError
from meshnode.model.metering import Counts, Histogram
from meshnode.model.verdict import Judgement
from meshnode.net.endpoint_counts import EndpointCounts, outcome_of
from meshnode.store.database import Timing
from meshnode.store.notices import Notice
from meshnode.sync.framecounts import FrameCounts

if TYPE_CHECKING:  # of no use to verbs that only read
    from meshnode.net.addresses import Address
    from meshnode.node.dialer import Dial

SECONDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
EVENTS: Final = (1.0, 4.0, 16.0, 64.0, 256.0, 512.0, 1024.0, 4096.0)


class Meter:
    """`now` is a monotonic clock in seconds."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.now = now
        self.frames = FrameCounts()
        self.endpoint = EndpointCounts()
        self.verdicts = Counts()
        self.notices = Counts()
        self.dials = Counts()
        self.link_ends = Counts()
        self.commits = Histogram(SECONDS)
        self.transactions = Histogram(SECONDS)
        self.applies = Histogram(SECONDS)
        self.waits = Histogram(SECONDS)
        self.batches = Histogram(EVENTS)
        self.reads = 0  # queries that wait or run

    @property
    def timing(self) -> Timing:
        """For the database that it measures."""
        return Timing(self.now, self._committed, time.sleep)

    def _committed(self, worked_s: float, synced_s: float) -> None:
        self.transactions.observe(worked_s)
        self.commits.observe(synced_s)

    def judged(self, judged: Counter[Judgement], seconds: float) -> None:
        """One job that took in events, or wrote some."""
        if not judged:
            return
        self.applies.observe(seconds)
        self.batches.observe(judged.total())
        for judgement, number in judged.items():
            self.verdicts.add(judgement.verdict.value, judgement.reason or "", number=number)

    def surfaced(self, notices: Iterable[Notice]) -> None:
        """Conditions that were stored."""
        for notice in notices:
            self.notices.add(notice.kind, number=notice.count)

    def counted(self, dial: Dial) -> Dial:
        """The same, with how it ended counted."""

        async def counting(address: Address, expect_site: bytes | None, on_proven: Callable[[], None]) -> bytes:
            try:
                site = await dial(address, expect_site, on_proven)
            except TransportError as error:
                self.dials.add("no-answer" if error.code is None else outcome_of(error.code))
                raise
            self.dials.add("linked")
            return site

        return counting
