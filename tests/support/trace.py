"""Reads what `strace -f -yy -ttt` wrote: calls with the moments at which they began and ended, in order."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

CALLS = ("fdatasync", "fsync", "pwrite64", "write", "sendto", "sendmsg", "recvfrom", "recvmsg")
_LINE = re.compile(r"^(?P<pid>\d+) +(?P<at>\d+\.\d+) (?P<rest>.*)$")
_BEGUN = re.compile(r"^(?P<name>\w+)\(\d+(?:<(?P<path>[^>]*)>)?")
_RESUMED = re.compile(r"^<\.\.\. (?P<name>\w+) resumed>")
_RESULT = re.compile(r"= (?P<result>-?\d+)(?: .*)?$")


@dataclass(slots=True)
class Call:
    """One system call; `began` and `ended` are places in the order of the trace."""

    name: str
    path: str  # of a file, or what `-yy` says of a socket: `UDP:[…]`
    at: float  # seconds since the Unix epoch, when it began
    began: int
    ended: int = -1
    result: int = -1


def command(output: Path) -> list[str]:
    """What to put before a program to trace it; the other calls run at full speed."""
    return [
        "strace",
        "-f",
        "-yy",
        "-ttt",
        "--seccomp-bpf",
        "-s",
        "0",
        "-e",
        f"trace={','.join(CALLS)}",
        "-o",
        str(output),
    ]


def calls(lines: Iterable[str]) -> Iterator[Call]:
    """Every call that ended, in the order in which they began."""
    open_calls: dict[str, Call] = {}
    found: list[Call] = []
    for number, line in enumerate(lines):
        match = _LINE.match(line)
        if match is None:
            continue
        pid, rest = match["pid"], match["rest"]
        if _RESUMED.match(rest):
            call = open_calls.pop(pid, None)
        elif begun := _BEGUN.match(rest):
            call = Call(begun["name"], begun["path"] or "", float(match["at"]), number)
            found.append(call)
            if "<unfinished" in rest:
                open_calls[pid] = call
                continue
        else:
            continue
        if call is not None and (result := _RESULT.search(rest)):
            call.ended, call.result = number, int(result["result"])
    return (call for call in found if call.ended >= 0)
