"""The node's end of the process that verifies (`node.verifierprocess`): started, asked one batch at a time, ended."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import meshnode
from meshnode.node.verifierprocess import PASSED, REFUSED, Asked, encode

ANSWER_S: Final = 30.0  # for one batch, which takes a twentieth of a second: against a process that hangs
IDLE_S: Final = 10.0  # without a batch, until the process ends
LOOK_S: Final = 1.0  # between two looks at whether either is over
END_S: Final = 5.0  # for a process whose input ended, until it is killed

_START: Final = "import sys; sys.path[:] = sys.argv[1:]; from meshnode.node.verifierprocess import main; main()"
_FLAGS: Final = ("CREATE_NEW_PROCESS_GROUP", "CREATE_NO_WINDOW")  # on Windows
_KEPT: Final = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "SYSTEMROOT")  # of the environment: what Python starts by


class VerifierProcess:
    """One process; OSError from `passed` means that it is of no use any more."""

    def __init__(self, command: Sequence[str], *, answer_s: float = ANSWER_S, idle_s: float = IDLE_S) -> None:
        """Start it; OSError where that cannot be."""
        self.ended = False
        self._answer_s, self._idle_s = answer_s, idle_s
        self._since = time.monotonic()  # a batch came, or was answered
        self._asked = False  # a batch is there
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._process = subprocess.Popen(  # noqa: S603 - this Python, and no shell
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={name: os.environ[name] for name in _KEPT if name in os.environ},
            # Ctrl-C in a terminal is for the node, which ends this process in its own time.
            start_new_session=True,
            creationflags=sum(getattr(subprocess, name, 0) for name in _FLAGS),
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._requests, self._answers = self._process.stdin, self._process.stdout
        threading.Thread(target=self._watch, name="meshnode-verifier-watch", daemon=True).start()

    @property
    def pid(self) -> int:
        """The number of the process."""
        return self._process.pid

    def passed(self, asked: Asked) -> bytes:
        """Which events pass, a byte each. OSError: it died, hangs or answers what is no answer."""
        self._turn(asked=True)
        try:
            self._requests.write(encode(asked))
            self._requests.flush()
            answer = self._answers.read(len(asked.events))
        except ValueError:  # the pipe is closed
            raise OSError("it was ended") from None
        finally:
            self._turn(asked=False)
        if len(answer) < len(asked.events):
            raise OSError("it ended before it answered")
        if not set(answer) <= {PASSED, REFUSED}:
            raise OSError("what it answers is no answer")
        return answer

    def close(self) -> None:
        """End it, and wait until it is gone."""
        with self._lock:
            self._end()

    def _turn(self, *, asked: bool) -> None:
        with self._lock:
            self._since, self._asked = time.monotonic(), asked

    def _watch(self) -> None:
        """End it where a batch takes too long, or none comes; waking this thread for every batch would cost more."""
        while not self._over.wait(min(LOOK_S, self._answer_s, self._idle_s)):
            with self._lock:
                if time.monotonic() - self._since > (self._answer_s if self._asked else self._idle_s):
                    self._end()

    def _end(self) -> None:
        if self.ended:
            return
        self.ended = True
        self._over.set()
        if self._asked:
            self._process.kill()
        with suppress(OSError):
            self._requests.close()
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._answers.close()


def command() -> list[str] | None:
    """What starts it: this Python, with the paths of this program; None where it is no Python of the ordinary kind."""
    # A frozen or embedding program is its own `sys.executable`: another one of it must not start.
    if getattr(sys, "frozen", False) or not Path(sys.executable or "").stem.lower().startswith("python"):
        return None
    # An editable installation is found by a hook and not by a path; a relative path is the working directory's.
    own = str(Path(meshnode.__file__ or "").parent.parent)
    return [sys.executable, "-I", "-S", "-c", _START, own, *(path for path in sys.path if os.path.isabs(path))]
