"""`up` and what reaches it: one process per home, verbs through its socket, an end without remains."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path

import pytest
from support.command import TIMEOUT_S, meshnode, start
from support.forks import Running

from meshnode.cli.main import parsed
from meshnode.cli.up import _up
from meshnode.errors import BusyError

ADD_NOTES = ("table", "add", "notes", "--key", "id:TEXT", "--column", "title:TEXT")


async def up(home: Path, *arguments: str) -> Running:
    """A node that is up and answers."""
    process = await start("up", "--no-mdns", "--listen", "127.0.0.1", *arguments, home=home)
    assert process.stderr is not None
    async with asyncio.timeout(TIMEOUT_S):
        while b"is up on" not in (line := await process.stderr.readline()):
            assert line, "the node ended while it was starting"
    return process


async def ended(process: Running, number: signal.Signals) -> int | None:
    """Its exit code after a signal."""
    process.send_signal(number)
    async with asyncio.timeout(TIMEOUT_S):
        await process.communicate()
    return process.returncode


async def test_up_founds_a_mesh_and_serves_the_verbs(tmp_path: Path) -> None:
    home = tmp_path / "n"
    node = await up(home, "--name", "desk")
    status = (await meshnode("status", "--output", "json", home=home)).json
    assert (status["running"], status["name"], status["pid"]) == (True, "desk", node.pid)
    assert (await meshnode(*ADD_NOTES, home=home)).code == 0
    assert (await meshnode("put", "notes", "id=n1", "title=Milk", home=home)).code == 0
    watching = await start("watch", "--since", "0", home=home)
    assert watching.stdout is not None
    assert json.loads(await watching.stdout.readline())["key"] == {"id": "n1"}
    again = await meshnode("up", home=home)
    assert again.code == 1
    assert f"process {node.pid} (`meshnode up`) holds the node" in again.err
    assert await ended(node, signal.SIGTERM) == 0
    async with asyncio.timeout(TIMEOUT_S):
        await watching.communicate()
    assert watching.returncode == 0  # the changes ended with the node
    assert not (home / "control.sock").exists()
    alone = await meshnode("get", "notes", "id=n1", "--output", "json", home=home)
    assert alone.json == {"id": "n1", "title": "Milk"}


async def test_a_hangup_while_it_starts_ends_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    heeded = []

    async def busy(*_: object) -> None:
        heeded.append(signal.getsignal(signal.SIGHUP) is not signal.SIG_DFL)
        raise BusyError("somebody has it")

    monkeypatch.setattr("meshnode.cli.up.lock_or", busy)
    with pytest.raises(BusyError):
        await _up(parsed(["--home", str(tmp_path / "n"), "up"])[1])
    asyncio.get_running_loop().remove_signal_handler(signal.SIGHUP)
    assert heeded == [True]


async def test_a_killed_node_loses_nothing_and_its_home_can_be_used_at_once(tmp_path: Path) -> None:
    home = tmp_path / "n"
    node = await up(home)
    await meshnode(*ADD_NOTES, home=home)
    assert (await meshnode("put", "notes", "id=n1", "title=Milk", home=home)).code == 0
    await ended(node, signal.SIGKILL)
    got = await meshnode("get", "notes", "id=n1", "--output", "json", home=home)
    assert got.json == {"id": "n1", "title": "Milk"}
    assert (await meshnode("status", "--output", "json", home=home)).json["running"] is False
    node = await up(home)
    assert (await meshnode("put", "notes", "id=n2", home=home)).code == 0
    assert await ended(node, signal.SIGINT) == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--port", "65536"], "port"),
        (["--port", "x"], "--port"),
        (["--peer", "nonsense"], "nonsense"),
        (["--listen", "256.0.0.1"], "256.0.0.1"),
        (["--scope", "a.b*"], "scope"),
        (["--name", "x" * 200], "name"),
    ],
)
async def test_a_wrong_setting_is_one_clear_line(tmp_path: Path, arguments: list[str], says: str) -> None:
    home = tmp_path / "n"
    assert (await meshnode("init", home=home)).code == 0
    result = await meshnode("up", *arguments, home=home)
    assert result.code != 0
    assert says in result.err
    assert result.err.count("\n") == 1
