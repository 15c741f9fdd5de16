"""`notices`: what came up, acknowledged until it arises again, and followed as it does (profile §6)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from support.verbs import call, done

from meshnode import Node
from meshnode.control.client import ControlClient
from meshnode.control.server import ControlServer
from meshnode.errors import NotFoundError
from meshnode.node.config import Config
from meshnode.node.views import NoticeView

QUIET = Config(listen="127.0.0.1", mdns_enabled=False)


async def surface(node: Node, kind: str, text: str) -> None:
    def job(engine: object) -> None:
        with node.storage.engine.context.transaction() as tx:
            node.storage.engine.context.surface(tx, kind, None, text)

    await node.storage.write(job)


def kinds(found: list[NoticeView]) -> list[str]:
    return sorted(each.kind for each in found)


async def test_what_was_seen_is_shown_again_once_it_arises_again(tmp_path: Path) -> None:
    async with Node(tmp_path / "n", config=QUIET) as node:
        await surface(node, "quota", "first")
        await surface(node, "twin", "copy")
        quota = next(each for each in await node.notices() if each.kind == "quota")
        assert (await node.acknowledge([quota.id])).acknowledged == 1
        assert kinds(await node.notices()) == kinds((await node.status()).notices) == ["twin"]
        assert kinds(await node.notices(everything=True)) == ["quota", "twin"]
        assert await node.notices(kind="quota") == []
        with pytest.raises(NotFoundError, match="no notice 99"):
            await node.acknowledge([next(iter(await node.notices())).id, 99])
        assert kinds(await node.notices()) == ["twin"]  # all of them, or none
        await surface(node, "quota", "second")
        (again,) = await node.notices(kind="quota")
        assert (again.id, again.count, again.sample, again.acknowledged) == (quota.id, 2, "second", False)
        assert (await node.acknowledge()).acknowledged == 2
        assert await node.notices() == []


async def test_what_is_dated_ahead_stays_seen_while_it_is_offered_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Node(tmp_path / "n", config=QUIET) as node:
        await surface(node, "skew", "ahead")
        await node.acknowledge()
        await surface(node, "skew", "ahead")
        (stands,) = await node.notices(kind="skew", everything=True)
        assert (stands.count, stands.acknowledged) == (2, True)
        monkeypatch.setattr("meshnode.store.notices.LASTS_MS", 0)
        await surface(node, "skew", "anew")
        assert kinds(await node.notices()) == ["skew"]


async def test_followed_through_the_control_api_each_comes_once_an_arising(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("meshnode.node.logbook.NOTICE_PAGE", 2)
    async with Node(tmp_path / "n", config=QUIET) as node, asyncio.timeout(60):
        for kind in ("skew", "quota", "role"):
            await surface(node, kind, "before")
        async with ControlServer(node, node.home):
            client = await ControlClient.connect(node.home)
            assert client is not None
            assert await client.notices() == await node.notices()
            following = client.follow_notices()
            seen = [(await anext(following)).kind for _ in range(3)]
            await surface(node, "quota", "after")
            again = await anext(following)
            await client.acknowledge([again.id])
            await surface(node, "twin", "copy")
            last = await anext(following)
            await following.aclose()  # type: ignore[attr-defined]
    assert seen == ["skew", "quota", "role"]
    assert ((again.kind, again.count), last.kind) == (("quota", 2), "twin")


async def _one(home: Path) -> int:
    async with Node(home, config=QUIET) as node:
        await surface(node, "skew", "first")
        return next(each.id for each in await node.notices(kind="skew"))


def test_the_verb(tmp_path: Path) -> None:
    home = tmp_path / "n"
    number = asyncio.run(_one(home))
    lines = done(home, "notices", "--kind", "skew").out.splitlines()
    assert lines[0].split() == ["id", "kind", "when", "site", "table", "count", "acknowledged", "sample"]
    assert lines[1].split()[:2] == [str(number), "skew"]
    (shown,) = done(home, "notices", "--kind", "skew", "--output", "json").json
    assert (shown["id"], shown["count"], shown["acknowledged"]) == (number, 1, False)
    acknowledged = done(home, "notices", "acknowledge", str(number), "--output", "json")
    assert acknowledged.json == {"acknowledged": 1}
    assert done(home, "notices", "--kind", "skew", "--output", "jsonl").out == ""
    assert done(home, "notices", "--kind", "skew", "--all", "--output", "json").json[0]["acknowledged"]
    for wrong in (["acknowledge"], ["acknowledge", "1", "--all"], ["acknowledge", "--all", "--follow"], ["forget"]):
        assert call(home, "notices", *wrong).code == 2
    assert call(home, "notices", "acknowledge", "99").code == 1
    unknown = call(home, "notices", "--kind", "joind")
    assert (unknown.code, "did you mean 'joined'?" in unknown.err, unknown.out) == (2, True, "")
    assert done(home, "notices", "--kind", "twin").out.split() == lines[0].split()
    assert "takes a whole number, not 'x'" in call(home, "notices", "acknowledge", "x").err
