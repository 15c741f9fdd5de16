"""Keeps an interpreter that has imported all of meshnode, and forks it for each command that the tests run (POSIX).

    python tests/support/fork_server.py SOCKET

What comes of it is a process of its own, with its own standard streams, environment, folder, session and exit code, as
`python -m meshnode` is; only the half second in which an interpreter starts and imports is spent once, not each time.
A connection is one command: a line of JSON with three descriptors, then the process id comes back, and how it ended.
The server ends with its standard input.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import pkgutil
import runpy
import select
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

SCRYPT_COST = "MESHNODE_TEST_SCRYPT_COST"  # in a command's environment: that of a passphrase there
REQUEST_BYTES = 1 << 20
LAZY = (  # what meshnode imports inside functions; not keyring, whose environment a command brings along
    "cryptography.hazmat.primitives.ciphers",
    "cryptography.hazmat.primitives.kdf.scrypt",
    "getpass",
    "importlib.metadata",
    "pycose.keys.okp",
    "rich.console",
    "rich.progress",
    "rich.table",
    "segno",
)


def preload() -> None:
    """Import whatever a verb may need."""
    import meshnode

    for found in pkgutil.walk_packages(meshnode.__path__, "meshnode."):
        if not found.name.endswith("__main__"):
            importlib.import_module(found.name)
    for name in LAZY:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()


class Server:
    """The listening socket, and of each command that runs the connection on which its end is told."""

    def __init__(self, path: str) -> None:
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(path)
        self._listening.listen(64)
        self._running: dict[int, socket.socket] = {}
        self._wake, wake = os.pipe()
        self._wakes = wake
        for end in (self._wake, wake):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def run(self) -> dict[str, Any] | None:
        """Serve until standard input ends; in a forked process, return what it is to run."""
        print("ready", flush=True)
        while True:
            ready, _, _ = select.select([self._wake, self._listening, 0], [], [])
            if self._wake in ready:
                self._reap()
            if self._listening in ready:
                request = self._fork()
                if request is not None:
                    return request
            if 0 in ready:
                return None

    def _fork(self) -> dict[str, Any] | None:
        connection, _ = self._listening.accept()
        data, streams, _, _ = socket.recv_fds(connection, REQUEST_BYTES, 3)
        while not data.endswith(b"\n"):
            data += connection.recv(REQUEST_BYTES)
        pid = os.fork()
        if pid == 0:
            connection.close()
            self._leave()
            for number, stream in enumerate(streams):
                os.dup2(stream, number)
                os.close(stream)
            return dict(json.loads(data))
        for stream in streams:
            os.close(stream)
        self._running[pid] = connection
        connection.sendall(b"%d\n" % pid)
        return None

    def _reap(self) -> None:
        with suppress(BlockingIOError):
            while os.read(self._wake, 4096):
                pass
        with suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                connection = self._running.pop(pid)
                with connection, suppress(OSError):  # whoever asked may be gone
                    connection.sendall(b"%d\n" % os.waitstatus_to_exitcode(status))

    def _leave(self) -> None:
        """Nothing of the server is left in the process that was forked."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for end in (self._wake, self._wakes):
            os.close(end)
        self._listening.close()
        for connection in self._running.values():
            connection.close()


def become(request: dict[str, Any]) -> None:
    """Run one command line as `python -m meshnode` does, or some code as `python -c` does."""
    os.setsid()  # whoever runs the tests at a terminal is asked nothing
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.argv[1:] = request["arguments"]
    sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)
    sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = os.fdopen(2, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False)
    cost = os.environ.get(SCRYPT_COST)
    if cost is not None:
        from meshnode.codec import pkcs8

        vars(pkcs8)["_COST"] = int(cost)
    code = request["code"]
    if code is None:
        runpy.run_module("meshnode", run_name="__main__", alter_sys=True)
    else:
        exec(compile(code, "<code>", "exec"), {"__name__": "__main__"})


if __name__ == "__main__":
    preload()
    wanted = Server(sys.argv[1]).run()
    if wanted is not None:
        become(wanted)
