"""How a blocking node hands what happens to the program: on a thread of its choice, one at a time, until cancelled."""

from __future__ import annotations

import asyncio
import logging
import queue
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Executor
from contextlib import suppress
from typing import Any, Generic, TypeAlias, TypeVar

from meshnode.errors import MeshError
from meshnode.model.logevent import LogEvent, log_event

T = TypeVar("T")

logger = logging.getLogger("meshnode.callbacks")

Call: TypeAlias = Callable[[], object]
Deliver: TypeAlias = Callable[[Call], object] | Executor
"""Runs a call soon, on the thread that callbacks belong to: an executor, or a function such as `CallQueue.put`."""


class CallQueue:
    """Calls that wait for a thread to run them, such as a toolkit's: `put` from any thread, `run` on that one.

    With Tk: `def look(): calls.run(); root.after(20, look)`.
    """

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[Call] = queue.SimpleQueue()

    def put(self, call: Call) -> None:
        """Let it be run."""
        self._calls.put(call)

    def run(self, most: int = 100) -> int:
        """Run those that wait, at most so many, and say how many; what one of them raises is raised here."""
        for count in range(most):
            try:
                call = self._calls.get_nowait()
            except queue.Empty:
                return count
            call()
        return most


class Subscription(Generic[T]):
    """Hands each item of an iterator to a callback, the next only after the last: a slow one makes nothing pile up."""

    def __init__(
        self, deliver: Callable[[Call], object], callback: Callable[[T], object], failed: Callable[[MeshError], object]
    ) -> None:
        self.error: MeshError | None = None
        """What ended it by itself, such as a table that is not there."""
        self._deliver = deliver
        self._callback = callback
        self._failed = failed
        self._cancelled = False
        self._task: asyncio.Task[Any] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def cancel(self) -> None:
        """No further call begins: on the thread of the callbacks from now on, on others but for one that just does."""
        self._cancelled = True
        if self._loop is not None and self._task is not None:
            with suppress(RuntimeError):  # the loop was closed
                self._loop.call_soon_threadsafe(self._task.cancel)

    async def run(self, items: AsyncIterator[T]) -> None:
        """On the node's loop, until the items end or it is cancelled."""
        self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        if self._cancelled:
            return
        try:
            async for item in items:
                if self._cancelled:
                    return
                await self._hand(self._loop, lambda item=item: self._callback(item))  # type: ignore[misc]
        except MeshError as error:
            self.error = error
            await self._hand(self._loop, lambda error=error: self._failed(error))  # type: ignore[misc]
        except Exception:
            log_event(logger, logging.ERROR, LogEvent.FAULT, work="a subscription", trace=True)
        finally:
            with suppress(AttributeError):
                await items.aclose()  # type: ignore[attr-defined]

    async def _hand(self, loop: asyncio.AbstractEventLoop, call: Callable[[], object]) -> None:
        done = asyncio.Event()

        def run() -> None:
            try:
                if not self._cancelled:
                    call()
            finally:
                with suppress(RuntimeError):  # the loop was closed
                    loop.call_soon_threadsafe(done.set)

        try:
            self._deliver(run)
        except Exception:  # the toolkit has ended, the executor was shut down
            log_event(logger, logging.WARNING, LogEvent.FAULT, work="handing a change to the program", trace=True)
            self._cancelled = True
            return
        await done.wait()


def delivery_of(deliver: Deliver) -> Callable[[Call], object]:
    """As a function. What a callback raises on an executor, which would keep it to itself, is logged."""
    if not isinstance(deliver, Executor):
        return deliver
    return lambda call: deliver.submit(_logged, call)


def log_failure(error: MeshError) -> None:
    """What becomes of a subscription's error where nobody asked to hear of it."""
    log_event(logger, logging.ERROR, LogEvent.FAULT, work=f"a subscription ended: {error}")


def _logged(call: Call) -> None:
    try:
        call()
    except Exception:
        log_event(logger, logging.ERROR, LogEvent.FAULT, work="a callback of the program", trace=True)
