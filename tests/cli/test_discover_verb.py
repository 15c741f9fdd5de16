"""`meshnode discover` against a node behind its control socket: tables, JSON, nothing that steers a terminal."""

from __future__ import annotations

import json

import msgspec
import pytest
from support.command import meshnode
from support.memory_node import PEER, MemoryNode

from meshnode.node.discoverviews import AnnouncementView, DiscoverView
from meshnode.node.home import Home
from meshnode.node.views import Status

OWN = AnnouncementView(instance="desk-0a0b0c0d", standing="own", reason="this very node")


async def test_members_strangers_and_interfaces_stand_apart_with_their_reasons(home: Home, node: MemoryNode) -> None:
    shown = await meshnode("discover", "--seconds", "0", home=home.path)
    assert (shown.code, node.waits) == (0, [0.0])
    parts = dict(part.partition(":\n")[::2] for part in shown.out.split("\n\n"))
    assert "docker0" in parts["Interfaces"]
    assert "allow_interfaces" in parts["Interfaces"]
    assert "linked at 10.0.0.2:4747" in parts["Members"]
    assert PEER.short in parts["Members"]
    assert "10.0.0.9:4747" in parts["Addresses that the settings name"]
    assert "wrong-port" in parts["Strangers, who are never dialed"]
    assert "desk-0a0b0c0d" in parts["This device's own announcement"]
    assert "\x1b" not in shown.out


async def test_json_is_one_object_and_jsonl_one_a_line_with_its_kind(home: Home, node: MemoryNode) -> None:
    whole = await meshnode("discover", "--seconds", "0", "--output", "json", home=home.path)
    assert whole.json["members"][0]["dial"]["state"] == "linked"
    lines = await meshnode("discover", "--seconds", "0", "--output", "jsonl", home=home.path)
    *found, last = map(json.loads, lines.out.splitlines())
    assert [each["kind"] for each in found] == ["interface", "member", "peer", "own", "stranger"]
    assert (last["line"], last["discovery"], last["running"]) == ("summary", "on", True)
    assert "\x9b" not in whole.out + lines.out


@pytest.mark.parametrize("seconds", ["-1", "61", "nan", "soon"])
async def test_seconds_that_cannot_be_are_a_misuse(home: Home, seconds: str) -> None:
    refused = await meshnode("discover", "--seconds", seconds, home=home.path)
    assert (refused.code, refused.out, refused.err.count("\n")) == (2, "", 1)
    assert f"--seconds takes a number from 0 to 60, not {seconds!r}" in refused.err


async def test_status_names_the_interfaces_that_are_skipped(home: Home, node: MemoryNode) -> None:
    shown = await meshnode("status", home=home.path)
    assert "discovery: off; not on docker0: `meshnode discover` says why" in shown.out


async def test_status_says_once_where_it_is_quiet_and_what_turned_mdns_off(
    home: Home, node: MemoryNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    status = await node.status()
    quiet = 'quiet on docker0: joined to "Cafe"'
    said = {"discovery": quiet, "discovery_off": "mdns_enabled is false"}

    async def told() -> Status:
        return msgspec.structs.replace(status, **said)

    monkeypatch.setattr(node, "status", told)
    shown = await meshnode("status", home=home.path)
    assert f"discovery: {quiet} (mdns_enabled is false)\n" in shown.out


@pytest.mark.parametrize(
    ("found", "says"),
    [
        (DiscoverView(running=True, discovery="off", deaf="mdns_enabled is false"), "Nobody was listened for: mdns_en"),
        (DiscoverView(running=True, discovery="on"), "Nobody is announced on this network."),
        (DiscoverView(running=True, discovery="on", own=(OWN,)), "Nobody else is announced on this network."),
        (DiscoverView(running=False, discovery="on"), "Nobody is announced on this network, or a firewall swallows"),
    ],
    ids=["deaf", "nobody", "own", "no-node"],
)
async def test_nobody_is_said_with_what_is_known_of_it(
    home: Home, node: MemoryNode, monkeypatch: pytest.MonkeyPatch, found: DiscoverView, says: str
) -> None:
    async def discover(*, seconds: float) -> DiscoverView:
        return found

    monkeypatch.setattr(node, "discover", discover)
    shown = await meshnode("discover", "--seconds", "0", home=home.path)
    assert says in shown.out
