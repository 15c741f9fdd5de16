"""Narrows two sides' differences down to single items, then asks what they are and why: without I/O (profile §15).

Whoever opened a comparison asks; both sides answer the same questions over what they hold. A driver takes `step` until
it is None: it has the own question answered by the store and the other one by the peer, and gives both to `take`. The
ranges of a set that differ are divided until they are small, so what is exchanged grows with the number of differences
and the logarithm of the sets alone. A peer's answers are checked against what was asked: ProtocolError.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from meshnode.errors import ProtocolError
from meshnode.limits import COMPARE_NAMED, COMPARE_NAMES_BYTES, COMPARED_BYTES, COMPARED_ITEMS, COMPARED_RANGES
from meshnode.model import comparison as words
from meshnode.model.comparison import ITEM_BYTES, Name, Range, TableTotals, name_bytes
from meshnode.model.range_tree import DEPTH, divided, unpack_totals

LISTED: Final = 32  # items of both sides in a range from which on it is listed rather than divided


class Ask(NamedTuple):
    """One question; an empty one needs no answer."""

    what: str
    of: tuple[Any, ...] = ()


class Step(NamedTuple):
    """What the own side is asked, and what the peer is."""

    own: Ask
    theirs: Ask


@dataclass(slots=True)
class Found:
    """What one side alone has: items by set, what they are, and why the other does not have them."""

    items: dict[bytes, None] = field(default_factory=dict)
    names: dict[bytes, Name | None] = field(default_factory=dict)
    why: dict[bytes, int] = field(default_factory=dict)
    names_bytes: int = 0


class Narrowing:
    """One comparison, as the side that opened it sees it."""

    def __init__(self, tables: Sequence[int]) -> None:
        self.own_totals: tuple[TableTotals, ...] = ()
        self.their_totals: tuple[TableTotals, ...] = ()
        self.ours = Found()
        self.theirs = Found()
        self.left_out = 0  # ranges and items that differ beyond what is looked into
        self.steps = 0
        self._tables: tuple[int, ...] | None = tuple(tables)
        self._ranges: deque[Range] = deque()
        self._lists: deque[tuple[Range, int]] = deque()  # with the bytes that the longer of the two lists has
        self._listed = 0
        self._unnamed: tuple[deque[bytes], deque[bytes]] = (deque(), deque())
        self._unexplained: tuple[deque[bytes], deque[bytes]] = (deque(), deque())
        self._again: tuple[list[bytes], list[bytes]] = ([], [])
        self._asked: Step | None = None

    # --- asking

    def step(self) -> Step | None:
        """What to ask now; None once all is known that is looked for."""
        self._asked = self._next()
        self.steps += self._asked is not None
        return self._asked

    def _next(self) -> Step | None:
        if self._tables is not None:
            return _both(words.TABLES, self._tables)
        if self._ranges:
            return _both(words.RANGES, [self._ranges[at] for at in range(min(len(self._ranges), COMPARED_RANGES))])
        if self._lists:
            return _both(words.ITEMS, self._fitting())
        if any(self._unnamed):
            return Step(*(Ask(words.NAMES, _first(each)) for each in self._unnamed))
        if any(self._unexplained):
            # Each is asked why it does not have what the other named.
            ours, theirs = self._unexplained
            return Step(Ask(words.WHY, self._named(self.theirs, theirs)), Ask(words.WHY, self._named(self.ours, ours)))
        if any(self._again):
            return Step(*(Ask(words.AGAIN, tuple(each[:COMPARED_RANGES])) for each in self._again))
        return None

    def send_again(self, ours: Iterable[bytes], theirs: Iterable[bytes]) -> None:
        """Have these events, of those that one side alone has, sent to the other."""
        self._again[0].extend(ours)
        self._again[1].extend(theirs)

    @property
    def _sides(self) -> tuple[Found, Found]:
        return self.ours, self.theirs

    def _fitting(self) -> list[Range]:
        """Ranges whose lists fit one answer, at least one."""
        chosen: list[Range] = []
        size = 0
        for wanted, listed in self._lists:
            size += listed
            if chosen and (size > COMPARED_BYTES or len(chosen) == COMPARED_RANGES):
                break
            chosen.append(wanted)
        return chosen

    def _named(self, side: Found, waiting: deque[bytes]) -> tuple[Name, ...]:
        """Names whose bytes fit one question, at least one."""
        chosen: list[Name] = []
        size = 0
        for item in waiting:
            name = side.names[item]
            assert name is not None
            size += name_bytes(name)
            if chosen and (size > COMPARED_BYTES or len(chosen) == COMPARED_RANGES):
                break
            chosen.append(name)
        return tuple(chosen)

    # --- answers

    def take(self, own: tuple[Any, ...], theirs_untrusted: tuple[Any, ...]) -> None:
        """What both sides answered to the last step; of `theirs` only the shape of each entry was checked."""
        assert self._asked is not None
        asked, self._asked = self._asked, None
        _check_length_untrusted(asked.theirs, theirs_untrusted)
        match asked.own.what:
            case words.TABLES:
                self._take_tables(own, theirs_untrusted)
            case words.RANGES:
                self._take_ranges(own, theirs_untrusted)
            case words.ITEMS:
                self._take_items(own, theirs_untrusted)
            case words.NAMES:
                for side, of, waiting, names in zip(
                    self._sides, asked, self._unnamed, (own, theirs_untrusted), strict=True
                ):
                    self.left_out += _take_names(side, of, waiting, names)
                self._names_known()
            case words.WHY:
                for side, waiting, codes in zip(self._sides, self._unexplained, (theirs_untrusted, own), strict=True):
                    for code in codes:
                        side.why[waiting.popleft()] = code
            case words.AGAIN:
                for left, of in zip(self._again, asked, strict=True):
                    del left[: len(of.of)]

    def _take_tables(self, own: tuple[TableTotals, ...], theirs: tuple[TableTotals, ...]) -> None:
        self._tables, self.own_totals, self.their_totals = None, own, theirs
        differing = {at for one, other in zip(own, theirs, strict=True) for at in words.SETS if _differ(one, other, at)}
        self._ranges.extend(Range(each, 0, 0) for each in sorted(differing))

    def _take_ranges(self, own: tuple[bytes, ...], theirs: tuple[bytes, ...]) -> None:
        for ours, told in zip(own, theirs, strict=False):
            children = divided(self._ranges.popleft())
            for child, one, other in zip(children, unpack_totals(ours), unpack_totals(told), strict=True):
                if one == other:
                    continue
                if self._listed + len(self._ranges) >= COMPARE_NAMED:
                    self.left_out += max(abs(one.size - other.size), 1)
                elif child.depth == DEPTH or one.size + other.size <= LISTED:
                    listed = min(max(one.size, other.size), COMPARED_ITEMS) * ITEM_BYTES
                    self._lists.append((child, listed))
                    self._listed += 1
                else:
                    self._ranges.append(child)

    def _take_items(self, own: tuple[bytes, ...], theirs: tuple[bytes, ...]) -> None:
        for ours, told in zip(own, theirs, strict=False):
            self._lists.popleft()
            one, other = _unpacked(ours), _unpacked(told)
            self._add(self.ours, 0, [each for each in one if each not in other])
            self._add(self.theirs, 1, [each for each in other if each not in one])

    def _add(self, side: Found, which: int, items: Sequence[bytes]) -> None:
        items = [each for each in items if each not in side.items]  # in two ranges only if the peer says so
        room = max(COMPARE_NAMED - len(side.items), 0)
        self.left_out += len(items[room:])
        side.items.update(dict.fromkeys(items[:room]))
        self._unnamed[which].extend(items[:room])

    def _names_known(self) -> None:
        """Once every name is known, what is still only on one side is explained by the other."""
        if any(self._unnamed):
            return
        for side, waiting in zip(self._sides, self._unexplained, strict=True):
            waiting.extend(each for each in side.items if side.names.get(each) is not None)


def _both(what: str, of: Iterable[Any]) -> Step:
    asked = Ask(what, tuple(of))
    return Step(asked, asked)


def _first(waiting: deque[bytes]) -> tuple[bytes, ...]:
    return tuple(waiting[at] for at in range(min(len(waiting), COMPARED_RANGES)))


def _differ(one: TableTotals, other: TableTotals, at: int) -> bool:
    return one.sets[at] != other.sets[at]


def _unpacked(packed: bytes) -> dict[bytes, None]:
    return dict.fromkeys(packed[at : at + ITEM_BYTES] for at in range(0, len(packed), ITEM_BYTES))


def _take_names(side: Found, asked: Ask, waiting: deque[bytes], names: Sequence[Name | None]) -> int:
    """Keep what fits; how many items were left out since their names do not."""
    left_out = 0
    for item, name in zip(asked.of, names, strict=False):
        waiting.popleft()
        size = 0 if name is None else name_bytes(name)
        if side.names_bytes + size > COMPARE_NAMES_BYTES:
            del side.items[item]
            left_out += 1
            continue
        side.names_bytes += size
        side.names[item] = name
    return left_out


def _check_length_untrusted(asked: Ask, told: Sequence[Any]) -> None:
    """An answer has an entry for each of what was asked, or for the first of them, at least one."""
    whole = asked.what == words.TABLES
    most = 1 if asked.what == words.AGAIN else len(asked.of)
    if not asked.of:
        most = 0
    if len(told) > most or (most and not told) or (whole and len(told) != most):
        raise ProtocolError(f"{len(told)} answers to {most} questions for {asked.what}")
