"""`check` as a script uses it: over the store alone and through a running node; exit code 1 names what differs."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from support.command import meshnode
from support.memory_node import MemoryNode

from meshnode import Node
from meshnode.control.server import ControlServer
from meshnode.node.config import Config
from meshnode.node.home import Home


async def test_check_over_the_store_alone(tmp_path: Path) -> None:
    home = tmp_path / "n"
    assert (await meshnode("init", home=home)).code == 0
    assert (await meshnode("table", "add", "notes", "--key", "id:TEXT", "--column", "n:INTEGER", home=home)).code == 0
    assert (await meshnode("put", "notes", "id=n1", "n:=1", home=home)).code == 0
    clean = await meshnode("check", home=home)
    assert (clean.code, clean.out) == (0, "clean: 1 event, 1 row of 1 table\n")
    with closing(sqlite3.connect(home / "meshnode.db", isolation_level=None)) as connection:
        connection.execute("UPDATE notes SET n = 2")
    found = await meshnode("check", "--output", "json", home=home)
    assert found.code == 1
    assert found.json["count"] == 1
    assert found.json["differences"] == [
        {"table": "notes", "where": 'row id="n1"', "what": "column 'n' holds 2, the log says 1"}
    ]
    assert "check --repair" in (await meshnode("check", home=home)).err
    mended = await meshnode("check", "--repair", home=home)
    assert (mended.code, mended.out) == (0, "1 mended, clean: 1 event, 1 row of 1 table\n")
    assert "column 'n' holds 2, the log says 1" in mended.err
    assert (await meshnode("get", "notes", "id=n1", "--output", "json", home=home)).json["n"] == 1
    assert "mended" in (await meshnode("notices", home=home)).out
    again = await meshnode("check", "--repair", "--output", "json", home=home)
    assert (again.code, again.json["mended"], again.json["mendings"]) == (0, 0, [])


async def test_check_asks_a_running_node_and_prints_no_control_characters(tmp_path: Path) -> None:
    home = Home(tmp_path / "n", Config())
    home.prepare()
    home.write_incarnation(bytes(16))
    node = MemoryNode()
    async with ControlServer(node, home):
        good = await meshnode("check", home=home.path)
        given = "taken as given of clocks, values and watermarks: 2"
        assert (good.code, good.out) == (0, f"clean: 0 events, 0 rows of 0 tables; {given}\n")
        node.complete = False
        bad = await meshnode("check", home=home.path)
    assert bad.code == 1
    assert "row 1\\x1b[0m" in bad.out
    assert bad.out.endswith(f"1 difference: 0 events, 0 rows of 0 tables; {given}\n")


async def test_a_node_that_runs_checks_itself(tmp_path: Path) -> None:
    async with Node(tmp_path / "n") as node:
        await node.add_table("notes", key={"id": "TEXT"}, columns={"n": "INTEGER"})
        await node.put("notes", {"id": "n1"}, {"n": 1})
        report = await node.check()
    assert (report.count, report.events, report.rows, report.given) == (0, 1, 1, 0)


async def test_a_node_that_runs_mends_itself_and_doctor_says_that_it_should(tmp_path: Path) -> None:
    async with Node(tmp_path / "n", config=Config(port=0, listen="127.0.0.1", mdns_enabled=False)) as node:
        await node.add_table("notes", key={"id": "TEXT"}, columns={"n": "INTEGER"})
        for number in range(3):
            await node.put("notes", {"id": "n1"}, {"n": number})
        with closing(sqlite3.connect(tmp_path / "n" / "meshnode.db", isolation_level=None)) as connection:
            connection.execute("DELETE FROM meshnode_log WHERE position = 2")
        found = (await node.doctor(["database"])).findings
        assert [(each.verdict, each.found.split(" by")[0]) for each in found] == [("fail", "1 event of the log gone")]
        assert "check --repair" in found[0].todo
        report = await node.check(repair=True)
        assert (report.count, report.mended, report.mendings[0].where) == (0, 1, "log position 2")
        assert [each.verdict for each in (await node.doctor(["database"])).findings] == ["pass"]
