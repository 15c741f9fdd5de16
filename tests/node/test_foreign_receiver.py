"""The node as a receiver, seen by an independent peer (profile §6, §8 Receiver, §9)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from support.foreign_bytes import BINDING, EVENT, Site, encode, now_ms
from support.foreign_node import running
from support.foreign_peer import Foreigner, Link, Sent

from meshnode.limits import STORED_ACK_WINDOWS, WINDOW_FRAMES


async def stored_bytes(link: Link, sent: Sent) -> bytes:
    """Send a frame as it was and take the bytes of the ack."""
    link.show(sent.data)
    return await link.control_bytes("ack")


async def barrier(link: Link) -> list[str]:
    """Handled: all that was said before on both streams. The kinds of control frames that came so far."""
    await link.answered(what="table", schema="none", table="none")
    await link.wire.ping()
    while link.wire.received.get(0):
        await link._control_frame()
    return [frame["t"] for frame in link.log]


def ack_of(*, rejected: list[int] | None = None, held: int = 0, dropped: int = 0) -> dict[str, Any]:
    """What an ack says of the events in a frame."""
    return {"rejected": rejected or [], "held": held, "dropped": dropped}


def said(ack: dict[str, Any]) -> dict[str, Any]:
    """The same of an ack."""
    return {name: ack[name] for name in ("rejected", "held", "dropped")}


async def test_events_are_applied_and_duplicates_are_no_news(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        peer = await here.member()
        async with peer.greeted(here.port) as link:
            link.open()
            hlc = peer.hlc()
            event = peer.event({"id": "a"}, {"title": "one"}, hlc)
            ack = await link.offered(event)
            assert said(ack) == ack_of()
            assert tuple(ack["hlc"]) > hlc, "the node's HLC after the commit"
            assert await here.title("a") == "one"
            again = await link.offered(event, event)
            assert said(again) == ack_of()
            assert said(await link.offered(peer.event({"id": "a"}, None))) == ack_of()
            assert await here.node.get("notes", {"id": "a"}) is None


def _variants(peer: Foreigner) -> list[tuple[str, bytes]]:
    """(what the ack counts it as, event) of every verdict that a peer can bring about by an event alone."""
    key, columns = {"id": "v"}, {"title": "v"}
    good = peer.event(key, columns)
    stranger, mesh = Site(os.urandom(32)), peer.mesh
    payload = {
        "table_schema": "main",
        "table_name": "notes",
        "row_key": key,
        "operation": "upsert",
        "payload": columns,
        "hlc_physical_ms": now_ms(),
        "hlc_logical": 0,
    }
    sign = peer.site.seal
    signed = peer.event(key, columns)
    lacking = {name: value for name, value in payload.items() if name != "operation"}
    far = (now_ms() + 400_000, 0)
    return [
        ("applied", good),
        ("dropped", b""),
        ("dropped", b"not an event"),
        ("dropped", b"\xd2" + peer.event(key, columns)),  # tagged
        ("dropped", peer.event(key, columns) + b"\0"),
        ("dropped", bytes(2**20 + 1)),
        ("dropped", bytes([*signed[:-1], signed[-1] ^ 1])),  # signature
        ("dropped", sign(bytes(16), EVENT, payload)),  # another mesh
        ("dropped", stranger.event(mesh, key, columns, peer.hlc())),
        ("dropped", sign(mesh, "sovm/ssp-vouch-v1", payload)),
        ("dropped", sign(mesh, EVENT, payload | {"extra": 1})),
        ("dropped", sign(mesh, EVENT, lacking)),
        ("dropped", sign(mesh, EVENT, payload | {"operation": "purge"})),
        ("dropped", sign(mesh, EVENT, payload | {"operation": "delete"})),
        ("dropped", sign(mesh, EVENT, payload | {"payload": None})),
        ("dropped", sign(mesh, EVENT, payload | {"payload": {"title": [1]}})),
        ("dropped", sign(mesh, EVENT, payload | {"payload": {"title": 2**63}})),
        ("dropped", sign(mesh, EVENT, payload | {"row_key": {"id": True}})),
        ("dropped", sign(mesh, EVENT, payload | {"row_key": {"id": 1.5}})),
        ("dropped", sign(mesh, EVENT, payload | {"table_name": ""})),
        ("dropped", sign(mesh, EVENT, payload | {"table_name": "n" * 129})),
        ("dropped", sign(mesh, EVENT, payload | {"hlc_logical": -1})),
        ("dropped", sign(mesh, EVENT, payload | {"payload": {f"c{n}": 1 for n in range(257)}})),
        ("dropped", sign(mesh, EVENT, None, raw=encode(payload) + b"\0")),
        ("rejected", peer.event(key, columns, far)),
        (
            "rejected",
            peer.event(key, columns, (2**64 - 1, 2**64 - 1), table="reserved.name"),
        ),  # skew is looked at first
        ("dropped", peer.event(key, columns, table="meshnode_log")),
        ("dropped", peer.event(key, columns, table="SQLITE_master")),
        ("dropped", peer.event(key, columns, table="a.b")),
        ("dropped", peer.event({}, columns)),
        ("dropped", peer.event(None, columns)),
        ("dropped", peer.event({"id": "v", "other": 1}, columns)),
        ("dropped", peer.event({"ID": "v"}, columns)),
        ("dropped", peer.event({"other": 1}, None)),
        ("held", peer.event(key, columns, table="future")),
        ("held", peer.event({"anything": 1}, None, table="future")),
        ("applied", peer.event({"id": "odd"}, {"title": "kept", "nothing": 1})),
        ("applied", peer.event({"id": "edge"}, {"title": "edge"}, (now_ms() + 300_000, 0))),
        ("applied", good),
    ]


async def test_one_bad_event_never_costs_the_frame(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        peer = await here.member()
        async with peer.greeted(here.port) as link:
            link.open()
            variants = _variants(peer)
            for kind, event in variants:
                ack = await link.offered(event)
                wanted = {"rejected": ack_of(rejected=[0]), "held": ack_of(held=1), "dropped": ack_of(dropped=1)}
                assert said(ack) == wanted.get(kind, ack_of()), (kind, event[:300])
            events = [event for _, event in variants if len(event) < 2**20]
            kinds = [kind for kind, event in variants if len(event) < 2**20]
            fresh = [
                peer.event({"id": str(number)}, {"title": "after"}) if kind == "applied" else event
                for number, (kind, event) in enumerate(zip(kinds, events, strict=True))
            ]
            ack = await link.offered(*fresh)
            assert ack["rejected"] == [number for number, kind in enumerate(kinds) if kind == "rejected"]
            assert ack["dropped"] == kinds.count("dropped")
            assert ack["held"] in (0, kinds.count("held"))  # they are duplicates by now
            for number, kind in enumerate(kinds):
                if kind == "applied":
                    assert await here.title(str(number)) == "after"
            assert await here.title("odd") == "kept"
            await here.node.add_table("future", {"id": "TEXT"}, {"title": "TEXT"})
            assert await here.title("v", "future") == "v", "what was held is judged again when its table appears"


async def test_an_event_out_of_the_nodes_scope_is_dropped(tmp_path: Path) -> None:
    async with running(tmp_path, "more", scope=["main.notes"]) as here:
        peer = await here.member()
        async with peer.greeted(here.port) as link:
            assert link.theirs["scope"] == ["main.notes"]
            link.open()
            ack = await link.offered(
                peer.event({"id": "a"}, {"title": "in"}), peer.event({"id": "a"}, {"title": "out"}, table="more")
            )
            assert said(ack) == ack_of(dropped=1)
            assert await here.title("a") == "in"
            assert await here.title("a", "more") is None


async def test_a_lower_number_gets_the_stored_ack_byte_for_byte(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        peer = await here.member()
        kept = STORED_ACK_WINDOWS * WINDOW_FRAMES
        sent: list[Sent] = []
        acks: list[bytes] = []
        async with peer.greeted(here.port) as link:
            link.open()
            for number in range(kept):
                late = number % 2
                event = peer.event({"id": str(number)}, {}, (now_ms() + 400_000, 0) if late else None)
                sent.append(link.offer(events=[event]))
                acks.append(await link.control_bytes("ack"))
            assert [await stored_bytes(link, each) for each in sent] == acks
        async with peer.greeted(here.port) as link:
            link.open(at=1)
            assert [await stored_bytes(link, each) for each in sent] == acks
    async with running(tmp_path) as here, peer.greeted(here.port) as link:
        assert link.theirs["inbound"] == {"epoch": peer.epoch, "next": kept + 1, "digest": sent[-1].digest}
        link.open()
        assert [await stored_bytes(link, each) for each in sent] == acks
        await link.offered(peer.event({"id": "next"}, {}))


async def test_a_lower_number_with_another_digest_gets_a_nak(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        peer = await here.member()
        async with peer.greeted(here.port) as link:
            await link.took()
            link.open()
            await link.offered(peer.event({"id": "a"}, {"title": "one"}))
            await link.offered(peer.event({"id": "b"}, {"title": "two"}))
            link.offer(no=1, events=[peer.event({"id": "c"}, {"title": "sneaked"})])
            nak = await link.control("nak")
            assert (nak["epoch"], nak["expected"]) == (peer.epoch, 3)
            await barrier(link)
            assert await here.title("c") is None
            await link.offered(peer.event({"id": "d"}, {"title": "three"}))


async def test_a_gap_gets_one_nak(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        peer = await here.member()
        async with peer.greeted(here.port) as link:
            await link.took()
            link.open()
            await link.offered(peer.event({"id": "1"}, {}))
            frames = [peer.event({"id": str(number)}, {}) for number in range(7)]
            for no in (3, 4, 5):
                link.offer(no=no, events=[frames[no]])
            nak = await link.control("nak")
            assert (nak["epoch"], nak["expected"]) == (peer.epoch, 2)
            for no in (2, 3):
                await link.offered(frames[no])
                assert peer.last is not None
                assert peer.last.no == no
            link.offer(no=6, events=[frames[6]])
            assert (await link.control("nak"))["expected"] == 4, "another gap"
            link.offer(no=5, events=[frames[5]])
            await link.offered(frames[4])
            assert (await barrier(link)).count("nak") == 2
            assert await here.node.get("notes", {"id": "5"}) is None


async def test_after_open_the_same_gap_is_a_new_one(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        peer = await here.member()
        for _ in range(2):
            async with peer.greeted(here.port) as link:
                link.open(at=1)
                link.offer(no=3, events=[])
                assert (await link.control("nak"))["expected"] == 1


async def test_a_frame_of_an_epoch_that_is_not_current_gets_a_nak(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        peer = await here.member()
        async with peer.greeted(here.port) as link:
            await link.took()
            link.open()
            await link.offered(peer.event({"id": "a"}, {}))
            link.offer(no=2, epoch=b"another!", events=[peer.event({"id": "b"}, {})])
            nak = await link.control("nak")
            assert (nak["epoch"], nak["expected"]) == (b"another!", 0)
            assert await here.node.get("notes", {"id": "b"}) is None
            await link.offered(peer.event({"id": "c"}, {}))


async def test_a_frame_before_any_open_gets_a_nak(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        peer = await here.member()
        async with peer.greeted(here.port) as link:
            link.offer(events=[peer.event({"id": "a"}, {})])
            nak = await link.control("nak")
            assert (nak["epoch"], nak["expected"]) == (peer.epoch, 0)
            peer.last = None
            link.open()
            await link.offered(peer.event({"id": "b"}, {}))


async def test_a_new_epoch_begins_anew_and_open_for_the_current_one_changes_nothing(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        peer = await here.member()
        async with peer.greeted(here.port) as link:
            await link.took()
            link.open()
            event = peer.event({"id": "a"}, {"title": "one"})
            await link.offered(event)
            link.open(at=9)
            assert (await link.offered(peer.event({"id": "b"}, {})))["no"] == 2
            old = peer.epoch
            link.open(epoch=b"epoch 2!")
            ack = await link.offered(event, peer.event({"id": "c"}, {}))
            assert (ack["epoch"], ack["no"]) == (b"epoch 2!", 1)
            link.offer(no=1, epoch=old, events=[event])
            nak = await link.control("nak")
            assert (nak["epoch"], nak["expected"]) == (old, 0)
        async with peer.greeted(here.port) as link:
            assert link.theirs["inbound"]["epoch"] == b"epoch 2!"
            assert link.theirs["inbound"]["next"] == 2


async def test_watermarks_follow_the_ack(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        peer = await here.member()
        async with peer.greeted(here.port) as link:
            got = await link.took_until("records")
            link.open()
            hlcs = [peer.hlc() for _ in range(3)]
            await link.offered(peer.event({"id": "a"}, {}, hlcs[0]), peer.event({"id": "b"}, {}, hlcs[1]))
            entry = [peer.site.site, "main", "notes", *hlcs[1]]
            marks = await link.control("watermarks")
            while entry not in marks["entries"]:
                marks = await link.control("watermarks")
            assert marks["after"] == {"epoch": got[-1].frame["epoch"], "no": got[-1].no}
            skewed = peer.event({"id": "far"}, {}, (now_ms() + 400_000, 0))
            await link.offered(skewed, peer.event({"id": "c"}, {}, hlcs[2]))
            await link.offered(peer.event({"id": "c"}, {}, table="future"))
            await barrier(link)
            told = [mark for frame in link.log if frame["t"] == "watermarks" for mark in frame["entries"]]
            assert all(mark[2] == "notes" for mark in told), "what is held stops its watermark"
            assert max(tuple(mark[3:]) for mark in told) <= hlcs[2], "it stays below what was rejected"


async def test_a_watermark_beyond_the_skew_bound_is_ignored(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        await here.put("a")
        peer = await here.member()
        async with peer.greeted(here.port) as link:
            await link.took_until("batch")
            link.open()
            far = [peer.node, "main", "notes", now_ms() + 900_000, 0]
            link.say({"t": "watermarks", "after": {"epoch": peer.epoch, "no": 0}, "entries": [far]})
            await barrier(link)
            await here.put("b")
            event = link.events_in(await link.took_until("batch"))[-1]
            assert event["hlc_physical_ms"] < now_ms() + 60_000


async def test_bad_records_are_counted_as_dropped(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        peer = await here.member()
        founder, other = here.recovery(), Site(os.urandom(32))
        assert founder.public_key == peer.founder
        mesh = peer.mesh
        forged = bytearray(founder.vouch(mesh, other, peer.hlc()))
        forged[-1] ^= 1
        binding = {"transport": "quic", "spki": bytes(32), "public_key": peer.site.public_key, "issued": 1}
        records = [
            b"nonsense",
            bytes(forged),
            founder.vouch(bytes(16), other, peer.hlc()),
            peer.site.seal(mesh, BINDING, binding),
            founder.vouch(mesh, other, (now_ms() + 400_000, 0)),
            founder.vouch(mesh, other, peer.hlc(), "n" * 17_000),
            founder.vouch(mesh, other, peer.hlc()),
        ]
        async with peer.greeted(here.port) as link:
            link.open()
            ack = await link.acked(link.offer("records", records=records))
            assert said(ack) == ack_of(rejected=[4], dropped=5)
            assert other.site.hex() in [each.site for each in await here.node.peers()]
            ack = await link.offered(other.event(mesh, {"id": "a"}, {"title": "relayed"}, peer.hlc()))
            assert said(ack) == ack_of()
            assert await here.title("a") == "relayed"


async def test_records_in_any_order_make_a_member(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        peer = await here.member()
        founder, mesh = here.recovery(), peer.mesh
        authority, device = Site(os.urandom(32)), Site(os.urandom(32))
        chain = [
            founder.vouch(mesh, authority, peer.hlc()),
            founder.role(mesh, authority, "authority", peer.hlc()),
            authority.vouch(mesh, device, peer.hlc()),
        ]
        async with peer.greeted(here.port) as link:
            link.open()
            event = device.event(mesh, {"id": "a"}, {"title": "relayed"}, peer.hlc())
            for record in reversed(chain):
                assert said(await link.offered(event)) == ack_of(dropped=1)
                assert said(await link.acked(link.offer("records", records=[record]))) == ack_of()
            request = await link.control("request")
            while request.get("site") != device.site:  # its history, dropped before
                request = await link.control("request")
            assert said(await link.offered(event)) == ack_of()
            assert await here.title("a") == "relayed"


async def test_readers_and_the_retired_write_nothing(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        peer = await here.member()
        founder, mesh = here.recovery(), peer.mesh
        reader, retired = Site(os.urandom(32)), Site(os.urandom(32))
        vouched = [founder.vouch(mesh, reader, peer.hlc()), founder.vouch(mesh, retired, peer.hlc())]
        before, cutoff, after = peer.hlc(), peer.hlc(), peer.hlc()
        records = [
            *vouched,
            founder.role(mesh, reader, "reader", cutoff),
            founder.retirement(mesh, retired, cutoff, peer.hlc()),
        ]
        async with peer.greeted(here.port) as link:
            link.open()
            await link.acked(link.offer("records", records=records))
            for site in (reader, retired):
                for hlc, dropped in ((before, 0), (cutoff, 0), (after, 1)):
                    event = site.event(mesh, {"id": site.site.hex()}, {"title": str(hlc)}, hlc)
                    assert said(await link.offered(event)) == ack_of(dropped=dropped), (site is reader, dropped)
            for site in (reader, retired):
                assert await here.title(site.site.hex()) == str(cutoff)
            assert await here.noticed("late-below-cutoff") == 2


async def test_an_event_of_one_mib_is_applied(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        peer = await here.member()
        hlc = peer.hlc()
        size = 2**20 - len(peer.event({"id": "large"}, {"title": "x" * 65_536}, hlc)) + 65_536
        event = peer.event({"id": "large"}, {"title": "x" * size}, hlc)
        assert len(event) == 2**20
        async with peer.greeted(here.port) as link:
            link.open()
            assert said(await link.offered(event)) == ack_of()
            assert await here.title("large") == "x" * size
