"""The feature `offer`, seen by an independent peer on the wire (profile §14)."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from support.foreign_bytes import Frame, digest, offered, short_ids
from support.foreign_node import Here, running
from support.foreign_peer import Foreigner, Got, Link

OFFER = {"features": ["offer"]}
DEFLATE = {"features": ["deflate"]}


async def brought(here: Here, author: Foreigner, *titles: str) -> list[tuple[bytes, Any, bytes]]:
    """Events of an author, which the node has from it: what an offer of them names, and their bytes."""
    events = []
    async with author.greeted(here.port) as link:
        await link.took_until("records")
        link.open(epoch=author.epoch)
        for title in titles:
            hlc = author.hlc()
            data = author.event({"id": title}, {"title": title}, hlc)
            await link.offered(data)
            events.append((author.site.site, hlc, data))
    return events


async def until(link: Link, t: str) -> Got:
    """The node's next frame of a kind, not acknowledged; those before it are."""
    while (got := await link.got()).t != t:
        link.keep(got)
    return got


def names(events: list[tuple[bytes, Any, bytes]]) -> list[bytes]:
    return [digest(data)[:16] for _, _, data in sorted(events)]


async def nothing_is_offered(link: Link) -> None:
    """A barrier on both streams brings no offer."""
    assert {got.t for got in await link.answered(what="table", schema="none", table="none")} == {"answered"}


