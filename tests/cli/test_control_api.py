"""The control API between two ends in one process: values, errors, streams, permissions, both kinds of address."""

from __future__ import annotations

import asyncio
import logging
import os
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.memory_node import PEER, MemoryNode

from meshnode.control import address as control_address_module
from meshnode.control import requests
from meshnode.control.address import control_address
from meshnode.control.client import ControlClient
from meshnode.control.http import Exchange
from meshnode.control.server import ControlServer
from meshnode.errors import (
    BusyError,
    CloseCode,
    ConfigError,
    MembershipError,
    MeshError,
    NotFoundError,
    RegistrationError,
    TransportError,
    UsageError,
)
from meshnode.node.config import Config
from meshnode.node.home import Home
from meshnode.node.metricviews import exposition
from meshnode.node.pairing_views import InvitedView
from meshnode.node.views import RowChange, RowView


@pytest.fixture
def home(tmp_path: Path) -> Home:
    path = Path(os.path.realpath(f"/tmp/mn-{os.getpid()}-{abs(hash(tmp_path)) % 10**6}"))
    home = Home(path, Config())
    home.prepare()
    return home


@pytest.fixture
async def node(home: Home) -> AsyncIterator[MemoryNode]:
    node = MemoryNode()
    async with ControlServer(node, home):
        yield node
    for left in home.path.iterdir():
        left.unlink()
    home.path.rmdir()


async def client_of(home: Home) -> ControlClient:
    client = await ControlClient.connect(home)
    assert client is not None
    return client


async def test_every_kind_of_value_comes_back_as_it_went(home: Home, node: MemoryNode) -> None:
    client = await client_of(home)
    await client.add_table("notes", {"id": "TEXT"}, {"a": "", "b": ""})
    values = {
        "null": None,
        "bool": True,
        "int": -(2**63),
        "float": 1.0,
        "minus zero": -0.0,
        "text": "naïve \U0001f600 \x00",
        "bytes": b"\x00\xff",
    }
    await client.put("notes", {"id": b"\x01"}, values)
    row = await client.get("notes", {"id": b"\x01"})
    assert row is not None
    assert row == RowView(key={"id": b"\x01"}, columns=values)
    assert [type(value) for value in row.columns.values()] == [type(value) for value in values.values()]
    assert str(row.columns["minus zero"]) == "-0.0"


async def test_all_operations_pass_through(home: Home, node: MemoryNode) -> None:
    client = await client_of(home)
    await client.add_table("s.t", {"id": "INTEGER"}, {"a": "TEXT"}, own_numbers=True)
    assert [table.table for table in await client.tables()] == ["s.t"]
    rows = [RowChange(key={"id": number}, columns={"a": "x"}) for number in range(3)]
    assert (await client.import_rows("s.t", rows)).rows == 3
    assert [row.key for row in await client.rows("s.t", limit=2)] == [{"id": 0}, {"id": 1}]
    assert [row.key for row in await client.rows("s.t", after={"id": 1})] == [{"id": 2}]
    explained = await client.explain("s.t", {"id": 1})
    assert explained == await node.explain("s.t", {"id": 1})
    assert explained is not None
    assert (explained.columns[0].state, explained.columns[0].value) == ("written", "x")
    assert await client.explain("s.t", {"id": 7}) is None
    assert (await client.remove("s.t", {"id": 0})).events == 1
    assert await client.get("s.t", {"id": 0}) is None
    assert await client.peers() == [PEER]
    assert (await client.status()).running
    assert await client.metrics() == await node.metrics()
    assert (await client.digest())[0].rows == 2
    assert (await client.digest("s.t"))[0].table == "s.t"
    assert (await client.invite(5)).expires_ms == 5
    assert (await client.invite(5, confirm=True)).confirm
    node.becomes = [InvitedView(state="asks", who=node.guest)]
    assert await client.invited("00" * 8, timeout_s=9) == node.becomes[0]
    assert await client.decide(node.guest.short, approve=True) == node.guest
    assert (await client.nearby_open(7)).until_ms == 7
    assert (await client.nearby(seen="open", timeout_s=9)).state == "asks"
    assert (await client.nearby_answer("012345", yes=True)).state == "joined"
    assert (await client.nearby_close()).state == "closed"
    assert (await client.check()).count == 0
    evicted = await client.evict("s.t", before_ms=1_800_000_000_000, everything=True)
    assert (evicted.tables, evicted.events, evicted.horizon) == (["s.t"], 2, (1_800_000_000_000, 0))
    assert (await client.rehydrate("s.t")).asked == 2
    assert (await client.compact()).tables == (await client.compact("s.t")).tables == ["s.t"]
    assert (await client.forget("s.t", {"id": 1}, undo=True)).undone
    assert (await client.forget("s.t", {"id": 1})).events == 1
    assert await client.get("s.t", {"id": 1}) is None
    assert (await client.classify("s.t", "private")).classes == {"s.t": "private"}
    assert (await client.set_policy("scope", ["main.*"])).scope == ["main.*"]
    assert (await client.policy()).scope == ["main.*"]
    assert (await client.set_config({"scope": ["main.x"], "port": 7})).changed["port"].after == 7
    assert await client.config() == await node.config()
    receipt = await client.apply_config("port = 8 # why\n")
    assert (receipt.changed["scope"].after, receipt.reloaded, receipt.restart_required) == ([], True, ("port",))
    assert (await client.reload()).digest == receipt.digest
    with pytest.raises(ConfigError, match="did you mean 'port'"):
        await client.set_config({"prot": 1})
    assert [each.cursor for each in await client.sync_state()] == [5]
    assert [each.counter for each in await client.frontier(PEER.name)] == [9]
    assert [each.table for each in (await client.request_sync(table="s.t")).asked] == ["s.t"]
    assert await client.discover(seconds=0) == await node.discover(seconds=0)
    node.waits.clear()
    assert await client.members() == await node.members()
    assert (await client.vouch("nas", name="n")).name == "n"
    assert (await client.set_role("nas", "reader", recovery="/k")).by == "/k"
    assert (await client.retire("nas", at_ms=5)).cutoff == (5, 0)
    assert (await client.leave(timeout_s=3)).untold == ("nas",)
    assert node.waits == [3]
    await client.set_online(False)
    assert not node.online


