"""The verbs when no node runs: they open the store themselves, on a real home made by `init`."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import pytest
from blake3 import blake3
from support.command import ended, meshnode, start
from support.nodes import Process, free_port

from meshnode.codec import cbor
from meshnode.node.home import Home
from meshnode.node.lock import try_lock


@pytest.fixture
async def home(tmp_path: Path) -> Path:
    path = tmp_path / "n"
    assert (await meshnode("init", "--name", "desk", home=path)).code == 0
    added = await meshnode(
        *["table", "add", "notes", "--key", "id:TEXT", "--column", "title:TEXT", "--column", "done:INTEGER"],
        *["--column", "raw:BLOB"],
        home=path,
    )
    assert added.code == 0
    return path


async def test_init_makes_a_private_home_and_says_what_to_do_next(tmp_path: Path) -> None:
    result = await meshnode("init", home=tmp_path / "n")
    assert result.code == 0
    assert "recovery.key" in result.out
    assert "meshnode up" in result.out
    for name in ("site.key", "recovery.key"):
        assert stat.S_IMODE((tmp_path / "n" / name).stat().st_mode) == 0o600
    again = await meshnode("init", home=tmp_path / "n")
    assert (again.code, again.err.count("\n")) == (2, 1)
    as_json = await meshnode("init", "--output", "json", home=tmp_path / "m")
    assert as_json.json["recovery_key"] == str(tmp_path / "m" / "recovery.key")


async def test_put_get_rm(home: Path) -> None:
    assert (await meshnode("put", "notes", "id=n1", "title=Milk", "done:=0", home=home)).code == 0
    got = await meshnode("get", "notes", "id=n1", "--output", "json", home=home)
    assert (got.code, got.json) == (0, {"id": "n1", "title": "Milk", "done": 0})
    assert (await meshnode("put", "notes", "id=n1", "title:=null", "raw=00ff", home=home)).code == 0
    got = await meshnode("get", "notes", "id=n1", "--output", "json", home=home)
    assert got.json == {"id": "n1", "title": None, "done": 0, "raw": {"$bytes": "00ff"}}
    assert (await meshnode("rm", "notes", "id=n1", home=home)).code == 0
    assert (await meshnode("get", "notes", "id=n1", home=home)).code == 1
    assert (await meshnode("rm", "notes", "id=n1", home=home)).code == 1


async def test_what_is_so_of_every_row_ends_an_import(home: Path, tmp_path: Path) -> None:
    file = tmp_path / "notes.jsonl"
    file.write_text("".join(f'{{"id": "n{number}", "title": "t"}}\n' for number in range(50)))
    assert (await meshnode("leave", "--yes", home=home)).code == 0
    refused = await meshnode("import", "notes", str(file), home=home)
    assert refused.code == 1
    assert refused.err.startswith("meshnode: written: 0 rows, then no more: this device was retired")
    assert len(refused.err.splitlines()) == 1


async def test_import_then_rows_and_digest_agree(home: Path, tmp_path: Path) -> None:
    file = tmp_path / "notes.jsonl"
    lines = [{"id": f"n{number}", "title": f"t{number}", "done": number % 2} for number in range(1203)]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    imported = await meshnode("import", "notes", str(file), "--output", "json", home=home)
    assert (imported.code, imported.json) == (0, {"rows": 1203, "refused": 0})
    rows = (await meshnode("rows", "notes", "--output", "jsonl", home=home)).out.splitlines()
    shown = [json.loads(line) for line in rows]
    assert sorted(shown, key=lambda row: int(row["id"][1:])) == lines
    pairs = [[{"id": row["id"]}, {name: row[name] for name in row if name != "id"}] for row in shown]
    assert pairs == sorted(pairs, key=lambda pair: cbor.encode(pair[0]))
    digest = await meshnode("digest", "notes", "--output", "json", home=home)
    assert digest.json == [{"table": "notes", "digest": blake3(cbor.encode(pairs)).hexdigest(), "rows": 1203}]


async def test_status_watch_and_wait(home: Path) -> None:
    await meshnode("put", "notes", "id=n1", "title=Milk", home=home)
    status = await meshnode("status", "--output", "json", home=home)
    assert status.json["running"] is False
    assert (len(status.json["site"]), len(status.json["mesh_tag"]), status.json["peers"]) == (32, 16, [])
    assert (await meshnode("wait", "--all", "--timeout", "1", home=home)).code == 0
    live = await meshnode("wait", "--live", "--timeout", "0.2", home=home)
    assert live.code == 2
    assert [line[:33] for line in live.err.splitlines()] == [
        "meshnode: no node runs here yet, ",
        "meshnode: no node runs here: star",
    ]


async def test_wait_asks_a_node_that_starts_meanwhile(home: Path) -> None:
    """As after `meshnode up &`: whoever waits need not know when it is up."""
    waiting = await start("wait", "--live", "--timeout", "3", home=home)
    assert waiting.stderr is not None
    assert b"no node runs here yet" in await waiting.stderr.readline()
    async with Process.on_loopback(home, free_port()):
        result = await ended(waiting)
    assert (result.code, "no node runs" in result.err) == (2, False)


async def test_reading_takes_no_lock_and_writing_waits_for_it(home: Path) -> None:
    lock = try_lock(Home(home).lock_path, "import")
    assert lock is not None
    assert (await meshnode("rows", "notes", home=home)).code == 0
    writing = asyncio.create_task(meshnode("put", "notes", "id=n1", home=home))
    assert (await meshnode("get", "notes", "id=n1", home=home)).code == 1
    lock.release()
    assert (await writing).code == 0
    assert (await meshnode("get", "notes", "id=n1", home=home)).code == 0


async def test_many_writers_at_once_lose_nothing(home: Path) -> None:
    results = await asyncio.gather(*(meshnode("put", "notes", f"id=n{number}", home=home) for number in range(6)))
    assert [result.code for result in results] == [0] * 6
    rows = await meshnode("rows", "notes", "--output", "json", home=home)
    assert len(rows.json) == 6


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["table", "add", "sqlite_x", "--key", "id:TEXT"], "reserved"),
        (["table", "add", "t", "--key", "id:TEXT); DROP"], "no SQLite type"),
        (["table", "add", "t", "--key", "id:TEXT", "--column", "ID:TEXT"], "letter case"),
        (["table", "add", "t", "--key", "id:INTEGER"], ""),
        (["table", "add", "nowhere"], "nowhere"),
    ],
)
async def test_a_table_that_cannot_be_one_is_one_clear_line(home: Path, arguments: list[str], says: str) -> None:
    result = await meshnode(*arguments, home=home)
    if result.code == 0 and not says:
        return
    assert (result.code, result.err.count("\n")) == (2, 1)
    assert says in result.err


async def test_the_policy_is_written_to_the_settings_and_kept_by_the_store(home: Path) -> None:
    assert (await meshnode("policy", "set", "scope", "main.notes", home=home)).code == 0
    assert (await meshnode("policy", "set", "replay_budget_days", "7", home=home)).code == 0
    assert (await meshnode("table", "class", "notes", "raw", home=home)).code == 0
    shown = await meshnode("policy", "show", "--output", "json", home=home)
    assert shown.json == {
        "scope": ["main.notes"],
        "replicate_raw_ingress": False,
        "replay_budget_days": 7,
        "classes": {"notes": "raw"},
        "announce_on_untrusted_wifi": True,
        "announce_on_wired_networks": True,
        "announce_on_unknown_networks": False,
        "trusted_ssids": [],
    }
    assert 'scope = ["main.notes"]' in (home / "config.toml").read_text().splitlines()
    listed = await meshnode("table", "list", "--output", "json", home=home)
    assert [table["class"] for table in listed.json] == ["raw"]
    refused = await meshnode("policy", "set", "replay_budget_days", "91", home=home)
    assert (refused.code, "1 to 90" in refused.err or "<= 90" in refused.err) == (2, True)
    unknown = await meshnode("table", "class", "nothing", "raw", home=home)
    assert (unknown.code, "add it first" in unknown.err) == (1, True)


async def test_the_verbs_that_drop_history(home: Path) -> None:
    for title in ("one", "two", "three"):
        assert (await meshnode("put", "notes", "id=n1", f"title={title}", home=home)).code == 0
    compacted = await meshnode("compact", "--output", "json", home=home)
    assert (compacted.code, compacted.json["events"]) == (0, 2)
    evicted = await meshnode("evict", "notes", "--before", "2020-01-01", "--output", "json", home=home)
    assert (evicted.code, evicted.json["events"]) == (0, 0)
    assert (await meshnode("rehydrate", "notes", "--output", "json", home=home)).json["asked"] == 0
    forgotten = await meshnode("forget", "notes", "id=n1", "--output", "json", home=home)
    assert (forgotten.code, forgotten.json["events"]) == (0, 1)
    assert (await meshnode("get", "notes", "id=n1", home=home)).code == 1
    refused = await meshnode("put", "notes", "id=n1", "title=again", home=home)
    assert (refused.code, "forgotten" in refused.err) == (2, True)
    assert (await meshnode("forget", "notes", "id=n1", "--undo", home=home)).code == 0
    assert (await meshnode("put", "notes", "id=n1", "title=again", home=home)).code == 0


async def test_a_table_that_cannot_be_used_is_told_with_what_mends_it_by_every_verb(home: Path) -> None:
    assert (await meshnode("put", "notes", "id=n1", "title=Milk", home=home)).code == 0
    database = home / "meshnode.db"
    run_sql(database, "CREATE UNIQUE INDEX one_title ON notes (title)")
    for verb in (["put", "notes", "id=n2"], ["get", "notes", "id=n1"], ["rm", "notes", "id=n1"], ["rows", "notes"]):
        result = await meshnode(*verb, home=home)
        assert result.code != 0
        assert "'notes' cannot be used as it stands" in result.err
        assert 'DROP INDEX "one_title"' in result.err
    status = await meshnode("status", "--output", "json", home=home)
    assert "UNIQUE" in status.json["unusable"]["notes"]
    assert "takes no part as it stands" in (await meshnode("status", home=home)).out
    listed = await meshnode("table", "list", "--output", "json", home=home)
    assert "UNIQUE" in listed.json[0]["unusable"]
    run_sql(database, "DROP INDEX one_title")
    assert (await meshnode("put", "notes", "id=n2", "title=Milk", home=home)).code == 0
    status = await meshnode("status", "--output", "json", home=home)
    assert (status.json["unusable"], status.json["notices"]) == ({}, [])


async def test_a_write_to_a_forgotten_row_says_how_to_end_that(home: Path) -> None:
    assert (await meshnode("put", "notes", "id=n1", "title=Milk", home=home)).code == 0
    assert (await meshnode("forget", "notes", "id=n1", home=home)).code == 0
    refused = await meshnode("put", "notes", "id=n1", "title=again", home=home)
    assert refused.code == 2
    assert "forgotten on this device" in refused.err
    assert "--undo" in refused.err


def run_sql(database: Path, statement: str) -> None:
    """What an application does with the same file."""
    with closing(sqlite3.connect(database, isolation_level=None)) as connection:
        connection.execute(statement)
