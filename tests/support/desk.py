"""The inviter's store, asked directly by a ceremony: no threads, and the test's own clock."""

from __future__ import annotations

import asyncio

from meshnode.engine import candidates, invites
from meshnode.engine.invites import Admission, Waiting
from meshnode.errors import CloseCode
from meshnode.model.pairing import Proof
from meshnode.node.bell import Bell
from meshnode.store import invites as stored_invites
from meshnode.store.database import Tx
from support.mesh_context import Device


class StoreDesk:
    """Implements `node.ceremony.Desk`; `asked` is set while a candidate waits, `decide` is the person's word."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.asked = asyncio.Event()
        self._changed = Bell()

    async def refusal(self, invite_id: bytes, public_key: bytes) -> CloseCode | None:
        context = self.device.context
        return self.device.run(lambda tx: invites.refusal(context, tx, invite_id, public_key))

    async def settle(self, invite_id: bytes, proof: Proof, name: str) -> Admission | Waiting | CloseCode:
        context = self.device.context
        answer = self.device.run(lambda tx: invites.settle(context, tx, invite_id, proof, name))
        if isinstance(answer, Waiting):
            self.asked.set()
        return answer

    async def decided(self, invite_id: bytes, seconds: float) -> bool:
        def look(tx: Tx) -> bool:
            invite = stored_invites.get(tx, invite_id)
            return invite is None or not invite.asks(self.device.time.wall_ms())

        rung = self._changed.listen()
        if self.device.run(look):
            return True
        await Bell.wait(rung, seconds)
        return False

    def decide(self, named: str, *, approve: bool) -> candidates.Candidate:
        context = self.device.context
        candidate = self.device.run(lambda tx: candidates.decide(context, tx, named, approve=approve))
        self._changed.ring()
        return candidate