@pytest.mark.parametrize(
    "error",
    [
        NotFoundError("no such"),
        UsageError("wrong"),
        RegistrationError("column x"),
        BusyError("held"),
        MembershipError("retired"),
        TransportError("lost", CloseCode.RETIRED),
        MeshError("plain"),
    ],
)
async def test_errors_keep_class_message_and_code(home: Home, node: MemoryNode, error: MeshError) -> None:
    node.failure = error
    with pytest.raises(MeshError) as caught:
        await (await client_of(home)).status()
    assert type(caught.value) is type(error)
    assert str(caught.value) == str(error)
    assert getattr(caught.value, "code", None) == getattr(error, "code", None)


async def test_an_unexpected_error_is_one_line_and_the_server_lives_on(home: Home, node: MemoryNode) -> None:
    node.failure = ZeroDivisionError("secret detail")
    client = await client_of(home)
    with pytest.raises(MeshError, match="its log says more"):
        await client.status()
    assert await client.peers() == [PEER]


async def test_changes_stream_without_a_gap_and_end_with_the_node(home: Home) -> None:
    node = MemoryNode()
    async with ControlServer(node, home):
        client = await client_of(home)
        await node.add_table("t", {"id": "TEXT"}, {"a": "TEXT"})
        await node.put("t", {"id": "before"}, {})
        changes = client.changes(since=0)
        assert (await anext(changes)).key == {"id": "before"}
        await node.put("t", {"id": "after"}, {"a": b"\x07"})
        change = await anext(changes)
        assert (change.seq, change.columns) == (2, {"a": b"\x07"})
    with pytest.raises(StopAsyncIteration):
        await anext(changes)
    home.lock_path.unlink(missing_ok=True)
    home.path.rmdir()


async def test_the_socket_is_private_and_gone_afterwards(home: Home) -> None:
    async with ControlServer(MemoryNode(), home):
        mode = home.socket_path.stat().st_mode
        assert stat.S_ISSOCK(mode)
        assert stat.S_IMODE(mode) == 0o600
        assert not home.token_path.exists()
    assert not home.socket_path.exists()
    assert await ControlClient.connect(home) is None
    home.path.rmdir()


async def test_a_scraper_gets_text_and_needs_the_token_as_anybody(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_address_module, "_UNIX_PATH_BYTES", 0)
    node = MemoryNode()
    async with ControlServer(node, home):
        address = control_address(home)
        assert address is not None
        answers = []
        for said in ("", "Authorization: Bearer wrong\r\n", f"Authorization: Bearer {address.token}\r\n"):
            reader, writer = await asyncio.open_connection("127.0.0.1", address.port)
            writer.write(f"GET /v1/metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{said}\r\n".encode())
            answers.append((await reader.read()).decode())
            writer.close()
            await writer.wait_closed()
    assert [answer.split()[1] for answer in answers] == ["401", "401", "200"]
    assert answers[2].endswith("\r\n\r\n" + exposition(await node.metrics()))
    assert not any("meshnode_up" in answer for answer in answers[:2])
    home.path.rmdir()


