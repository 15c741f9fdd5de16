"""Runs the `meshnode` program at a terminal of its own, and types what it asks for."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

TIMEOUT_S = 60.0

# A session without a terminal gets the first one that it opens: then Ctrl-C is a signal, and `/dev/tty` is there.
_AT = (
    "import os, sys; os.close(os.open(os.ttyname(0), os.O_RDWR))\n"
    "os.execv(sys.executable, [sys.executable, '-m', 'meshnode', *sys.argv[1:]])"
)


def at_terminal(*arguments: str, home: Path, typed: Sequence[tuple[str, bytes]]) -> tuple[int, str]:
    """Run to the end, typing each answer once its question is shown; the exit code, and all that was shown."""
    master, slave = os.openpty()
    command = [sys.executable, "-c", _AT, "--home", str(home), *arguments]
    process = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, start_new_session=True)
    os.close(slave)
    shown, answers, end = "", list(typed), time.monotonic() + TIMEOUT_S
    try:
        while True:
            ready, _, _ = select.select([master], [], [], max(0.0, end - time.monotonic()))
            assert ready, f"nothing more was shown after: {shown}"
            try:
                data = os.read(master, 4096)
            except OSError:  # the program ended and nobody else has the terminal
                data = b""
            if not data:
                break
            shown += data.decode()
            if answers and shown.rstrip(" ").endswith(answers[0][0]):
                os.write(master, answers.pop(0)[1])
        assert not answers, f"{answers[0][0]!r} was not asked: {shown}"
        return process.wait(TIMEOUT_S), shown
    finally:
        process.kill()
        process.wait()
        os.close(master)
