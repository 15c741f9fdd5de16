"""Asks a tool of the platform something: no shell, nothing on its input, in bounded time, for a bounded answer."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from meshnode.errors import TransportError
from meshnode.limits import TOOL_BYTES, TOOL_S

Run = Callable[[Sequence[str]], Awaitable[bytes]]

_PIECE = 64 * 1024
_LINE_CHARACTERS = 200  # of a complaint
_GONE_S = 1.0  # seconds for a killed tool to be gone; one whose children hold its output is left behind


async def run_tool(command: Sequence[str], *, timeout_s: float = TOOL_S, most_bytes: int = TOOL_BYTES) -> bytes:
    """What it prints; TransportError where it is not there, fails, takes too long or says too much."""
    with _Complaints() as complaints:
        return await _run(command, complaints, timeout_s, most_bytes)


async def _run(command: Sequence[str], complaints: _Complaints, timeout_s: float, most_bytes: int) -> bytes:
    name = command[0]
    try:
        process = await _start(command, complaints.end)
    except FileNotFoundError as error:
        raise TransportError(f"{name} is not installed") from error
    except (OSError, NotImplementedError) as error:  # the latter: an event loop without subprocesses
        raise TransportError(f"{name} cannot be run: {str(error) or type(error).__name__}") from error
    try:
        async with asyncio.timeout(timeout_s):
            output = await _answer(process, name, most_bytes)
            code = await process.wait()
    except TimeoutError as error:
        await _kill(process)
        raise TransportError(f"{name} did not answer within {timeout_s:g} s") from error
    except BaseException:
        await _kill(process)
        raise
    if code != 0:
        raise TransportError(": ".join(filter(None, (f"{name} ended with code {code}", complaints.first_untrusted()))))
    return output


class _Complaints:
    """What a tool says beside its answer, as much as a pipe holds; one that says more waits until its time is over.

    No pipe of asyncio's: a child that keeps it would keep the tool from counting as ended.
    """

    def __init__(self) -> None:
        self.end = asyncio.subprocess.DEVNULL
        self._own: int | None = None
        if os.name == "posix":  # elsewhere a read could wait
            self._own, self.end = os.pipe()
            os.set_blocking(self._own, False)

    def __enter__(self) -> _Complaints:
        return self

    def __exit__(self, *_: object) -> None:
        if self._own is not None:
            os.close(self._own)
            os.close(self.end)

    def first_untrusted(self) -> str:
        """The first line of it, bounded, with nothing that could steer a terminal."""
        said = b""
        if self._own is not None:
            with suppress(BlockingIOError):
                said = os.read(self._own, _PIECE)
        line = next((line.strip() for line in said.decode("utf-8", "replace").splitlines() if line.strip()), "")
        return "".join(each if each.isprintable() else "?" for each in line[:_LINE_CHARACTERS])


async def _start(command: Sequence[str], complaints: int) -> asyncio.subprocess.Process:
    starting = asyncio.ensure_future(
        asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=complaints,
            env={**os.environ, "LC_ALL": "C"},
            start_new_session=True,  # so that its children end with it
        )
    )
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        # Cancelled while it starts, asyncio would end the tool but not its children, and wait for them.
        with suppress(OSError, NotImplementedError):
            await _kill(await starting)
        raise


async def _answer(process: asyncio.subprocess.Process, name: str, most_bytes: int) -> bytes:
    assert process.stdout is not None
    output = bytearray()
    while piece := await process.stdout.read(_PIECE):
        output += piece
        if len(output) > most_bytes:
            raise TransportError(f"{name} said more than {most_bytes} bytes")
    return bytes(output)


async def _kill(process: asyncio.subprocess.Process) -> None:
    """End it and its children, and read what is left: a process whose output nobody takes does not count as ended."""
    with suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
    assert process.stdout is not None
    with suppress(TimeoutError):
        async with asyncio.timeout(_GONE_S):
            while await process.stdout.read(_PIECE):
                pass
            await process.wait()
