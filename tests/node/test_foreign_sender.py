"""The node as a sender, seen by an independent peer (profile §8, Sender and Resuming)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from support.foreign_bytes import ROLE, VOUCH, digest, now_ms
from support.foreign_node import running
from support.foreign_peer import Foreigner, Got, Inbound, Link

from meshnode.limits import WINDOW_FRAMES


async def quiet(link: Link) -> None:
    """Nothing more comes on the event stream: the node handled a frame of ours and a PING after whatever it had."""
    if link.peer.last is None:
        link.open()
    await link.offered(link.peer.event({"id": os.urandom(4).hex()}, {"title": "barrier"}))
    await link.wire.ping()
    assert link.wire.frame(link._in) is None


def keys_of(link: Link, frames: list[Got]) -> list[str]:
    """The ids of the rows that frames carry, in order."""
    return [event["row_key"]["id"] for event in link.events_in(frames)]


async def test_hello_says_who_the_node_is(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        await here.put("a")
        peer = await here.member()
        async with peer.greeted(here.port) as link:
            first = link.theirs
        async with peer.greeted(here.port) as link:
            second = link.theirs
    assert first["name"] == "node"
    assert first["incarnation"].hex() == (tmp_path / "incarnation").read_text().strip()
    assert abs(first["wall"] - now_ms()) < 60_000
    assert first["inbound"] is None
    assert first["scope"] == []
    assert peer.node in first["max_hlc"]
    assert (first["boot"], first["incarnation"]) == (second["boot"], second["incarnation"])
    async with running(tmp_path) as here, peer.greeted(here.port) as link:
        assert link.theirs["boot"] != first["boot"]
        assert link.theirs["incarnation"] == first["incarnation"]


async def test_records_and_events_arrive_and_verify(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        await here.put("a", "one")
        await here.node.remove("notes", {"id": "a"})
        peer = await here.member("new")
        async with peer.greeted(here.port) as link:
            assert (await link.opening())["next"] == 1
            frames = await link.took_until("batch")
            assert [got.no for got in frames] == list(range(1, len(frames) + 1))
            assert frames[0].t == "records", "records go out before events"
            seen = []
            for record in frames[0].frame["records"]:
                content_type, signer, payload = peer.learn(record)
                seen.append((content_type, signer, payload["site"]))
            founder = digest(peer.founder)[:16]
            assert (VOUCH, founder, peer.node) in seen
            assert (ROLE, founder, peer.node) in seen
            assert (VOUCH, peer.node, peer.site.site) in seen
            upsert, delete = link.events_in(frames)
            assert upsert["payload"] == {"title": "one"}
            assert (delete["operation"], delete["payload"]) == ("delete", None)
            assert upsert["by"] == delete["by"] == peer.node
            assert frames[-1].frame["clock"] == {peer.node: 1}, "the frontier ticks once per batch"


async def test_an_acknowledged_frame_is_never_sent_again(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        await here.put("a")
        peer = await here.member()
        async with peer.greeted(here.port) as link:
            await link.took_until("batch")
            await quiet(link)  # the acks were read
        held = peer.inbound
        assert held is not None
        epoch, following = held.epoch, held.next
        async with peer.greeted(here.port) as link:
            assert await link.opening() == {"t": "open", "epoch": epoch, "next": following}
            await here.put("b")
            got = await link.took()
            assert got.no == following
            assert keys_of(link, [got]) == ["b"]


async def test_staged_frames_are_replayed_byte_for_byte(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        await here.put("a")
        peer = await here.member()
        async with peer.greeted(here.port) as link:
            first = [await link.got(), await link.got()]
        held = peer.inbound
        assert held is not None
        assert held.next == 1
        async with peer.greeted(here.port) as link:  # nothing of it was kept
            assert (await link.opening())["epoch"] == held.epoch
            assert [(await link.got()).data for _ in first] == [got.data for got in first]
        held.next, held.digest = 3, digest(first[1].data)  # all of it was kept, both acks were lost
        async with peer.greeted(here.port) as link:
            assert await link.opening() == {"t": "open", "epoch": held.epoch, "next": 1}, "hello settles nothing"
            assert [(await link.got()).data for _ in first] == [got.data for got in first]
    async with running(tmp_path) as here, peer.greeted(here.port) as link:  # the node was started anew
        assert await link.opening() == {"t": "open", "epoch": held.epoch, "next": 1}
        again = [await link.got(), await link.got()]
        assert [got.data for got in again] == [got.data for got in first]
        for got in again:
            link.ack(got)
        await quiet(link)


CLAIMS: dict[str, Any] = {
    "absent": lambda held: None,
    "unknown epoch": lambda held: Inbound(b"unknown!", held.next, held.digest),
    "other digest": lambda held: Inbound(held.epoch, held.next, bytes(32)),
    "earlier number": lambda held: Inbound(held.epoch, 1, b""),
    "later number": lambda held: Inbound(held.epoch, held.next + 5, held.digest),
}


async def test_absent_or_older_state_gets_a_new_epoch_at_genesis_once_a_minute(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        await here.put("a")
        for case, claim in CLAIMS.items():
            peer = await here.member()
            async with peer.greeted(here.port) as link:
                before = await link.took_until("batch")
                await quiet(link)
            held = peer.inbound
            assert held is not None
            peer.inbound = claim(held)
            async with peer.greeted(here.port) as link:
                opened = await link.opening()
                assert opened["epoch"] != held.epoch, case
                assert opened["next"] == 1, case
                again = await link.took_until("batch")
                assert [got.frame.get("records") for got in again] == [got.frame.get("records") for got in before]
                assert keys_of(link, again) == keys_of(link, before), case
                link.ack(before[0])  # an ack for an earlier epoch is no news
                await quiet(link)
            assert peer.inbound is not None
            peer.inbound = claim(peer.inbound)
            async with peer.greeted(here.port) as link:
                await here.put("b")
                await quiet(link)  # until a minute is over; the link stays


FORGED: dict[str, Any] = {
    "digest": lambda first, second: (first, {"digest": bytes(32)}),
    "number": lambda first, second: (first, {"no": 77}),
    "epoch": lambda first, second: (first, {"epoch": b"unheard "}),
    "order": lambda first, second: (second, {}),
    "zero": lambda first, second: (first, {"no": 0, "digest": bytes(32)}),
}


async def test_a_forged_ack_is_a_protocol_error_and_changes_nothing(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        await here.put("a")
        peer = await here.member()
        async with peer.greeted(here.port) as link:
            first = [await link.got(), await link.got()]
        for case, forge in FORGED.items():
            async with peer.greeted(here.port) as link:
                assert (await link.opening())["next"] == 1, case
                assert [(await link.got()).data for _ in first] == [got.data for got in first], case
                got, changes = forge(*first)
                link.ack(got, **changes)
                assert (await link.wire.end())[0] == 1, case
        async with peer.greeted(here.port) as link:
            assert (await link.opening())["next"] == 1
            assert [(await link.got()).data for _ in first] == [got.data for got in first]


async def test_a_late_duplicate_ack_is_no_news(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        await here.put("a")
        peer = await here.member()
        async with peer.greeted(here.port) as link:
            first, second = await link.got(), await link.got()
            for got in (first, first, second, first, second):
                link.ack(got)
            await here.put("b")
            third = await link.got()
            link.ack(second)  # while the third is pending
            link.ack(third)
            await quiet(link)
            assert keys_of(link, [third]) == ["b"]


async def test_rejected_events_are_offered_first_in_the_next_cycle(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        for key in ("a", "b", "c"):
            await here.put(key)
        peer = await here.member()
        async with peer.greeted(here.port) as link:
            records, batch = await link.got(), await link.got()
            link.ack(records)
            assert keys_of(link, [batch]) == ["a", "b", "c"]
            link.ack(batch, rejected=[1])
            await quiet(link)
        assert peer.inbound is not None
        peer.inbound.next, peer.inbound.digest = batch.no + 1, digest(batch.data)
        async with peer.greeted(here.port) as link:  # a peer that connects starts a cycle
            await here.put("d")
            taken = [await link.took()]
            while "d" not in keys_of(link, taken):
                taken.append(await link.took())
            assert keys_of(link, taken) == ["b", "d"]


async def test_rejected_records_are_offered_again(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        peer = await here.member()
        async with peer.greeted(here.port) as link:
            got = await link.got()
            link.ack(got, rejected=[0])
            await quiet(link)
        assert peer.inbound is not None
        peer.inbound.next, peer.inbound.digest = 2, digest(got.data)
        async with peer.greeted(here.port) as link:
            again = await link.took()
            assert again.frame["records"] == got.frame["records"][:1]


@pytest.mark.parametrize("index", [3, 2**63])
async def test_an_index_beyond_the_frame_is_a_protocol_error(tmp_path: Path, index: int) -> None:
    async with running(tmp_path) as here:
        peer = await here.member()
        async with peer.greeted(here.port) as link:
            got = await link.got()
            assert len(got.frame["records"]) == 3
            link.ack(got, rejected=[index])
            assert (await link.wire.end())[0] == 1


async def test_after_a_nak_the_node_sends_again_from_there(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        await here.put("a")
        peer = await here.member()
        async with peer.greeted(here.port) as link:
            first = [await link.got(), await link.got()]
            epoch = first[0].frame["epoch"]
            for expected in (1, 2):
                link.say({"t": "nak", "epoch": epoch, "expected": expected, "reason": "lost"})
                link._expected = expected
                again = [await link.got() for _ in first[expected - 1 :]]
                assert [got.data for got in again] == [got.data for got in first[expected - 1 :]]
            for got in first:
                link.ack(got)
            await quiet(link)


async def test_a_nak_for_what_was_settled_gets_a_new_epoch_at_genesis(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        await here.put("a")
        peer = await here.member()
        async with peer.greeted(here.port) as link:
            before = await link.took_until("batch")
            await quiet(link)
            epoch = before[0].frame["epoch"]
            link.say({"t": "nak", "epoch": epoch, "expected": 1, "reason": "lost"})
            assert (await link.opening())["epoch"] != epoch
            assert keys_of(link, await link.took_until("batch")) == ["a"]


async def test_a_nak_for_what_was_never_staged_gets_a_new_epoch_at_the_settled_cursor(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        await here.put("a")
        peer = await here.member()
        async with peer.greeted(here.port) as link:
            before = await link.took_until("batch")
            await quiet(link)
            epoch = before[0].frame["epoch"]
            link.say({"t": "nak", "epoch": epoch, "expected": 50, "reason": "lost"})
            opened = await link.opening()
            assert opened["epoch"] != epoch
            assert opened["next"] == 1
            await here.put("b")
            assert keys_of(link, [await link.took()]) == ["b"]


async def test_a_nak_of_an_earlier_epoch_is_no_news(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        await here.put("a")
        peer = await here.member()
        async with peer.greeted(here.port) as link:
            before = await link.took_until("batch")
            epoch = before[0].frame["epoch"]
            link.say({"t": "nak", "epoch": epoch, "expected": 50, "reason": "lost"})
            await link.opening()
            link.say({"t": "nak", "epoch": epoch, "expected": 1, "reason": "lost"})
            await quiet(link)


async def test_at_most_a_window_is_in_flight(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        for number in range(WINDOW_FRAMES + 2):
            await here.put(f"k{number}", f"{number}" * 200_000)
        peer = await here.member()
        async with peer.greeted(here.port) as link:
            frames = [await link.got() for _ in range(WINDOW_FRAMES)]
            await quiet(link)
            settled = 0
            while settled < len(frames):
                link.ack(frames[settled])
                settled += 1
                await link.wire.ping()
                all_there = len(keys_of(link, frames)) == WINDOW_FRAMES + 2
                # How many follow an ack is the node's to choose, by how fast they come: never more than the window.
                while not all_there and (settled == len(frames) or link.wire.received.get(link._in)):
                    frames.append(await link.got())
                    all_there = len(keys_of(link, frames)) == WINDOW_FRAMES + 2
                assert len(frames) - settled <= WINDOW_FRAMES
            await quiet(link)
            assert keys_of(link, frames) == [f"k{number}" for number in range(WINDOW_FRAMES + 2)]


async def test_a_peer_gets_its_own_events_only_on_request(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        peer = await here.member()
        async with peer.greeted(here.port) as link:
            await link.took_until("records")
            link.open()
            mine = peer.event({"id": "mine"}, {"title": "x"})
            await link.offered(mine)
            await here.put("theirs")
            got = await link.took()
            assert keys_of(link, [got]) == ["theirs"]
            answer = await link.answered(what="site", site=peer.site.site)
            assert [event for got in answer for event in got.frame.get("events", [])] == [mine]


async def test_requests_bring_events_again(tmp_path: Path) -> None:
    async with running(tmp_path, "more", "s.notes") as here:
        await here.put("a")
        await here.put("b", table="more")
        await here.put("c", table="s.notes")
        peer = await here.member()
        async with peer.greeted(here.port) as link:
            taken = await link.took_until("batch")
            assert sorted(keys_of(link, taken)) == ["a", "b", "c"]
            for schema, table, wanted in (
                ("main", "notes", ["a"]),
                ("main", "*", ["a", "b"]),
                ("*", "notes", ["a", "c"]),
                ("*", "*", ["a", "b", "c"]),
                ("main", "nothing", []),
            ):
                answer = await link.answered(what="table", schema=schema, table=table)
                assert sorted(keys_of(link, answer)) == wanted, (schema, table)
            answer = await link.answered(what="site", site=peer.node)
            assert sorted(keys_of(link, answer)) == ["a", "b", "c"]


async def test_a_request_is_answered_at_the_next_link(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        await here.put("a")
        peer = await here.member()
        async with peer.greeted(here.port) as link:
            await link.took_until("batch")
            request = {"t": "request", "id": b"01234567", "what": "site", "site": peer.node}
            link.say(request)
            answer = [await link.got(), await link.got()]
            assert answer[-1].frame["id"] == b"01234567"
        async with peer.greeted(here.port) as link:
            assert [(await link.got()).data for _ in answer] == [got.data for got in answer]


async def test_only_what_is_in_the_peers_scope_is_sent(tmp_path: Path) -> None:
    async with running(tmp_path, "secret") as here:
        await here.put("a")
        await here.put("b", table="secret")
        await here.put("c")
        peer = await here.member()
        async with peer.greeted(here.port, scope=["*.*", "!main.secret"]) as link:
            assert keys_of(link, await link.took_until("batch")) == ["a", "c"]
            answer = await link.answered(what="table", schema="*", table="*")
            assert keys_of(link, answer) == ["a", "c"]
            await here.put("d", table="secret")
            await here.put("e")
            assert keys_of(link, await link.took_until("batch")) == ["e"]
        async with peer.greeted(here.port, scope=["!*.*", "main.secret"]) as link:  # wider: the peer asks
            answer = await link.answered(what="table", schema="main", table="*")
            assert sorted(keys_of(link, answer)) == ["b", "d"]


async def test_what_is_staged_and_left_the_scope_is_not_sent(tmp_path: Path) -> None:
    async with running(tmp_path, "secret") as here:
        await here.put("a")
        await here.put("b", table="secret")
        peer = await here.member()
        async with peer.greeted(here.port) as link:
            assert sorted(keys_of(link, [await link.got(), await link.got()])) == ["a", "b"]
        async with peer.greeted(here.port, scope=["main.notes"]) as link:
            frames = await link.took_until("batch")
            assert keys_of(link, frames) == ["a"]
            await here.put("c")
            assert keys_of(link, [await link.took()]) == ["c"]


async def test_a_vouch_arrives_before_the_events_it_admits(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        peer = await here.member("first")
        async with peer.greeted(here.port) as link:
            await link.took_until("records")
            second = await here.member("second")
            async with second.greeted(here.port) as other:
                other.open()
                event = second.event({"id": "from second"}, {"title": "x"})
                await other.offered(event)
                frames = [await link.took()]
                while frames[-1].t != "batch":
                    frames.append(await link.took())
            records = [record for got in frames for record in got.frame.get("records", [])]
            peer.learn_all(records)
            assert second.site.site in peer.keys
            assert frames[-1].frame["events"] == [event], "exact bytes are relayed"


async def test_the_frontier_is_ticked_and_merged_but_not_invented(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        peer = await here.member()
        stranger = os.urandom(16)
        async with peer.greeted(here.port) as link:
            await link.took_until("records")
            link.open()
            clock = {peer.site.site: 41, stranger: 5, peer.node: 1000}
            await link.offered(peer.event({"id": "x"}, {}), clock=clock)
            await here.put("a")
            assert (await link.took()).frame["clock"] == {peer.site.site: 41, peer.node: 1}
            await here.put("b")
            assert (await link.took()).frame["clock"] == {peer.site.site: 41, peer.node: 2}


async def test_a_node_restored_from_an_old_copy_asks_for_its_own_events(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        await here.put("a")
        peer = await here.member()
        later = [now_ms() + 5000, 0]
        async with peer.greeted(here.port, max_hlc={peer.node: later}) as link:
            request = await link.control("request")
            assert (request["what"], request["site"]) == ("site", peer.node)
            assert await here.noticed("rolled-back") == 1
            with pytest.raises(Exception, match="restored"):
                await here.put("b")
        async with peer.greeted(here.port, max_hlc={peer.node: later}) as link:  # asked again until answered
            assert (await link.control("request"))["id"] == request["id"]
            link.open()
            await link.acked(link.offer("answered", id=request["id"]))
            await here.put("b")
            frames = await link.took_until("batch")
            frames += [] if "b" in keys_of(link, frames) else [await link.took()]
            assert keys_of(link, frames) == ["a", "b"]


async def test_a_max_hlc_beyond_the_skew_bound_is_treated_as_absent(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        peer = await here.member()
        async with peer.greeted(here.port, max_hlc={peer.node: [now_ms() + 900_000, 0]}, hlc=[2**64 - 1, 0]) as link:
            await here.put("a")
            event = link.events_in(await link.took_until("batch"))[-1]
            assert event["hlc_physical_ms"] < now_ms() + 60_000, "no clock was raised"
            assert not [frame for frame in link.log if frame["t"] == "request"]


async def test_a_node_that_ends_says_so(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        peer: Foreigner = await here.member()
        context = peer.greeted(here.port)
        link = await context.__aenter__()
    assert (await link.wire.end())[0] == 10
    await context.__aexit__(None, None, None)
