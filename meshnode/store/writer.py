"""One thread owns the writing connection; whoever has work takes turns there, and gets a future for it.

This node's own work waits for at most one job of a peer besides its own kind, and a peer for at most one job of every
other peer and as many of this node's: a queue that one of them fills is its own (profile §13).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from threading import RLock
from typing import Final, Generic, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
J = TypeVar("J")

OWN: Final = None
"""The lane of this node's own work; any other lane is a peer's site id."""


class Turns(Generic[J]):
    """Jobs that wait: this node's and the peers' alternate, and among the peers it is one job of each in turn."""

    __slots__ = ("_own", "_own_was_last", "_peers")

    def __init__(self) -> None:
        self._own: deque[J] = deque()
        self._peers: dict[bytes, deque[J]] = {}  # in the order in which it is their turn
        self._own_was_last = False

    def __len__(self) -> int:
        return sum(self.waiting())

    def waiting(self) -> tuple[int, int]:
        """How many of this node's jobs wait, and how many of all peers together."""
        return len(self._own), sum(map(len, self._peers.values()))

    def add(self, job: J, lane: bytes | None) -> None:
        """One more, behind those of its lane."""
        if lane is OWN:
            self._own.append(job)
        else:
            self._peers.setdefault(lane, deque()).append(job)

    def withdraw(self, lane: bytes | None) -> None:
        """Take back what was added last to a lane."""
        if lane is OWN:
            self._own.pop()
        elif len(self._peers[lane]) > 1:
            self._peers[lane].pop()
        else:
            del self._peers[lane]

    def next(self) -> J:
        """The job whose turn it is; there has to be one."""
        self._own_was_last = bool(self._own) and not (self._own_was_last and self._peers)
        if self._own_was_last:
            return self._own.popleft()
        lane = next(iter(self._peers))
        waiting = self._peers.pop(lane)
        job = waiting.popleft()
        if waiting:
            self._peers[lane] = waiting  # behind every other one
        return job


class Writer:
    """Runs jobs one at a time on `executor`, whose thread it has for itself, in the order of their turns."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._lock = RLock()  # an executor may run what it is given at once, on this very thread
        self._turns: Turns[Callable[[], None]] = Turns()

    def submit(self, work: Callable[[], T], lane: bytes | None = OWN) -> Future[T]:
        """Let `work` run when it is its turn. RuntimeError once the writer was shut down."""
        future: Future[T] = Future()
        with self._lock:
            self._turns.add(lambda: _run(work, future), lane)
            try:
                self._executor.submit(self._next)  # one call for each job, whichever it runs
            except RuntimeError:
                self._turns.withdraw(lane)
                raise
        return future

    def waiting(self) -> tuple[int, int]:
        """How many of this node's jobs wait for their turn, and how many of all peers together."""
        with self._lock:
            return self._turns.waiting()

    def shutdown(self) -> None:
        """Take no more work, and return when all that waits is done."""
        self._executor.shutdown()

    def _next(self) -> None:
        with self._lock:
            job = self._turns.next()
        job()


def _run(work: Callable[[], T], future: Future[T]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(work())
    except BaseException as error:  # the future carries whatever the work raised
        future.set_exception(error)


class InlineExecutor(Executor):
    """Runs work at once on the caller's thread: for the simulation, and for verbs that need no loop."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Run `fn` now; its result or exception is in the returned future."""
        future: Future[T] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except BaseException as error:  # the future carries whatever the work raised
            future.set_exception(error)
        return future


def writer_executor() -> Executor:
    """The executor of a running node: a single thread."""
    return ThreadPoolExecutor(max_workers=1, thread_name_prefix="meshnode-writer")
