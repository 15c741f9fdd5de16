"""One thread owns the writing connection; work arrives as callables and leaves as futures."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


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
    """The executor of a running node: a single thread, so jobs run in the order they were submitted."""
    return ThreadPoolExecutor(max_workers=1, thread_name_prefix="meshnode-writer")
