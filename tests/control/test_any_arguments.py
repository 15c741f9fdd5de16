"""Whatever an operation is asked with, it answers as its document says: a value, or a typed error that is short."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from typing import Any, Final, get_args, get_origin
from urllib.parse import urlencode

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.types import Message
from support.api import Answer, Judge
from support.nodes import COLUMNS, KEY, PATIENCE_S, TABLE, loopback

from meshnode import Node
from meshnode.control import requests
from meshnode.control.answering import INTERNAL
from meshnode.control.app import control_app, document_bytes
from meshnode.control.operation import Operation, Stream
from meshnode.control.operations import OPERATIONS
from meshnode.node.memberviews import LeaveView

MESSAGE_CHARACTERS: Final = 5000  # of any error, however long what it is about: a path has 4096 at most
LONG: Final = "x" * 20_000
DEEP: Final = {"a": {"a": {"a": [[[[[[{}]]]]]]}}}
TEXTS: Final = (
    *("", " ", "\0", "a\0b", "\ud800", "\U0001f600", "\u202e", LONG, "'", '"', "\n", "-1", "0", "nan", "1" * 400),
    *(
        "/",
        ".",
        "..",
        "~",
        "~nobody-of-this-name",
        "~\0",
        "/dev/null/x",
        "/proc/self/mem",
        "/" + LONG,
        "/etc",
        "é" * 3000,
    ),
    *(TABLE, "main.", ".", "main.notes", ".notes", "sqlite_master", "meshnode_sites", "a.b.c", "temp.x", "NOTES"),
    *("n", "ff", "00" * 16, "00" * 32, "7a" * 32, "zz" * 16, "member", "reader", "authority", "shared", "private"),
    *("TEXT", "INTEGER", "BLOB", "REAL", "TEXT UNIQUE", "TEXT); DROP TABLE notes;--", "open", "asks", "scope", "port"),
    *("[", "port = 1", "x = 1", "peers = 1", "scope = ['']", "a" * 129, "disk", "keys", "*", "main.*"),
)
NUMBERS: Final = (
    *(0, 1, -1, 2**31, 2**53, 2**53 + 1, 2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 2**64, 10**30),
    *(0.0, -0.0, 0.5, 1e-320, 1e308, -1e308),
)
OTHERS: Final = (None, True, False, [], {}, [[]], [{}], DEEP, {"$bytes": ""}, {"$bytes": "zz"}, {"$bytes": 1}, {"": 1})
ANY: Final = st.one_of(st.sampled_from(TEXTS), st.sampled_from(NUMBERS), st.sampled_from(OTHERS), st.text(max_size=8))
ENDLESS: Final = ("changes", "follow-notices", "conflict-changes", "project")
EXAMPLES: Final = 12  # of each operation


async def _left_in(*_: object) -> LeaveView:
    """Asked to leave, the node would be no member any more."""
    return LeaveView(site="00" * 16, short="00" * 4, name="a", cutoff=(0, 0))


ANSWERS: Final = {"leave": _left_in}


def fitting(kind: Any) -> st.SearchStrategy[Any]:
    """What has the type, more or less: the rest of it is what an operation has to find out."""
    if get_origin(kind) is None and hasattr(kind, "__value__"):
        return fitting(kind.__value__)
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return asking(kind)
    if kind is bool:
        return st.booleans()
    if kind in (int, float):
        return st.sampled_from(NUMBERS)
    if kind is str:
        return st.sampled_from(TEXTS)
    inside = get_args(kind)
    if get_origin(kind) is list:
        return st.lists(fitting(inside[0]), max_size=2)
    if get_origin(kind) is dict:
        names = st.sampled_from(("id", "title", "", "nope", LONG, "\0"))
        return st.dictionaries(names, fitting(inside[1]), max_size=2)
    if inside and not hasattr(kind, "__metadata__"):
        return st.one_of([fitting(each) for each in inside if each is not type(None)])
    return fitting(inside[0]) if inside else ANY


def asking(kind: type[msgspec.Struct]) -> st.SearchStrategy[dict[str, Any]]:
    """Arguments: most of them fit, some do not, and those that may be left out often are."""
    needed = {each.encode_name for each in msgspec.structs.fields(kind) if each.required}
    each = {
        field.encode_name: st.one_of(fitting(field.type), fitting(field.type), fitting(field.type), ANY)
        for field in msgspec.structs.fields(kind)
    }
    return st.fixed_dictionaries(
        {name: values for name, values in each.items() if name in needed},
        optional={name: values for name, values in each.items() if name not in needed},
    )


async def answered(node: Node, method: str, operation: Operation[Any, Any], arguments: Mapping[str, Any]) -> Answer:
    """What it is answered with, without a socket; a stream without an end is stopped after another answer."""
    stopping, begun, told = asyncio.Event(), asyncio.Event(), b""
    head: Message = {}
    bodies = iter([json.dumps(arguments).encode() if method == "POST" else b""])

    async def receive() -> Message:
        for body in bodies:
            return {"type": "http.request", "body": body, "more_body": False}
        return await asyncio.Future()  # nobody hangs up

    async def send(message: Message) -> None:
        nonlocal told, head
        head = message if message["type"] == "http.response.start" else head
        told += message.get("body", b"")
        begun.set()

    headers = [(b"content-type", b"application/json")]
    said = {name: str(value).lower() if isinstance(value, bool) else value for name, value in arguments.items()}
    query = urlencode(said, doseq=True, errors="replace").encode() if method == "GET" else b""
    scope = {"type": "http", "method": method, "path": operation.path, "query_string": query, "headers": headers}
    app = control_app(node, token=None, stopping=stopping, answers=ANSWERS)
    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
        group.create_task(app(scope, receive, send))
        await begun.wait()
        if operation.name in ENDLESS:
            await node.peers()
            stopping.set()
    found = {name.decode(): value.decode() for name, value in head["headers"]}
    return Answer(head["status"], found, told)


def _one(answer: Answer) -> Any:
    return {} if answer.headers["content-type"].startswith("text/") else answer.json


def wrong(answer: Answer, operation: Operation[Any, Any]) -> str:
    """What is not as it has to be, besides the document."""
    failure = (answer.lines or [{}])[-1] if isinstance(operation, Stream) else _one(answer)
    if not (isinstance(failure, dict) and set(failure) == {"error", "message", "code"}):
        return "" if answer.status == 200 else f"{answer.status} without an error"
    message = failure["message"]
    if answer.status >= 500 or message == INTERNAL:
        return f"{answer.status} {failure}"
    return f"{len(message)} characters: {message[:200]}" if len(message) > MESSAGE_CHARACTERS else ""


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[asyncio.Runner, Node]]:
    """A node with a row, and the loop that it is in."""
    with pytest.MonkeyPatch.context() as patch, asyncio.Runner() as runner:
        patch.setattr(requests, "WAIT_SLICE_S", 0.0)
        patch.chdir(tmp_path_factory.mktemp("here"))
        node = Node(tmp_path_factory.mktemp("home") / "n", config=loopback(name="a"))
        runner.run(node.__aenter__())
        runner.run(node.add_table(TABLE, KEY, COLUMNS))
        runner.run(node.put(TABLE, {"id": "n"}, {"title": "here"}))
        yield runner, node
        runner.run(node.__aexit__(None, None, None))


@pytest.mark.parametrize("name", sorted(each.name for each in OPERATIONS.values()))
def test_an_operation_answers_whatever_it_is_asked_with(name: str, asked: tuple[asyncio.Runner, Node]) -> None:
    runner, node = asked
    operation = OPERATIONS[f"/v1/{name}"]
    judge = Judge(json.loads(document_bytes()))

    @settings(max_examples=EXAMPLES, deadline=None)
    @given(asking(operation.takes), st.booleans())
    def answers(arguments: dict[str, Any], get: bool) -> None:
        method = "GET" if get and operation.reads else "POST"
        answer = runner.run(answered(node, method, operation, arguments))
        judge.check(method, operation.path, answer)
        assert wrong(answer, operation) == ""

    answers()
