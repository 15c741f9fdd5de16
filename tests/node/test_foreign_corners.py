"""Corners of delivery and membership that an independent peer can see (profile §3, §4, §6, §8, §9)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.foreign_bytes import Site, digest, encode, framed, now_ms
from support.foreign_node import running
from support.foreign_peer import Foreigner, Link
from support.nodes import until

from meshnode import MeshError
from meshnode.limits import UNKNOWN_GROUPS_PER_SITE

COUNTER_MAX = 2**63 - 1


async def silent(link: Link) -> None:
    """Nothing more is on the event stream once a frame of ours was handled."""
    if link.peer.last is None:
        link.open()
    await link.offered(link.peer.event({"id": os.urandom(4).hex()}, {"title": "barrier"}))
    await link.wire.ping()
    assert link.wire.frame(link._in) is None


async def test_nothing_but_hello_is_said_before_hello_was_heard(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        await here.put("a")
        peer = await here.member()
        async with peer.dial(here.port) as link:
            hello = framed(encode(peer.greeting()))
            link.wire.write(0, hello[:40])  # as the server, the node can say its own from now on
            await link.greeting()
            await here.put("b")
            await link.wire.ping()
            assert link.wire.frame(0) is None
            assert link._in not in link.wire.received
            link.wire.write(0, hello[40:])
            assert len(link.events_in(await link.took_until("batch"))) == 2


async def test_events_that_overtook_the_hello_wait_for_it(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        peer = await here.member()
        async with peer.dial(here.port) as link:
            hello = framed(encode(peer.greeting()))
            link.wire.write(0, hello[:40])
            await link.greeting()
            link.open()  # the node's hello was read: this side may go on, though its own is still on its way
            sent = link.offer(events=[peer.event({"id": "early"}, {})])
            await link.wire.ping()
            assert await here.node.get("notes", {"id": "early"}) is None
            link.wire.write(0, hello[40:])
            await link.acked(sent)


async def test_a_clock_offset_is_named(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        peer, other = await here.member(), await here.member()
        async with other.greeted(here.port, wall=now_ms() + 50_000) as link:
            await link.took_until("records")
        assert await here.noticed("clock-offset") == 0
        async with peer.greeted(here.port, wall=now_ms() - 61_000) as link:
            await link.took_until("records")
        assert await here.noticed("clock-offset") == 1

        async def ended() -> bool:
            return await here.noticed("clock-offset") == 0

        async with peer.greeted(here.port):  # set right
            await until(here.node, ended)


async def test_hello_names_the_newest_clock_of_each_site(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        peer = await here.member()
        hlc = peer.hlc()
        async with peer.greeted(here.port) as link:
            assert peer.site.site not in link.theirs["max_hlc"]
            link.open()
            await link.offered(peer.event({"id": "a"}, {}, hlc))
            await here.put("b")
        async with peer.greeted(here.port) as link:
            assert link.theirs["max_hlc"][peer.site.site] == list(hlc)
            assert tuple(link.theirs["max_hlc"][peer.node]) > hlc
            assert tuple(link.theirs["hlc"]) >= tuple(link.theirs["max_hlc"][peer.node])


async def test_the_clock_observes_what_it_applied(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        peer = await here.member()
        async with peer.greeted(here.port) as link:
            await link.took_until("records")
            link.open()
            ahead = now_ms() + 200_000
            ack = await link.offered(peer.event({"id": "a"}, {}, (ahead, 2**64 - 1)))
            assert ack["hlc"] == [ahead + 1, 0], "the logical counter carries into the physical one"
            receipt = await here.node.put("notes", {"id": "b"}, {"title": "x"})
            assert tuple(receipt.hlc) == (ahead + 1, 1)
            ack = await link.offered(peer.event({"id": "c"}, {}, (now_ms() + 400_000, 0)))
            assert ack["rejected"] == [0]
            assert ack["hlc"] == [ahead + 1, 1], "what was rejected is not observed"
            ack = await link.offered(peer.event({"id": "c"}, {}, (ahead + 5, 0), table="future"))
            assert ack["hlc"] == [ahead + 5, 1], "what is held is observed"


async def test_of_two_events_with_one_clock_the_larger_id_wins(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        peer = await here.member()
        hlc = peer.hlc()
        events = [peer.event({"id": "a"}, {"title": title}, hlc) for title in ("one", "two", "three")]
        titles = dict(zip(map(digest, events), ("one", "two", "three"), strict=True))
        async with peer.greeted(here.port) as link:
            link.open()
            for event in events:
                ack = await link.offered(event)
                assert (ack["rejected"], ack["dropped"]) == ([], 0)
        assert await here.title("a") == titles[max(titles)]
        assert await here.noticed("hlc-reuse") >= 1


async def test_counters_of_the_frontier_saturate(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        peer = await here.member()
        async with peer.greeted(here.port) as link:
            await link.took_until("records")
            link.open()
            await link.offered(peer.event({"id": "x"}, {}), clock={peer.site.site: 2**64 - 1})
            await here.put("a")
            assert (await link.took()).frame["clock"][peer.site.site] == COUNTER_MAX
            await link.offered(peer.event({"id": "x"}, {}), clock={peer.site.site: 3})
            await here.put("b")
            assert (await link.took()).frame["clock"][peer.site.site] == COUNTER_MAX


async def test_groups_of_unknown_tables_are_bounded(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        peer = await here.member()
        async with peer.greeted(here.port) as link:
            link.open()
            events = [peer.event({"id": "a"}, {}, table=f"t{n}") for n in range(UNKNOWN_GROUPS_PER_SITE + 2)]
            ack = await link.offered(*events)
            assert ack["held"] == UNKNOWN_GROUPS_PER_SITE
            assert ack["rejected"] == [UNKNOWN_GROUPS_PER_SITE, UNKNOWN_GROUPS_PER_SITE + 1]
            ack = await link.offered(peer.event({"id": "b"}, {}, table="t0"), peer.event({"id": "b"}, {}))
            assert (ack["held"], ack["rejected"]) == (1, [])


async def test_a_reader_receives(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        peer, other = await here.member(), await here.member()
        role = here.recovery().role(peer.mesh, peer.site, "reader", peer.hlc())
        async with other.greeted(here.port) as link:
            link.open()
            await link.acked(link.offer("records", records=[role]))
        async with peer.greeted(here.port) as link:
            await here.put("a")
            assert len(link.events_in(await link.took_until("batch"))) == 1


async def test_a_site_told_of_its_twin_stops_publishing(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        peer, other = await here.member(), await here.member()
        async with peer.greeted(here.port) as link:
            await link.took_until("records")
            link.wire.close(11, "twin")
            async with other.greeted(here.port) as link:
                await silent(link)
                await here.node.put("notes", {"id": "a"}, {"title": "x"})
                await silent(link)
                assert not (await here.node.status()).publishing


async def test_a_database_that_is_not_that_of_the_home_publishes_nothing(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        peer = await here.member()
    (tmp_path / "incarnation").write_text(os.urandom(16).hex() + "\n")
    async with running(tmp_path) as here:
        await here.put("a")
        async with peer.greeted(here.port) as link:
            await silent(link)
            assert peer.inbound is None
            assert await here.noticed("incarnation") == 1


async def test_a_nak_that_knows_no_epoch_gets_a_new_one(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        await here.put("a")
        peer = await here.member()
        async with peer.greeted(here.port) as link:
            before = await link.took_until("batch")
            await silent(link)
            epoch = before[0].frame["epoch"]
            link.say({"t": "nak", "epoch": epoch, "expected": 0, "reason": "unknown epoch"})
            assert (await link.opening())["epoch"] != epoch
            assert len(link.events_in(await link.took_until("batch"))) == 1


async def test_control_frames_may_come_with_the_hello(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        await here.put("a")
        peer = await here.member()
        async with peer.dial(here.port) as link:
            link.hello()
            link.say({"t": "request", "id": b"immedia.", "what": "site", "site": peer.node})
            frames = await link.took_until("answered")
            assert frames[-1].frame["id"] == b"immedia."
            assert len(link.events_in(frames)) >= 1


async def test_a_request_asked_twice_is_answered(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        await here.put("a")
        peer = await here.member()
        async with peer.greeted(here.port) as link:
            await link.took_until("batch")
            for _ in range(2):
                link.say({"t": "request", "id": b"the same", "what": "site", "site": peer.node})
            assert len(link.events_in(await link.took_until("answered"))) >= 1
            await link.answered(what="site", site=peer.site.site)


async def test_a_lost_answer_to_a_joiner_is_given_again(tmp_path: Path) -> None:
    from support.foreign_pairing import pair, pairing

    async with running(tmp_path) as here:
        text = (await here.node.invite(60_000)).invite
        peer = Foreigner.create()
        async with pairing(peer, here.port, peer.take_invite(text)) as ceremony:
            ceremony.hello()
            await ceremony.opened()
            ceremony.prove()
            ceremony.wire.vanish()
        await pair(peer, here.port, text)
        async with peer.greeted(here.port):
            pass


@pytest.mark.parametrize("change", ["finish the control stream", "finish the event stream", "a second event stream"])
async def test_streams_beyond_the_three_cost_the_peer_alone(tmp_path: Path, change: str) -> None:
    async with running(tmp_path) as here:
        peer, other = await here.member(), await here.member()
        async with peer.greeted(here.port) as link:
            link.open()
            stream = {"finish the control stream": 0, "finish the event stream": 2}.get(change, 6)
            link.wire.write(stream, b"", fin=True)
            async with other.greeted(here.port) as good:
                good.open()
                await good.offered(other.event({"id": "a"}, {}))


async def test_own_events_are_not_told_as_if_they_were_new_after_a_genesis_rewind(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        peer = await here.member()
        async with peer.greeted(here.port) as link:
            await link.took_until("records")
            link.open()
            await link.offered(peer.event({"id": "mine"}, {}))
            await here.put("theirs")
            await link.took_until("batch")
        peer.inbound = None
        async with peer.greeted(here.port) as link:
            events = link.events_in(await link.took_until("batch"))
            assert [event["row_key"]["id"] for event in events] == ["theirs"]


async def test_the_node_refuses_to_speak_for_another_recipient(tmp_path: Path) -> None:
    """An ack that belongs to another peer's stream changes nothing here."""
    async with running(tmp_path) as here:
        peer, other = await here.member(), await here.member()
        async with other.greeted(here.port) as link:
            theirs = await link.got()
        async with peer.greeted(here.port) as link:
            await link.got()
            link.ack(theirs)
            assert (await link.wire.end())[0] == 1


