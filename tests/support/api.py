"""Asks the control API as any program may, byte by byte, and holds each answer to the document."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import h11
from jsonschema import Draft202012Validator
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012

JSON = "application/json"


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer, or what came of it."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)

    @property
    def lines(self) -> list[Any]:
        """Its lines but for the empty one, each as JSON."""
        return [json.loads(line) for line in self.body.splitlines() if line]


class Api:
    """A node's control socket."""

    def __init__(self, socket: Path) -> None:
        self.socket = socket

    async def send(self, *parts: bytes, method: str = "GET", lines: int = 0) -> Answer:
        """Send bytes as they are; with `lines`, hang up when so many non-empty ones are here."""
        reader, writer = await asyncio.open_unix_connection(str(self.socket))
        try:
            for part in parts:
                writer.write(part)
                await writer.drain()
            return await _read(reader, method, lines)
        finally:
            writer.close()

    async def ask(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        *,
        content_type: str | None = JSON,
        length: int | None = None,
        lines: int = 0,
    ) -> Answer:
        """One request."""
        head = [f"{method} {path} HTTP/1.1", "Host: x", "Connection: close"]
        head += [f"Content-Type: {content_type}"] if content_type is not None else []
        head += [f"Content-Length: {len(body) if length is None else length}"]
        return await self.send("\r\n".join([*head, "", ""]).encode() + body, method=method, lines=lines)

    async def post(self, name: str, arguments: Mapping[str, Any], *, lines: int = 0) -> Answer:
        """An operation with its arguments in JSON."""
        return await self.ask("POST", f"/v1/{name}", json.dumps(arguments).encode(), lines=lines)

    async def get(self, name: str, arguments: Mapping[str, Any], *, lines: int = 0) -> Answer:
        """An operation with its arguments in the query."""
        said = {key: str(value).lower() if value is True else value for key, value in arguments.items()}
        query = urlencode(said, doseq=True)
        return await self.ask("GET", f"/v1/{name}{'?' if query else ''}{query}", content_type=None, lines=lines)


async def _read(reader: asyncio.StreamReader, method: str, lines: int) -> Answer:
    http = h11.Connection(h11.CLIENT)
    http.send(h11.Request(method=method, target="/", headers=[("Host", "x"), ("Connection", "close")]))
    http.send(h11.EndOfMessage())
    head: h11.Response | None = None
    body = b""
    async with asyncio.timeout(60):
        while True:
            event = http.next_event()
            if event is h11.NEED_DATA:
                http.receive_data(await reader.read(65536))
            elif isinstance(event, h11.Response):
                head = event
            elif isinstance(event, h11.Data):
                body += event.data
            else:
                break
            if lines and body.lstrip(b"\n").count(b"\n") >= lines:
                break
    assert head is not None, "hung up without an answer"
    headers = {name.decode(): value.decode() for name, value in head.headers}
    return Answer(head.status_code, headers, body)


class Judge:
    """The document, as an independent validator of JSON Schema reads it."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.document = document
        self._registry = Registry().with_resource("urn:api", Resource(contents=document, specification=DRAFT202012))

    def check(self, method: str, path: str, answer: Answer) -> None:
        """The answer's type and every bit of its body are as the document says of this status."""
        responses = self.document["paths"][path][method.lower()]["responses"]
        at = f"/paths/{path.replace('/', '~1')}/{method.lower()}/responses/{answer.status}"
        response = responses.get(str(answer.status))
        if response is None:
            at, response = at.replace(f"/{answer.status}", "/default"), responses["default"]
        if "$ref" in response:
            at = response["$ref"].removeprefix("#")
            response = self.document["components"]["responses"][at.rpartition("/")[2]]
        ((content_type, _),) = response["content"].items()
        assert answer.headers["content-type"] == content_type, (path, answer)
        if content_type.startswith("text/"):
            return
        where = f"{at}/content/{content_type.replace('/', '~1')}/schema"
        for value in answer.lines if content_type == "application/jsonl" else [answer.json]:
            self.holds(where, value)

    def failure(self, answer: Answer) -> str:
        """An answer of no operation is a typed error: its name."""
        assert answer.headers["content-type"] == JSON, answer
        self.holds("/components/schemas/Failure", answer.json)
        return str(answer.json["error"])

    def holds(self, where: str, value: Any) -> None:
        """The value is what the schema at this place says."""
        validator = Draft202012Validator({"$ref": f"urn:api#{where}"}, registry=self._registry)
        wrong = [f"{where}: {error.json_path}: {error.message}" for error in validator.iter_errors(value)]
        assert wrong == []
