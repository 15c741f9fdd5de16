"""`events`: the retained log as a person and a script see it, page by page, with and without a running node."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from blake3 import blake3
from support.engines import PLAIN, Bench
from support.verbs import call, done

from meshnode import Node
from meshnode.control.client import ControlClient
from meshnode.control.server import ControlServer
from meshnode.node.config import Config
from meshnode.node.eventlog import event_page
from meshnode.node.eventviews import EventQuery
from meshnode.store import entries


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "n"
    done(home, "init", "--name", "desk")
    done(home, "table", "add", "notes", "--key", "id:TEXT", "--column", "title:TEXT")
    done(home, "table", "add", "other", "--key", "id:TEXT", "--column", "title:TEXT")
    done(home, "put", "notes", "id=n1", "title=Milk")
    done(home, "put", "other", "id=o1", "title=Bread")
    done(home, "rm", "notes", "id=n1")
    return home


def shown(home: Path, *arguments: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = done(home, "events", "--output", "json", *arguments).json
    return found


def test_a_line_per_event_and_filters(home: Path) -> None:
    table = done(home, "events").out.splitlines()
    assert table[0].split()[:4] == ["position", "id", "site", "time"]
    assert len(table) == 4
    every = shown(home)
    assert [(each["position"], each["table"], each["op"], each["columns"]) for each in every] == [
        (1, "notes", "upsert", ["title"]),
        (2, "other", "upsert", ["title"]),
        (3, "notes", "delete", []),
    ]
    assert {each["verdict"] for each in every} == {"applied"}
    assert [each["position"] for each in shown(home, "--table", "notes")] == [1, 3]
    assert [each["position"] for each in shown(home, "--limit", "2")] == [1, 2]
    assert shown(home, "--limit", "0") == shown(home, "--verdict", "held") == []
    then = every[1]["hlc"][0]
    assert [each["position"] for each in shown(home, "--since", str(then), "--until", str(then))] == [2]
    for named in ("desk", every[0]["site"], every[0]["site"][:8]):
        assert shown(home, "--site", named) == every
    assert (call(home, "events", "--site", "nobody").code, call(home, "events", "--table", "nothing").code) == (1, 1)
    assert (call(home, "events", "--bytes").code, call(home, "events", "--limit", "-1").code) == (2, 2)


def test_the_exact_bytes_and_what_was_taken_out_before(home: Path) -> None:
    first, *_ = shown(home, "--bytes")
    assert blake3(bytes.fromhex(first["bytes"])).hexdigest() == first["id"]
    assert len(first["bytes"]) == 2 * first["size"]
    assert "bytes" not in shown(home)[0]
    done(home, "compact")
    assert [each["removed"] for each in shown(home)] == [{"compacted": 1}, {}]


def falsify(home: Path, statement: str, *parameters: Any) -> None:
    with closing(sqlite3.connect(home / "meshnode.db", isolation_level=None)) as connection:
        connection.execute(statement, parameters)


def test_verify_names_what_is_wrong(home: Path) -> None:
    clean = done(home, "events", "--verify")
    assert clean.err == "3 events checked: nothing is wrong\n"
    last = bytes.fromhex(shown(home, "--bytes")[2]["bytes"])
    falsify(home, "UPDATE meshnode_log SET event = ? WHERE position = 3", last[:-1] + bytes([last[-1] ^ 1]))
    falsify(home, "UPDATE meshnode_log SET physical = 5 WHERE position = 2")
    falsify(home, "UPDATE meshnode_log SET event = 'no event' WHERE position = 1")
    found = call(home, "events", "--verify", "--output", "jsonl")
    assert found.code == 1
    faults = [json.loads(line)["fault"] for line in found.out.splitlines()]
    assert [fault.split(":")[0] for fault in faults] == [
        "malformed",
        "its columns are not those of the event",
        "bad-signature",
    ]
    assert found.err.splitlines()[-1] == "3 events checked: something is wrong with 3 of them"
    assert "event at position 3: bad-signature" in found.err
    assert call(home, "events").code == 1  # what is no event is no event without a look at signatures too


async def test_a_running_node_answers_the_same(tmp_path: Path) -> None:
    async with Node(tmp_path / "n", config=Config(listen="127.0.0.1", mdns_enabled=False)) as node:
        await node.add_table("notes", key={"id": "TEXT"}, columns={"title": "TEXT", "raw": "BLOB"})
        await node.put("notes", {"id": "n1"}, {"title": "Milk", "raw": b"\x00"})
        await node.put("notes", {"id": "n2"}, {"title": "Bread"})
        async with ControlServer(node, node.home):
            client = await ControlClient.connect(node.home)
            assert client is not None
            query = EventQuery(bytes=True, verify=True, table="notes")
            page = await client.events(query, limit=1)
            assert page == await node.events(query, limit=1)
            assert (page.position, page.more, page.events[0].key) == (1, True, {"id": "n1"})
            rest = await client.events(query, after=page.position, limit=10**9)
            assert ([each.position for each in rest.events], rest.more) == ([2], False)


def test_pages_are_bounded_and_miss_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A filter that nothing passes looks at a bounded part of the log a page, and says where to go on."""
    monkeypatch.setattr(entries, "SCAN_ROWS", 4)
    bench = Bench(tmp_path)
    bench.engine.register_table(PLAIN)
    bench.deliver([bench.event(2 + (clock == 7), clock, {"id": clock}, {"a": clock}) for clock in range(10)])
    bench.deliver([bench.event(2, 20, {"id": 1}, {"a": 1}, table="absent")])

    def all_pages(query: EventQuery) -> tuple[list[int], int]:
        found, after, pages = [], 0, 0
        while True:
            page = bench.read(event_page, bench.membership, query, after, 3)
            pages += 1
            found += [each.position for each in page.events]
            if not page.more:
                return found, pages
            assert page.position > after
            after = page.position

    assert all_pages(EventQuery()) == (list(range(1, 12)), 4)
    third = bench.event(3, 0, {"id": 0}, {}).site.hex()
    assert all_pages(EventQuery(site=third)) == ([8], 3)
    assert all_pages(EventQuery(verdict="held")) == ([11], 3)
