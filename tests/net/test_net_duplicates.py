"""Of two links to one site exactly one stays, at both ends the same one (profile §7)."""

from __future__ import annotations

import asyncio
import itertools

import pytest
from msgspec.structs import replace
from support.quic import ALICE, BOB, CAROL, PATIENCE_S, Seen, Station, bare_client, cut_off, station

from meshnode.codec.framing import frame
from meshnode.errors import CloseCode, TransportError
from meshnode.model.frames import Hello, encode_frame
from meshnode.model.hlc import ZERO
from meshnode.model.site import SiteKey
from meshnode.net.duplicates import Keep, decide
from meshnode.net.endpoint import Link

HELLO = Hello(bytes(16), "", "", bytes(16), bytes(8), 0, ZERO, (), (), None, {})
SMALL, LARGE = sorted((ALICE, BOB), key=lambda key: key.site)


def survivor(keep: Keep, *, older: str, newer: str) -> str:
    """Which of two living links stays."""
    return older if keep is Keep.OLDER_IF_ALIVE else newer


def test_both_ends_keep_the_link_that_the_smaller_site_dialed() -> None:
    small, large = bytes(16), b"\xff" * 16
    for seen_first_by_small, seen_first_by_large in itertools.product(("small", "large"), repeat=2):
        kept = []
        for own, peer, first in ((small, large, seen_first_by_small), (large, small, seen_first_by_large)):
            name = "small" if own is small else "large"
            second = "large" if first == "small" else "small"
            keep = decide(
                own, peer, older_opened_by_us=first == name, newer_opened_by_us=second == name, overlapping=True
            )
            assert keep is not Keep.NEWER
            kept.append(survivor(keep, older=first, newer=second))
        assert kept == ["small", "small"]


@pytest.mark.parametrize("own", [b"a", b"b"])
def test_of_two_by_one_dialer_the_newer_stays_as_the_acceptor_saw_it(own: bytes) -> None:
    peer = b"b" if own == b"a" else b"a"
    for overlapping in (True, False):
        accepted = decide(own, peer, older_opened_by_us=False, newer_opened_by_us=False, overlapping=overlapping)
        dialed = decide(own, peer, older_opened_by_us=True, newer_opened_by_us=True, overlapping=overlapping)
        assert accepted is Keep.NEWER
        assert dialed is (Keep.AS_ACCEPTED if overlapping else Keep.NEWER)


async def dial(here: Station, there: Station) -> Link:
    """A link from here to there."""
    return await here.endpoint.dial("127.0.0.1", there.endpoint.port)


async def test_the_newer_of_two_by_one_dialer() -> None:
    async with station(CAROL) as carol, station(ALICE) as alice:
        first = await dial(alice, carol)
        second = await dial(alice, carol)
        await alice.until(lambda: alice.of(first).closed is not None)
        await carol.until(lambda: carol.links[0].closed is not None)
        assert alice.of(first).closed[0] is CloseCode.DUPLICATE
        assert carol.links[0].closed[0] is CloseCode.DUPLICATE
        assert alice.endpoint.links() == [second]
        assert [link.spki for link in carol.endpoint.links()] == [second.own_spki]
        second.send_control(b"alive")
        await carol.until(lambda: carol.links[1].control == b"alive")


async def test_a_dialer_does_not_wait_for_the_acceptor_when_one_link_stood_before_the_other_was_dialed() -> None:
    """The acceptor read a boot id on the older one, so it keeps that open until it reads one on the newer."""
    async with (
        station(CAROL, duplicate_ping_s=PATIENCE_S) as carol,
        station(ALICE, duplicate_ping_s=PATIENCE_S) as alice,
    ):
        first = await dial(alice, carol)
        (await carol.first()).link.boot = b"boot one"
        second = await dial(alice, carol)
        assert alice.of(first).closed is not None
        assert alice.endpoint.links() == [second]
        await carol.until(lambda: len(carol.links) == 2)
        carol.links[1].link.boot = b"boot one"
        second.send_control(b"alive")
        await carol.until(lambda: carol.links[1].control == b"alive")


