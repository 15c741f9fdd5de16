"""Conflicts, notices and findings in memory: a node that answers the dashboard with whatever a test puts into it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec

from meshnode.errors import UsageError
from meshnode.node.api import CONFLICTS_PER_PAGE
from meshnode.node.conflict_views import ConflictReceipt, ConflictView, SideView
from meshnode.node.doctorviews import DoctorView, FindingView, worst
from meshnode.node.storage import wall_ms
from meshnode.node.views import AcknowledgedView, ConflictCounts, NoticeView, Status
from support.dashboard import MeshInMemory, peer
from support.memory_node import SITE

LAP = peer(0)


def conflict(number: int, **values: Any) -> ConflictView:
    """One between this device and lap, of the row n<number>."""
    now = wall_ms()
    ours = SideView(site=SITE, name="desk", value=f"Milk {number}", hlc=(now - 9**6, 0), event="ab" * 32)
    theirs = SideView(site=LAP.site, name=LAP.name, value=f"Oat milk {number}", hlc=(now - 9**5, 0), event="cd" * 32)
    fields: dict[str, Any] = {"id": f"{number:032x}", "table": "notes", "key": {"id": f"n{number}"}, "column": "title"}
    fields |= {"ours": ours, "theirs": theirs, "shown": "theirs", "certainty": "certain", "status": "open"}
    return ConflictView(**{**fields, "recorded_ms": now, "change": number, **values})


def notice(number: int, kind: str = "skew", **values: Any) -> NoticeView:
    """One about lap."""
    fields: dict[str, Any] = {"count": number, "first_ms": wall_ms() - 9**8, "last_ms": wall_ms() - number}
    return NoticeView(**{"id": number, "kind": kind, "site": LAP.site, **fields, **values})


class CasesInMemory(MeshInMemory):
    """Its conflicts are decided, and its notices acknowledged; `rang` tells followers that there are others."""

    def __init__(self, conflicts: Sequence[ConflictView] = (), notices: Sequence[NoticeView] = ()) -> None:
        super().__init__([LAP])
        self.ledger = list(conflicts)
        self.book = list(notices)
        self.told: dict[str, tuple[str, str]] = {}  # verdict and what was found, by check
        self.hold: asyncio.Event | None = None  # a check waits for it
        self.rang = asyncio.Event()

    async def status(self) -> Status:
        left = sum(each.status == "open" for each in self.ledger)
        unseen = [each for each in self.book if not each.acknowledged]
        found = await super().status()
        return msgspec.structs.replace(found, conflicts=ConflictCounts(certain=left), notices=unseen[:50])

    async def conflicts(
        self, table: str | None = None, *, everything: bool = False, limit: int = CONFLICTS_PER_PAGE
    ) -> list[ConflictView]:
        of = [each for each in self.ledger if table in (None, each.table)]
        return [each for each in of if everything or each.status == "open"][:limit]

    async def resolve_conflict(self, conflict_id: str, *, prefer: str) -> ConflictReceipt:
        found = self._become(conflict_id, "resolved")
        ours = prefer == found.ours.site
        event = None if not ours else "ef" * 32
        shown = "ours" if ours else "theirs"
        return ConflictReceipt(id=conflict_id, status="resolved", preferred=prefer, event=event, shown=shown)

    async def acknowledge_conflict(self, conflict_id: str) -> ConflictReceipt:
        return ConflictReceipt(
            id=conflict_id, status="acknowledged", shown=self._become(conflict_id, "acknowledged").shown
        )

    async def conflict_changes(self, *, since: int | None = None) -> AsyncIterator[ConflictView]:
        await asyncio.Event().wait()
        yield self.ledger[0]

    async def notices(self, *, kind: str | None = None, everything: bool = False) -> list[NoticeView]:
        return [each for each in self.book if kind in (None, each.kind) and (everything or not each.acknowledged)]

    async def follow_notices(self, *, kind: str | None = None, everything: bool = False) -> AsyncIterator[NoticeView]:
        while True:
            await self.rang.wait()
            self.rang.clear()
            yield self.book[0]

    async def acknowledge(self, ids: Sequence[int] | None = None) -> AcknowledgedView:
        seen = [each.id for each in self.book] if ids is None else list(ids)
        self.book = [
            msgspec.structs.replace(each, acknowledged=each.acknowledged or each.id in seen) for each in self.book
        ]
        return AcknowledgedView(acknowledged=len(seen))

    async def doctor(self, checks: Sequence[str] = ()) -> DoctorView:
        self.looked_at.append(list(checks))
        if self.hold is not None:
            await self.hold.wait()
        findings = []
        for check in checks:
            verdict, found = self.told.get(check, ("pass", "as it should be"))
            todo = "" if verdict == "pass" else "see to `meshnode up`"
            findings.append(FindingView(check=check, verdict=verdict, found=found, todo=todo))
        return DoctorView(home="/home/x", running=True, verdict=worst(findings), findings=tuple(findings))

    def _become(self, conflict_id: str, status: str) -> ConflictView:
        at = next((at for at, each in enumerate(self.ledger) if each.id == conflict_id and each.status == "open"), None)
        if at is None:
            raise UsageError(f"conflict {conflict_id} is over (resolved)")
        self.ledger[at] = msgspec.structs.replace(self.ledger[at], status=status)
        return self.ledger[at]
