"""The to-do example as a browser asks it: two pages of two devices, over HTTP."""

from __future__ import annotations

import asyncio
import importlib
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from support.nodes import free_port

PATIENCE_S = 60.0


class Page:
    """One device's page."""

    def __init__(self, port: int, secret: str) -> None:
        self.port, self._secret = port, secret

    def connection(self) -> HTTPConnection:
        return HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)

    def _ask(self, method: str, path: str, body: object) -> tuple[int, str]:
        with closing(self.connection()) as connection:
            connection.request(method, f"/{self._secret}/{path}", json.dumps(body))
            answer = connection.getresponse()
            return answer.status, answer.read().decode()

    async def ask(self, method: str, path: str, body: object = None) -> tuple[int, str]:
        return await asyncio.to_thread(self._ask, method, path, body)

    def _until(self, tasks: list[list[Any]]) -> list[str]:
        with closing(self.connection()) as connection:
            connection.request("GET", f"/{self._secret}/changes")
            answer: HTTPResponse = connection.getresponse()
            assert answer.headers["content-type"].startswith("text/event-stream")
            while line := answer.readline():
                if line.startswith(b"data: "):
                    found = json.loads(line.removeprefix(b"data: "))
                    if [[task["title"], task["done"]] for task in found] == tasks:
                        return [task["id"] for task in found]
        raise AssertionError("the server hung up")

    async def until(self, *tasks: list[Any]) -> list[str]:
        """Follow the changes until title and done are so; the ids."""
        return await asyncio.to_thread(self._until, list(tasks))


@asynccontextmanager
async def served(todo: Any) -> AsyncIterator[Page]:
    """The example on a free port."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = uvicorn.Server(uvicorn.Config(todo.app, log_config=None, timeout_graceful_shutdown=1))
        serving = asyncio.create_task(server.serve([listening]))
        try:
            yield Page(listening.getsockname()[1], todo.secret)
        finally:
            server.should_exit = True
            await serving


async def test_two_pages_show_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "examples")
    todo_web = importlib.import_module("todo_web")

    def todo(name: str, invite: str = "") -> Any:
        return todo_web.opened(
            tmp_path / name, invite, name=name, listen="127.0.0.1", port=free_port(), mdns_enabled=False
        )

    async with todo("desk") as here, served(here) as desk:
        code, html = await desk.ask("GET", "")
        assert (code, "<h1>To do</h1>" in html) == (200, True)
        stranger = Page(desk.port, "guess")
        assert (await stranger.ask("GET", ""))[0] == (await stranger.ask("POST", "tasks", {"title": "Eggs"}))[0] == 404
        assert (await desk.ask("POST", "tasks", {"title": "Milk"}))[0] == 204
        _, invite = await desk.ask("POST", "invite")
        async with todo("lap", invite) as there, served(there) as lap:
            (milk,) = await lap.until(["Milk", False])
            assert await lap.ask("PATCH", f"tasks/{milk}", {"done": True}) == (204, "")
            await desk.until(["Milk", True])
            assert await desk.ask("DELETE", f"tasks/{milk}") == (204, "")
            await lap.until()
            assert (await desk.ask("PATCH", f"tasks/{milk}", {"done": True}))[0] == 404
            assert (await desk.ask("PATCH", f"tasks/{milk}", {"done": "maybe"}))[0] == 400
