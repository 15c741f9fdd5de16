"""Copies of one device: they stop publishing, say how to choose, and end as one device or two (profile §8)."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from support.command import meshnode
from support.nodes import PATIENCE_S, TABLE, add_notes, free_port, linked, loopback, until

from meshnode import Node, join
from meshnode.errors import ConfigError, InviteError, PairingError, UsageError
from meshnode.node import identity
from meshnode.node.home import Home
from meshnode.node.views import HOW_TO_CHOOSE


async def pair_of_nodes(folder: Path, ports: tuple[int, int]) -> None:
    """Homes a, the founder, and b with a row by a; nobody runs."""
    async with Node(folder / "a", config=loopback(port=ports[0], name="a")) as a:
        await add_notes(a)
        await a.put(TABLE, {"id": "1"}, {"title": "before"})
        await join(folder / "b", (await a.invite()).invite, name="b")
        async with Node(folder / "b", config=loopback(ports[0], port=ports[1], name="b")) as b:
            await add_notes(b)
            await linked(b, a)
            assert (await a.wait(timeout_s=PATIENCE_S)).complete


async def silent(node: Node) -> None:
    async def holds() -> bool:
        return not (await node.status()).publishing

    await until(node, holds)


async def titles(node: Node) -> dict[str, str]:
    return {str(row.key["id"]): str(row.columns["title"]) for row in await node.rows(TABLE)}


async def notice(node: Node, kind: str) -> str:
    return next((each.sample for each in (await node.status()).notices if each.kind == kind), "")


async def test_a_database_that_was_copied_alone_waits_for_its_owner(tmp_path: Path) -> None:
    ports = free_port(), free_port()
    await pair_of_nodes(tmp_path, ports)
    (tmp_path / "a" / "incarnation").write_text("ab" * 16)
    shown = await meshnode("status", home=tmp_path / "a")
    assert HOW_TO_CHOOSE in shown.out
    async with (
        Node(tmp_path / "a", config=loopback(port=ports[0], name="a")) as a,
        Node(tmp_path / "b", config=loopback(ports[0], port=ports[1])) as b,
    ):
        assert not (await a.status()).publishing
        assert "meshnode identity resume" in await notice(a, "incarnation")
        await a.put(TABLE, {"id": "2"}, {"title": "waits"})
        await linked(b, a)
        chosen = await a.resume()
        assert (chosen.publishing, chosen.name, chosen.asked) == (True, "a", 1)

        async def arrived() -> bool:
            return (await titles(b)).get("2") == "waits"

        await until(b, arrived)
        assert (await a.wait(timeout_s=PATIENCE_S)).complete
    again = await meshnode("status", "--output", "json", home=tmp_path / "a")
    assert again.json["publishing"] is True


@pytest.mark.usefixtures("soon_again")
async def test_two_copies_that_run_stop_and_end_as_two_devices(tmp_path: Path) -> None:
    ports = free_port(), free_port(), free_port()
    await pair_of_nodes(tmp_path, ports[:2])
    shutil.copytree(tmp_path / "a", tmp_path / "copy")
    async with (
        Node(tmp_path / "b", config=loopback(port=ports[1])),
        Node(tmp_path / "a", config=loopback(ports[1], port=ports[0])) as a,
        Node(tmp_path / "copy", config=loopback(ports[1], port=ports[2])) as copy,
    ):
        for node, row in ((a, "a's"), (copy, "the copy's")):
            await silent(node)

            async def told(node: Node = node) -> bool:
                return "meshnode identity renew INVITE" in await notice(node, "twin")

            await until(node, told)
            await node.set_online(False)
            await node.set_online(True)
            assert not (await node.status()).publishing, "talking again is no choice"
            await node.put(TABLE, {"id": row}, {"title": row})
    for folder in ("a", "copy"):  # a restart is no choice
        status = await meshnode("status", "--output", "json", home=tmp_path / folder)
        assert status.json["publishing"] is False
    resumed = await meshnode("identity", "resume", home=tmp_path / "a")
    assert (resumed.code, "goes on as 'a'" in resumed.out) == (0, True)
    async with (
        Node(tmp_path / "b", config=loopback(port=ports[1])) as b,
        Node(tmp_path / "a", config=loopback(ports[1], port=ports[0])) as a,
    ):
        await linked(a, b)
        before = (await a.status()).site
        invite = (await a.invite()).invite
        renewed = await meshnode("identity", "renew", "-", "--name", "c", home=tmp_path / "copy", stdin=invite.encode())
        assert (renewed.code, "another device now: 'c'" in renewed.out) == (0, True), renewed
        async with Node(tmp_path / "copy", config=loopback(ports[0], ports[1], port=ports[2])) as copy:
            status = await copy.status()
            assert (status.name, status.role, status.publishing) == ("c", "member", True)
            assert status.site != before
            await linked(copy, a, b)
            await copy.put(TABLE, {"id": "c's"}, {"title": "c's"})
            expected = {each: each for each in ("a's", "the copy's", "c's")} | {"1": "before"}

            async def equal() -> bool:
                return [await titles(node) for node in (a, b, copy)] == [expected] * 3

            await until(a, equal)
            for node in (a, b, copy):
                assert (await node.wait(timeout_s=PATIENCE_S)).complete
                assert (await node.check()).count == 0
            assert len({(await node.digest())[0].digest for node in (a, b, copy)}) == 1


async def test_a_renewal_that_is_cut_short_is_finished_by_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = free_port()
    async with Node(tmp_path / "a", config=loopback(port=port, name="a")) as a:
        await add_notes(a)
        await a.put(TABLE, {"id": "1"}, {"title": "kept"})
        await join(tmp_path / "b", (await a.invite()).invite, name="b")
        home, invite = Home.load(tmp_path / "b"), (await a.invite()).invite
        before = home.site_key().site

        def full_disk(_home: Home, _incarnation: bytes) -> None:
            raise ConfigError("the disk is full")

        with monkeypatch.context() as patched:
            patched.setattr(Home, "write_incarnation", full_disk)
            with pytest.raises(ConfigError, match="full"):
                await identity.renew(home, invite)
        assert home.site_key().site == before
        async with Node(tmp_path / "b", config=loopback(port)) as b:
            status = await b.status()
            assert (status.publishing, bytes.fromhex(status.site) != before) == (True, True)
            await linked(b, a)
        assert not home.renewed_key_path.exists()


async def test_a_renewal_that_fails_before_changes_nothing(tmp_path: Path) -> None:
    async with Node(tmp_path / "other", config=loopback(name="other")) as other:
        await pair_of_nodes(tmp_path, (free_port(), free_port()))
        home = Home.load(tmp_path / "b")
        before = home.site_key().site
        foreign = (await other.invite()).invite
        cases: tuple[tuple[str, type[Exception], str], ...] = (
            (foreign, UsageError, "another mesh"),
            ("meshnode-invite:nonsense", InviteError, "invite"),
        )
        for text, kind, says in cases:
            with pytest.raises(kind, match=says):
                await identity.renew(home, text, timeout_s=1)
    async with Node(tmp_path / "a", config=loopback(name="a")) as a:
        invite = (await a.invite()).invite
    with pytest.raises(PairingError, match="cannot be reached"):
        await identity.renew(home, invite, timeout_s=1)
    assert home.site_key().site == before
    async with Node(tmp_path / "a", config=loopback(name="a")) as a:
        assert (await a.status()).publishing
