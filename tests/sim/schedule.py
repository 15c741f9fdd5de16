"""Virtual time: what is to happen, in order; ties are broken by the order in which it was asked for."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush

MS = 1_000
SECOND = 1_000_000


class Timer:
    """One thing that is to happen."""

    __slots__ = ("what",)

    def __init__(self, what: Callable[[], None] | None) -> None:
        self.what = what

    def cancel(self) -> None:
        """It does not happen."""
        self.what = None


class Schedule:
    """The one queue of a run. `work` counts what is under way: timers that only wait are asked for as `idle`."""

    def __init__(self) -> None:
        self.now_us = 0
        self.steps = 0
        self._queue: list[tuple[int, int, bool, Timer]] = []
        self._asked = 0
        self._working = 0

    def after(self, delay_us: float, what: Callable[[], None], *, idle: bool = False) -> Timer:
        """Do `what` in this many microseconds; an `idle` timer may be waited for without anything going on."""
        timer = Timer(what)
        self._asked += 1
        if not idle:
            self._working += 1
        heappush(self._queue, (self.now_us + max(int(delay_us), 0), self._asked, idle, timer))
        return timer

    @property
    def quiet(self) -> bool:
        """Whether only timers that wait are left."""
        while self._queue and self._queue[0][3].what is None:
            self._drop()
        return self._working == 0

    def next_us(self) -> int | None:
        """When the next thing happens."""
        while self._queue and self._queue[0][3].what is None:
            self._drop()
        return self._queue[0][0] if self._queue else None

    def step(self) -> None:
        """Let the next thing happen."""
        at_us, _, idle, timer = heappop(self._queue)
        if not idle:
            self._working -= 1
        self.now_us = max(self.now_us, at_us)
        self.steps += 1
        if timer.what is not None:
            timer.what()

    def _drop(self) -> None:
        _, _, idle, _ = heappop(self._queue)
        if not idle:
            self._working -= 1
