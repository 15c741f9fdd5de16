"""`meshnode dashboard`: the way in is printed and opened in the browser, and stands on no command line."""

from __future__ import annotations

import asyncio
import http.client
import re
import socket
import stat
import time
from pathlib import Path

import pytest
from support.command import meshnode
from support.memory_node import MemoryNode

from meshnode.control.dashboard_port import DashboardPort
from meshnode.control.dashboardview import way_in
from meshnode.control.server import ControlServer
from meshnode.control.web import dashboard, doors
from meshnode.errors import ConfigError
from meshnode.node.config import Config
from meshnode.node.home import Home

BROWSER = """#!/bin/sh
printf '%s\\n' "$#" "$1" > "{seen}"
cat "${{1#file://}}" >> "{seen}"
"""


def answers(url: str) -> int:
    """What a plain client is told there."""
    host, _, path = url.removeprefix("http://").partition("/")
    connection = http.client.HTTPConnection(host, timeout=60)
    try:
        connection.request("GET", f"/{path}")
        return connection.getresponse().status
    finally:
        connection.close()


async def test_the_way_in_is_printed_and_works_once(home: Home, node: MemoryNode) -> None:
    shown = await meshnode("dashboard", "--no-browser", "--output", "json", home=home.path)
    assert set(shown.json) == {"url", "expires_ms"}
    assert 0 < shown.json["expires_ms"] - time.time() * 1000 <= doors.TICKET_S * 1000
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/enter\?token=[\w-]{43}", shown.json["url"])
    again = await meshnode("dashboard", "--no-browser", home=home.path)
    assert again.out.partition("/enter")[0] == shown.json["url"].partition("/enter")[0]
    assert [await asyncio.to_thread(answers, shown.json["url"]) for _ in range(2)] == [200, 403]
    assert await asyncio.to_thread(answers, again.out.strip()) == 200
    assert not way_in(home.path).exists()


async def test_the_browser_gets_it_in_a_file_that_is_its_owners_alone(
    home: Home, node: MemoryNode, tmp_path: Path
) -> None:
    browser, seen = tmp_path / "browser", tmp_path / "seen"
    browser.write_text(BROWSER.format(seen=seen))
    browser.chmod(0o700)
    shown = await meshnode("dashboard", home=home.path, env={"BROWSER": str(browser)})
    assert (shown.code, shown.err) == (0, "")
    count, address, page = seen.read_text().split("\n", 2)
    assert (count, address) == ("1", way_in(home.path).as_uri())
    assert f'content="0;url={shown.out.strip()}"' in page
    assert stat.S_IMODE(way_in(home.path).stat().st_mode) == 0o600


async def test_where_no_browser_can_be_opened_the_address_is_enough(home: Home, node: MemoryNode) -> None:
    shown = await meshnode("dashboard", home=home.path, env={"BROWSER": "/bin/false", "PATH": "", "DISPLAY": ""})
    assert shown.code == 0
    assert "use the address" in shown.err


async def test_where_no_node_runs_it_says_what_to_do(home: Home) -> None:
    shown = await meshnode("dashboard", home=home.path)
    assert (shown.code, shown.out) == (1, "")
    assert "start it with `meshnode up`" in shown.err


async def test_nothing_listens_before_it_was_asked_for_or_after_the_node_stopped(home: Home) -> None:
    await DashboardPort(MemoryNode(), 0, way_in(home.path)).close()
    port = DashboardPort(MemoryNode(), 0, way_in(home.path))
    view = await port.open()
    assert await asyncio.to_thread(answers, view.url) == 200
    way_in(home.path).write_text("left by a verb")
    await port.close()
    assert not way_in(home.path).exists()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.to_thread(answers, view.url)


async def test_the_file_goes_when_it_is_of_no_use_any_more(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dashboard, "TICKET_S", 0.05)
    way_in(home.path).write_text("left by a verb")
    port = DashboardPort(MemoryNode(), 0, way_in(home.path))
    await port.open()
    async with asyncio.timeout(60):
        while way_in(home.path).exists():  # noqa: ASYNC110 - a file rings no bell
            await asyncio.sleep(0.01)
    await port.close()


async def test_the_port_that_the_settings_name_is_used_or_said(home: Home) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        number = taken.getsockname()[1]
        port = DashboardPort(MemoryNode(), number, way_in(home.path))
        with pytest.raises(ConfigError, match=f"cannot listen on TCP port {number}"):
            await port.open()
    assert f":{number}/" in (await port.open()).url
    await port.close()


async def test_a_way_in_that_a_killed_node_left_goes_as_the_next_one_starts(tmp_path: Path) -> None:
    home = Home(tmp_path / "n", Config())
    home.prepare()
    way_in(home.path).write_text("left by a node that was killed")
    async with ControlServer(MemoryNode(), home):
        assert not way_in(home.path).exists()