async def test_a_peer_sees_code_6_on_the_older_link() -> None:
    async with station() as here, bare_client(here.endpoint.port, "alice") as first:
        await here.first()
        async with bare_client(here.endpoint.port, "alice") as second:
            assert await first.close_code() == CloseCode.DUPLICATE
            await here.until(lambda: len(here.links) == 2)
            second.send(0, b"hello")
            await here.until(lambda: here.links[1].control == b"hello")


@pytest.mark.parametrize("first", ["small", "large"])
async def test_crossed_links_one_after_the_other(first: str) -> None:
    async with station(SMALL) as small, station(LARGE) as large:
        earlier, later = (small, large) if first == "small" else (large, small)
        await dial(earlier, later)
        if first == "small":
            with pytest.raises(TransportError) as refusal:
                await dial(later, earlier)
            assert refusal.value.code is CloseCode.DUPLICATE
        else:
            await dial(later, earlier)
        await one_link_by(small, large)


async def test_crossed_links_at_once_for_many_rounds() -> None:
    async with station(SMALL) as small, station(LARGE) as large:
        for _ in range(5):
            await asyncio.gather(dial(small, large), dial(large, small), return_exceptions=True)
            await one_link_by(small, large)


async def one_link_by(small: Station, large: Station) -> None:
    """Exactly one link is left, the same at both ends, dialed by the smaller site, and it works."""

    def settled() -> bool:
        ours, theirs = open_links(small), open_links(large)
        return len(ours) == len(theirs) == 1 and (ours[0].link.opened_by_us, theirs[0].link.opened_by_us) == (
            True,
            False,
        )

    async with asyncio.timeout(PATIENCE_S):
        while not settled():
            change = [asyncio.ensure_future(where.until(lambda: settled())) for where in (small, large)]
            done, pending = await asyncio.wait(change, return_when=asyncio.FIRST_COMPLETED)
            for task in pending:
                task.cancel()
            await asyncio.gather(*pending, return_exceptions=True)
            await asyncio.gather(*done)
    ours, theirs = open_links(small)[0], open_links(large)[0]
    assert small.endpoint.links() == [ours.link]
    assert large.endpoint.links() == [theirs.link]
    before = len(theirs.control)
    ours.link.send_control(b"works")
    await large.until(lambda: len(theirs.control) == before + 5)


def open_links(where: Station) -> list[Seen]:
    """Links that the node has and that are not over."""
    return [seen for seen in where.links if seen.closed is None]


async def test_a_dead_link_of_the_smaller_site_gives_way() -> None:
    """The smaller site's host vanished and came back; the larger one dials it before the silence is noticed."""
    async with station(LARGE) as large, station(SMALL) as vanished:
        await dial(vanished, large)
        dead = await large.first()
        cut_off(vanished.endpoint)
        async with station(SMALL) as again:
            link = await dial(large, again)
            await large.until(lambda: dead.closed is not None)
            assert dead.closed[0] is CloseCode.DUPLICATE
            assert large.endpoint.links() == [link]


async def test_a_standby_link_is_used_when_the_preferred_one_ends_meanwhile() -> None:
    async with (
        station(SMALL, duplicate_ping_s=PATIENCE_S) as small,
        station(LARGE, duplicate_ping_s=PATIENCE_S) as large,
    ):
        await dial(small, large)
        preferred = await large.first()
        vanish(small)
        async with station(SMALL) as again:
            dialing = asyncio.create_task(dial(large, again))
            await again.first()
            preferred.link.close(CloseCode.DONE)
            link = await dialing
            assert large.endpoint.links() == [link]


