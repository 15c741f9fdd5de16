"""Runs one peer as two processes: A writes all changes and serves them, B is loaded and idle until it is told.

B then connects; the clock stops when everything that A announced is there, written out and readable. After that A
writes one row at a time with the time in it, and B subtracts when it can read it.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from meshnode.bench.figures import percentile
from meshnode.bench.nodes import free_port

LIMIT_S = 300.0  # for any one step


@dataclass(frozen=True, slots=True)
class Result:
    """What one peer did."""

    author_per_s: float
    catch_up_per_s: float
    live_median_ms: float
    live_p99_ms: float
    peak_mb: float  # of B
    bytes_per_change: float  # in B's folder after the catch-up


@dataclass(slots=True)
class Peer:
    """One of the two processes."""

    role: str
    process: subprocess.Popen[bytes]
    _rest: bytes = b""
    _held: list[dict[str, Any]] = field(default_factory=list)

    def say(self, word: str) -> None:
        """One word."""
        assert self.process.stdin is not None
        self.process.stdin.write(word.encode() + b"\n")
        self.process.stdin.flush()

    def get(self, name: str) -> dict[str, Any]:
        """The next object that has this field."""
        assert self.process.stdout is not None
        end, descriptor = time.monotonic() + LIMIT_S, self.process.stdout.fileno()
        while True:
            while b"\n" in self._rest:
                line, self._rest = self._rest.split(b"\n", 1)
                if line.startswith(b"{") and name in (found := json.loads(line)):
                    return dict(found)
            if not select.select([descriptor], [], [], max(0.0, end - time.monotonic()))[0]:
                raise TimeoutError(f"{self.role} told no {name} in {LIMIT_S:.0f} s")
            if not (chunk := os.read(descriptor, 1 << 16)):
                raise EOFError(f"{self.role} ended before it told {name}")
            self._rest += chunk

    def end(self) -> float:
        """Have it end; the most memory that it had, in megabytes."""
        with suppress(OSError):
            self.say("quit")
        end = time.monotonic() + 20.0
        while time.monotonic() < end:
            pid, status, used = os.wait4(self.process.pid, os.WNOHANG)
            if pid:
                self.process.returncode = status
                return used.ru_maxrss * 1024 / 1e6
            time.sleep(0.02)
        self.process.kill()
        _, self.process.returncode, used = os.wait4(self.process.pid, 0)
        return used.ru_maxrss * 1024 / 1e6


def run(command: Sequence[str], folder: Path, environment: dict[str, str], changes: int) -> Result:
    """All of it, once; TimeoutError or EOFError where the peer does not do its part."""
    port, started = str(free_port()), list[Peer]()
    with (folder / "stderr.txt").open("wb") as stderr:

        def begin(role: str, *info: str) -> Peer:
            own = folder / role.lower()
            own.mkdir(exist_ok=True)
            pipe = subprocess.PIPE
            words = [*command, role, str(own), port, *info]
            started.append(Peer(role, subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=stderr, env=environment)))
            return started[-1]

        try:
            a = begin("A")
            author_s = a.get("author_s")["author_s"]
            b = begin("B", json.dumps(a.get("ready")["ready"]))
            b.get("up")
            time.sleep(0.3)
            b.say("go")
            catch_up_s = b.get("catchup_s")["catchup_s"]
            size = sum(each.stat().st_size for each in (folder / "b").rglob("*") if each.is_file())
            time.sleep(0.3)
            a.say("live")
            a.get("live_done")
            late = b.get("lat_ms")["lat_ms"]
            peak_mb = b.end()
        finally:
            for peer in started:
                if peer.process.returncode is None:
                    peer.end()
    return Result(
        author_per_s=changes / author_s,
        catch_up_per_s=changes / catch_up_s,
        live_median_ms=median(late),
        live_p99_ms=percentile(late, 0.99),
        peak_mb=peak_mb,
        bytes_per_change=size / changes,
    )
