"""Clauses that an independent peer misses on the wire (profile §6, §9)."""

from __future__ import annotations

from pathlib import Path

from support.foreign_node import running


async def test_a_relays_watermark_counts_once_what_it_sent_before_has_settled(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        relay, author = await here.member("relay"), await here.member("author")
        hlcs = [author.hlc(), author.hlc()]
        async with relay.greeted(here.port) as link:
            await link.took_until("records")
            link.open()
            sent = link.offer(events=[author.event({"id": str(hlc)}, {}, hlc) for hlc in hlcs])
            mark = [author.site.site, "main", "notes", *hlcs[1]]
            link.say({"t": "watermarks", "after": {"epoch": relay.epoch, "no": sent.no}, "entries": [mark]})
            await link.acked(sent)
            await link.answered(what="table", schema="none", table="none")
            await link.wire.ping()
            while link.wire.received.get(0):
                await link.control("watermarks")
            told = [mark for frame in link.log if frame["t"] == "watermarks" for mark in frame["entries"]]
            assert mark in told


async def test_what_is_no_longer_acceptable_is_taken_back(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        peer, author = await here.member(), await here.member("author")
        cutoff, late = author.hlc(), author.hlc()
        async with peer.greeted(here.port) as link:
            link.open()
            early = author.event({"id": "a"}, {"title": "early"}, cutoff)
            await link.offered(early, author.event({"id": "a"}, {"title": "late"}, late))
            assert await here.title("a") == "late"
            while sum(len(link.events_in([got])) for got in [await link.took()]) < 2:
                pass  # both were relayed before one of them is taken back
            record = here.recovery().retirement(peer.mesh, author.site, cutoff, author.hlc())
            await link.acked(link.offer("records", records=[record]))
            answer = await link.answered(what="site", site=author.site.site)
            assert [event for got in answer for event in got.frame.get("events", [])] == [early]
            assert await here.title("a") == "early"
