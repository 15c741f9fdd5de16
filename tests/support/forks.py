"""Commands in processes of their own, forked by `support.fork_server` as if each were `python -m meshnode`."""

from __future__ import annotations

import asyncio
import atexit
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

import meshnode

PIPE, DEVNULL = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
STREAM_BYTES = 1 << 16  # that a reader buffers before the command has to wait


class Running:
    """One command, in the manner of `asyncio.subprocess.Process`."""

    def __init__(self, pid: int, told: asyncio.StreamReader, telling: asyncio.StreamWriter) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self.stdin: asyncio.StreamWriter | None = None
        self.stdout: asyncio.StreamReader | None = None
        self.stderr: asyncio.StreamReader | None = None
        self._transports: list[asyncio.BaseTransport] = []
        self._telling = telling
        self._ended = asyncio.create_task(self._end(told))

    async def wait(self) -> int:
        """Its exit code; minus the number of the signal that ended it."""
        return await asyncio.shield(self._ended)

    async def communicate(self, said: bytes | None = None) -> tuple[bytes, bytes]:
        """Say this and nothing more; all that it writes until it ends."""
        _, out, err = await asyncio.gather(self._say(said), _rest(self.stdout), _rest(self.stderr))
        await self.wait()
        return out, err

    def send_signal(self, number: signal.Signals) -> None:
        """It may just have ended."""
        if self.returncode is not None:
            raise ProcessLookupError
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def close(self) -> None:
        """Hear no more of it."""
        for transport in self._transports:
            transport.close()
        self._telling.close()

    async def connect(self, streams: Sequence[int | None]) -> None:
        """Our ends of its standard streams, where there are any."""
        stdin, stdout, stderr = streams
        if stdin is not None:
            self.stdin = await self._writer(stdin)
        if stdout is not None:
            self.stdout = await self._reader(stdout)
        if stderr is not None:
            self.stderr = await self._reader(stderr)

    async def _end(self, told: asyncio.StreamReader) -> int:
        self.returncode = int(await told.readline())
        self._telling.close()
        return self.returncode

    async def _say(self, said: bytes | None) -> None:
        if self.stdin is None:
            return
        with suppress(BrokenPipeError, ConnectionResetError):
            if said:
                self.stdin.write(said)
                await self.stdin.drain()
        self.stdin.close()

    async def _reader(self, end: int) -> asyncio.StreamReader:
        reader = asyncio.StreamReader(STREAM_BYTES)
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(end, "rb", buffering=0)
        )
        self._transports.append(transport)
        return reader

    async def _writer(self, end: int) -> asyncio.StreamWriter:
        loop = asyncio.get_running_loop()
        transport, protocol = await loop.connect_write_pipe(
            asyncio.streams.FlowControlMixin, os.fdopen(end, "wb", buffering=0)
        )
        self._transports.append(transport)
        return asyncio.StreamWriter(transport, protocol, None, loop)


async def _rest(stream: asyncio.StreamReader | None) -> bytes:
    return b"" if stream is None else await stream.read()


@cache
def _server() -> Path:
    """The socket of this process's server, which ends with this process."""
    folder = Path(tempfile.mkdtemp(prefix="meshnode-forks-"))
    program = [sys.executable, str(Path(__file__).parent / "fork_server.py"), str(folder / "socket")]
    environment = {**os.environ, "PYTHONPATH": str(Path(meshnode.__file__).parents[1])}
    pipe = subprocess.PIPE
    server = subprocess.Popen(program, stdin=pipe, stdout=pipe, env=environment, start_new_session=True)
    atexit.register(_stop, server, folder)
    assert server.stdout is not None
    assert server.stdout.readline() == b"ready\n"
    return folder / "socket"


def _stop(server: subprocess.Popen[bytes], folder: Path) -> None:
    with server:
        assert server.stdin is not None
        server.stdin.close()
    shutil.rmtree(folder)


async def fork(
    arguments: Sequence[str],
    environment: Mapping[str, str],
    *,
    stdin: int = PIPE,
    stdout: int = PIPE,
    stderr: int = PIPE,
    code: str | None = None,
) -> Running:
    """Start `meshnode ARGUMENTS`, or this code with them; a stream is a pipe, nothing, or a descriptor open here."""
    ends = [_ends(kind, reads=reads) for kind, reads in ((stdin, True), (stdout, False), (stderr, False))]
    theirs = [end for end, _, _ in ends]
    request = {
        "arguments": list(arguments),
        "code": code,
        "environment": dict(environment),
        "folder": os.getcwd(),
    }
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(str(await asyncio.to_thread(_server)))
    socket.send_fds(connection, [json.dumps(request).encode() + b"\n"], theirs)
    for end, _, made in ends:
        if made:
            os.close(end)
    told, telling = await asyncio.open_connection(sock=connection)
    running = Running(int(await told.readline()), told, telling)
    await running.connect([ours for _, ours, _ in ends])
    return running


def _ends(kind: int, *, reads: bool) -> tuple[int, int | None, bool]:
    """The command's end of a stream, ours, and whether its end was made for it."""
    if kind == DEVNULL:
        return os.open(os.devnull, os.O_RDWR), None, True
    if kind != PIPE:
        return kind, None, False
    read, write = os.pipe()
    return (read, write, True) if reads else (write, read, True)
