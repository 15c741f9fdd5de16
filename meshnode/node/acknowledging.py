"""Notices that their owner has seen: shown no more until they arise again (profile §6)."""

from __future__ import annotations

from collections.abc import Sequence

from meshnode.engine.engine import Engine
from meshnode.errors import NotFoundError
from meshnode.node.stored import Stored
from meshnode.node.views import AcknowledgedView
from meshnode.store import notices


class Acknowledging(Stored):
    """This operation over a node's storage."""

    async def acknowledge(self, ids: Sequence[int] | None = None) -> AcknowledgedView:
        """These notices were seen, or all of them; NotFoundError where one of them is not there."""
        return AcknowledgedView(acknowledged=await self.storage.write(lambda engine: _acknowledge(engine, ids)))


def _acknowledge(engine: Engine, ids: Sequence[int] | None) -> int:
    with engine.context.transaction() as tx:
        if ids is None:
            return notices.acknowledge_all(tx)
        missing = [number for number in ids if not notices.acknowledge(tx, number)]
        if missing:  # all of them, or none
            raise NotFoundError(f"there is no notice {missing[0]}: `meshnode notices --all` lists them")
        return len(ids)
