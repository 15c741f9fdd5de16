"""The fold of one row against the plain model of profile §5, in any order and any batches: many cases, no database."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from hypothesis import given
from support.laws import cases, numbers, pick
from support.reference import Cells, Fact, rows_of

from meshnode.merge.rows import RowState, fold
from meshnode.model.hlc import Hlc, rank_bytes

SITES = (bytes([1]) * 16, bytes([2]) * 16, bytes([0xFF]) * 16)
NAMES = ("a", "b", "c")


class Anything:
    """A table that takes whatever there is."""

    columns = NAMES

    def resolves(self, key: Mapping[str, Any]) -> bool:
        return True

    def takes(self, column: str, value: Any) -> bool:
        return True

    def shown(self, key: Mapping[str, Any], values: Mapping[str, Any]) -> Cells | None:
        return tuple(values.items())


def _facts() -> list[Fact]:
    """Few clocks and sites, so that ranks are decided by every one of their parts."""
    chooser = random.Random(1)
    found = []
    for number in range(3000):
        names = chooser.sample(NAMES, chooser.choice((0, 1, 1, 2, 3)))
        found.append(
            Fact(
                site=chooser.choice(SITES),
                event_id=chooser.randbytes(32),
                table="t",
                key={"id": 1},
                columns=None if chooser.random() < 0.3 else dict.fromkeys(names, number),
                hlc=(chooser.choice((0, 1, 2, 2**63, 2**64 - 1)), chooser.choice((0, 0, 1, 2**64 - 1))),
            )
        )
    return found


FACTS = _facts()


def rank(fact: Fact) -> bytes:
    return rank_bytes(Hlc(*fact.hlc), fact.site, fact.event_id)


@cases(7000)
@given(numbers(min_size=4, max_size=20))
def test_a_row_is_what_the_model_says(drawn: list[int]) -> None:
    """After every batch, and the whole of it once more from any place on."""
    size, again, turn = 1 + drawn[0] % 6, drawn[1] % 12, drawn[2]
    history = [pick(FACTS, number, turn) for number in drawn[3:]]
    state: RowState | None = None
    values: dict[str, object] = {}
    delivered = [*history, *history[again:]]
    for start in range(0, len(delivered), size):
        upto = delivered[: start + size]
        existed, deleted = (False, False) if state is None else (state.exists, state.tombstone is not None)
        batch = fold(state, [(rank(fact), fact.columns) for fact in delivered[start : start + size]])
        assert batch.resurrected == (deleted and not existed and batch.state.exists)
        values = {**values, **batch.values}
        state = RowState.unpack(batch.state.pack())
        assert state == batch.state
        (row,) = rows_of(upto, "t", Anything()).values()
        assert state.exists == bool(row.upsert)
        if row.upsert:
            cleared = {} if state.tombstone is None else dict.fromkeys(NAMES)
            assert {**cleared, **{name: values[name] for name in state.columns}} == row.values(Anything())
