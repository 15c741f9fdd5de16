"""A bell that wakes everybody who waits: something changed, look again."""

from __future__ import annotations

import asyncio
from contextlib import suppress


class Bell:
    """Rings are not counted: whoever is awake looks at the state itself, so a ring between two looks is never lost."""

    def __init__(self) -> None:
        self._rung = asyncio.Event()

    def ring(self) -> None:
        """Wake everybody."""
        rung, self._rung = self._rung, asyncio.Event()
        rung.set()

    def listen(self) -> asyncio.Event:
        """Take this before looking, and wait for it after: it is set by the first ring from now on."""
        return self._rung

    @staticmethod
    async def wait(rung: asyncio.Event, seconds: float | None) -> None:
        """Until the ring, or that many seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await rung.wait()
