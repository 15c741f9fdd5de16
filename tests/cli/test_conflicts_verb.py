"""`meshnode conflicts` as scripts and people spell it, against a node behind its control socket."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.command import meshnode
from support.memory_node import CONFLICT, PEER, MemoryNode

from meshnode.control.client import ControlClient
from meshnode.control.server import ControlServer
from meshnode.node.config import Config
from meshnode.node.home import Home


@pytest.fixture
async def home(tmp_path: Path) -> AsyncIterator[Home]:
    home = Home(tmp_path / "n", Config())
    home.prepare()
    home.write_incarnation(bytes(16))
    async with ControlServer(MemoryNode(), home):
        yield home


async def test_the_list_in_json_and_as_a_table(home: Home) -> None:
    listed = await meshnode("conflicts", "--output", "json", home=home.path)
    assert listed.code == 0
    (one,) = listed.json
    assert {name: one[name] for name in ("id", "table", "key", "column", "shown", "certainty", "status")} == {
        "id": CONFLICT.id,
        "table": "notes",
        "key": {"id": "n1"},
        "column": "raw",
        "shown": "theirs",
        "certainty": "possible",
        "status": "open",
    }
    assert (one["ours"]["value"], one["theirs"]["value"]) == ({"$bytes": "01"}, "Milk\x1b")
    every = await meshnode("conflicts", "--table", "notes", "--all", "--output", "json", home=home.path)
    assert [each["status"] for each in every.json] == ["open", "resolved"]
    assert len((await meshnode("conflicts", "--all", "--limit", "1", "--output", "json", home=home.path)).json) == 1
    table = await meshnode("conflicts", "--all", home=home.path)
    assert "Milk\\x1b" in table.out
    assert "(the row)" in table.out
    assert "(deleted)" in table.out
    assert "1970-01-01T00:00:00.006Z" in table.out


async def test_deciding_one(home: Home) -> None:
    done = await meshnode("conflicts", "resolve", CONFLICT.id, "--prefer", "nas", "--output", "json", home=home.path)
    assert done.json == {
        "id": CONFLICT.id,
        "status": "resolved",
        "preferred": PEER.site,
        "event": "ef" * 32,
        "shown": "neither",
    }
    left = await meshnode("conflicts", "acknowledge", CONFLICT.id, "--output", "json", home=home.path)
    assert (left.json["status"], left.json["event"]) == ("acknowledged", None)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--limit", "-1"], "--limit takes a number from 0 to 1000"),
        (["--table", "absent"], "no table is called 'absent' here"),
        (["resolve", "0123"], "--prefer"),
        (["resolve", "0123", "--prefer", "desk"], "has no value in this conflict"),
        (["solve"], "solve"),
    ],
    ids=["limit", "table", "whose", "nobody", "action"],
)
async def test_what_cannot_be_used_is_one_line(home: Home, words: list[str], says: str) -> None:
    result = await meshnode("conflicts", *words, home=home.path)
    assert result.code in (1, 2)
    assert says in result.err
    assert (result.out, result.err.count("\n")) == ("", 1)


async def test_changes_among_them_cross_the_control_socket(home: Home) -> None:
    client = await ControlClient.connect(home)
    assert client is not None
    assert [each async for each in client.conflict_changes(since=0)] == [CONFLICT]
