"""Whether links still answer, asked when something suggests that one may not (profile §7, §11).

A dead link is found by silence within 45 s. News of another path (this machine's network changed, it woke, a member is
announced elsewhere or has started anew) is a reason to ask at once: a link that does not answer is one to be replaced.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection

from meshnode.limits import LINK_ANSWER_S, LINK_DOUBT_S
from meshnode.net.addresses import Address
from meshnode.net.link import Link


def elsewhere(link_boot: bytes | None, link_address: str, boot: bytes, addresses: Collection[Address]) -> bool:
    """Whether an announcement is of another start of the site, or has an address that the link to it does not use."""
    return link_boot not in (None, boot) or any(address.text() != link_address for address in addresses)


class Doubts:
    """One question under way per site, and at most one a second; `on_silent` and `on_answer` say what came of it."""

    def __init__(
        self,
        link_to: Callable[[bytes], Link | None],
        *,
        on_silent: Callable[[bytes], None],
        on_answer: Callable[[bytes], None],
    ) -> None:
        self._link_to = link_to
        self._on_silent = on_silent
        self._on_answer = on_answer
        self._asking: dict[bytes, asyncio.Task[None]] = {}

    def ask(self, site: bytes) -> None:
        """Does the link to this site answer?"""
        if site not in self._asking and self._link_to(site) is not None:
            task = asyncio.get_running_loop().create_task(self._ask(site))
            self._asking[site] = task
            task.add_done_callback(lambda _: self._asking.pop(site, None))

    async def stop(self) -> None:
        """No more questions."""
        for task in list(self._asking.values()):
            task.cancel()
        await asyncio.gather(*self._asking.values(), return_exceptions=True)

    async def _ask(self, site: bytes) -> None:
        """As long as it is the link to the site: it may answer again, and then nothing has to take its place."""
        loop = asyncio.get_running_loop()
        begun, silent = loop.time(), False
        while (link := self._link_to(site)) is not None and not link.closed:
            if await link.ping(LINK_ANSWER_S):
                if silent:
                    self._on_answer(site)
                await asyncio.sleep(max(0.0, begun + LINK_DOUBT_S - loop.time()))
                return
            if self._link_to(site) is link and not silent:
                silent = True
                self._on_silent(site)