async def test_a_standby_link_is_not_used_when_everything_ends() -> None:
    async with (
        station(SMALL, duplicate_ping_s=PATIENCE_S) as small,
        station(LARGE, duplicate_ping_s=PATIENCE_S) as large,
    ):
        await dial(small, large)
        await large.first()
        vanish(small)
        async with station(SMALL) as again:
            dialing = asyncio.create_task(dial(large, again))
            await again.first()
            await large.endpoint.close()
            with pytest.raises(TransportError) as ending:
                await dialing
            assert ending.value.code is CloseCode.SHUTTING_DOWN
            assert len(large.links) == 1


def vanish(where: Station) -> None:
    """Fall off the network."""
    cut_off(where.endpoint)


async def twins(
    boots: tuple[bytes, bytes], key: SiteKey = ALICE
) -> tuple[list[int], list[str], list[CloseCode | None]]:
    """Two peers of one site, one after the other, that say these boot ids: what they and the node were told."""
    async with station() as here, bare_client(here.endpoint.port, "alice") as first:
        (await here.first()).link.boot = boots[0]
        async with bare_client(here.endpoint.port, "alice") as second:
            await here.until(lambda: len(here.links) == 2)
            here.links[1].link.boot = boots[1]
            codes = [await first.close_code()]
            if codes[0] == CloseCode.TWIN:
                codes.append(await second.close_code())
            return codes, here.kinds(), [seen.closed[0] if seen.closed else None for seen in here.links]


async def test_two_live_processes_of_one_site_are_told_that_they_are_twins() -> None:
    codes, notices, ends = await twins((b"boot one", b"boot two"))
    assert codes == [CloseCode.TWIN, CloseCode.TWIN]
    assert notices == ["twin"]
    assert ends == [CloseCode.DUPLICATE, CloseCode.TWIN]


@pytest.mark.parametrize("dialed", [SMALL, LARGE], ids=["smaller", "larger"])
@pytest.mark.parametrize("boots", [(b"boot-one", b"boot-two"), (b"boot-one", b"boot-one")], ids=["two", "one"])
async def test_twins_whose_links_cross_are_told(dialed: SiteKey, boots: tuple[bytes, bytes]) -> None:
    """A link that stands by is not handed over, but what its peer said first is there."""
    own, are_twins = LARGE if dialed is SMALL else SMALL, boots[0] != boots[1]
    async with station(own) as here, station(dialed) as first, station(dialed) as second:
        await dial(here, first)
        (await here.first()).link.boot = boots[0]
        dialing = asyncio.ensure_future(dial(second, here))
        earlier, later = await first.first(), await second.first()
        later.link.send_control(frame(encode_frame(replace(HELLO, site=dialed.site, boot=boots[1]))))
        await asyncio.gather(dialing, return_exceptions=True)
        loser = earlier if dialed is SMALL else later
        for process, seen in ((first, earlier), (second, later)):
            if are_twins or seen is loser:
                await process.until(lambda seen=seen: seen.closed is not None)  # type: ignore[misc]
                assert seen.closed is not None
                assert seen.closed[0] is (CloseCode.TWIN if are_twins else CloseCode.DUPLICATE)
        assert here.kinds() == (["twin"] if are_twins else [])


async def test_one_process_that_dials_again_is_no_twin() -> None:
    codes, notices, _ = await twins((b"boot one", b"boot one"))
    assert codes == [CloseCode.DUPLICATE]
    assert not notices


async def test_a_restart_is_no_twin() -> None:
    """The older link does not answer any more."""
    async with station(CAROL) as carol, station(ALICE) as before, station(ALICE) as after:
        await dial(before, carol)
        (await carol.first()).link.boot = b"boot one"
        vanish(before)
        await dial(after, carol)
        await carol.until(lambda: len(carol.links) == 2)
        carol.links[1].link.boot = b"boot two"
        await asyncio.gather(*carol.endpoint.reception.links._tasks)
        assert not carol.notices
        assert carol.links[1].closed is None
