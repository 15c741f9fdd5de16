"""SSP/1 §13.5: a row's state is a function of the set of its events, against the plainest reading of profile §5."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from meshnode.merge.rows import RowState, fold
from meshnode.model.hlc import Hlc, rank_bytes

COLUMNS = ("a", "b", "c", "")

ranks = st.builds(
    lambda clock, site, event_id: rank_bytes(Hlc(clock, 0), bytes([site]) * 16, event_id),
    st.integers(0, 6),
    st.integers(1, 3),
    st.binary(min_size=32, max_size=32),
)
payloads = st.one_of(st.none(), st.dictionaries(st.sampled_from(COLUMNS), st.integers(0, 99)))
histories = st.lists(st.tuples(ranks, payloads), max_size=12, unique_by=lambda event: event[0])
Events = list[tuple[bytes, dict[str, Any] | None]]


def _expected(events: Events) -> tuple[bool, dict[str, Any], bool]:
    """Existence, surviving values and whether there is a tombstone, as the profile words them."""
    tombstone = max((rank for rank, columns in events if columns is None), default=b"")
    upserts = [(rank, columns) for rank, columns in events if columns is not None]
    exists = max((rank for rank, _ in upserts), default=b"") > tombstone
    values = {}
    for name in COLUMNS:
        won = max(
            ((rank, columns[name]) for rank, columns in upserts if name in columns and rank > tombstone), default=None
        )
        if won is not None:
            values[name] = won[1]
    return exists, values, tombstone != b""


@settings(deadline=None)
@given(histories, st.data())
def test_any_order_any_batches_any_repeats(events: Events, data: st.DataObject) -> None:
    order = data.draw(st.permutations([*events, *data.draw(st.lists(st.sampled_from(events or [None]), max_size=4))]))
    delivered = [event for event in order if event is not None]
    cuts = sorted(data.draw(st.lists(st.integers(0, len(delivered)), max_size=4)))
    state: RowState | None = None
    shown: dict[str, Any] = {}
    for start, end in zip([0, *cuts], [*cuts, len(delivered)], strict=True):
        before = None if state is None else state.pack()
        result = fold(None if before is None else RowState.unpack(before), delivered[start:end])
        if result.touched or before is None:
            state = result.state
        else:
            assert result.state == RowState.unpack(before or b"")
        if result.tombstone_moved:
            shown = {name: value for name, value in shown.items() if name in result.state.columns}
        shown.update(result.values)
        assert not result.cleared & result.state.columns.keys() - result.values.keys()
    assert state is not None
    exists, values, tombstone = _expected(events)
    assert state.exists == exists
    assert state.columns.keys() == values.keys()
    assert (state.tombstone is not None) == tombstone
    assert shown == values
    assert RowState.unpack(state.pack()) == state


@settings(deadline=None)
@given(histories, ranks, st.dictionaries(st.sampled_from(COLUMNS), st.integers()))
def test_a_resurrection_is_told_once(events: Events, rank: bytes, columns: dict[str, Any]) -> None:
    before = fold(None, events).state
    after = fold(RowState.unpack(before.pack()), [(rank, columns)])
    gone = not before.exists and before.tombstone is not None
    assert after.resurrected == (gone and rank > (before.tombstone or b""))
