"""A resolver that does not answer holds nobody up but who asked for that name (profile §11)."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from support.quic import ALICE, CAROL, station

from meshnode.errors import TransportError
from meshnode.limits import ADDRESSES_PER_SITE
from meshnode.net.names import Names

THREADS = 40  # more than any event loop has of its own


class Resolver:
    """Answers when it is told to."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.answers = threading.Event()

    def look_up(self, host: str, port: int, **_: Any) -> list[Any]:
        self.asked.append(host)
        assert self.answers.wait(10)
        return [(socket.AF_INET, socket.SOCK_DGRAM, 17, "", (f"127.0.0.{last}", port)) for last in range(1, 100)]


@pytest.fixture
def resolver() -> Iterator[Resolver]:
    made = Resolver()
    yield made
    made.answers.set()


async def test_names_that_hang_keep_no_address_and_no_other_thread_waiting(resolver: Resolver) -> None:
    async with station(ALICE) as alice, station(CAROL) as carol:
        alice.endpoint._names = Names(resolver.look_up)
        hanging = [asyncio.ensure_future(alice.endpoint.dial(f"nas-{number}", 4747)) for number in range(THREADS)]
        await asyncio.sleep(0)
        async with asyncio.timeout(60):
            assert (await alice.endpoint.dial("127.0.0.1", carol.endpoint.port)).site == CAROL.site
            assert await asyncio.to_thread(lambda: "the store's readers") == "the store's readers"
        for dial in hanging:
            dial.cancel()
        await asyncio.gather(*hanging, return_exceptions=True)


async def test_a_name_is_given_up_in_time_and_asked_for_once(resolver: Resolver) -> None:
    names = Names(resolver.look_up)
    for _ in range(3):
        with pytest.raises(TransportError, match=r"nas:4747: the name was not resolved within 0\.01 s"):
            await names.resolve("nas", 4747, 0.01)
    assert resolver.asked == ["nas"]
    resolver.answers.set()
    assert len(await names.resolve("nas", 4747, 5)) == ADDRESSES_PER_SITE
    assert names._under_way == {}


async def test_a_dead_address_of_a_name_costs_a_moment() -> None:
    """As a stale AAAA record does, which comes first: one after the other it would have half of the time."""

    def two(host: str, port: int, **_: Any) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_DGRAM, 17, "", (at, port)) for at in ("127.0.0.99", "127.0.0.1")]

    async with station(ALICE) as alice, station(CAROL) as carol:
        alice.endpoint._names = Names(two)
        proven: list[bool] = []
        async with asyncio.timeout(3):
            link = await alice.endpoint.dial("nas", carol.endpoint.port, on_proven=lambda: proven.append(True))
        assert link.site == CAROL.site
        assert proven == [True]
        assert len(alice.endpoint._connections) == 1
        with pytest.raises(TransportError, match=r"127\.0\.0\.(1|99):9: no answer within"):
            await alice.endpoint.dial("nas", 9, timeout=0.05)


async def test_what_is_no_name_is_a_reason() -> None:
    with pytest.raises(TransportError, match="there is no host of that name"):
        await Names().resolve("a..b", 4747, 5)
