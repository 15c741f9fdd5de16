"""Keeps an attached app's database up to the node: asks, applies page after page, and asks again when it is gone."""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from typing import Final

from meshnode.control.client import ControlClient
from meshnode.errors import BusyError, MeshError, TransportError
from meshnode.model.logevent import LogEvent, log_event
from meshnode.node.bell import Bell
from meshnode.node.home import Home
from meshnode.node.projection import Attachment, Projection
from meshnode.node.projectionviews import WrittenView

LOOK_S: Final = 0.25  # seconds between two looks for a node that is not there
REST_S: Final = 2.0  # seconds after an error that will hardly pass by itself

logger = logging.getLogger("meshnode.attached")


class Follower:
    """Runs for as long as the app is attached; `changed` rings after every page, and when the node comes or goes."""

    def __init__(self, home: Home, projection: Projection, changed: Bell) -> None:
        self.client: ControlClient | None = None
        """The node, while it is there."""
        self.error: MeshError | None = None
        """Why it does not get on."""
        self.current = False  # nothing is known to be missing
        self.rebuilds = 0  # how often every row was told
        self._home = home
        self._projection = projection
        self._changed = changed
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="meshnode-projection")

    @property
    def at(self) -> Attachment:
        """How far the database is."""
        return self._projection.at

    def shows(self, written: WrittenView) -> bool:
        """Whether what was written is in the database."""
        at = self.at
        return bool(at.epoch) and (at.seq >= written.receipt.seq or (at.epoch != written.epoch and self.current))

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            try:
                client = await ControlClient.connect(self._home)
                if client is None:
                    raise TransportError(nobody_there(self._home))
                self._become(client, None)
                await self._follow(client)
            except (TransportError, BusyError) as error:
                self._become(None, error)
                await asyncio.sleep(LOOK_S)
            except MeshError as error:
                log_event(logger, logging.WARNING, LogEvent.WORK_WAITS, work="following the node", reason=str(error))
                self._become(None, error)
                await asyncio.sleep(REST_S)

    async def close(self) -> None:
        """Once it does not run any more."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._projection.close)
        self._thread.shutdown()

    async def _follow(self, client: ControlClient) -> None:
        """Until the node goes; then, or where every row is to be told, it is asked again."""
        at, loop = self.at, asyncio.get_running_loop()
        pages = client.project(at.schema, epoch=at.epoch, since=at.seq)
        async with aclosing(pages) as told:
            async for page in told:
                self.rebuilds += page.rows in ("first", "all")
                goes_on = await loop.run_in_executor(self._thread, self._projection.apply, page)
                self.current = goes_on and page.current
                self._changed.ring()
                if not goes_on:
                    return
        raise TransportError("the node was stopped")

    def _become(self, client: ControlClient | None, error: MeshError | None) -> None:
        self.client, self.error = client, error
        self.current = self.current and client is not None
        self._changed.ring()


def is_final(error: MeshError | None) -> bool:
    """Whether it is no use to wait: what it says has to be done first."""
    return error is not None and not isinstance(error, TransportError | BusyError)


def nobody_there(home: Home) -> str:
    """What to tell a person whose node does not run."""
    return f"no node runs in {home.path}: start it with `meshnode up`"
