"""What a node tells of what came in: retained events and surfaced conditions, a page at a time (profile §6)."""

from __future__ import annotations

from collections.abc import AsyncIterator

from meshnode.errors import UsageError
from meshnode.limits import NOTICE_ROWS
from meshnode.model.noticekinds import NOTICE_KINDS
from meshnode.model.wording import nearest
from meshnode.node.api import ALL_EVENTS
from meshnode.node.eventlog import event_page, event_page_back
from meshnode.node.eventviews import EVENTS_PER_PAGE, EventPage, EventQuery
from meshnode.node.reading import notice_view
from meshnode.node.stored import Stored
from meshnode.node.views import NoticeView
from meshnode.store import notices
from meshnode.store.database import Tx

NOTICE_PAGE = 256  # notices read at a time for one follower


class Logbook(Stored):
    """These operations over a node's storage."""

    async def events(
        self, query: EventQuery = ALL_EVENTS, *, after: int = 0, before: int | None = None, limit: int = EVENTS_PER_PAGE
    ) -> EventPage:
        """Retained events beyond a position of the log, or below one."""
        if before is not None:
            if after:
                raise UsageError("events are read beyond a position or below one, not both")
            return await self.storage.read(lambda tx: event_page_back(tx, self._membership(tx), query, before, limit))
        return await self.storage.read(lambda tx: event_page(tx, self._membership(tx), query, after, limit))

    async def notices(self, *, kind: str | None = None, everything: bool = False) -> list[NoticeView]:
        """Surfaced conditions, the latest first."""
        _known(kind)

        def read(tx: Tx) -> list[NoticeView]:
            # Each of the shared entries past the bound is one more row.
            found = notices.latest(tx, 2 * NOTICE_ROWS, kind=kind, everything=everything)
            return [notice_view(each) for each in found]

        return await self.storage.read(read)

    async def follow_notices(self, *, kind: str | None = None, everything: bool = False) -> AsyncIterator[NoticeView]:
        """Those there are, in the order in which they last arose, then each as it arises."""
        _known(kind)
        seq = 0
        while not self._ended():
            rung = self.storage.changed.listen()
            page = await self.storage.read(
                lambda tx, at=seq: notices.surfaced_after(  # type: ignore[misc]
                    tx, at, NOTICE_PAGE, kind=kind, everything=everything
                )
            )
            for notice in page:
                seq = notice.seq
                yield notice_view(notice)
            if not page:
                await self.storage.changed.wait(rung, self._poll_s())


def _known(kind: str | None) -> None:
    if kind is not None and kind not in NOTICE_KINDS:
        hint = nearest(kind, NOTICE_KINDS) or f": there are {', '.join(sorted(NOTICE_KINDS))}"
        raise UsageError(f"there is no kind of notice {kind[:40]!r}{hint}")
