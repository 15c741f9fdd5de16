"""What the engine and the store are given instead of reaching for it: clock, randomness, faults, the SQLite module."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType

from meshnode.store.database import Fault, no_fault


@dataclass(frozen=True, slots=True)
class Environment:
    """Everything outside the program that the engine depends on; a test replays a run by giving its own."""

    wall_ms: Callable[[], int]
    """The wall clock in milliseconds since the Unix epoch."""
    random_bytes: Callable[[int], bytes]
    """That many unpredictable bytes."""
    sqlite: ModuleType
    """The DB-API module: sqlite3, or one that encrypts."""
    fault: Fault = no_fault
    """Called with a statement or point name before it happens; a test stops the node there."""
