"""An address at which another identity answers is passed over for the next, with real endpoints (profile §7, §11)."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest
from support.quic import ALICE, BOB, CAROL, PATIENCE_S, STRANGER, Station, station

from meshnode.net.addresses import Address
from meshnode.node.dialer import Dialer
from meshnode.node.dialing import DialPlan

SLOWER_S = 60.0  # between two addresses: only a refusal may bring the next one on in time


def address_of(there: Station) -> Address:
    return Address("127.0.0.1", there.endpoint.port)


@pytest.mark.parametrize("remembered", [False, True])
async def test_others_at_the_addresses_of_a_member_are_passed_over(remembered: bool) -> None:
    """First another member, then a node of another mesh, then a stranger, then who was meant."""
    worked: asyncio.Queue[tuple[bytes, Address]] = asyncio.Queue()
    plan = DialPlan(CAROL.site, lambda: 0.0)
    plan.members([ALICE.site, BOB.site], 0.0)
    async with (
        station(CAROL) as here,
        station(ALICE) as other,
        station(ALICE, mesh=bytes(16)) as elsewhere,
        station(STRANGER) as stranger,
        station(BOB) as meant,
    ):

        async def dial(address: Address, expect_site: bytes | None, *_: object) -> bytes:
            return (await here.endpoint.dial(address.host, address.port, expect_site=expect_site)).site

        dialer = Dialer(
            plan,
            dial,
            now=lambda: 0.0,
            on_worked=lambda *what: worked.put_nowait(what),
            on_failed=lambda _, text: pytest.fail(text),
            stagger_s=SLOWER_S,
        )
        addresses = [address_of(each) for each in (other, elsewhere, stranger, meant)]
        if remembered:
            plan.remembered(BOB.site, addresses, -1.0)
        else:
            plan.seen(BOB.site, b"boot", addresses, -1.0)
        running = asyncio.create_task(dialer.run())
        async with asyncio.timeout(PATIENCE_S):
            assert await worked.get() == (BOB.site, address_of(meant))
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        assert [link.site for link in here.endpoint.links()] == [BOB.site]
        assert not any(there.endpoint.links() for there in (other, elsewhere, stranger))
        plan.unlinked(BOB.site, 1.0)
        assert plan.due(1000.0)[0].addresses[0] == address_of(meant)
