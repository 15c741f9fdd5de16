"""What is remembered of a peer: sets of positions, ids and slots, all of them bounded (profile §14)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from support.laws import law

from meshnode.engine.known import Known, Positions
from meshnode.limits import KNOWN_IDS, KNOWN_RANGES

OWN, PEER, THIRD = b"o" * 16, b"p" * 16, b"t" * 16


@law
@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 12)), max_size=30), st.integers(0, 80))
def test_ranges_are_the_set_of_their_positions(ranges: list[tuple[int, int]], forgotten: int) -> None:
    positions, model = Positions(), set()
    for first, length in ranges:
        positions.add(first, first + length)
        model.update(range(first, first + length + 1))
    assert {each for each in range(90) if each in positions} == model
    positions.forget_up_to(forgotten)
    assert {each for each in range(forgotten + 1, 90) if each in positions} == {
        each for each in model if each > forgotten
    }


def test_past_the_bound_the_lowest_ranges_are_forgotten() -> None:
    positions = Positions()
    for number in range(KNOWN_RANGES + 1):
        positions.add(2 * number, 2 * number)
    assert 0 not in positions
    assert {2 * number in positions for number in range(1, KNOWN_RANGES + 1)} == {True}
    assert 3 not in positions


def test_past_the_bound_the_oldest_ids_are_forgotten() -> None:
    known = Known()
    ids = [number.to_bytes(16, "big") for number in range(KNOWN_IDS + 1)]
    for each in ids:
        known.offered(each)
    assert [known.has(each) for each in ids].count(False) == 1
    assert not known.has(ids[0])


def test_slots_are_news_once_and_only_if_the_peer_does_not_hear_of_them() -> None:
    known = Known()
    assert known.news({OWN: 1, PEER: 5, THIRD: 7}, OWN, {PEER}) == {OWN: 1, THIRD: 7}
    assert known.news({OWN: 2, PEER: 6, THIRD: 7}, OWN, {PEER}) == {OWN: 2}
    assert known.news({OWN: 3, PEER: 6, THIRD: 8}, OWN, {PEER, THIRD}) == {OWN: 3}
    assert known.news({OWN: 4, PEER: 6, THIRD: 8}, OWN, set()) == {OWN: 4, PEER: 6, THIRD: 8}
