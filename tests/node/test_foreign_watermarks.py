"""What an independent peer tells of its watermarks: shown, kept while nobody runs, bounded, never believed too much."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from support.foreign_bytes import now_ms
from support.foreign_node import Here, running
from support.foreign_peer import Foreigner, Link
from support.nodes import until

from meshnode.limits import UNKNOWN_GROUPS_PER_SITE
from meshnode.node.home import Home
from meshnode.node.local import open_local
from meshnode.node.views import PeerView, Status


def tell(link: Link, *entries: list[Any], no: int = 0) -> None:
    """Watermarks that count once the frame with this number has come."""
    link.say({"t": "watermarks", "after": {"epoch": link.peer.epoch, "no": no}, "entries": list(entries)})


async def view_of(here: Here, peer: Foreigner) -> PeerView:
    return next(each for each in await here.node.peers() if each.site == peer.site.site.hex())


async def stopped(home: Path) -> Status:
    """What the verb shows of a node that does not run."""
    async with open_local(Home.load(home), writing=False) as local:
        return await local.status()


async def applied(here: Here, peer: Foreigner, table: str = "notes") -> tuple[int, int]:
    """How far the node's own writes are applied, as it shows them against a peer that told nothing of them."""
    (group,) = [each for each in (await view_of(here, peer)).groups if each.table == table]
    assert group.applied is not None
    return group.applied


async def test_how_far_a_peer_is_behind_is_shown_and_outlives_link_and_node(tmp_path: Path) -> None:
    async with running(tmp_path, "other") as here:
        await here.put("a")
        peer = await here.member("lap")
        nothing = await view_of(here, peer)
        assert (nothing.groups_behind, nothing.told_ms) == (1, None)
        assert [(each.side, each.told, each.gap_ms) for each in nothing.groups] == [("behind", None, None)]
        ours = await applied(here, peer)
        async with peer.greeted(here.port) as link:
            link.open()
            later = [peer.site.site, "main", "other", now_ms(), 0]
            for behind_ms in (9_000, 4_000):  # the second goes to disk when the link ends
                tell(link, [peer.node, "main", "notes", ours[0] - behind_ms, 3], later, no=5)

                async def told(behind_ms: int = behind_ms) -> bool:
                    return behind_ms in {each.gap_ms for each in (await view_of(here, peer)).groups}

                await until(here.node, told)
            running_view = await view_of(here, peer)
        assert (running_view.groups_behind, running_view.groups_ahead) == (1, 1)
        behind = next(each for each in running_view.groups if each.side == "behind")
        assert (behind.applied, behind.told, behind.gap_ms) == (ours, (ours[0] - 4_000, 3), 4_000)
        own = (await here.node.status()).lagging
        assert [(each.table, each.reason, each.told_by) for each in own] == [("other", "missing", "lap")]
    status = await stopped(tmp_path)
    (view,) = status.peers
    assert (view.groups, view.told_ms, view.linked) == (running_view.groups, running_view.told_ms, False)
    assert status.lagging == own
    async with running(tmp_path, "other") as here:
        assert (await view_of(here, peer)).groups == running_view.groups
        await here.put("b")
        (group,) = [each for each in (await view_of(here, peer)).groups if each.side == "behind"]
        assert group.told == (ours[0] - 4_000, 3)


async def test_what_a_peer_does_not_want_it_is_not_behind_in_even_when_nobody_runs(tmp_path: Path) -> None:
    async with running(tmp_path, "other") as here:
        await here.put("a")
        await here.put("a", table="other")
        peer = await here.member()
        async with peer.greeted(here.port, scope=["*.*", "!main.notes"]) as link:
            await link.took_until("batch")
            assert [each.table for each in (await view_of(here, peer)).groups] == ["other"]
    (view,) = (await stopped(tmp_path)).peers
    assert ([each.table for each in view.groups], view.groups_behind) == (["other"], 1)


async def test_a_peer_that_tells_less_on_a_new_link_is_no_further_than_that(tmp_path: Path) -> None:
    async with running(tmp_path, "other") as here:
        for table in ("notes", "other"):
            await here.put("a", table=table)
        peer = await here.member()
        ours = await applied(here, peer, "notes")
        for marks in ([["notes", *ours], ["other", now_ms(), 0]], [["notes", ours[0] - 5, 0]]):
            async with peer.greeted(here.port) as link:
                link.open()
                tell(link, *([peer.node, "main", *mark] for mark in marks))
                wanted = (marks[0][1], marks[0][2])

                async def told(wanted: Any = wanted) -> bool:
                    groups = {each.table: each.told for each in (await view_of(here, peer)).groups}
                    return groups.get("notes", ours) == wanted

                await until(here.node, told)
    (view,) = (await stopped(tmp_path)).peers
    assert {each.table: each.told for each in view.groups} == {"notes": (ours[0] - 5, 0), "other": None}


async def test_invented_groups_fill_neither_the_status_nor_the_disk(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        await here.put("a")
        peer = await here.member()
        async with peer.greeted(here.port) as link:
            link.open()
            invented = [[peer.site.site, "main", f"t{number}", now_ms(), 0] for number in range(2_000)]
            strangers = [[os.urandom(16), "main", "notes", now_ms(), 0] for _ in range(2_000)]
            tell(link, *invented, *strangers)

            async def told() -> bool:
                return (await view_of(here, peer)).groups_ahead == len(invented)

            await until(here.node, told)
            view = await view_of(here, peer)
            assert len(view.groups) + view.groups_more == len(invented) + 1
            assert len(view.groups) <= 100
            assert len((await here.node.status()).lagging) == 100
    with closing(sqlite3.connect(tmp_path / "meshnode.db")) as connection:
        assert connection.execute("SELECT count(*) FROM meshnode_told").fetchall() == [(UNKNOWN_GROUPS_PER_SITE,)]
        assert connection.execute("SELECT count(*) FROM meshnode_tables").fetchall() == [(1,)]
        assert connection.execute("SELECT count(*) FROM meshnode_sites").fetchone()[0] <= 2


async def test_a_watermark_beyond_the_skew_bound_counts_as_not_told(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        await here.put("a")
        peer = await here.member()
        async with peer.greeted(here.port) as link:
            link.open()
            tell(link, [peer.node, "main", "notes", now_ms() + 900_000, 0])

            async def noticed() -> bool:
                return await here.noticed("skew") == 1

            await until(here.node, noticed)
            (group,) = (await view_of(here, peer)).groups
            assert (group.side, group.told) == ("behind", None)
    (view,) = (await stopped(tmp_path)).peers
    assert (view.groups_behind, view.groups_ahead, view.told_ms) == (1, 0, None)


async def test_an_epoch_opened_in_the_middle_is_a_hole_that_the_status_names(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        peer = await here.member("lap")
        async with peer.greeted(here.port) as link:
            link.open(at=9)
            hlc = peer.hlc()
            await link.acked(link.offer(no=9, events=[peer.event({"id": "late"}, {}, hlc)]))
            (view,) = (await here.node.status()).lagging
            assert (view.table, view.name, view.reason, view.applied, view.known) == ("notes", "lap", "hole", None, hlc)
            await link.answered(what="table", schema="none", table="none")
            told = [mark for frame in link.log if frame["t"] == "watermarks" for mark in frame["entries"]]
            assert [mark for mark in told if mark[0] == peer.site.site] == []
            link.open(epoch=b"epoch 2!")
            await link.offered(peer.event({"id": "late"}, {}, hlc), peer.event({"id": "later"}, {}))
            assert (await here.node.status()).lagging == []
