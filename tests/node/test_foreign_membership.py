"""Attacks on who is in, by an independent peer over real QUIC: nothing a junior or a thief signs has effect (§9)."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from support.foreign_bytes import Frame, Site, now_ms
from support.foreign_node import Here, running
from support.foreign_peer import Foreigner, Link
from support.foreign_wire import Ended, listener
from support.nodes import until

from meshnode.limits import PENDING_RECORDS_PER_SIGNER

RETIREMENT = "sovm/ssp-retirement-v1"
LONG_AGO = 3_600_000  # milliseconds


async def told(link: Link, *records: bytes) -> Frame:
    """Offer records; the ack."""
    return await link.acked(link.offer("records", records=list(records)))


async def members(here: Here) -> dict[str, tuple[str, bool]]:
    """Of each member its role and whether it is retired."""
    return {view.site: (view.role, view.retired) for view in await here.node.members()}


def known_to(peer: Foreigner, site: Site) -> Foreigner:
    """A peer with that key, of the same mesh."""
    return Foreigner(site, "other", peer.mesh, peer.node, peer.founder, dict(peer.keys))


async def turned_away(here: Here, peer: Foreigner, *shown: bytes) -> int:
    """The code with which a site that introduces itself by these records is refused."""
    async with peer.dial(here.port) as link:
        if shown:
            link.say({"t": "introduce", "records": list(shown)})
        link.hello()
        return (await link.wire.end())[0]


async def test_a_backdated_vouch_of_a_stolen_authority_lets_nobody_in(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        thief, member = await here.member("thief"), await here.member("member")
        mesh = thief.mesh
        await here.node.set_role(thief.site.site.hex(), "authority")
        honest, guest = Site(os.urandom(32)), Site(os.urandom(32))
        async with thief.greeted(here.port) as link:
            link.open()
            before = thief.site.vouch(mesh, honest, thief.hlc(), "honest")
            await told(link, before)
            assert honest.site.hex() in await members(here)
            await here.node.retire("thief")
            assert (await link.wire.end())[0] == 4
        at = now_ms() - LONG_AGO
        backdated = [
            thief.site.vouch(mesh, guest, (at, 0)),
            thief.site.role(mesh, guest, "authority", (at, 1)),
            thief.site.vouch(mesh, guest, (now_ms(), 0)),
            thief.site.role(mesh, member.site, "reader", (at, 2)),
            thief.site.retirement(mesh, honest, (0, 0), (at, 3)),
        ]
        async with member.greeted(here.port) as link:
            link.open()
            assert (await told(link, *backdated))["rejected"] == []
            by_guest = guest.event(mesh, {"id": "g"}, {"title": "by the guest"}, thief.hlc())
            by_honest = honest.event(mesh, {"id": "h"}, {"title": "by the honest one"}, thief.hlc())
            assert (await link.offered(by_guest, by_honest))["dropped"] == 1
            assert (await here.title("g"), await here.title("h")) == (None, "by the honest one")
        assert await turned_away(here, known_to(thief, guest), *thief.records, *backdated) == 3
        async with known_to(thief, honest).greeted(here.port):
            pass  # whom it let in before stays
        standing = await members(here)
        assert guest.site.hex() not in standing
        assert standing[member.site.site.hex()] == ("member", False)
        assert standing[honest.site.hex()] == ("member", False)


async def test_nothing_that_a_junior_signs_touches_a_senior(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        junior, other = await here.member("junior"), await here.member("other")
        mesh, node, founder = junior.mesh, Site(os.urandom(32)), here.recovery()
        await here.node.set_role("junior", "authority")
        node.site = junior.node  # as a subject of records nothing but the id counts
        standing = await members(here)
        old = (now_ms() - LONG_AGO, 0)
        hostile = [
            record
            for issued in (junior.hlc(), old)  # from now on, and as if it had been there first
            for record in (
                junior.site.role(mesh, node, "reader", issued),
                junior.site.retirement(mesh, node, (0, 0), issued),
                junior.site.role(mesh, founder, "reader", issued),
                junior.site.retirement(mesh, founder, (0, 0), issued),
                junior.site.vouch(mesh, founder, issued),
                junior.site.role(mesh, junior.site, "authority", old),
                other.site.retirement(mesh, junior.site, (0, 0), issued),
            )
        ]
        async with junior.greeted(here.port) as link:
            link.open()
            ack = await told(link, *dict.fromkeys(hostile))
            assert (ack["rejected"], ack["dropped"]) == ([], 0)
            assert await members(here) == standing
            await here.put("a", "the senior still writes")
            await link.wire.ping()  # and its links stand
        assert (await here.node.retire("junior")).kind == "retirement", "and still retires the junior"
        assert (await members(here))[junior.site.site.hex()] == ("authority", True)


async def test_a_flood_of_records_by_one_member_is_bounded_and_keeps_nobody_out(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        flooder, other = await here.member("flooder"), await here.member("other")
        mesh, step = flooder.mesh, 256
        stranger = Site(os.urandom(32))
        noise = [
            flooder.site.vouch(mesh, stranger, (now_ms(), number)) for number in range(PENDING_RECORDS_PER_SIGNER + 200)
        ]
        rejected = 0
        async with flooder.greeted(here.port) as link:
            link.open()
            for at in range(0, len(noise), step):
                rejected += len((await told(link, *noise[at : at + step]))["rejected"])
            assert rejected == 200
            assert len((await told(link, *noise[-200:]))["rejected"]) == 200, "again and again"
            assert await kept_of(here, flooder.site) == PENDING_RECORDS_PER_SIGNER
        newcomer = Site(os.urandom(32))
        async with other.greeted(here.port) as link:
            link.open()
            ack = await told(link, here.recovery().vouch(mesh, newcomer, other.hlc()))
            assert (ack["rejected"], ack["dropped"]) == ([], 0)
        standing = await members(here)
        assert newcomer.site.hex() in standing
        assert stranger.site.hex() not in standing
        assert await here.noticed("quota") > 0
        await here.node.set_role("other", "reader")


async def kept_of(here: Here, signer: Site) -> int:
    query = "SELECT count(*) FROM meshnode_records WHERE signer = ?"
    return await here.node.storage.read(lambda tx: int(tx.execute(query, (signer.site,)).fetchone()[0]))


async def test_a_member_that_ends_itself_without_end_is_bounded(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        flooder, other = await here.member("flooder"), await here.member("other")
        now = now_ms()
        ends = [
            flooder.site.retirement(flooder.mesh, flooder.site, (now - number, 0), (now, number))
            for number in range(PENDING_RECORDS_PER_SIGNER + 10)
        ]
        rejected = 0
        async with other.greeted(here.port) as link:
            link.open()
            for at in range(0, len(ends), 256):
                rejected += len((await told(link, *ends[at : at + 256]))["rejected"])
        assert rejected == 10
        assert await kept_of(here, flooder.site) == PENDING_RECORDS_PER_SIGNER
        assert (await members(here))[flooder.site.site.hex()] == ("member", True)


# --- telling the retired (profile §13)


async def test_a_retired_site_is_shown_the_records_that_ended_it(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        peer = await here.member("peer")
        async with peer.greeted(here.port) as link:
            record = await here.node.retire("peer")
            assert (await link.wire.end())[0] == 4
        for _ in range(2):
            async with peer.dial(here.port) as link:
                link.hello()
                shown = (await link.control("introduce"))["records"]
                assert (await link.wire.end())[0] == 4
                assert not link.wire.received.get(3), "events went to a retired site"
            peer.learn_all(shown)
            ((content_type, signer, payload),) = [
                each for each in (peer.learn(data) for data in shown) if each[0] == RETIREMENT
            ]
            assert (content_type, signer, payload["site"]) == (RETIREMENT, peer.node, peer.site.site)
            assert payload["cutoff"] == list(record.cutoff or ())
        async with peer.dial(here.port) as link:
            assert (await link.wire.end())[0] == 4, "one that says nothing is closed all the same"


async def test_a_node_believes_its_retirement_where_a_peer_proves_it(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        peer = await here.member("peer")
        await here.put("a", "kept")
        mesh, founder, node = peer.mesh, here.recovery(), Site(os.urandom(32))
        node.site = peer.node
        at = (now_ms() + 1, 0)
        lies: list[list[bytes]] = [
            [],
            [peer.site.retirement(mesh, node, at, at)],
            [Site(os.urandom(32)).retirement(mesh, node, at, at)],
            [founder.retirement(bytes(16), node, at, at)],
            [b"", b"\xff" * 100],
        ]
        for lie in lies:
            await closed_by_peer(peer, here, lie)
            assert not (await here.node.status()).retired

        async def claimed() -> bool:
            return await here.noticed("retired-claim") == 1  # one notice for a peer that says so all the time

        await until(here.node, claimed)
        await here.put("b", "still written")
        await closed_by_peer(peer, here, [founder.retirement(mesh, node, at, at)])

        async def retired() -> bool:  # the notice is on disk with the records, the walk's result is there before that
            return (await here.node.status()).retired and await here.noticed("own-retirement") == 1

        await until(here.node, retired)
        status = await here.node.status()
        assert status.warnings[0].startswith("this device was retired")
        assert await here.title("a") == "kept"


async def test_a_node_that_is_turned_away_dials_once_more_to_be_told_why(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        peer = await here.member("peer")
    async with (
        listener(peer.certificate()) as listening,
        running(tmp_path, peers=[f"127.0.0.1:{listening.port}"]) as here,
    ):
        (await listening.wire()).close(4, "the site is retired")

        async def claimed() -> bool:
            return await here.noticed("retired-claim") == 1

        await until(here.node, claimed)
        link = await Link(peer, await listening.wire(), opened_by_us=False).reached()
        node = Site(os.urandom(32))
        node.site = peer.node
        at = (now_ms() + 1, 0)
        link.say({"t": "introduce", "records": [here.recovery().retirement(peer.mesh, node, at, at)]})
        with suppress(Ended):  # the node leaves, perhaps before it answers
            await link.wire.ping()
        link.wire.close(4, "the site is retired")

        async def retired() -> bool:
            return (await here.node.status()).retired

        await until(here.node, retired)


async def closed_by_peer(peer: Foreigner, here: Here, shown: list[bytes]) -> None:
    """The peer shows these records and closes with code 4."""
    async with peer.dial(here.port) as link:
        link.say({"t": "introduce", "records": shown})
        link.hello()
        await link.greeting()
        with suppress(Ended):  # a node that believes them leaves, perhaps before it answers
            await link.wire.ping()
        link.wire.close(4, "the site is retired")
