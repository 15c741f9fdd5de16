"""What a retired site is told before its link ends with code 4: the records that retired it (profile §7, §13)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from meshnode.codec.framing import frame
from meshnode.errors import CloseCode, TransportError
from meshnode.limits import INTRODUCE_BYTES
from meshnode.model.frames import Introduce, encode_frame
from meshnode.net.link import Link

READ_S = 2.0  # seconds that the retired site gets to read it
WHY = "the site is retired"


class Farewell:
    """Attached to a link when it is made: its first word says that the other side listens."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._listens = asyncio.Event()
        link.on_control = lambda _data: self._listens.set()
        link.on_closed = lambda _code, _reason, _local: self._listens.set()

    async def say(self, proof: Callable[[bytes], Awaitable[Sequence[bytes]]]) -> None:
        """Show the records once the site listens, and close. The endpoint closes a link on which nothing is said."""
        await self._listens.wait()
        if not self._link.closed:
            shown = encode_frame(Introduce(records=tuple(await proof(self._link.site))))
            if len(shown) <= INTRODUCE_BYTES:
                self._link.send_control(frame(shown))
                await self._read()
        self._link.close(CloseCode.RETIRED, WHY)

    async def _read(self) -> None:
        try:
            async with asyncio.timeout(READ_S):
                await self._link.drained(0)
        except (TimeoutError, TransportError):
            return  # it is told again when it comes again
