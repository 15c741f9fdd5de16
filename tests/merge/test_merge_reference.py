"""The fold of one row against the plain model of profile §5, in any order and any batches: many cases, no database."""

from __future__ import annotations

import os
import random

from hypothesis import given, settings
from hypothesis import strategies as st
from support.reference import Fact, Shape, rows_of

from meshnode.merge.rows import RowState, fold
from meshnode.model.hlc import Hlc, rank_bytes

CASES = int(os.environ.get("MESHNODE_CASES", "1"))
SHAPE = Shape(key=frozenset({"id"}), columns=frozenset("abc"))

facts = st.builds(
    Fact,
    site=st.sampled_from([bytes([1]) * 16, bytes([2]) * 16, bytes([0xFF]) * 16]),
    event_id=st.binary(min_size=32, max_size=32),
    table=st.just("t"),
    key=st.just({"id": 1}),
    columns=st.one_of(st.none(), st.dictionaries(st.sampled_from("abc"), st.integers(0, 9))),
    hlc=st.tuples(st.sampled_from([0, 1, 2, 2**63, 2**64 - 1]), st.integers(0, 1)),
)
histories = st.lists(facts, max_size=10, unique_by=lambda fact: fact.event_id)


def rank(fact: Fact) -> bytes:
    return rank_bytes(Hlc(*fact.hlc), fact.site, fact.event_id)


@settings(deadline=None, max_examples=1500 * CASES)
@given(histories, st.integers(0, 2**32), st.integers(1, 10))
def test_a_row_is_what_the_model_says(history: list[Fact], seed: int, size: int) -> None:
    chooser = random.Random(seed)
    order = [*history, *chooser.choices(history, k=3)] if history else []
    chooser.shuffle(order)
    state: RowState | None = None
    values: dict[str, object] = {}
    for start in range(0, len(order), size):
        batch = fold(state, [(rank(fact), fact.columns) for fact in order[start : start + size]])
        values = {**values, **batch.values}
        state = RowState.unpack(batch.state.pack())
    (row,) = rows_of(history, "t", SHAPE).values() or (None,)
    assert (state is not None and state.exists) == (row is not None)
    if row is not None and state is not None:
        cleared = {} if state.tombstone is None else dict.fromkeys("abc")
        assert {**cleared, **{name: values[name] for name in state.columns}} == row.columns
