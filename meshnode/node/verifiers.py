"""Signatures are verified off the event loop and off the writer: on a thread, in a process where many events wait.

The process (`node.verifier`) takes nothing over but work: where it cannot start, dies, hangs or talks nonsense, the
thread does the same with the same result, and the log says so once.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from meshnode.engine.keyring import Keyring
from meshnode.engine.verify import Checked, accept_passed, verify_untrusted
from meshnode.limits import BATCH_EVENTS
from meshnode.model.event import signers_untrusted
from meshnode.model.logevent import LogEvent, log_event
from meshnode.node.verifier import VerifierProcess, command
from meshnode.node.verifierprocess import Asked

MANY_EVENTS: Final = 2 * BATCH_EVENTS  # in RUSH_S: worth a process, whose start takes as long as verifying them
RUSH_S: Final = 1.0  # seconds
SOME_EVENTS: Final = 32  # in a batch: worth asking the process that runs
FEW_EVENTS: Final = 4  # verified in place, sooner than a thread would begin
FEW_BYTES: Final = 16 * 1024  # of those: hashing more would hold the event loop up

logger = logging.getLogger("meshnode.storage")


@dataclass(frozen=True, slots=True)
class Door:
    """What events are verified against."""

    mesh_id: bytes
    keyring: Keyring
    generation: int


def start() -> VerifierProcess | None:
    """The process; None where this program cannot start another Python. OSError where it fails."""
    line = command()
    return None if line is None else VerifierProcess(line)


class Verifiers:
    """One thread, and at most one process that it asks."""

    def __init__(
        self, start: Callable[[], VerifierProcess | None] = start, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._start = start
        self._now = now
        self._rush = 0  # events since `_rush_begun`
        self._rush_begun = now()
        self._usable = True  # the process was not found to be of no use
        self._process: VerifierProcess | None = None
        self._thread: Executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="meshnode-verifier")

    @property
    def pid(self) -> int | None:
        """The number of the process while there is one."""
        process = self._process
        return None if process is None or process.ended else process.pid

    def verify(self, events: Sequence[bytes], door: Door) -> Future[Sequence[Checked]]:
        """Begin; RuntimeError after `close`."""
        if len(events) <= FEW_EVENTS and sum(map(len, events)) <= FEW_BYTES:
            return finished(_here(events, door))
        return self._thread.submit(self._verify, events, door)

    def close(self) -> None:
        """Finish what is begun."""
        self._thread.shutdown()
        if self._process is not None:
            self._process.close()

    def _verify(self, events: Sequence[bytes], door: Door) -> Sequence[Checked]:
        process = self._process
        if process is None or process.ended:
            self._begin(len(events))
        elif len(events) >= SOME_EVENTS:
            with suppress(_UselessError):
                return self._there(process, events, door)
        return _here(events, door)

    def _begin(self, events: int) -> None:
        """Start the process where that is worth while; the batch at hand does not wait for it."""
        if self._now() - self._rush_begun > RUSH_S:
            self._rush, self._rush_begun = 0, self._now()
        self._rush += events
        if not self._usable or self._rush < MANY_EVENTS:
            return
        try:
            self._process = self._start()
            self._usable = self._process is not None
        except OSError as error:
            self._useless(error)

    def _there(self, process: VerifierProcess, events: Sequence[bytes], door: Door) -> Sequence[Checked]:
        keys = [(site, key) for site in signers_untrusted(events) if (key := door.keyring.key_of(site)) is not None]
        try:
            passed = process.passed(Asked(door.mesh_id, keys, list(events)))
        except OSError as error:
            process.close()
            self._useless(error)
            raise _UselessError from None
        return accept_passed(events, passed, mesh_id=door.mesh_id, keyring=door.keyring, generation=door.generation)

    def _useless(self, error: OSError) -> None:
        self._usable = False
        work = "verifying in a process of its own"
        log_event(logger, logging.WARNING, LogEvent.WORK_WAITS, work=work, reason=str(error))


class _UselessError(Exception):
    """The process was asked for nothing."""


def _here(events: Sequence[bytes], door: Door) -> Sequence[Checked]:
    return verify_untrusted(events, mesh_id=door.mesh_id, keyring=door.keyring, generation=door.generation)


def finished(checked: Sequence[Checked]) -> Future[Sequence[Checked]]:
    """What was found already."""
    done: Future[Sequence[Checked]] = Future()
    done.set_result(checked)
    return done
