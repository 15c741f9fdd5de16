"""Runs seeds, one or many, on one core or on all."""

from __future__ import annotations

import multiprocessing
import os
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from unittest.mock import patch

from meshnode.codec import cose
from meshnode.engine import staging
from meshnode.sync import waiting
from sim.plan import Plan, plan_of
from sim.tables import memory_folder
from sim.watch import Violation
from sim.world import World

TRACEBACK = 4  # last entries of a traceback that are shown
AT_ONCE = 5  # seeds that one worker is given


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one seed."""

    seed: int
    checker: str = ""  # that saw something
    failure: str = ""
    where: str = ""  # in the code, where an error was raised
    steps: int = 0
    events: int = 0
    happened: Counter[str] = field(default_factory=Counter)

    @property
    def text(self) -> str:
        """What is wrong, and how to see it again."""
        return f"seed {self.seed}: {self.failure}\n{self.where}    python tests/sim --seed {self.seed} --trace"


@contextmanager
def remembered_signatures() -> Iterator[None]:
    """Every node verifies every event: a signature that held once holds always, so it is computed once."""
    computed = cose.verify
    cose.verify = lru_cache(maxsize=None)(computed)  # type: ignore[attr-defined]
    try:
        yield
    finally:
        cose.verify = computed  # type: ignore[attr-defined]


@contextmanager
def bounds_of(plan: Plan) -> Iterator[None]:
    """Limits that a run is too short to come to, as small as its plan has them."""
    with (
        patch.object(staging, "LIVE_BACKLOG", plan.live_backlog),
        patch.object(waiting, "OFFER_WAIT_MS", plan.offer_wait_ms),
    ):
        yield


def run_seed(seed: int, tell: Callable[[str], None] | None = None) -> Outcome:
    """One run, from its seed alone."""
    plan = plan_of(seed)
    with (
        memory_folder() as folder,
        remembered_signatures(),
        bounds_of(plan),
        closing(World(seed, Path(folder), tell, plan=plan)) as world,
    ):
        checker = failure = where = ""
        try:
            world.run()
        except Violation as violation:
            checker, failure = violation.checker, str(violation)
            if violation.__cause__ is not None:
                where = "".join(traceback.format_exception(violation.__cause__)[-TRACEBACK:])
        except Exception as error:  # of a checker: it names its seed as well
            checker, failure = "Errors", f"Errors: {type(error).__name__}: {error}"
            where = "".join(traceback.format_exception(error)[-TRACEBACK:])
        return Outcome(
            seed, checker, failure, where, world.schedule.steps, len(world.watch.books.events), world.happened
        )


def run_seeds(seeds: Iterable[int], go_on: Callable[[], bool] = lambda: True) -> Iterator[Outcome]:
    """Many runs on every core, in no particular order; `go_on` is asked before more is begun."""
    workers = os.cpu_count() or 1
    left = iter(seeds)
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        running: set[Future[list[Outcome]]] = set()
        while True:
            while len(running) < 2 * workers and go_on():
                chunk = [seed for seed, _ in zip(left, range(AT_ONCE), strict=False)]
                if not chunk:
                    break
                running.add(pool.submit(_run_chunk, chunk))
            if not running:
                return
            done = next(as_completed(running))
            running.discard(done)
            yield from done.result()


def _run_chunk(seeds: list[int]) -> list[Outcome]:
    return [run_seed(seed) for seed in seeds]
