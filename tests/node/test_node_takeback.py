"""Profile §9 at a running node: what a member wrote beyond its cutoff is taken back in steps, asked for by nobody."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.nodes import TABLE, add_notes, loopback, note, until
from support.records import site_key

from meshnode import Node
from meshnode.engine import takeback
from meshnode.engine.authority import issue_retirement, issue_vouch
from meshnode.engine.commit import commit_events
from meshnode.engine.engine import Engine
from meshnode.model.event import author_event
from meshnode.model.hlc import Hlc
from meshnode.model.scope import Scope
from meshnode.node.storage import wall_ms

MEMBER = site_key(2)
EVENTS = 1500


def admit_and_write(engine: Engine) -> None:
    """Another member, and what it wrote: into rows that were there, and rows of its own."""
    context = engine.context
    context.transact(lambda tx: issue_vouch(context, tx, MEMBER.public_key, "another device"))
    now = wall_ms()
    events = [
        author_event(
            MEMBER,
            context.mesh_id,
            schema="main",
            table=TABLE,
            row_key={"id": f"n{number:06}"},
            columns={"title": "by the member"},
            hlc=Hlc(now + number, 0),
        ).data
        for number in range(EVENTS)
    ]
    checked = engine.verify(events)
    context.transact(
        lambda tx: commit_events(context, tx, checked, author_stream=True, scope=Scope(), peer=MEMBER.site)
    )


def retire(engine: Engine) -> None:
    context = engine.context
    context.transact(lambda tx: issue_retirement(context, tx, MEMBER.site, cutoff=Hlc(1, 0)))


async def kinds(node: Node) -> set[str]:
    return {notice.kind for notice in (await node.status()).notices}


@pytest.mark.parametrize("restarted", [False, True])
async def test_it_is_told_and_comes_to_its_end_by_itself(
    restarted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(takeback, "STEPS_AT_ONCE", 0)

    async with Node(tmp_path / "n", config=loopback()) as node:
        await add_notes(node)
        await node.import_rows(TABLE, [note(number, "mine") for number in range(10)])
        before = await node.digest()
        await node.storage.write(admit_and_write)
        assert len(await node.rows(TABLE, limit=1000)) == 1000
        if restarted:
            monkeypatch.setattr(node.storage, "_follow_schema", lambda *_: None)  # it is left before it goes on
        await node.storage.write(retire)
        if restarted:
            assert takeback.TAKING_BACK in await kinds(node)
            assert await node.digest() != before
        else:
            await until(node, lambda: done(node))
            assert await node.digest() == before
    async with Node(tmp_path / "n", config=loopback()) as node:
        await until(node, lambda: done(node))
        assert await node.digest() == before
        assert (await node.check()).differences == []


async def done(node: Node) -> bool:
    found = await kinds(node)
    return "taken-back" in found and takeback.TAKING_BACK not in found
