"""Starts the support programs (`python -m support.NAME '{options}'`) inside hosts of a LAN."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from support.lan import Lan
from support.lines import Lines

TESTS = Path(__file__).parent.parent


def launch(lan: Lan, host: int, program: str, **options: Any) -> Lines:
    """Start one in a host and wait until it says that it has started."""
    command = [sys.executable, "-m", f"support.{program}", json.dumps(options)]
    pipe = subprocess.PIPE
    process = lan.popen(host, command, env={"PYTHONPATH": str(TESTS)}, stdin=pipe, stdout=pipe, text=True)
    lines = Lines(process)
    lines.until(event("started"))
    return lines


def event(name: str, **wanted: Any) -> Callable[[dict[str, Any]], bool]:
    """Matches a line by its event and by what else is named."""
    expected = {"event": name, **wanted}
    return lambda line: expected.items() <= line.items()
