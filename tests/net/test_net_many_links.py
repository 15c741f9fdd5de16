"""Several links between two sites at once, whoever dialed them: one is left, at both ends the same one (profile §7)."""

from __future__ import annotations

import asyncio

import pytest
from support.quic import ALICE, BOB, PATIENCE_S, Station, station

from meshnode.net.endpoint import Link

SMALL, LARGE = sorted((ALICE, BOB), key=lambda key: key.site)
ROUNDS = 10


def same_link(one: Station, other: Station) -> bool:
    """Both have the same single link."""
    ours, theirs = one.endpoint.links(), other.endpoint.links()
    return len(ours) == len(theirs) == 1 and (ours[0].spki, ours[0].opened_by_us) == (
        theirs[0].own_spki,
        not theirs[0].opened_by_us,
    )


async def dial(here: Station, there: Station) -> Link:
    """A link from here to there."""
    return await here.endpoint.dial("127.0.0.1", there.endpoint.port)


@pytest.mark.parametrize(("by_small", "by_large"), [(2, 0), (0, 2), (1, 2), (2, 1), (2, 2)])
async def test_links_dialed_at_once_leave_one(by_small: int, by_large: int) -> None:
    async with station(SMALL) as small, station(LARGE) as large:
        for _ in range(ROUNDS):
            dials = [dial(small, large) for _ in range(by_small)] + [dial(large, small) for _ in range(by_large)]
            await asyncio.gather(*dials, return_exceptions=True)
            async with asyncio.timeout(PATIENCE_S):
                while not same_link(small, large):
                    futures = [
                        asyncio.ensure_future(each.until(lambda: same_link(small, large))) for each in (small, large)
                    ]
                    await asyncio.wait(futures, timeout=1.0, return_when=asyncio.FIRST_COMPLETED)
                    for future in futures:
                        future.cancel()
                    await asyncio.gather(*futures, return_exceptions=True)
                    assert small.endpoint.links() or large.endpoint.links(), "no link is left"
            (link,) = small.endpoint.links()
            link.close(0, "next round")  # type: ignore[arg-type]
            await large.until(lambda: not large.endpoint.links())
