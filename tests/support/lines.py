"""Lines between a test and its child processes, with deadlines: a test waits for what happens and for nothing else."""

from __future__ import annotations

import asyncio
import json
import queue
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from typing import Any

WAIT_S = 30.0  # far more than anything takes on a machine at rest; a loaded one is no failure


class Lines:
    """The JSON lines of a process's stdout, in order; every line stays in `seen`."""

    def __init__(self, program: subprocess.Popen[str]) -> None:
        self.program = program
        self.seen: list[dict[str, Any]] = []
        self._queue: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._pump, daemon=True)
        self._thread.start()

    def _pump(self) -> None:
        assert self.program.stdout is not None
        try:
            for line in self.program.stdout:
                self._queue.put(line)
        except ValueError:  # the pipe was closed under us: the program is over
            pass
        self._queue.put(None)

    def tell(self, command: str) -> None:
        """Write one line to the program's stdin."""
        assert self.program.stdin is not None
        self.program.stdin.write(command + "\n")
        self.program.stdin.flush()

    def until(self, wanted: Callable[[dict[str, Any]], bool], timeout: float = WAIT_S) -> dict[str, Any]:
        """The next line, not looked at yet, that is wanted; AssertionError with everything seen otherwise."""
        deadline = time.monotonic() + timeout
        while True:
            try:
                line = self._queue.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"nothing wanted within {timeout} s; seen: {self.seen}") from None
            if line is None:
                raise AssertionError(f"the program ended; seen: {self.seen}")
            value: dict[str, Any] = json.loads(line)
            self.seen.append(value)
            if wanted(value):
                return value

    def ever(self, wanted: Callable[[dict[str, Any]], bool], timeout: float = WAIT_S) -> dict[str, Any]:
        """A wanted line, be it one that was passed over already or one still to come."""
        found = next((line for line in self.seen if wanted(line)), None)
        return self.until(wanted, timeout) if found is None else found


async def stdin_lines() -> AsyncIterator[str]:
    """The child's side: the lines of its stdin as they come, until the test closes it."""
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    pipe, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    with closing(pipe):
        while line := await reader.readline():
            yield line.decode().strip()
