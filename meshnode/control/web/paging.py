"""Pages of a list, by address: which part is shown, and where the one before and the one after it are. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar
from urllib.parse import urlencode

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Part(Generic[T]):
    """One page of a list."""

    items: Sequence[T]
    previous: str  # an address, or empty
    next: str
    text: str  # which of how many


def number_of(query: Mapping[str, str], most: int) -> int:
    """The page that an address names, from 1 on; what is no number, or beyond, is the first or the last."""
    text = query.get("page", "1")
    return min(max(int(text), 1), most) if text.isascii() and text.isdigit() and len(text) < 9 else 1


def part_of(found: Sequence[T], size: int, path: str, query: Mapping[str, str]) -> Part[T]:
    """The page that the address names, or the last one where there are fewer by now."""
    pages = max(-(-len(found) // size), 1)
    number = number_of(query, pages)
    first = (number - 1) * size
    items = found[first : first + size]
    text = f"{first + 1:,} to {first + len(items):,} of {len(found):,}" if pages > 1 else ""

    def address(at: int) -> str:
        return f"{path}?{urlencode({**query, 'page': str(at)})}" if 1 <= at <= pages else ""

    return Part(items, address(number - 1), address(number + 1), text)
