"""Narrowing two sets down to what differs: exact, with little exchanged, and bounded against a peer that lies (§15)."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.compared import SetSide, narrowed

from meshnode.errors import ProtocolError
from meshnode.limits import COMPARE_NAMED, COMPARE_NAMES_BYTES, MIB
from meshnode.model import comparison as words
from meshnode.model.comparison import ITEM_BYTES, EventName, Range, TableTotals, Total
from meshnode.model.range_tree import CHILDREN_BYTES, DEPTH, FANOUT, RangeTree, divided, pack_total, unpack_totals
from meshnode.sync.comparing import Narrowing

BYTES_EACH = 900  # bytes of one difference, for each halving of the set: what a level of the tree and a list take
BYTES_FIRST = 4_000  # bytes that are exchanged in any case


def items(seed: int, count: int) -> list[bytes]:
    return [random.Random(f"{seed} {number}").randbytes(ITEM_BYTES) for number in range(count)]


@given(st.integers(0, 2**32), st.integers(0, 400), st.integers(0, 40), st.integers(0, 40))
@settings(max_examples=12, deadline=None)
def test_the_difference_of_any_two_sets_is_found_exactly(seed: int, both: int, ours: int, theirs: int) -> None:
    every = items(seed, both + ours + theirs)
    own, other = every[: both + ours], every[:both] + every[both + ours :]
    narrowing, exchanged = narrowed(SetSide(own), SetSide(other))
    assert set(narrowing.ours.items) == set(own) - set(other)
    assert set(narrowing.theirs.items) == set(other) - set(own)
    assert set(narrowing.ours.names) == set(narrowing.ours.why) == set(narrowing.ours.items)
    assert narrowing.left_out == 0
    halvings = math.log2(len(every) + 2)
    assert exchanged.bytes <= BYTES_FIRST + BYTES_EACH * (ours + theirs) * halvings


@pytest.mark.parametrize("differing", [0, 1, 30])
def test_what_is_exchanged_grows_with_the_differences_and_not_with_the_sets(differing: int) -> None:
    sizes = {}
    for count in (1_000, 16_000):
        every = items(differing, count)
        _, exchanged = narrowed(SetSide(every), SetSide(every[differing:]))
        sizes[count] = exchanged.bytes
    assert sizes[16_000] <= sizes[1_000] + BYTES_EACH * differing * 4
    assert differing or sizes[16_000] < 300


def test_items_that_begin_alike_are_told_apart() -> None:
    same = [b"\xab\xcd" + random.Random(each).randbytes(14) for each in range(200)]
    narrowing, _ = narrowed(SetSide(same[:-1]), SetSide(same[1:]))
    assert (list(narrowing.ours.items), list(narrowing.theirs.items)) == ([same[0]], [same[-1]])


def test_of_too_many_differences_some_are_named_and_the_rest_is_counted() -> None:
    narrowing, _ = narrowed(SetSide(items(1, 5_000)), SetSide([]))
    assert 0 < len(narrowing.ours.items) <= COMPARE_NAMED
    assert narrowing.left_out > 0


def test_a_tree_of_nothing_is_the_tree_of_nothing() -> None:
    one, other = RangeTree.empty(), RangeTree.of([])
    ranges = [Range(0, 0, 0), *divided(Range(0, 0, 0)), Range(0, DEPTH, FANOUT**DEPTH - 1)]
    assert [one.total(each) for each in ranges] == [other.total(each) for each in ranges]
    assert unpack_totals(one.children(Range(0, 0, 0))) == [Total(0, bytes(ITEM_BYTES))] * FANOUT


def at_ranges() -> Narrowing:
    """A narrowing that asks for the first ranges."""
    narrowing = Narrowing([0])
    narrowing.step()
    empty = Total(0, bytes(ITEM_BYTES))
    some = Total(1, b"x" * ITEM_BYTES)
    narrowing.take((TableTotals((empty,) * 3, 0, 0),), (TableTotals((some, empty, empty), 0, 0),))
    assert narrowing.step() is not None
    return narrowing


@pytest.mark.parametrize("answer", [(), (bytes(CHILDREN_BYTES),) * 2], ids=["too few", "too many"])
def test_an_answer_that_does_not_fit_the_question_breaks_the_protocol(answer: tuple[bytes, ...]) -> None:
    with pytest.raises(ProtocolError):
        at_ranges().take((bytes(CHILDREN_BYTES),), answer)


def test_a_peer_whose_every_range_differs_ends_the_narrowing_all_the_same() -> None:
    """It makes sums up at random: what is looked into, and remembered, is bounded, and so is what is asked."""
    chance = random.Random(1)

    def lie(what: str, of: tuple[Any, ...]) -> tuple[Any, ...]:
        some = Total(2**40, chance.randbytes(ITEM_BYTES))
        match what:
            case words.TABLES:
                return (TableTotals((some,) * 3, 0, 0),)
            case words.RANGES:
                one = b"".join((2**40).to_bytes(8, "big") + chance.randbytes(ITEM_BYTES) for _ in range(FANOUT))
                return tuple(one for _ in of)
            case words.ITEMS:
                return tuple(chance.randbytes(ITEM_BYTES * 64) for _ in of)
            case words.NAMES:
                return tuple(None for _ in of)
        return tuple(0 for _ in of)

    narrowing, own = Narrowing([0]), SetSide([])
    while (step := narrowing.step()) is not None:
        narrowing.take(own.answer(step.own) if step.own.of else (), lie(*step.theirs))
        assert narrowing.steps < 2_000
    assert len(narrowing.theirs.items) <= COMPARE_NAMED
    assert narrowing.left_out > 0


def test_a_peer_that_names_the_same_item_in_every_range_or_gives_it_a_name_of_a_mebibyte_fills_no_memory() -> None:
    key, same = bytes(MIB), [random.Random(each).randbytes(ITEM_BYTES) for each in range(64)]
    some = Total(1, b"x" * ITEM_BYTES)

    def lie(what: str, of: tuple[Any, ...]) -> tuple[Any, ...]:
        match what:
            case words.TABLES:
                return (TableTotals((some,) * 3, 0, 0),)
            case words.RANGES:
                return tuple(pack_total(some) * FANOUT for _ in of)
            case words.ITEMS:
                return tuple(b"".join(same) for _ in of)
            case words.NAMES:
                return (EventName(words.EVENTS, 0, bytes(16), 1, 0, bytes(32), key, (), words.DELIVERED),)
        return tuple(words.UNEXPLAINED for _ in of)

    narrowing, own = Narrowing([0]), SetSide([])
    while (step := narrowing.step()) is not None:
        narrowing.take(own.answer(step.own) if step.own.of else (), lie(*step.theirs))
    assert 0 < len(narrowing.theirs.items) < COMPARE_NAMES_BYTES // MIB
    assert narrowing.steps < 200
    assert narrowing.left_out > 0
