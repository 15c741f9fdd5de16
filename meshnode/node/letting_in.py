"""What a node is asked about letting devices in: by invites, and nearby without one (profile §10)."""

from __future__ import annotations

import asyncio

from meshnode.errors import NotFoundError
from meshnode.limits import INVITE_TTL_MS, NEARBY_TTL_MS
from meshnode.node import admitting
from meshnode.node.bell import Bell
from meshnode.node.pairing_views import CandidateView, InvitedView, InviteView, NearbyView, OpenInviteView
from meshnode.node.storage import wall_ms
from meshnode.node.stored import Stored

LOOK_S = 1.0  # seconds between two looks at an invite that nothing rang for: it may have expired
_NO_NODE = "no node runs here: start it with `meshnode up`"


class LettingIn(Stored):
    """These operations over a node's storage; the running node refines what needs a network."""

    # --- invites

    async def invite(self, ttl_ms: int = INVITE_TTL_MS, *, confirm: bool = False) -> InviteView:
        """Open an invite (profile §10)."""
        addresses = self._invite_addresses()
        return await self._write(lambda engine: admitting.open_invite(engine, addresses, ttl_ms, confirm=confirm))

    async def invited(self, invite_id: str, *, seen: str = admitting.OPEN, timeout_s: float = 0.0) -> InvitedView:
        """What became of an invite, as soon as that is not `seen`."""
        loop = asyncio.get_running_loop()
        end = loop.time() + timeout_s
        while True:
            rung = self.storage.changed.listen()
            view = await self.storage.read(lambda tx: admitting.invited(tx, self._membership(tx), invite_id, wall_ms()))
            left = end - loop.time()
            if view.state != seen or left <= 0 or self._ended():
                return view
            await Bell.wait(rung, min(left, LOOK_S))

    async def invites(self) -> list[OpenInviteView]:
        """Those that somebody may still come in by."""
        return await self.storage.read(lambda tx: admitting.open_invites(tx, wall_ms()))

    async def withdraw_invite(self, invite_id: str) -> OpenInviteView:
        """Take one back."""
        return await self._write(lambda engine: admitting.withdraw(engine, invite_id))

    async def decide(self, named: str, *, approve: bool) -> CandidateView:
        """Say yes or no to one that holds an invite and asks."""
        who = await self._write(lambda engine: admitting.decide(engine, named, approve=approve))
        if approve:
            await self._let_in()
        return who

    # --- nearby

    async def nearby_open(self, ttl_ms: int = NEARBY_TTL_MS) -> NearbyView:
        """Let nearby devices pair, for a short time."""
        raise NotFoundError(_NO_NODE)

    async def nearby(self, *, seen: str = "", timeout_s: float = 0.0) -> NearbyView:
        """How far that is, as soon as it is not `seen`."""
        return NearbyView(state="closed", reason=_NO_NODE)

    async def nearby_answer(self, code: str, *, yes: bool) -> NearbyView:
        """The word of the person here on the digits."""
        raise NotFoundError(_NO_NODE)

    async def nearby_close(self) -> NearbyView:
        """Let nobody pair any more."""
        return await self.nearby()

    # --- what the node is

    def _invite_addresses(self) -> list[str]:
        raise NotImplementedError

    async def _let_in(self) -> None:
        """The next start knows the new member; a running node knows it now."""
