"""What a process used: CPU and memory, by `/proc` on Linux and by `ps` elsewhere."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

_NS: Final = 1_000_000_000
_KIB: Final = 1024


def cpu_s(pid: int) -> float:
    """Seconds of processor so far, threads that ended included; Linux counts hundredths."""
    if not sys.platform.startswith("linux"):
        return _clock(_ps(pid, "cputime"))
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def fine_cpu_s(pid: int) -> float:
    """The same to the nanosecond, of the threads that are there now: for a node that does next to nothing."""
    try:
        return (
            sum(
                int((task / "schedstat").read_text(encoding="ascii").split()[0])
                for task in Path(f"/proc/{pid}/task").iterdir()
            )
            / _NS
        )
    except OSError:
        return cpu_s(pid)


def memory_mb(pid: int, *, peak: bool = False) -> float:
    """Megabytes of 10^6 bytes in memory now, or the most there ever were; elsewhere than on Linux both are now."""
    if not sys.platform.startswith("linux"):
        return int(_ps(pid, "rss")) * _KIB / 1e6
    wanted = "VmHWM:" if peak else "VmRSS:"
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace").splitlines():
        if line.startswith(wanted):
            return int(line.split()[1]) * _KIB / 1e6
    return 0.0


def _ps(pid: int, field: str) -> str:
    command = ["ps", "-o", f"{field}=", "-p", str(pid)]
    shown = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603  # our own words
    return shown.stdout.strip() or "0"


def _clock(text: str) -> float:
    """`[DD-]HH:MM:SS.cc` in seconds."""
    days, _, rest = text.rpartition("-")
    seconds = 0.0
    for part in rest.split(":"):
        seconds = seconds * 60 + float(part or 0)
    return seconds + 86_400 * int(days or 0)
