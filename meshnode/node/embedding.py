"""What a program has of a node that runs inside it: typed tables, live queries, waiting for others."""

from __future__ import annotations

import asyncio

from meshnode.errors import BehindError
from meshnode.model.site import site_text
from meshnode.node.bell import Bell
from meshnode.node.local import LocalNode
from meshnode.node.peering import wait_result
from meshnode.node.typedtables import TypedTables
from meshnode.node.views import WaitResult

WAIT_LOOK_S = 1.0  # seconds at most between two looks of `wait`


class Embedding(TypedTables, LocalNode):
    """These operations over a node's storage."""

    async def wait_synced(self, peer: str | None = None, *, timeout_s: float = 60.0) -> WaitResult:
        """Until a member, by name or site id, has all that this node holds and this node all of its; or every member.

        BehindError after `timeout_s` seconds, which says who is behind and why; NotFoundError where there is no such
        member.
        """
        only = None if peer is None else await self.storage.read(lambda tx: self._others(tx, peer)[0].site)
        result = await self._until_complete(timeout_s, only=only)
        if not result.complete:
            who = "; ".join(f"{each.name or each.short}: {each.reason}" for each in result.behind)
            raise BehindError(f"not everything is everywhere after {timeout_s:g} s: {result.reason or who}")
        return result

    async def wait(self, *, timeout_s: float, live_only: bool = False) -> WaitResult:
        """Until everybody has everything, or `timeout_s` seconds are over."""
        return await self._until_complete(timeout_s, live_only=live_only)

    # --- for the running node to refine

    def _hurry(self) -> None:
        """Somebody waits for the others to have everything."""

    # --- how

    async def _until_complete(
        self, timeout_s: float, *, live_only: bool = False, only: bytes | None = None
    ) -> WaitResult:
        loop = asyncio.get_running_loop()
        end, hurry_at = loop.time() + timeout_s, 0.0
        while True:
            rung = self.storage.changed.listen()
            views = [view for view in await self.peers() if only is None or view.site == site_text(only)]
            result = wait_result(views, live_only=live_only)
            left = end - loop.time()
            if result.complete or left <= 0 or self._ended():
                return result
            if loop.time() >= hurry_at:
                hurry_at = loop.time() + WAIT_LOOK_S  # what it starts rings the bell too
                self._hurry()
            await Bell.wait(rung, min(left, WAIT_LOOK_S))
