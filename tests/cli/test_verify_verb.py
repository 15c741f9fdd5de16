"""`verify` as a script uses it: what is printed, exit codes, progress over the control API, and what ends it early."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from msgspec.structs import replace
from support.command import meshnode
from support.memory_node import PEER, MemoryNode

from meshnode.cli import verify
from meshnode.control.client import ControlClient
from meshnode.errors import TransportError, UsageError
from meshnode.node.home import Home
from meshnode.node.verifyviews import ComparedTableView, VerifyProgress


async def test_the_verb_names_what_differs_and_its_exit_code_says_how_bad_it_is(home: Home, node: MemoryNode) -> None:
    equal = await meshnode("verify", PEER.name, home=home.path)
    assert equal.code == 0
    assert equal.out.splitlines()[0].split() == ["table", "events", "rows", "differs"]
    assert equal.out.splitlines()[-1] == f"nas ({PEER.short}): equal; 3 exchanges in 0.0 s"
    node.complete = False
    fault = await meshnode("verify", PEER.name, "--table", "notes", home=home.path)
    assert fault.code == 1
    assert "1,200 here, 0 there" in fault.out
    assert "\x1b" not in fault.out
    assert f"only there: event {'ee' * 32} of 83561adb at 1970-01-01T00:00:00.005Z/6 writes ti\\x1btle" in fault.out
    assert "1 fault, 1 horizon" in fault.out
    assert "check --repair" in fault.err
    explained = await meshnode("verify", PEER.name, "--repair", home=home.path)
    assert (explained.code, explained.err) == (0, "")
    assert "1 horizon; 1 event asked for again" in explained.out


async def test_the_same_in_json_and_jsonl(home: Home, node: MemoryNode) -> None:
    node.complete = False
    whole = await meshnode("verify", PEER.site, "--output", "json", home=home.path)
    assert (whole.code, whole.json["counts"]) == (1, {"fault": 1, "horizon": 1})
    lines = await meshnode("verify", PEER.site, "--output", "jsonl", home=home.path)
    *rows, last = map(json.loads, lines.out.splitlines())
    assert rows == whole.json["rows"]
    assert last == {"line": "summary"} | {name: value for name, value in whole.json.items() if name != "rows"}


def test_equal_is_said_alone_only_where_nothing_was_left_out() -> None:
    table = ComparedTableView(table="notes", compared=True, equal=True)
    assert verify._equal([table]) == "equal"
    later, other = replace(table, above_there=2), replace(table, kind="schema", note="of another type there")
    assert verify._table_row(later)["differs"] == "2 events more there, still on the way"
    said = "what was compared is equal, which leaves out: 2 events still on the way; schema of notes"
    assert verify._equal([later, other]) == said


async def test_what_cannot_be_compared_says_so(home: Home, node: MemoryNode) -> None:
    node.online = False
    not_linked = await meshnode("verify", PEER.name, home=home.path)
    assert (not_linked.code, not_linked.err) == (2, "meshnode: nas is not linked\n")
    assert (await meshnode("verify", home=home.path)).code == 2
    assert (await meshnode("verify", PEER.name, "--table", "a.b.c", home=home.path)).code == 2
    assert (await meshnode("verify", "nobody", home=home.path)).code == 1


async def test_without_a_running_node_there_is_no_link(tmp_path: Path) -> None:
    assert (await meshnode("init", home=tmp_path / "n")).code == 0
    result = await meshnode("verify", "desk", home=tmp_path / "n")
    assert (result.code, "no node runs here" in result.err) == (1, True)


async def test_progress_and_errors_come_through_the_control_api(home: Home, node: MemoryNode) -> None:
    client = await ControlClient.connect(home)
    assert client is not None
    told: list[VerifyProgress] = []
    assert (await client.verify("nas", tell=told.append)).equal
    assert told == [VerifyProgress(state="reading", items=7)]
    node.failure = TransportError("the link ended")
    with pytest.raises(TransportError, match="the link ended"):
        await client.verify("nas", tell=told.append)
    node.failure, node.online = None, False
    with pytest.raises(UsageError, match="not linked"):
        await client.verify("nas")


async def test_a_client_that_goes_away_ends_the_comparison(home: Home, node: MemoryNode) -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def never(*_: object, **__: object) -> object:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    node.verify = never  # type: ignore[method-assign,assignment]
    client = await ControlClient.connect(home)
    assert client is not None
    asking = asyncio.ensure_future(client.verify("nas"))
    await begun.wait()
    asking.cancel()
    async with asyncio.timeout(60):
        await ended.wait()
