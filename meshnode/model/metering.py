"""What is measured while a node runs: plain numbers that whoever counts is handed, and a reader copies (pure).

Each object is written by one thread; a reader on another sees every number whole, if not all of one moment.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

Labels: TypeAlias = tuple[str, ...]

OTHER: Final = "other"
SERIES: Final = (
    256  # label values that one count tells apart, whoever chose them; what is beyond them is counted as one
)


class Counts:
    """Numbers that only grow, one for each combination of label values that occurred."""

    __slots__ = ("_most", "_numbers")

    def __init__(self, most: int = SERIES) -> None:
        self._numbers: dict[Labels, int] = {}
        self._most = most

    def add(self, *labels: str, number: int = 1) -> None:
        """Count so many more."""
        numbers = self._numbers
        if labels not in numbers and len(numbers) >= self._most:
            labels = (OTHER,) * len(labels)
        numbers[labels] = numbers.get(labels, 0) + number

    def read(self) -> dict[Labels, int]:
        """The numbers by now."""
        return dict(self._numbers)


class Histogram:
    """How often what was measured came to at most each of some bounds."""

    __slots__ = ("_counts", "_sum", "bounds")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self._counts = [0] * (len(self.bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        """One more measurement."""
        self._counts[bisect_left(self.bounds, value)] += 1
        self._sum += value

    def read(self) -> tuple[list[int], float]:
        """How many came to at most each bound, all of them last, and their sum."""
        upto, total = [], 0
        for count in list(self._counts):
            total += count
            upto.append(total)
        return upto, self._sum


def merged(counts: Counts, found: Mapping[Labels, int]) -> None:
    """Add numbers that were counted elsewhere."""
    for labels, number in found.items():
        counts.add(*labels, number=number)
