"""Everything that can be read of a node from its store: what verbs that only read use when no node runs.

Nothing of the writing side is imported here: it is most of what a verb would load before it answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from meshnode.node import reading, roster
from meshnode.node.config import POLICY, Config
from meshnode.node.contested import Contested
from meshnode.node.databases import database_of
from meshnode.node.home import Home
from meshnode.node.logbook import Logbook
from meshnode.node.memberviews import MemberView
from meshnode.node.peering import wait_result
from meshnode.node.storage import Storage
from meshnode.node.telling import Telling
from meshnode.node.views import PolicyView, WaitResult


class Reading(Telling, Contested, Logbook):
    """Those of `node.api.Operations` that write nothing."""

    async def policy(self) -> PolicyView:
        """The policy as the settings say it, and the classes of tables."""
        config, classes = await self._settings_now(), await self.storage.read(reading.table_classes)
        return PolicyView(classes=classes, **{name: getattr(config, name) for name in POLICY})

    async def members(self) -> list[MemberView]:
        """Every device that is or was a member."""
        heard = self._heard()
        return await self.storage.read(lambda tx: roster.member_views(self._mesh(tx, heard)))

    async def wait(self, *, timeout_s: float, live_only: bool = False) -> WaitResult:
        """What is open now: without a running node nothing moves, so there is nothing to wait for."""
        result = wait_result(await self.peers(), live_only=live_only)
        return result if result.complete else _with_reason(result, "no node runs here: start it with `meshnode up`")

    # --- for the running node to refine

    async def _settings_now(self) -> Config:
        return self.home.config


@asynccontextmanager
async def open_reading(home: Home) -> AsyncIterator[Reading]:
    """The store of a node that does not run, without its lock."""
    storage = await asyncio.to_thread(lambda: Storage.open(database_of(home), None))
    try:
        yield Reading(home, storage)
    finally:
        await storage.close()


def _with_reason(result: WaitResult, reason: str) -> WaitResult:
    return WaitResult(complete=False, members=result.members, behind=result.behind, reason=reason)