async def test_what_an_unknown_column_type_refuses_is_still_accepted(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        peer = await here.member()
        async with peer.greeted(here.port) as link:
            link.open()
            for key, dropped in (({"id": 5}, 1), ({"id": b"5"}, 0), ({"id": ""}, 0), ({"id": "nul\0"}, 0)):
                ack = await link.offered(peer.event(key, {"title": "x"}))
                assert ack["dropped"] == dropped, key
            for value in (None, True, 2**63 - 1, -(2**63), 1.5, -0.0, "", b"\xff", "\0", "\U0001f600" * 10):
                ack = await link.offered(peer.event({"id": repr(value)}, {"title": value}))
                assert (ack["dropped"], ack["rejected"]) == (0, []), value
                assert await here.node.get("notes", {"id": repr(value)}) is not None


async def test_events_of_an_unknown_author_are_not_kept_for_later(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        peer = await here.member()
        stranger = Site(os.urandom(32))
        async with peer.greeted(here.port) as link:
            link.open()
            event = stranger.event(peer.mesh, {"id": "a"}, {}, peer.hlc())
            assert (await link.offered(event))["dropped"] == 1
            vouch = here.recovery().vouch(peer.mesh, stranger, peer.hlc())
            await link.acked(link.offer("records", records=[vouch]))
            assert (await link.control("request"))["site"] == stranger.site
            assert await here.node.get("notes", {"id": "a"}) is None


async def test_a_recovering_node_writes_again_when_nobody_can_be_reached(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        peer = await here.member()
        async with peer.greeted(here.port, max_hlc={peer.node: [now_ms() + 5000, 0]}) as link:
            await link.control("request")
            with pytest.raises(MeshError):
                await here.put("a")
            link.wire.close(0)
            await here.node.wait(timeout_s=0.01)
        while (await here.node.peers())[0].linked:
            await here.node.wait(timeout_s=0.01)
        await here.put("a")
