"""Every operation of a real node, asked over its socket: answers and errors are what the document says."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from support.api import Api, Judge
from support.memory_node import MemoryNode
from support.nodes import PATIENCE_S, TABLE, free_port, linked, loopback, pair_of_homes

from meshnode import Node
from meshnode.control.app import document_bytes
from meshnode.control.operation import Stream
from meshnode.control.operations import OPERATIONS
from meshnode.control.server import ControlServer
from meshnode.node.config import Config
from meshnode.node.home import Home
from meshnode.node.pairing_views import InvitedView

KEY = "7a" * 32  # a public key that nobody has the private half of


class Asker:
    """Asks by POST, and by GET where that is possible, and remembers what was asked."""

    def __init__(self, api: Api) -> None:
        self.judge = Judge(json.loads(document_bytes()))
        self.asked: set[str] = set()
        self._api = api

    async def __call__(self, name: str, /, *, lines: int = 0, **arguments: Any) -> Any:
        """The answer, which is no error."""
        operation = OPERATIONS[f"/v1/{name}"]
        answer = await self._api.post(name, arguments, lines=lines)
        assert answer.status == 200, (name, answer)
        self.judge.check("POST", operation.path, answer)
        self.asked.add(name)
        if operation.reads:
            read = await self._api.get(name, arguments, lines=lines)
            assert read.status == 200, (name, read)
            self.judge.check("GET", operation.path, read)
        found = answer.lines if isinstance(operation, Stream) else answer.json
        assert "error" not in (found[-1] if lines else {}), found
        return found

    async def fails(self, name: str, /, **arguments: Any) -> tuple[int, str]:
        """The status and name of the error that it is answered with."""
        answer = await self._api.post(name, arguments)
        self.judge.check("POST", f"/v1/{name}", answer)
        failure = answer.lines[-1]
        assert "error" in failure, (name, failure)
        assert "its log says more" not in failure["message"], (name, arguments)
        return answer.status, failure["error"]


@asynccontextmanager
async def two_nodes(folder: Path) -> AsyncIterator[tuple[Node, Node, Asker]]:
    """Linked, and the first one answers over its socket."""
    ports = free_port(), free_port()
    homes = await pair_of_homes(folder, ports)
    async with (
        Node(homes[0], config=loopback(ports[1], port=ports[0], name="a")) as a,
        Node(homes[1], config=loopback(ports[0], port=ports[1], name="b")) as b,
        ControlServer(a, home := Home(homes[0], Config())),
    ):
        await linked(a, b)
        yield a, b, Asker(Api(home.socket_path))


async def test_every_operation_answers_as_documented(tmp_path: Path) -> None:
    async with two_nodes(tmp_path) as (_, b, ask):
        for name in (
            "ping",
            "open-dashboard",
            "status",
            "metrics",
            "peers",
            "members",
            "tables",
            "policy",
            "config",
            "frontier",
        ):
            await ask(name)
        await ask("doctor", checks=["disk", "clock"])
        await ask("discover", seconds=0)
        await ask("sync-state", peer="b")
        await _rows(ask)
        await _conflicts(b, ask)
        await _log(b, ask, tmp_path)
        await _settings(ask)
        await _pairing(ask)
        await _members(ask)
        missing = {each.name for each in OPERATIONS.values()} - ask.asked
    assert missing == {"decide", "nearby-answer", "resume"}  # those need another person, or a copy: see below


async def _rows(ask: Asker) -> None:
    table = "s.extra"
    await ask("add-table", table=table, key={"id": "BLOB"}, columns={"n": "REAL", "raw": "BLOB"}, table_class="raw")
    await ask("classify", table=table, table_class="shared")
    key = {"id": {"$bytes": "00ff"}}
    await ask("put", table=table, key=key, columns={"n": 1.5, "raw": {"$bytes": "01"}})
    assert (await ask("get", table=table, key=key))["columns"]["raw"] == {"$bytes": "01"}
    assert await ask("get", table=table, key={"id": {"$bytes": ""}}) is None
    await ask("explain", table=table, key=key)
    rows = [{"key": {"id": {"$bytes": f"{number:02x}"}}, "columns": {"n": None}} for number in range(3)]
    await ask("import-rows", table=table, rows=rows)
    assert len(await ask("rows", table=table, limit=2, after={"id": {"$bytes": ""}})) == 2
    await ask("digest", table=table)
    await ask("remove", table=table, key=rows[0]["key"])
    await ask("changes", since=0, table=table, lines=3)
    (first,) = await ask("project", schema="s", lines=1)
    assert first["rows"] == "all"
    assert [each["name"] for each in first["tables"]] == ["extra"]
    write = {"table": "extra", "intent": "upsert", "columns": {"id": {"$bytes": "0f"}, "n": 1.5}}
    assert (await ask("write-schema", schema="s", writes=[write]))["receipt"]["table"] == table
    (page,) = await ask("project", schema="s", epoch=first["epoch"], since=first["seq"], lines=1)
    assert [each["row"]["columns"]["n"] for each in page["changes"]] == [1.5]
    await ask("forget", table=table, key=rows[1]["key"])
    await ask("compact", table=table)
    assert (await ask("check"))["differences"] == []
    await ask("evict", table=table, before_ms=1)
    await ask("rehydrate", table=table)


async def _conflicts(b: Node, ask: Asker) -> None:
    for number in (1, 2):
        await ask("set-online", online=False)
        await ask("put", table=TABLE, key={"id": f"n{number}"}, columns={"title": "here"})
        await b.put(TABLE, {"id": f"n{number}"}, {"title": "there"})
        await ask("set-online", online=True)
    async with asyncio.timeout(PATIENCE_S):
        while not (await ask("wait", timeout_s=5))["complete"]:
            pass  # a loaded machine takes longer than one such call may last
    found = await ask("conflict-changes", since=0, lines=2)
    assert {each["table"] for each in found} == {TABLE}
    first, second = await ask("conflicts", table=TABLE)
    await ask("resolve-conflict", id=first["id"], prefer="a")
    await ask("acknowledge-conflict", id=second["id"])
    await ask("request-sync", peer="b", table=TABLE)
    assert (await ask("verify", peer="b", lines=100))[-1]["report"]["fault"] is False


async def _log(b: Node, ask: Asker, folder: Path) -> None:
    page = await ask("events", query={"table": TABLE, "bytes": True, "verify": True}, limit=2)
    assert page["more"]
    assert (await ask("export-events", file=str(folder / "to-b"), peer="b", lines=100))[-1]["done"]
    async for _ in b.export_events(folder / "to-a", peer="a"):
        pass
    assert (await ask("import-events", file=str(folder / "to-a"), lines=100))[-1]["done"]
    assert await ask("notices")
    await ask("follow-notices", everything=True, lines=1)
    await ask("acknowledge")


async def _settings(ask: Asker) -> None:
    await ask("set-policy", setting="replay_budget_days", value=9)
    await ask("set-config", values={"replay_budget_days": 0})
    await ask("apply-config", text="replay_budget_days = 1\n")
    await ask("reload")


async def _pairing(ask: Asker) -> None:
    invite = await ask("invite", ttl_ms=60_000, confirm=True)
    assert (await ask("invited", id=invite["id"]))["state"] == "open"
    assert [each["id"] for each in await ask("invites")] == [invite["id"]]
    await ask("withdraw-invite", id=invite["id"])
    assert (await ask("invited", id=invite["id"]))["state"] == "withdrawn"
    await ask("nearby-open", ttl_ms=60_000)
    assert (await ask("nearby"))["state"] == "open"
    await ask("nearby-close")


async def _members(ask: Asker) -> None:
    await ask("vouch", subject=KEY, name="c")
    await ask("set-role", subject="c", role="reader")
    await ask("retire", subject="c")
    await ask("set-role", subject="b", role="authority")
    await ask("leave", timeout_s=1)


async def test_what_another_person_has_part_in_answers_as_documented(tmp_path: Path) -> None:
    node, home = MemoryNode(), Home(tmp_path / "n", Config())
    home.prepare()
    node.becomes = [InvitedView(state="asks", who=node.guest)]
    async with ControlServer(node, home):
        ask = Asker(Api(home.socket_path))
        await ask("decide", named="lap", approve=True)
        await ask("nearby-open", ttl_ms=5)
        await ask("nearby", seen="open")
        assert (await ask("nearby-answer", code="012345", yes=True))["state"] == "joined"
        await ask("resume")


async def test_every_operation_fails_as_documented(tmp_path: Path) -> None:
    nowhere: dict[str, Any] = {"table": "nowhere"}
    row = nowhere | {"key": {"id": "n1"}}
    absent = {
        "get": row, "explain": row, "remove": row, "forget": row, "put": row | {"columns": {}},
        "import-rows": nowhere | {"rows": [{"key": {"id": "n1"}, "columns": {}}]},
        "rows": nowhere, "digest": nowhere, "evict": nowhere | {"before_ms": 1}, "rehydrate": nowhere,
        "compact": nowhere, "classify": nowhere | {"table_class": "raw"}, "conflicts": nowhere,
        "events": {"query": nowhere}, "sync-state": {"peer": "nobody"},
        "frontier": {"peer": "nobody"}, "resolve-conflict": {"id": "00" * 16, "prefer": "a"},
        "acknowledge-conflict": {"id": "00" * 16}, "acknowledge": {"ids": [99]},
        "decide": {"named": "nobody", "approve": True}, "nearby-answer": {"code": "000000", "yes": True},
        "set-role": {"subject": "nobody", "role": "reader"}, "retire": {"subject": "nobody"},
        "vouch": {"subject": "nobody"}, "withdraw-invite": {"id": "00" * 8},
    }  # fmt: skip
    wrong = {
        "add-table": {"table": "sqlite_x", "key": {"id": "TEXT"}, "columns": {}},
        "doctor": {"checks": ["nothing"]}, "set-policy": {"setting": "no", "value": 1},
        "set-config": {"values": {"no": 1}}, "apply-config": {"text": "["},
        "get": {"table": "a.b.c", "key": {}}, "put": {"table": TABLE, "key": {"id": 2**70}, "columns": {}},
        "changes": {"since": 2**70}, "import-events": {"file": "relative"}, "rows": {"table": "", "limit": 2**70},
        "set-online": {"online": 1}, "rehydrate": {"table": 7},
        "request-sync": {"table": "x" * 129},
    }  # fmt: skip
    async with two_nodes(tmp_path) as (_, _, ask):
        assert {name: await ask.fails(name, **said) for name, said in absent.items()} == dict.fromkeys(
            absent, (404, "NotFoundError")
        )
        found = {name: await ask.fails(name, **said) for name, said in wrong.items()}
        assert {status for status, _ in found.values()} == {400}, found
        for operation in OPERATIONS.values():
            assert await ask.fails(operation.name, unheard=1) == (400, "UsageError")
        assert await ask.fails("changes", table="nowhere") == (200, "NotFoundError")  # its stream had begun
        assert await ask.fails("verify", peer="nobody") == (200, "NotFoundError")
        assert await ask.fails("import-events", file=str(tmp_path / "none")) == (200, "NotFoundError")