async def test_a_socket_left_by_a_killed_node_is_no_node_and_is_replaced(home: Home) -> None:
    import socket

    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(home.socket_path))
    assert await ControlClient.connect(home) is None
    async with ControlServer(MemoryNode(), home):
        assert await ControlClient.connect(home) is not None
    home.path.rmdir()


@pytest.mark.parametrize("longest", [103, 0], ids=["socket", "port"])
async def test_a_second_server_of_a_home_is_refused_and_the_first_goes_on(
    longest: int, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control_address_module, "_UNIX_PATH_BYTES", longest)
    async with ControlServer(MemoryNode(), home):
        with pytest.raises(BusyError, match="served already"):
            await ControlServer(MemoryNode(), home).__aenter__()
        assert await (await client_of(home)).peers() == [PEER]
    home.path.rmdir()


async def test_loopback_with_a_token_where_there_is_no_unix_socket(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_address_module, "_UNIX_PATH_BYTES", 0)
    async with ControlServer(MemoryNode(), home):
        assert not home.socket_path.exists()
        assert stat.S_IMODE(home.token_path.stat().st_mode) == 0o600
        assert await (await client_of(home)).peers() == [PEER]
        address = control_address(home)
        assert address is not None
        assert address.token is not None
        assert address.token not in repr(address)
        exchange = await Exchange.open(control_address_module.ControlAddress(port=address.port, token="wrong"))
        assert exchange is not None
        assert await exchange.ask("/v1/status", b"") == 401
        await exchange.close()
    assert not home.token_path.exists()
    home.path.rmdir()


@pytest.mark.parametrize(
    ("operation", "body", "status", "says"),
    [
        ("put", b"{", 400, "not JSON"),
        ("put", b'{"table": "t", "key": {}, "columns": {}, "more": 1}', 400, "more"),
        ("put", b'{"table": 7}', 400, "table"),
        ("put", b'{"table": "t", "key": {"id": NaN}, "columns": {}}', 400, "NaN"),
        ("put", b"[" * 100_000, 400, "nested"),
        ("set-config", b'{"values": {"peers": ' + b"[" * 900 + b"]" * 900 + b"}}", 400, "nested"),
        ("events", b'{"after": 9223372036854775808}', 400, "`$.after`"),
        ("acknowledge", b'{"ids": [-9223372036854775809]}', 400, "`$.ids[0]`"),
        ("conflicts", b'{"table": "\\ud800"}', 400, "not Unicode"),
        ("events", b'{"query": {"\\ud800": 1}}', 400, "not Unicode"),
        ("nothing", b"", 404, "no such operation"),
    ],
)
async def test_bad_requests_are_one_clear_error(
    home: Home, node: MemoryNode, operation: str, body: bytes, status: int, says: str
) -> None:
    address = control_address(home)
    assert address is not None
    exchange = await Exchange.open(address)
    assert exchange is not None
    assert await exchange.ask(f"/v1/{operation}", body) == status
    assert says in (await exchange.body()).decode()
    await exchange.close()


async def test_a_long_wait_is_cut_into_short_ones(
    home: Home, node: MemoryNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "WAIT_SLICE_S", 0.01)
    node.complete, node.complete_after = False, 3
    assert (await (await client_of(home)).wait(timeout_s=3600)).complete
    assert node.waits == [0.01] * 3


@pytest.mark.parametrize("operation", ["wait", "invited", "nearby", "leave", "discover"])
async def test_a_node_that_stops_lets_go_of_who_waits(
    operation: str, home: Home, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    waiting = asyncio.Event()

    async def forever(*_: object, **__: object) -> None:
        waiting.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(MemoryNode, operation, forever)
    async with ControlServer(MemoryNode(), home):
        client = await client_of(home)
        arguments = {"invited": (b"".hex(),)}.get(operation, ())
        named = {"seconds": 20} if operation == "discover" else {"timeout_s": 20}
        asked = asyncio.ensure_future(getattr(client, operation)(*arguments, **named))
        await waiting.wait()
    with pytest.raises(TransportError, match="stopped while it was asked"):
        await asked
    assert [each for each in caplog.records if each.levelno >= logging.INFO] == []
