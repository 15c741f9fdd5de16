"""The one writer of a process: jobs in the order in which they were asked for, each takes virtual time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from meshnode.errors import MeshError
from sim.chance import Chance
from sim.schedule import Schedule

Failed = Callable[[MeshError], None]


def _unexpected(error: MeshError) -> None:
    raise error


@dataclass(frozen=True, slots=True)
class Job:
    """One job: what it does on the database, and what is done with the outcome once that is on disk."""

    name: str
    work: Callable[[], Any]
    done: Callable[[Any], None]
    failed: Failed
    more_us: int


class Writer:
    """Runs one job at a time; `unsure` while a job has committed and its sync is still waited for."""

    def __init__(self, schedule: Schedule, chance: Chance, *, job_us: float, sync_us: float) -> None:
        self.unsure = False
        self._schedule = schedule
        self._chance = chance
        self._job_us, self._sync_us = job_us, sync_us
        self._queue: deque[Job] = deque()
        self._busy = False
        self._stopped = False

    def submit(
        self,
        name: str,
        work: Callable[[], Any],
        done: Callable[[Any], None],
        failed: Failed = _unexpected,
        more_us: int = 0,
    ) -> None:
        """Queue a job; it takes `more_us` longer than one that carries nothing."""
        self._queue.append(Job(name, work, done, failed, more_us))
        self._next()

    def stop(self) -> None:
        """The process died: nothing of what is queued happens."""
        self._stopped = True
        self._queue.clear()

    def _next(self) -> None:
        if self._busy or self._stopped or not self._queue:
            return
        self._busy = True
        job = self._queue.popleft()
        self._schedule.after(self._chance.spread(self._job_us) + job.more_us, lambda: self._run(job))

    def _run(self, job: Job) -> None:
        if self._stopped:
            return
        error: MeshError | None = None
        outcome = None
        try:
            outcome = job.work()
        except MeshError as raised:
            error = raised
        self.unsure = True
        self._schedule.after(self._chance.spread(self._sync_us), lambda: self._synced(job, outcome, error))

    def _synced(self, job: Job, outcome: Any, error: MeshError | None) -> None:
        if self._stopped:
            return
        self.unsure = self._busy = False
        if error is not None:
            job.failed(error)
        else:
            job.done(outcome)
        self._next()
