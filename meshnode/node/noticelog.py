"""Surfaced conditions in the log: the first of a kind at once, what follows it within a minute as one line."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from meshnode.model.logevent import LogEvent, log_event
from meshnode.model.site import short_text
from meshnode.store.notices import Notice

EVERY_S = 60.0  # seconds between two lines about one kind and site: a member can cause notices without end
NEWS = frozenset({"joined"})  # kinds that nobody has to be warned of
SUBJECTS = 1024  # (kind, site) pairs remembered; beyond them all share one

logger = logging.getLogger("meshnode.notices")


class NoticeLog:
    """One per node. `now` is a monotonic clock in seconds."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._told: dict[tuple[str, bytes], tuple[float, int]] = {}  # when last, and how many since

    def tell(self, surfaced: Iterable[Notice]) -> None:
        """Log what is worth a line now."""
        for notice in surfaced:
            subject = (notice.kind, notice.site)
            if subject not in self._told and len(self._told) >= SUBJECTS:
                subject = ("", b"")
            now = self._now()
            last, since = self._told.get(subject, (-EVERY_S, 0))
            since += notice.count
            if now - last < EVERY_S:
                self._told[subject] = (last, since)
                continue
            self._told[subject] = (now, 0)
            log_event(
                logger,
                logging.INFO if notice.kind in NEWS else logging.WARNING,
                LogEvent.NOTICE,
                kind=notice.kind,
                peer=short_text(notice.site),
                table=notice.table,
                count=since,  # since the last line
                text=notice.sample,
            )
