"""Randomness from one seed, in named branches: a draw more in one place changes nothing in another."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import TypeVar

from meshnode.codec.digest import derive_key

T = TypeVar("T")

CONTEXT = "meshnode tests/sim"


class Chance:
    """One branch."""

    def __init__(self, seed: int, name: str = "") -> None:
        self._name = f"{seed}/{name}"
        self._seed = seed
        self._branch = name
        self._random = random.Random(self.bytes_of("random", 16))

    def branch(self, name: str) -> Chance:
        """A branch of this one: the same for the same name, whatever was drawn here."""
        return Chance(self._seed, f"{self._branch}/{name}")

    def bytes_of(self, label: str, length: int) -> bytes:
        """Bytes that this branch and the label name."""
        return derive_key(CONTEXT, f"{self._name}:{label}".encode(), length)

    def hit(self, probability: float) -> bool:
        """Whether something happens that does so this often."""
        return self._random.random() < probability

    def between(self, low: int, high: int) -> int:
        """A number from `low` to `high`, both included."""
        return low + int(self._random.random() * (high - low + 1))

    def spread(self, mean: float) -> float:
        """An exponentially distributed waiting time."""
        return -mean * math.log(1.0 - self._random.random())

    def pick(self, choices: Sequence[T]) -> T:
        """One of these."""
        return choices[self.between(0, len(choices) - 1)]

    def some(self, choices: Sequence[T], probability: float) -> list[T]:
        """Each of these with this probability, in order."""
        return [each for each in choices if self.hit(probability)]

    def shuffled(self, choices: Sequence[T]) -> list[T]:
        """All of these in any order."""
        left, found = list(choices), []
        while left:
            found.append(left.pop(self.between(0, len(left) - 1)))
        return found

    def data(self, length: int) -> bytes:
        """Random bytes."""
        return bytes(self.between(0, 255) for _ in range(length))
