"""Null, cleared and never written through every door: the node, its control API, the verbs, and after a restart."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from support.command import meshnode, start
from support.nodes import loopback, take

from meshnode import Node
from meshnode.control.client import ControlClient
from meshnode.control.server import ControlServer
from meshnode.node.api import Operations
from meshnode.node.home import Home
from meshnode.node.local import open_local
from meshnode.node.views import RowView

KEY, COLUMNS = {"id": "TEXT"}, {"title": "TEXT", "done": "INTEGER", "raw": "BLOB"}


async def fill(node: Node) -> None:
    """A row with an explicit null, one that was deleted and written again, one deleted, one that is withheld."""
    await node.add_table("notes", KEY, COLUMNS)
    await node.put("notes", {"id": "null"}, {"title": None})
    await node.put("notes", {"id": "again"}, {"title": "Milk"})
    await node.remove("notes", {"id": "again"})
    await node.put("notes", {"id": "again"}, {"raw": b"\x00"})
    await node.put("notes", {"id": "deleted"}, {"title": "Bread"})
    await node.remove("notes", {"id": "deleted"})
    with closing(sqlite3.connect(node.home.database_path)) as database:
        database.execute("CREATE TABLE strict (id TEXT PRIMARY KEY NOT NULL, a NOT NULL DEFAULT 'd', b)")
        await node.add_table("strict", {}, {})
        await node.put("strict", {"id": "default"}, {"b": 1})
        await node.put("strict", {"id": "withheld"}, {"b": -1})
        database.executescript(  # what a node refuses to write itself it withholds where it was written already
            "DROP TABLE strict; "
            "CREATE TABLE strict (id TEXT PRIMARY KEY NOT NULL, a NOT NULL DEFAULT 'd', b CHECK (b > 0))"
        )
        await node.storage.write(lambda engine: engine.follow_schema())
        assert database.execute("SELECT * FROM strict").fetchall() == [("default", "d", 1)]


async def holds(node: Operations) -> None:
    """What everybody is shown of these rows, whichever way they ask."""
    null = RowView(key={"id": "null"}, columns={"title": None}, unmaterialized=["done", "raw"])
    again_columns = {"title": None, "done": None, "raw": b"\x00"}
    again = RowView(key={"id": "again"}, columns=again_columns, cleared=["title", "done"])
    assert await node.get("notes", {"id": "null"}) == null
    assert await node.get("notes", {"id": "again"}) == again
    assert await node.rows("notes") == [null, again]
    states = {}
    for table, name in (("notes", "null"), ("notes", "again"), ("notes", "deleted"), ("strict", "default")):
        found = await node.explain(table, {"id": name})
        assert found is not None
        states[name] = [each.state for each in found.columns]
    assert states == {
        "null": ["written", "unmaterialized", "unmaterialized"],
        "again": ["cleared", "cleared", "written"],
        "deleted": ["cleared", "cleared", "cleared"],
        "default": ["unmaterialized", "written"],
    }
    default = RowView(key={"id": "default"}, columns={"b": 1}, unmaterialized=["a"])
    assert await node.get("strict", {"id": "default"}) == default
    withheld = await node.explain("strict", {"id": "withheld"})
    assert withheld is not None
    assert (withheld.exists, withheld.withheld, withheld.columns[1].value) == (False, True, -1)
    assert "CHECK" in withheld.reason
    assert await node.explain("notes", {"id": "nobody"}) is None
    changes = await take(node.changes(since=0, table="notes"), 6)
    assert [(each.op, each.exists, each.cleared) for each in changes] == [
        ("upsert", True, []),
        ("upsert", True, []),
        ("delete", False, []),
        ("resurrect", True, ["title", "done"]),
        ("upsert", True, []),
        ("delete", False, []),
    ]
    assert changes[0].columns == {"title": None}
    assert changes[3].columns == again_columns
    assert all(each.local and not each.partial for each in changes)


async def test_every_door_tells_the_three_apart_before_and_after_a_restart(tmp_path: Path) -> None:
    home = tmp_path / "n"
    for first in (True, False):
        async with Node(home, config=loopback()) as node, ControlServer(node, node.home):
            if first:
                await fill(node)
            await holds(node)
            client = await ControlClient.connect(node.home)
            assert client is not None
            await holds(client)
            assert await client.explain("notes", {"id": "again"}) == await node.explain("notes", {"id": "again"})
    async with open_local(Home.load(home), writing=False) as alone:
        await holds(alone)


@pytest.fixture
async def home(tmp_path: Path) -> Path:
    """A home with these rows; no node runs."""
    async with Node(tmp_path / "n", config=loopback(name="desk")) as node:
        await fill(node)
    return tmp_path / "n"


async def test_get_explains_in_json_with_the_whole_site(home: Path) -> None:
    site = (await meshnode("status", "--output", "json", home=home)).json["site"]
    got = await meshnode("get", "notes", "id=again", "--explain", "--output", "json", home=home)
    assert (got.code, got.out.count("\n")) == (0, 1)
    found = got.json
    assert (found["table"], found["key"], found["exists"], found["withheld"]) == ("notes", {"id": "again"}, True, False)
    title, done, raw = found["columns"]
    assert (title["state"], title["value"], title["clock"]) == ("cleared", None, found["tombstone"])
    assert (done["name"], done["state"]) == ("done", "cleared")
    assert (raw["state"], raw["value"]) == ("written", {"$bytes": "00"})
    assert raw["clock"] == found["existence"]
    assert raw["clock"]["site"] == site
    assert raw["clock"]["hlc"] > title["clock"]["hlc"]
    null = await meshnode("get", "notes", "id=null", "--explain", "--output", "jsonl", home=home)
    title, done, raw = json.loads(null.out)["columns"]
    assert (title["state"], title["value"]) == ("written", None)
    assert (done["state"], done["clock"], "value" in done) == ("unmaterialized", None, False)
    flat = await meshnode("get", "notes", "id=null", "--output", "json", home=home)
    assert flat.json == {"id": "null", "title": None}


async def test_get_explains_in_a_table_with_the_short_site(home: Path) -> None:
    short = (await meshnode("status", "--output", "json", home=home)).json["short"]
    got = await meshnode("get", "notes", "id=again", "--explain", home=home)
    lines = [line.split() for line in got.out.splitlines()]
    assert lines[0] == ["key", '{"id":"again"}']
    assert lines[1:3] == [["exists", "true"], ["withheld", "false"]]
    assert [line[:2] for line in lines[3:5]] == [["existence", short], ["tombstone", short]]
    assert lines[6] == ["column", "state", "value", "site", "hlc"]
    assert [line[:4] for line in lines[7:]] == [
        ["title", "cleared", "null", short],
        ["done", "cleared", "null", short],
        ["raw", "written", '{"$bytes":"00"}', short],
    ]
    null = await meshnode("get", "notes", "id=null", "--explain", home=home)
    assert [line.split()[:3] for line in null.out.splitlines()[-3:]] == [
        ["title", "written", "null"],
        ["done", "unmaterialized"],
        ["raw", "unmaterialized"],
    ]


async def test_rows_that_nobody_sees_are_explained_and_unknown_ones_are_not_there(home: Path) -> None:
    for table, name in (("notes", "deleted"), ("strict", "withheld")):
        assert (await meshnode("get", table, f"id={name}", home=home)).code == 1
        got = await meshnode("get", table, f"id={name}", "--explain", "--output", "json", home=home)
        assert (got.code, got.json["exists"], got.json["withheld"]) == (0, False, name == "withheld")
    shown = await meshnode("get", "strict", "id=withheld", "--explain", home=home)
    assert "reason     CHECK constraint failed: b > 0\n" in shown.out
    unknown = await meshnode("get", "notes", "id=nobody", "--explain", home=home)
    assert (unknown.code, unknown.out, unknown.err) == (1, "", "meshnode: no row id=nobody in table notes\n")


async def test_watch_tells_cleared_columns_apart(home: Path) -> None:
    process = await start("watch", "notes", "--since", "2", home=home)
    assert process.stdout is not None
    deleted, again = [json.loads(await process.stdout.readline()) for _ in range(2)]
    process.kill()
    await process.communicate()
    assert (deleted["op"], deleted["exists"], deleted["columns"]) == ("delete", False, {})
    assert (again["op"], again["cleared"], again["unmaterialized"]) == ("resurrect", ["title", "done"], [])
    assert again["columns"] == {"title": None, "done": None, "raw": {"$bytes": "00"}}
    assert (again["local"], again["partial"]) == (True, False)
