"""An event loop on a thread of its own, for callers on other threads: they wait, and get the result or the error.

A call that was begun ends: with what it came to, with ClosedError once the loop is closed, or with KeyboardInterrupt
where Ctrl-C reached the waiting thread; then it is cancelled.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import concurrent.futures.thread  # registers what ends its threads: `_at_exit` has to come after that
import os
import threading
import time
import weakref
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from typing import Any, TypeVar

from meshnode.errors import ClosedError, UsageError

T = TypeVar("T")

LOOK_S = 0.5  # seconds between two looks of a thread that waits: on Windows Ctrl-C is seen only between waits
CLOSED = "this node was closed: open its home again to go on"
EXIT_S = 10.0  # seconds that the end of the interpreter waits for a node to be left


class LoopThread:
    """Runs coroutines; `close` runs `last` as the last of them. Thread-safe."""

    def __init__(self, name: str) -> None:
        self.last: Callable[[], Coroutine[Any, Any, None]] | None = None
        self._process = os.getpid()
        self._loop = asyncio.new_event_loop()
        self._lock = threading.Lock()
        self._closing = False
        self._ended = threading.Event()
        # A daemon: the interpreter does not wait for it, but for what is registered here.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()
        _at_exit(self)

    @property
    def closed(self) -> bool:
        """Whether no more calls are taken."""
        return self._closing

    @property
    def is_here(self) -> bool:
        """Whether the caller is on the loop's own thread."""
        return threading.get_ident() == self._thread.ident

    def refuse_closed(self) -> None:
        """ClosedError where nothing runs there any more."""
        if self._process != os.getpid():
            raise ClosedError(
                f"this node belongs to process {self._process}, of which this one is a fork: open what you need after "
                "forking, and in one process only"
            )
        if self._closing:
            raise ClosedError(CLOSED)

    def call(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run it there, and wait. UsageError on the loop's own thread, which would wait for itself."""
        return self.waited(self.begin(work))

    def waited(self, future: Future[T]) -> T:
        """What was begun, once it has ended."""
        if self.is_here:
            future.cancel()
            raise UsageError(
                "this was called on the node's own thread, which would wait for itself: let callbacks run elsewhere "
                "(the `deliver` of BlockingNode.open), and call the node from there"
            )
        try:
            while not concurrent.futures.wait([future], timeout=LOOK_S).done:
                pass
            return future.result()
        except CancelledError:
            raise ClosedError("this node was closed while it was being asked") from None
        finally:
            future.cancel()  # KeyboardInterrupt: nobody waits any more

    def begin(self, work: Callable[[], Coroutine[Any, Any, T]]) -> Future[T]:
        """Run it there; ClosedError where nothing runs there any more."""
        self.refuse_closed()
        with self._lock:  # what is begun in it is on the loop before the loop ends
            if self._closing:
                raise ClosedError(CLOSED)
            return asyncio.run_coroutine_threadsafe(work(), self._loop)

    def close(self, seconds: float | None = None) -> None:
        """Run `last`, end everything else, and return when that is done, or after `seconds`.

        Again, or at once from several threads, waits for the same end; on the loop's own thread nothing waits.
        """
        if self._process != os.getpid():
            return  # the parent's, and whoever had the lock there is not here
        with self._lock:
            first, self._closing = not self._closing, True
        if first:
            asyncio.run_coroutine_threadsafe(self._finish(), self._loop)
        if self.is_here:
            return
        end = None if seconds is None else time.monotonic() + seconds
        while not self._ended.wait(LOOK_S) and (end is None or time.monotonic() < end):
            pass

    async def _finish(self) -> None:
        try:
            if self.last is not None:
                await self.last()
        finally:
            self._loop.stop()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            self._loop.run_until_complete(_end_all())
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
        finally:
            self._loop.close()
            self._ended.set()


async def _end_all() -> None:
    others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


def _at_exit(loop: LoopThread) -> None:
    """Close it when the interpreter ends: before the threads of executors do, without which no node can be left.

    `atexit` is too late for that. Where Python has no such hook, a node that was not closed ends as by a power cut,
    which costs nothing that was acknowledged.
    """
    register = getattr(threading, "_register_atexit", None)
    if register is None:
        return
    kept = weakref.ref(loop)

    def end() -> None:
        found = kept()
        if found is not None and not found.closed:
            found.close(EXIT_S)

    register(end)
