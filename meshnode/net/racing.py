"""Races the addresses of one host name: a stale one among them costs a moment, not its whole timeout (RFC 8305)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from meshnode.errors import TransportError
from meshnode.net.endpoint_source import Address
from meshnode.net.link import Link

STAGGER_S = 0.25  # between the starts of two addresses of one race (RFC 8305 §5): the first usually wins alone

# Dials an address for so many seconds, and calls the third argument once the peer authenticated.
DialOne = Callable[[Address, float, Callable[[], None]], Awaitable[Link]]


async def first_link(
    addresses: Sequence[Address], dial: DialOne, seconds: float, on_proven: Callable[[], None] | None
) -> Link:
    """The first link that comes up. Whoever refuses with a code has said no for all; else the last error is raised."""
    stagger_s = min(STAGGER_S, seconds / 2 / len(addresses))
    waiting = list(addresses)
    running: dict[asyncio.Future[Link], Address] = {}
    proven: set[Address] = set()
    failure = TransportError("there is no address to dial")

    def start(address: Address, left_s: float) -> None:
        def prove() -> None:
            proven.add(address)
            if on_proven is not None:
                on_proven()

        running[asyncio.ensure_future(dial(address, left_s, prove))] = address

    try:
        while waiting or running:
            starts = waiting and proven.isdisjoint(running.values())  # else they would be further links to one site
            if starts:
                start(waiting.pop(0), seconds - stagger_s * (len(addresses) - len(waiting) - 1))
            limit = stagger_s if waiting and starts else None
            done, _ = await asyncio.wait(running, timeout=limit, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                del running[task]
                try:
                    return task.result()
                except TransportError as error:
                    failure = error
                    if error.code is not None:
                        raise
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
    raise failure
