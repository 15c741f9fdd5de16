"""Runs seeds, one or many, on one core or on several."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

from meshnode.codec import cose
from sim.tables import memory_folder
from sim.watch import Violation
from sim.world import World


@contextmanager
def remembered_signatures() -> Iterator[None]:
    """Every node verifies every event: a signature that held once holds always, so it is computed once."""
    computed = cose.verify
    cose.verify = lru_cache(maxsize=None)(computed)  # type: ignore[attr-defined]
    try:
        yield
    finally:
        cose.verify = computed  # type: ignore[attr-defined]


def run_seed(seed: int, tell: Callable[[str], None] = lambda _text: None) -> World:
    """One run; raises Violation where something is wrong."""
    with memory_folder() as folder, remembered_signatures():
        world = World(seed, Path(folder), tell)
        world.run()
        return world


def failure_of(seed: int) -> Violation | None:
    """What is wrong with a seed."""
    try:
        run_seed(seed)
    except Violation as violation:
        return violation
    return None
