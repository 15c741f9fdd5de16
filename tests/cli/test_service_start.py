"""A service as systemd starts it: by the words of its unit, told when it is up, and ended by SIGTERM."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import time
from pathlib import Path

import pytest
from support.command import TIMEOUT_S, environment, meshnode
from support.service_words import line_of, systemd_words

from meshnode.cli.notify import notify


async def test_the_node_of_a_unit_says_when_it_is_up_and_ends_at_once(tmp_path: Path) -> None:
    home = tmp_path / "a %h $HOME 'b'"
    assert (await meshnode("init", home=home)).code == 0
    quiet = await meshnode("config", "set", "mdns_enabled", "false", "listen", "127.0.0.1", home=home)
    assert quiet.code == 0
    printed = await meshnode("service", "install", "--print", home=home)
    unit = printed.out.encode()
    program, *words = systemd_words(line_of(unit, "ExecStart"))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "notify"))
        listening.setblocking(False)
        process = await asyncio.create_subprocess_exec(
            *(program.removeprefix(":"), *words),
            stdin=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            cwd=tmp_path,
            env=environment({"NOTIFY_SOCKET": str(tmp_path / "notify")}),
        )
        try:
            assert await told(listening) == "READY=1"
            status = await meshnode("status", "--output", "json", home=home)
            assert (status.json["running"], status.json["pid"]) == (True, process.pid)
            asked = time.monotonic()
            process.send_signal(signal.SIGTERM)
            assert await told(listening) == "STOPPING=1"
            assert await asyncio.wait_for(process.wait(), TIMEOUT_S) == 0
            assert time.monotonic() - asked < float(line_of(unit, "TimeoutStopSec"))
        finally:
            if process.returncode is None:
                process.kill()
            _, said = await process.communicate()
            print(said.decode())


async def told(listening: socket.socket) -> str:
    """The next datagram."""
    return (await asyncio.wait_for(asyncio.get_running_loop().sock_recv(listening, 4096), TIMEOUT_S)).decode()


@pytest.mark.parametrize("kind", ["path", "abstract"])
def test_a_state_goes_to_the_socket_that_is_named(tmp_path: Path, kind: str) -> None:
    name = str(tmp_path / "socket") if kind == "path" else f"@meshnode-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(name.replace("@", "\0"))
        notify("READY=1", {"NOTIFY_SOCKET": name})
        assert listening.recv(100) == b"READY=1"


@pytest.mark.parametrize("name", ["", "/nowhere/socket", "relative", "@" + "x" * 500])
def test_nobody_who_listens_is_no_harm(name: str) -> None:
    notify("READY=1", {"NOTIFY_SOCKET": name} if name else {})
