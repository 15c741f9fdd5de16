"""Who is in, at running nodes: roles, vouches, retirement and leaving, by id or name (profile §9)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
from support.nodes import PATIENCE_S, TABLE, add_notes, free_port, linked, loopback, until
from support.records import site_key

from meshnode import Node, join
from meshnode.errors import IdentityError, MembershipError, NotFoundError, UsageError
from meshnode.node.home import Home
from meshnode.node.local import open_local
from meshnode.node.memberviews import MemberView
from meshnode.node.storage import wall_ms


@asynccontextmanager
async def mesh(folder: Path, *names: str) -> AsyncIterator[list[Node]]:
    """Nodes that are linked to each other; the first founded the mesh, and its recovery key was moved to `recovery`."""
    ports = [free_port() for _ in names]
    async with AsyncExitStack() as running:
        nodes: list[Node] = []
        for name, port in zip(names, ports, strict=True):
            home = folder / f"home-{len(nodes)}"
            if nodes:
                await join(home, (await nodes[0].invite()).invite, name=name)
            others = [each for each in ports if each != port]
            nodes.append(await running.enter_async_context(Node(home, config=loopback(*others, port=port, name=name))))
        (folder / "home-0" / "recovery.key").rename(folder / "recovery")
        await add_notes(*nodes)
        for node in nodes:
            await linked(node, *(other for other in nodes if other is not node))
        yield nodes


async def of(node: Node, name: str) -> MemberView:
    """What the node says of a member; of two with one name, of that which is not retired."""
    found = [view for view in await node.members() if view.name == name]
    return next((view for view in found if not view.retired), found[0])


async def agree(*nodes: Node) -> None:
    """Wait until all of them say the same of roles and ends."""

    async def same() -> bool:
        seen = [
            {(view.site, view.role, view.seniority, view.cutoff, view.by) for view in await node.members()}
            for node in nodes
        ]
        return all(each == seen[0] for each in seen)

    for node in nodes:
        await until(node, same)


async def test_members_say_who_role_by_whom_and_since_when(tmp_path: Path) -> None:
    async with mesh(tmp_path, "a", "b", "c") as (a, b, c):
        made = await a.set_role("b", "authority")
        assert (made.kind, made.role, made.by) == ("role", "authority", "a")
        await agree(a, b, c)
        views = await c.members()
        assert [(view.name, view.role, view.seniority, view.by, view.own) for view in views] == [
            ("a", "authority", 1, "the recovery key", False),
            ("b", "authority", 2, "a", False),
            ("c", "member", None, "a", True),
        ]

        async def heard() -> bool:  # what a hello said is stored a moment after it came
            others = [view for view in await c.members() if not view.own]
            return all(view.linked and view.software and view.last_seen_ms and view.address for view in others)

        await until(c, heard)
        assert (await a.status()).warnings == []
        invited = await join(tmp_path / "d", (await b.invite()).invite, name="d")  # it may let others in now
        await agree(a, b, c)
        assert (await of(a, "d")).by == "b"
        with pytest.raises(MembershipError, match=r"senior to 'b'.*recovery key"):
            await b.retire("a")
        with pytest.raises(MembershipError, match=r"no authority but a member; it can be done by 'a' .*, 'b' "):
            await c.retire(invited.short)
        with pytest.raises(UsageError, match="no role"):
            await a.set_role("b", "owner")
        with pytest.raises(NotFoundError, match="meshnode members"):
            await a.set_role("nobody", "reader")


async def test_a_member_was_last_seen_when_its_link_ended(tmp_path: Path) -> None:
    """Not when it began: somebody may go by it for when a device was lost."""
    async with mesh(tmp_path, "a", "b") as (a, b):
        await b.put(TABLE, {"id": "1"}, {"title": "after the greeting"})
        assert (await b.wait(timeout_s=PATIENCE_S)).complete
        before = wall_ms()
        now = await of(a, "b")
        assert now.linked
        assert (now.last_seen_ms or 0) >= before
        await b.set_online(False)

        async def noted() -> bool:
            seen = await of(a, "b")
            return not seen.linked and (seen.last_seen_ms or 0) >= before

        await until(a, noted)


async def test_a_reader_writes_nothing_and_a_member_again_does(tmp_path: Path) -> None:
    async with mesh(tmp_path, "a", "b") as (a, b):
        for role, allowed in (("reader", False), ("member", True)):
            await a.set_role("b", role)
            await agree(a, b)
            if allowed:
                await b.put(TABLE, {"id": "1"}, {"title": "written"})
            else:
                with pytest.raises(MembershipError, match="this device is a reader"):
                    await b.put(TABLE, {"id": "1"}, {"title": "refused"})
        assert (await b.wait(timeout_s=PATIENCE_S)).complete
        assert await a.get(TABLE, {"id": "1"}) is not None


async def test_two_devices_of_one_name_are_named_by_id(tmp_path: Path) -> None:
    async with mesh(tmp_path, "a", "twice", "twice") as (a, b, _c):
        with pytest.raises(UsageError, match="several members are called 'twice'"):
            await a.retire("twice")
        b_site = (await b.status()).site
        assert (await a.retire(b_site.upper())).site == b_site
        assert (await a.retire("twice")).site != b_site, "of two, the one that is not retired is meant"
        with pytest.raises(MembershipError, match="already"):
            await a.retire(b_site[:8])


async def test_who_leaves_gives_away_what_it_wrote_and_is_gone(tmp_path: Path) -> None:
    async with mesh(tmp_path, "a", "b", "c") as (a, b, c):
        await c.put(TABLE, {"id": "1"}, {"title": "the last word"})
        left = await c.leave(timeout_s=PATIENCE_S)
        assert (left.name, left.untold) == ("c", ())
        status = await c.status()
        assert (status.retired, any(peer.linked for peer in status.peers)) == (True, False)
        with pytest.raises(MembershipError, match="retired"):
            await c.put(TABLE, {"id": "2"}, {"title": "too late"})
        with pytest.raises(MembershipError, match="retired"):
            await c.leave()
        with pytest.raises(MembershipError, match="retired"):
            await c.invite()
        for node in (a, b):
            gone = await of(node, "c")
            assert (gone.retired, gone.retired_by, gone.cutoff) == (True, "c", left.cutoff)
            assert (await node.get(TABLE, {"id": "1"})) is not None
            assert (await node.check()).count == 0
        assert await c.get(TABLE, {"id": "1"}) is not None


async def test_one_that_let_others_in_once_cannot_end_itself_any_more(tmp_path: Path) -> None:
    async with mesh(tmp_path, "a", "b") as (a, b):
        await a.set_role("b", "authority")
        await a.set_role("b", "member")
        await agree(a, b)
        with pytest.raises(MembershipError, match="retired by a senior one; it can be done by 'a'"):
            await b.leave()
        assert (await b.status()).retired is False
        await a.leave(timeout_s=PATIENCE_S)  # an authority may

        async def gone() -> bool:
            return (await of(b, "a")).retired

        await until(b, gone)


async def test_who_leaves_while_nobody_is_there_is_told_who_does_not_know(tmp_path: Path) -> None:
    async with mesh(tmp_path, "a", "b") as (a, b):
        await a.set_online(False)
        assert (await b.leave(timeout_s=0)).untold == ("a",)
        await a.set_online(True)

        async def heard() -> bool:
            return (await of(a, "b")).retired

        await until(a, heard)


async def test_where_no_node_runs_a_record_is_kept_for_the_next_start(tmp_path: Path) -> None:
    ports = free_port(), free_port()
    async with Node(tmp_path / "a", config=loopback(port=ports[0], name="a")) as a:
        await join(tmp_path / "b", (await a.invite()).invite, name="b")
        await join(tmp_path / "c", (await a.invite()).invite, name="c")
    async with open_local(Home.load(tmp_path / "a"), writing=True) as local:
        await local.set_role("b", "authority")
        assert (await local.retire("c")).by == "a"
        assert [(view.name, view.retired) for view in await local.members()] == [
            ("a", False),
            ("b", False),
            ("c", True),
        ]
    async with (
        Node(tmp_path / "a", config=loopback(port=ports[0])) as a,
        Node(tmp_path / "b", config=loopback(ports[0], port=ports[1])) as b,
    ):
        await agree(a, b)
        assert (await of(b, "b")).role == "authority"


async def test_the_rows_of_whom_a_stolen_device_let_in_survive_its_retirement(tmp_path: Path) -> None:
    async with mesh(tmp_path, "a", "b") as (a, b):
        recovery = str(tmp_path / "recovery")
        await b.put(TABLE, {"id": "b"}, {"title": "by b"})
        await agree(a, b)
        with pytest.raises(MembershipError, match=r"'b'.*would be out too"):
            await b.retire("a", at_ms=1, recovery=recovery)
        assert (await b.get(TABLE, {"id": "b"})) is not None, "nothing was taken back"
        await b.vouch("b", recovery=recovery)
        assert (await b.retire("a", at_ms=1, recovery=recovery)).lost == ()
        assert (await b.get(TABLE, {"id": "b"})) is not None


async def test_what_has_been_shown_is_no_mere_claim(tmp_path: Path) -> None:
    """The link that ends with code 4 is told of while the records that it brought are still being stored."""
    async with mesh(tmp_path, "a", "b") as (a, b):
        peer = a.storage.engine.context.site
        assert b._network is not None
        for shown in (False, True):
            if shown:
                await b.leave()
            before = [each.count for each in (await b.status()).notices if each.kind == "retired-claim"]
            await b._network.jobs.said_retired(peer, "text")
            after = [each.count for each in (await b.status()).notices if each.kind == "retired-claim"]
            assert (after == before) == shown


async def test_a_device_that_nobody_lets_in_any_more_is_told_so(tmp_path: Path) -> None:
    async with mesh(tmp_path, "a", "b") as (_, b):
        recovery = str(tmp_path / "recovery")
        await b.retire("a", at_ms=1, alone=False, recovery=recovery)
        assert "no member of the mesh any more" in (await b.status()).warnings[0]
        with pytest.raises(MembershipError, match="no member of the mesh any more"):
            await b.put(TABLE, {"id": "b"}, {"title": "by b"})
        await b.vouch("b", recovery=recovery)
        await b.put(TABLE, {"id": "b"}, {"title": "by b"})
        assert "no member" not in "".join((await b.status()).warnings)
        await b.set_role("b", "reader", recovery=recovery)
        with pytest.raises(MembershipError, match="is a reader"):
            await b.put(TABLE, {"id": "b"}, {"title": "by b"})


async def test_a_retired_device_signs_nothing_with_the_recovery_key_that_nobody_hears(tmp_path: Path) -> None:
    async with mesh(tmp_path, "a", "b") as (a, b):
        await b.leave()
        with pytest.raises(MembershipError, match="nobody would hear of it"):
            await b.set_role("a", "member", recovery=str(tmp_path / "recovery"))
        assert next(view.role for view in await a.members()) == "authority"


async def test_who_was_let_in_after_the_theft_is_out_until_somebody_else_vouches(tmp_path: Path) -> None:
    async with mesh(tmp_path, "a", "b", "c") as (a, b, c):
        recovery = str(tmp_path / "recovery")
        await a.set_role("b", "authority")
        await agree(a, b, c)
        await asyncio.sleep(0.002)  # two records of one millisecond would be above the time that is named
        theft = wall_ms()
        await join(tmp_path / "d", (await b.invite()).invite, name="d")
        await agree(a, b, c)
        with pytest.raises(MembershipError, match=r"'d' \(.*would be out too"):
            await a.retire("b", at_ms=theft)
        assert [view.name for view in await a.members()] == ["a", "b", "c", "d"], "nothing was signed"
        retired = await a.retire("b", at_ms=theft, alone=False)
        assert len(retired.lost) == 1
        assert retired.lost[0].startswith("'d'")
        await agree(a, c)
        assert [view.name for view in await c.members()] == ["a", "c", "b"]
        again = await a.vouch("d")
        assert (again.kind, again.name) == ("vouch", "d")
        await agree(a, c)
        assert (await of(c, "d")).by == "a"
        stranger = site_key(77)
        by_key = await c.vouch(stranger.public_key.hex(), name="pi", recovery=recovery)
        assert (by_key.by, by_key.site, by_key.name) == ("the recovery key", stranger.site.hex(), "pi")
        with pytest.raises(NotFoundError, match="no device is called"):
            await a.vouch("nobody")
        with pytest.raises(MembershipError, match="joins as a new one"):
            await a.vouch("b", recovery=recovery)


async def test_the_recovery_key_is_taken_from_a_file_of_this_mesh_alone(tmp_path: Path) -> None:
    async with Node(tmp_path / "other", config=loopback()):
        pass
    async with mesh(tmp_path, "a", "b") as (a, b):
        for file, kind, says in (
            (tmp_path / "other" / "recovery.key", MembershipError, "not the recovery key of this mesh"),
            (tmp_path / "none", IdentityError, "missing"),
            (tmp_path / "home-0" / "config.toml", IdentityError, "neither a recovery key nor its words"),
        ):
            with pytest.raises(kind, match=says):
                await b.retire("a", recovery=str(file))
        with pytest.raises(UsageError, match="a time that is over"):
            await a.retire("b", at_ms=wall_ms() + 3_600_000)
        assert not any(view.retired for view in await a.members())


async def test_status_warns_of_a_recovery_key_beside_the_node_and_of_a_single_authority(tmp_path: Path) -> None:
    async with Node(tmp_path / "a", config=loopback(name="a")) as a:
        beside, alone = (await a.status()).warnings
        assert str(tmp_path / "a" / "recovery.key") in beside
        assert "'a'" in alone
        assert "only device" in alone
        (tmp_path / "a" / "recovery.key").rename(tmp_path / "safe")
        assert (await a.status()).warnings == [alone]
        await join(tmp_path / "b", (await a.invite()).invite, name="b")
        await a.set_role("b", "authority")
        assert (await a.status()).warnings == []
        await a.set_role("b", "member")
        await a.set_role("a", "member")
        (nobody,) = (await a.status()).warnings
        assert "--recovery FILE" in nobody
        await a.set_role("b", "authority", recovery=str(tmp_path / "safe"))
        assert len((await a.status()).warnings) == 1