async def test_events_of_others_are_offered_and_only_what_is_wanted_is_sent(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        peer, author = await here.member(), await here.member("author")
        events = await brought(here, author, "one", "two", "three")
        async with peer.greeted(here.port, **OFFER) as link:
            link.say({"t": "links", "sites": []})
            got = await until(link, "offer")
            assert got.frame["events"] == offered(*events)
            assert short_ids(got.frame) == names(events)
            link.keep(got, wanted=[0, 2])
            batch = await until(link, "batch")
            assert sorted(batch.frame["events"]) == sorted(sorted(events)[index][2] for index in (0, 2))
            link.keep(batch)
            await nothing_is_offered(link)


async def test_the_nodes_own_events_are_sent_at_once(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        peer = await here.member()
        async with peer.greeted(here.port, **OFFER) as link:
            await link.took_until("records")
            await here.put("own")
            batch = await until(link, "batch")
            assert batch.frame["clock"].keys() == {peer.node}
            link.keep(batch)
            await nothing_is_offered(link)


async def test_links_are_told_after_the_hello_and_when_they_change(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        peer, other = await here.member(), await here.member("other")
        async with peer.greeted(here.port, **OFFER) as link:
            assert (await link.control("links"))["sites"] == []
            assert [frame["t"] for frame in link.log[:2]] == ["hello", "links"]
            async with other.greeted(here.port):
                assert (await link.control("links"))["sites"] == [other.site.site]
            assert (await link.control("links"))["sites"] == []


async def test_an_event_waits_while_its_author_is_linked_and_is_offered_once_that_ends(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        peer, author = await here.member(), await here.member("author")
        events = await brought(here, author, "one")
        async with peer.greeted(here.port, **OFFER) as link:
            await link.took_until("records")
            await nothing_is_offered(link)  # this peer did not say yet whom it is linked to
            link.say({"t": "links", "sites": [author.site.site]})
            await nothing_is_offered(link)
            link.say({"t": "links", "sites": []})
            got = await until(link, "offer")
            assert short_ids(got.frame) == names(events)


async def test_the_node_wants_what_it_has_not_committed_and_says_the_same_again(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        peer, author = await here.member(), await here.member("author")
        known = await brought(here, author, "known")
        hlc = author.hlc()
        news = [(author.site.site, hlc, author.event({"id": "new"}, {"title": "new"}, hlc))]
        async with peer.greeted(here.port, **OFFER) as link:
            await link.took_until("records")
            link.open()
            sent = link.offer("offer", events=offered(*known, *news))
            assert (await link.acked(sent))["wanted"] == [1]
            first = link._control_data[id(link.log[-1])]
            await link.offered(news[0][2])
            assert await here.title("new") == "new"
            link.show(sent.data)
            assert await link.control_bytes("ack") == first, "byte for byte, though it has the event by now"
            again = link.offer("offer", events=offered(*known, *news))
            assert (await link.acked(again))["wanted"] == []


async def test_an_offer_is_replayed_byte_for_byte(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        peer, author = await here.member(), await here.member("author")
        await brought(here, author, "one")
        async with peer.greeted(here.port, **OFFER) as link:
            link.say({"t": "links", "sites": []})
            got = await until(link, "offer")
    async with running(tmp_path) as here, peer.greeted(here.port, **OFFER) as link:
        again = await until(link, "offer")
        assert again.data == got.data
        link.keep(again)
        assert len((await until(link, "batch")).frame["events"]) == 1


async def test_an_offer_to_a_peer_that_came_back_without_the_feature_is_sent_whole(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        peer, author = await here.member(), await here.member("author")
        events = await brought(here, author, "one")
        async with peer.greeted(here.port, **OFFER) as link:
            link.say({"t": "links", "sites": []})
            got = await until(link, "offer")
            epoch = got.frame["epoch"]
        async with peer.greeted(here.port) as link:
            batch = await until(link, "batch")
            assert batch.frame["events"] == [events[0][2]]
            assert batch.frame["epoch"] != epoch, "what was staged is discarded"


async def test_a_watermark_comes_after_the_events_that_were_wanted(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        peer, author = await here.member(), await here.member("author")
        events = await brought(here, author, "one")
        async with peer.greeted(here.port, **OFFER) as link:
            link.say({"t": "links", "sites": []})
            got = await until(link, "offer")
            await link.wire.ping()
            link.keep(got)
            batch = await until(link, "batch")
            link.keep(batch)
            told: Frame = {"entries": []}
            while author.site.site not in [entry[0] for entry in told["entries"]]:
                told = await link.control("watermarks")
            assert told["after"]["no"] >= batch.no
            assert [author.site.site, "main", "notes", *events[0][1]] in told["entries"]
            assert not [
                entry
                for frame in link.log[: link.log.index(told)]
                if frame["t"] == "watermarks"
                for entry in frame["entries"]
                if entry[0] == author.site.site
            ]


WELL_FORMED: tuple[Callable[[Link], Any], ...] = (
    lambda link: link.offer("offer", events={bytes(16): [1, 0, bytes(16)]}),
    lambda link: link.say({"t": "links", "sites": []}),
)
BAD_OFFERS: dict[str, tuple[int, Callable[[Link], Any]]] = {
    "no events": (1, lambda link: link.offer("offer", events={})),
    "an author without events": (1, lambda link: link.offer("offer", events={bytes(16): []})),
    "not in order": (1, lambda link: link.offer("offer", events={bytes(16): [2, 1, bytes(16), 0, 0, bytes(16)]})),
    "too many": (8, lambda link: link.offer("offer", events={bytes(16): [1, 0, bytes(16)] * 1025})),
    "too many links": (8, lambda link: link.say({"t": "links", "sites": [n.to_bytes(16, "big") for n in range(65)]})),
    "links twice": (1, lambda link: link.say({"t": "links", "sites": [bytes(16), bytes(16)]})),
}


async def test_frames_that_are_not_as_the_feature_spells_them_end_the_link(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        peer = await here.member()
        for case, (code, say) in BAD_OFFERS.items():
            async with peer.greeted(here.port, **OFFER) as link:
                link.open()
                say(link)
                assert (await link.wire.end())[0] == code, case
            peer.last, peer.epoch = None, os.urandom(8)


async def test_an_ack_that_does_not_fit_the_offer_ends_the_link(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        author = await here.member("author")
        await brought(here, author, "one")
        for changes in ({"wanted": [1]}, {"wanted": [0, 0]}, {"rejected": [0]}):
            peer = await here.member()
            async with peer.greeted(here.port, **OFFER) as link:
                link.say({"t": "links", "sites": []})
                link.ack(await until(link, "offer"), **changes)
                assert (await link.wire.end())[0] == 1, changes


async def test_without_the_feature_its_frames_are_unknown(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        peer = await here.member()
        for say in WELL_FORMED:
            async with peer.greeted(here.port, **DEFLATE) as link:
                link.open()
                say(link)
                assert (await link.wire.end())[0] == 1
            peer.last, peer.epoch = None, os.urandom(8)
