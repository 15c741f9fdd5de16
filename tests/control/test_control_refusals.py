"""What no operation answers: every such request gets a typed error, and none harms the node."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from starlette.types import ASGIApp, Message
from support.api import Answer, Api, Judge
from support.memory_node import MemoryNode

from meshnode.control import asking, connection, serving
from meshnode.control.answering import error_answer
from meshnode.control.app import control_app, document_bytes
from meshnode.control.connection import Connection
from meshnode.control.failures import RefusedError
from meshnode.control.operations import OPERATIONS
from meshnode.control.requests import BODY_BYTES
from meshnode.control.server import ControlServer
from meshnode.node.config import Config
from meshnode.node.home import Home

JUDGE = Judge(json.loads(document_bytes()))
STATUS = b"GET /v1/status HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


@pytest.fixture
async def node() -> MemoryNode:
    node = MemoryNode()
    await node.add_table("notes", {"id": "TEXT"}, {"title": "TEXT"})
    return node


@pytest.fixture
async def api(node: MemoryNode, tmp_path: Path) -> AsyncIterator[Api]:
    home = Home(tmp_path / "n", Config())
    home.prepare()
    async with ControlServer(node, home):
        yield Api(home.socket_path)


def said(answer: Answer) -> tuple[int, str]:
    """Status and name of a typed error."""
    return answer.status, JUDGE.failure(answer)


async def test_a_path_that_there_is_not(api: Api) -> None:
    paths = ("/", "/v1", "/v1/", "/v1/status/", "/v2/status", "/v1/nothing", "/v1/%73tatus%00", "/v1/../v1/status")
    for path in paths:
        for method in ("GET", "POST", "OPTIONS"):
            assert said(await api.ask(method, path)) == (404, "NotFoundError"), (method, path)


async def test_a_method_that_there_is_not(api: Api) -> None:
    for method in ("OPTIONS", "PUT", "DELETE", "PATCH", "TRACE", "BREW"):
        for path, allowed in (("/v1/status", "GET, POST"), ("/v1/put", "POST"), ("/v1/openapi.json", "GET")):
            answer = await api.ask(method, path)
            assert (*said(answer), answer.headers["allow"]) == (405, "UsageError", allowed)


async def test_head_has_the_head_of_that_error_and_no_body(api: Api) -> None:
    for path in ("/v1/status", "/v1/changes", "/v1/openapi.json"):
        answer = await api.ask("HEAD", path)
        assert (answer.status, answer.body, answer.headers["content-type"]) == (405, b"", "application/json")


async def test_no_operation_that_writes_is_a_get(api: Api) -> None:
    for operation in OPERATIONS.values():
        if not operation.reads:
            assert said(await api.ask("GET", operation.path)) == (405, "UsageError")


BODIES = (
    (b"{", "not JSON"),
    (b"\xff\xfe", "not JSON"),
    (b"[]", "object"),
    (b"null", "object"),
    (b'"\\ud800"', "surrogate"),
    (b'{"table": "\\ud800"}', "surrogate"),
    (b'{"table": "notes", "key": {"\\uDfff": 1}}', "surrogate"),
    (b'{"table": "notes", "table": "notes"}', "twice"),
    (b'{"table": "notes", "key": {"id": Infinity}}', "Infinity"),
    (b'{"table": "notes", "key": {"id": ' + b"9" * 5000 + b"}}", "not JSON"),
    (b'{"table": "notes", "key": {"id": {"$bytes": "0"}}}', "hex"),
    (b'{"table": "notes", "key": {}, "colums": {}}', "colums"),
    (b'{"table": 7, "key": {}}', "table"),
    (b"{}", "table"),
    (b"", "table"),
    (b"[" * 60_000, "nested"),
    (b'{"a":' * 970 + b"1" + b"}" * 970, ""),
    (b'{"a":' * 300 + b"1" + b"}" * 300, ""),
    (b"[" * 970 + b"]" * 970, ""),
)


async def test_a_body_that_is_no_arguments(api: Api) -> None:
    for body, says in BODIES:
        answer = await api.ask("POST", "/v1/get", body)
        assert (body[:40], *said(answer)) == (body[:40], 400, "UsageError")
        assert says in answer.json["message"]


async def test_unknown_names_are_refused_in_what_is_inside_too(api: Api) -> None:
    for name, arguments in (
        ("events", {"query": {"tabel": "notes"}}),
        ("import-rows", {"table": "notes", "rows": [{"key": {"id": "a"}, "columns": {}, "colums": {}}]}),
    ):
        assert said(await api.post(name, arguments)) == (400, "UsageError")


async def test_a_body_that_is_not_said_to_be_json(api: Api) -> None:
    for content_type in (None, "text/plain", "application/x-www-form-urlencoded", "application/jsonl"):
        assert said(await api.ask("POST", "/v1/status", b"{}", content_type=content_type)) == (415, "UsageError")
        assert (await api.ask("POST", "/v1/status", content_type=content_type)).status == 200  # there is none
    assert (await api.ask("POST", "/v1/status", b"{}", content_type="Application/JSON; charset=utf-8")).status == 200


async def test_arguments_in_the_wrong_place_or_form(api: Api) -> None:
    assert said(await api.ask("POST", "/v1/frontier?peer=nas", b"{}")) == (400, "UsageError")
    for query in ("unheard=1", "peer=a&peer=b"):
        assert said(await api.ask("GET", f"/v1/frontier?{query}")) == (400, "UsageError")
    for query in ("since=x", "since=" + "9" * 40):
        assert said(await api.ask("GET", f"/v1/changes?{query}")) == (400, "UsageError")
    assert (await api.ask("GET", "/v1/frontier?peer=nas")).status == 200


async def test_a_body_that_is_too_large_is_not_read(api: Api) -> None:
    answer = await api.ask("POST", "/v1/put", b"{", length=BODY_BYTES + 1)
    assert said(answer) == (413, "UsageError")
    assert answer.headers["connection"] == "close"


async def test_a_body_that_grows_too_large_is_read_no_further(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "BODY_BYTES", 1000)
    head = b"POST /v1/put HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    assert said(await api.send(head, b"3e9\r\n" + b" " * 1001 + b"\r\n", method="POST")) == (413, "UsageError")


async def test_many_large_requests_at_once_share_one_budget() -> None:
    bodies = asking.Bodies()
    with bodies.share() as first:
        bodies.take(asking.BODIES_BYTES)
        first.taken = asking.BODIES_BYTES
        with pytest.raises(RefusedError) as refused:
            bodies.take(1)
        assert said(_answered(refused.value)) == (503, "BusyError")
    bodies.take(1)  # what the first one had was given back


def _answered(error: Exception) -> Answer:
    answer = error_answer(error)
    return Answer(answer.status_code, dict(answer.headers), bytes(answer.body))


async def test_what_one_request_had_is_given_back(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "BODIES_BYTES", 1000)
    for _ in range(3):
        assert said(await api.ask("POST", "/v1/status", b" " * 1001)) == (503, "BusyError")
        assert (await api.ask("POST", "/v1/status", b" " * 900 + b"{}")).status == 200


async def test_a_body_that_does_not_come_is_not_waited_for(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "BODY_S", 0.01)
    answer = await api.ask("POST", "/v1/put", b"{", length=10)
    assert said(answer) == (408, "UsageError")


async def test_a_head_that_does_not_come_is_not_waited_for(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "HEAD_S", 0.01)
    for sent in (b"", b"G", b"GET /v1/status HTTP/1.1\r\nHost: x\r\n"):
        assert said(await api.send(sent)) == (408, "UsageError")


async def test_what_is_no_http(api: Api) -> None:
    tls = b"\x16\x03\x01\x00\x00" * 40 + b"\r\n\r\n"
    for sent in (tls, b"GET /\r\n\r\n", b"GET /v1/status HTTP/1.1\r\n\r\n", b"x" * 100_000):
        assert said(await api.send(sent)) == (400, "UsageError")
    assert (await api.send(STATUS)).status == 200


async def test_connections_have_a_bound(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "CONNECTIONS", 2)
    lost = asyncio.Semaphore(0)
    losing = Connection.connection_lost

    def one_lost(self: Connection, error: Exception | None) -> None:
        losing(self, error)
        lost.release()

    monkeypatch.setattr(Connection, "connection_lost", one_lost)
    held = [await asyncio.open_unix_connection(str(api.socket)) for _ in range(2)]
    for reader, writer in held:
        writer.write(b"GET /v1/changes HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b"200" in await reader.readline()
    assert said(await api.send()) == (503, "BusyError")
    held.pop()[1].close()
    await lost.acquire()  # the one that was turned away
    await lost.acquire()
    assert (await api.send(STATUS)).status == 200
    held.pop()[1].close()


async def test_who_does_not_read_makes_room_for_who_does(
    api: Api, node: MemoryNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "CONNECTIONS", 1)
    monkeypatch.setattr(connection, "STALLED_S", 0.0)
    stalled = asyncio.Event()
    pause = Connection.pause_writing

    def paused(self: Connection) -> None:
        pause(self)
        stalled.set()

    monkeypatch.setattr(Connection, "pause_writing", paused)
    await node.put("notes", {"id": "large"}, {"title": "x" * 4_000_000})
    reader, writer = await asyncio.open_unix_connection(str(api.socket), limit=1)
    writer.write(b"GET /v1/changes?since=0 HTTP/1.1\r\nHost: x\r\n\r\n")
    await stalled.wait()
    assert (await api.send(STATUS)).status == 200
    with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
        await reader.readexactly(5_000_000)
    writer.close()


async def test_a_fault_is_told_as_an_error_and_its_detail_is_not(api: Api, node: MemoryNode) -> None:
    node.failure = ZeroDivisionError("secret detail")
    answer = await api.post("status", {})
    assert said(answer) == (500, "MeshError")
    assert b"secret" not in answer.body


async def test_a_fault_within_a_stream_is_its_last_line(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(*_: object, **__: object) -> AsyncIterator[None]:
        raise ZeroDivisionError("secret detail")
        yield

    monkeypatch.setattr(MemoryNode, "changes", broken)
    answer = await api.get("changes", {})
    JUDGE.check("GET", "/v1/changes", answer)
    assert [line["error"] for line in answer.lines] == ["MeshError"]
    assert b"secret" not in answer.body


async def test_an_error_that_names_what_is_no_unicode_is_told_too(
    api: Api, node: MemoryNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("meshnode"), "propagate", False)  # no report can carry what it logs
    node.failure = FileNotFoundError(os.fsdecode(b"\xff"))
    assert said(await api.post("status", {})) == (500, "MeshError")


async def test_the_document_is_served_as_it_is_kept(api: Api) -> None:
    answer = await api.ask("GET", "/v1/openapi.json")
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    assert answer.body == document_bytes()


async def test_who_serves_the_api_may_answer_in_the_place_of_the_node() -> None:
    async def pong(*_: object) -> dict[str, str]:
        return {"here": "not the node"}

    app = control_app(MemoryNode(), token=None, stopping=asyncio.Event(), answers={"ping": pong})
    assert (await _direct(app)).json == {"here": "not the node"}


async def test_without_its_token_nothing_is_told_on_loopback() -> None:
    app = control_app(MemoryNode(), token="secret", stopping=asyncio.Event())
    for given in ("", "secret", "Bearer wrong", "Bearer s\xe9cret"):
        answer = await _direct(app, given)
        assert (*said(answer), answer.headers["www-authenticate"]) == (401, "UsageError", "Bearer")
    assert (await _direct(app, "Bearer secret")).json == {}


async def _direct(app: ASGIApp, authorization: str = "") -> Answer:
    """A ping, without a socket."""
    told: list[Message] = []

    async def send(message: Message) -> None:
        told.append(message)

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    headers = [(b"authorization", authorization.encode("latin-1"))]
    await app(
        {"type": "http", "method": "GET", "path": "/v1/ping", "query_string": b"", "headers": headers}, receive, send
    )
    found = {name.decode(): value.decode() for name, value in told[0]["headers"]}
    return Answer(told[0]["status"], found, told[1]["body"])


UNFINISHED = (
    b"",
    b"POST /v1/put HT",
    b"POST /v1/put HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{",
    b"POST /v1/put HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n",
    b"POST /v1/put HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 9\r\n\r\n",
)


async def test_a_node_that_stops_waits_for_no_request_that_is_not_whole(
    node: MemoryNode, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "SHUTDOWN_S", 3600)
    (home := Home(tmp_path / "n", Config())).prepare()
    held = []
    async with ControlServer(node, home):
        for sent in UNFINISHED:
            reader, writer = await asyncio.open_unix_connection(str(home.socket_path))
            writer.write(sent)
            held.append((reader, writer))
        assert (await Api(home.socket_path).send(STATUS)).status == 200  # what was sent before is here
    for sent, (reader, writer) in zip(UNFINISHED, held, strict=True):
        ends = await reader.read()
        assert (b" 503 " in ends and b"TransportError" in ends) == (b"\r\n\r\n" in sent), ends
        writer.close()
    assert [each for each in caplog.records if each.levelno >= logging.INFO] == []


async def test_a_node_that_stops_tells_who_asked_for_what_takes_too_long(
    node: MemoryNode, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "SHUTDOWN_S", 0.01)
    (home := Home(tmp_path / "n", Config())).prepare()
    began = asyncio.Event()

    async def long(*_: object, **__: object) -> None:
        began.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(MemoryNode, "check", long)
    async with ControlServer(node, home):
        asked = asyncio.ensure_future(Api(home.socket_path).post("check", {}))
        await began.wait()
    assert said(await asked) == (503, "TransportError")
    assert [each for each in caplog.records if each.levelno >= logging.INFO] == []


async def test_what_is_no_http_is_no_line_of_the_log(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(3):
        assert said(await api.send(b"GET /\r\n\r\n")) == (400, "UsageError")
    upgrade = b"GET /v1/ping HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, close\r\nUpgrade: websocket\r\n\r\n"
    assert (await api.send(upgrade)).status == 200
    assert [each for each in caplog.records if each.levelno >= logging.INFO] == []
