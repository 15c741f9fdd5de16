"""Programs of this machine that open connections to a port of the node without end, or never say what they want."""

from __future__ import annotations

import asyncio
import os
import socket
from contextlib import closing

import pytest
from support.memory_node import MemoryNode

from meshnode.control import connection
from meshnode.control.metrics_port import metrics_port

HEAD = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n"


def tcp_port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def open_files() -> int:
    return len(os.listdir("/dev/fd"))


async def test_connections_without_a_request_make_room_and_end() -> None:
    """Else anybody on this machine could take all descriptors of the node: no control socket, no settings, no links."""
    port, most = tcp_port(), 8
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(connection, "CONNECTIONS", most)
        patch.setattr(connection, "HEAD_S", 0.3)
        async with metrics_port(MemoryNode(), port):
            before = open_files()
            slow = [await asyncio.open_connection("127.0.0.1", port) for _ in range(4 * most)]
            for _, writer in slow:
                writer.write(HEAD + b"X: ")  # and no more
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(HEAD + b"\r\n")
            assert (await reader.readline()).split()[1] == b"200"
            assert open_files() - before <= len(slow) + 1 + most
            async with asyncio.timeout(60):
                ends = await asyncio.gather(*(each.read() for each, _ in slow), return_exceptions=True)
            assert all(isinstance(end, OSError) or end == b"" or b" 408 " in end for end in ends)
            for each in (writer, *(writer for _, writer in slow)):
                each.close()
