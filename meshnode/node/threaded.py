"""What a blocking node and its tables are made of: calls onto the node's thread, iterators, callbacks."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any, Generic, Self, TypeAlias, TypeVar

from meshnode.errors import ClosedError, MeshError, UsageError
from meshnode.model.wording import quoted
from meshnode.node.callbacks import Deliver, Subscription, delivery_of, log_failure
from meshnode.node.loopthread import LoopThread
from meshnode.node.transaction import Transaction
from meshnode.node.typedtables import Host
from meshnode.node.views import Receipt
from meshnode.node.writing import Write
from meshnode.store import queries

T = TypeVar("T")
N = TypeVar("N", bound=Host)

Failed: TypeAlias = Callable[[MeshError], object]
"""Told, as a callback, of the error that ended a subscription."""


class Threaded(Generic[N]):
    """A node, or an attached app, that runs on a thread of its own, as others reach it."""

    def __init__(self, node: N, loop: LoopThread, deliver: Deliver | None) -> None:
        self._own: ThreadPoolExecutor | None = None
        if deliver is None:
            deliver = self._own = ThreadPoolExecutor(1, thread_name_prefix="meshnode-callbacks")
        self._node = node
        self._loop = loop
        self._deliver = delivery_of(deliver)
        self._collecting: set[int] = set()  # threads in the middle of a transaction

    def close(self) -> None:
        """Leave it: what is under way ends, iterators end, no callback begins any more. Again is nothing more."""
        self._loop.close()
        if self._own is not None:
            self._own.shutdown(wait=False, cancel_futures=True)

    def __enter__(self) -> Self:
        self._loop.refuse_closed()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def run(self, operation: Callable[[N], Awaitable[T]]) -> T:
        """Wait for any operation of the node: `run(lambda node: node.verify("lap"))`."""
        node = self._node

        async def work() -> T:
            return await operation(node)

        return self._loop.call(work)

    def follow(self, items: Callable[[N], AsyncIterator[T]], *, at_once: int = 1) -> BlockingIterator[T]:
        """Any iterator of the node as a plain one; `at_once` are fetched together, of one that does not wait.

        ClosedError where the node was closed already, or is before such a one has come to its end.
        """
        self._loop.refuse_closed()
        return BlockingIterator(self._loop, items(self._node), at_once)

    def seq(self) -> int:
        """How far the change sequence is: `changes(since=…)` goes on from there without a gap."""
        return self.run(lambda node: node.storage.read(queries.last_change))

    def beginning(self, since: int | None) -> int | None:
        """Where to follow from: with None from now on, though the node's own thread begins a little later.

        On that thread nobody can wait: there None stays, and what is written until it begins is not told.
        """
        return self.seq() if since is None and not self._loop.is_here else since

    def subscribe(
        self, items: Callable[[N], AsyncIterator[T]], callback: Callable[[T], object], failed: Failed | None = None
    ) -> Subscription[T]:
        """Any iterator of the node as calls of `callback`; an error that ends it goes to `failed`, else to the log.

        UsageError where the callback cannot be called: nobody would hear of that.
        """
        if not callable(callback):
            raise UsageError(
                f"a callback is what can be called, not {quoted(str(callback))}: it comes first, then what it follows"
            )
        node, subscription = self._node, Subscription(self._deliver, callback, failed or log_failure)

        async def work() -> None:
            await subscription.run(items(node))

        self._loop.begin(work)
        return subscription

    def write(self, writes: Sequence[Write]) -> Receipt:
        """Write them together."""
        self._refuse_in_transaction()
        return self.run(lambda node: node.write_rows(writes))

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Write several rows of several tables at the end of the block: all of them, or none and an error.

        As `Node.transaction`, with threads in place of tasks.
        """
        self._refuse_in_transaction()
        here, transaction = threading.get_ident(), Transaction()
        self._collecting.add(here)
        try:
            yield transaction
        finally:
            self._collecting.discard(here)
            writes = transaction.end()
        transaction.wrote(self.run(lambda node: node.write_rows(writes)))

    def _refuse_in_transaction(self) -> None:
        if threading.get_ident() in self._collecting:
            raise UsageError("this is in the middle of a transaction: write by the object that `transaction()` gave")


class BlockingIterator(Iterator[T], Generic[T]):
    """Items as they come; `cancel`, from any thread, or the end of a `with` block, ends it. One thread iterates."""

    def __init__(self, loop: LoopThread, source: AsyncIterator[T], at_once: int) -> None:
        self._loop = loop
        self._source = source
        self._at_once = at_once
        self._ready: deque[T] = deque()
        self._pending: Future[list[T]] | None = None
        self._error: MeshError | None = None  # comes after what is ready
        self._ended = False

    def cancel(self) -> None:
        """There are no more; a thread that waits for the next goes on."""
        self._ended, self._error = True, None
        self._ready.clear()
        if self._pending is not None:
            self._pending.cancel()
        with suppress(ClosedError):
            self._loop.begin(self._close)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        if not self._ready:
            self._fetch()
        try:
            return self._ready.popleft()
        except IndexError:
            raise StopIteration from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.cancel()

    def _fetch(self) -> None:
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        if self._ended:
            return
        try:
            self._pending = self._loop.begin(self._some)
            if self._ended:  # by another thread, just now
                self._pending.cancel()
            found = self._loop.waited(self._pending)
            self._ready.extend(found)
        except ClosedError:
            ends_with_the_node = self._at_once == 1 and self._loop.closed
            if not (self._ended or ends_with_the_node):
                raise
            self._ended = True

    async def _some(self) -> list[T]:
        items: list[T] = []
        try:
            while len(items) < self._at_once:
                items.append(await anext(self._source))
        except StopAsyncIteration:
            self._ended = True
        except MeshError as error:
            self._ended = True
            if not items:
                raise
            self._error = error
        return items

    async def _close(self) -> None:
        source: Any = self._source
        with suppress(RuntimeError):  # it is in the middle of being cancelled
            await source.aclose()
