"""The dashboard's door: nothing listens, and nothing of it is loaded, before somebody asks for it the first time."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from meshnode.control.dashboardview import DashboardView
from meshnode.node.api import Operations
from meshnode.node.private import write_private

if TYPE_CHECKING:
    from meshnode.control.web.dashboard import Dashboard


class DashboardPort:
    """`open` gives a way in; what it began to serve goes on until `close`.

    `port` 0 takes the one that `last` keeps, where it is free: a page left open finds the node again that was started
    anew. Else the system chooses one. `page` is the file that a verb may have left, which is of no use once no way
    in is open.
    """

    def __init__(self, operations: Operations, port: int, page: Path, last: Path) -> None:
        self._operations = operations
        self._port = port
        self._page = page
        self._last = last
        self._opening = asyncio.Lock()
        self._entered = AsyncExitStack()
        self._dashboard: Dashboard | None = None
        self._clearing: asyncio.TimerHandle | None = None

    async def open(self) -> DashboardView:
        """ConfigError where the port cannot be used."""
        async with self._opening:
            if self._dashboard is None:
                from meshnode.control.web.dashboard import serve_dashboard

                served = serve_dashboard(self._operations, self._port, last=_port_in(self._last))
                self._dashboard = await self._entered.enter_async_context(served)
                with suppress(OSError):  # a full disk closes no door
                    write_private(self._last, f"{self._dashboard.port}\n".encode())
        if self._clearing is not None:
            self._clearing.cancel()
        view, lives_s = self._dashboard.let_in()
        self._clearing = asyncio.get_running_loop().call_later(lives_s, self.clear)
        return view

    async def close(self) -> None:
        """End what is served, open pages too."""
        if self._clearing is not None:
            self._clearing.cancel()
        self.clear()
        await self._entered.aclose()

    def clear(self) -> None:
        """Take the file away, also one that a killed node left behind."""
        with suppress(OSError):
            self._page.unlink(missing_ok=True)


def _port_in(path: Path) -> int:
    """What was kept; 0 where that is no port."""
    try:
        port = int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return 0
    return port if 0 < port < 1 << 16 else 0
