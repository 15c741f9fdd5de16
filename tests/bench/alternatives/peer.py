"""What every Python peer shares: the 10,000 changes, and the lines in which `driving.py` speaks with its process.

5,000 rows are written twice; the columns i, title, body (90 characters), done and rank have 114 bytes of values. A line
on standard output is a JSON object; a word on standard input is what to do next.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Iterable
from typing import Any

N = int(os.environ.get("N", "10000"))
KEYS = N // 2
LIVE = int(os.environ.get("LIVE", "200"))  # single writes, GAP_S apart
GAP_S = 0.02
BATCH = 500  # changes of one commit

now, now_ns = time.monotonic, time.monotonic_ns
ROLE, FOLDER, PORT = sys.argv[1:4] if len(sys.argv) > 3 else ("", "", "0")
INFO: dict[str, Any] = json.loads(sys.argv[4]) if len(sys.argv) > 4 else {}
_ALPHABET = "abcdefghijklmnopqrstuvwxyz    "


def body(number: int) -> str:
    """90 characters, the same in every language."""
    x = (number * 2654435761 + 12345) & 0x7FFFFFFF
    out = []
    for _ in range(90):
        x = (x * 1103515245 + 12345) & 0x7FFFFFFF
        out.append(_ALPHABET[(x >> 16) % 30])
    return "".join(out)


def row(number: int) -> dict[str, Any]:
    """What change `number` writes."""
    return {
        "i": number,
        "title": f"note {number}",
        "body": body(number),
        "done": number % 2 == 1,
        "rank": number * 0.5 + 0.25,
    }


def key(number: int) -> str:
    """Which row it writes."""
    return f"r{number % KEYS:05}"


def workload() -> list[tuple[str, dict[str, Any]]]:
    """All changes, made before any clock runs."""
    return [(key(number), row(number)) for number in range(N)]


def stamped(number: int) -> dict[str, Any]:
    """A live write, which carries when it was made."""
    return {**row(number), "title": str(now_ns())}


def check(found: Iterable[tuple[str, dict[str, Any]]]) -> None:
    """Every row is there, as it was written last."""
    wanted = {key(number): row(number) for number in range(N - KEYS, N)}
    count = 0
    for name, values in found:
        for column, value in wanted[name].items():
            assert values[column] == value, (name, column, values[column], value)
        count += 1
    assert count == KEYS, (count, KEYS)


def emit(**values: Any) -> None:
    """Tell the driver."""
    print(json.dumps(values), flush=True)


def wait_for(word: str) -> None:
    """Until the driver says it."""
    while (line := sys.stdin.readline()).strip() != word:
        if not line or line.strip() == "quit":
            raise SystemExit(0)


def maxrss_kb() -> int:
    """The most memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
