"""Watermarks between whole nodes: at rest nobody is behind, and of an absent peer it is known how far it was."""

from __future__ import annotations

from pathlib import Path

from support.command import meshnode
from support.nodes import TABLE, add_notes, free_port, linked, loopback, note, until

from meshnode import Node, join


async def level(*nodes: Node) -> None:
    """Wait until no node shows any difference between its watermarks and what the others told."""

    async def holds() -> bool:
        statuses = [await node.status() for node in nodes]
        return not any(status.lagging or any(peer.groups for peer in status.peers) for status in statuses)

    for node in nodes:
        await until(node, holds)


async def test_at_rest_nobody_is_behind_and_an_absent_peer_is_by_what_it_missed(tmp_path: Path) -> None:
    port = free_port()
    async with Node(tmp_path / "a", config=loopback(port=port, name="desk")) as a:
        await add_notes(a)
        await join(tmp_path / "b", (await a.invite()).invite, name="lap")
        async with Node(tmp_path / "b", config=loopback(port)) as b:
            await add_notes(b)
            await linked(a, b)
            await a.import_rows(TABLE, [note(number) for number in range(600)])
            await b.put(TABLE, {"id": "b's"}, {"title": "x"})
            await level(a, b)
        missed = await a.put(TABLE, {"id": "missed"}, {"title": "x"})
        (peer,) = await a.peers()
        ((group,), told) = peer.groups, peer.told_ms
        assert (peer.linked, peer.groups_behind, peer.groups_ahead, peer.groups_more) == (False, 1, 0, 0)
        assert (group.name, group.table, group.side, group.applied) == ("desk", TABLE, "behind", missed.hlc)
        assert group.told is not None
        assert group.gap_ms == missed.hlc[0] - group.told[0] >= 0
    shown = await meshnode("status", home=tmp_path / "a")
    (line,) = [line for line in shown.out.splitlines() if line.startswith("lap: ")]
    assert line.startswith(f"lap: 1 group behind, most: {TABLE} of desk by ")
    assert line.endswith(" ago)")
    status = (await meshnode("status", "--output", "json", home=tmp_path / "a")).json
    assert status["peers"][0]["groups"][0]["told"] == [*group.told]
    assert status["peers"][0]["told_ms"] == told
    check = await meshnode("check", "--output", "json", home=tmp_path / "a")
    assert (check.json["count"], check.json["given"]) == (0, 0)
