"""Runs seeds, one or many, on one core or on several."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from sim.tables import memory_folder
from sim.watch import Violation
from sim.world import World


def run_seed(seed: int, tell: Callable[[str], None] = lambda _text: None) -> World:
    """One run; raises Violation where something is wrong."""
    with memory_folder() as folder:
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
