"""What compaction leaves out never decides anything: the proof of `merge/needed.py`, tried on random rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from hypothesis import given, settings
from hypothesis import strategies as st

from meshnode.merge.needed import Needed
from meshnode.merge.rows import RowFold
from meshnode.store.affinity import acceptance, strict_accepts

Event: TypeAlias = tuple[int, dict[str, Any] | None]

VALUES = st.sampled_from([None, True, 0, 7, 2**62, 0.5, 3.0, 1e300, "", "12", "1.5", "x", b"", b"y"])
PAYLOADS = st.one_of(st.none(), st.dictionaries(st.sampled_from("abc"), VALUES, max_size=3))
ROWS = st.dictionaries(st.integers(0, 40), PAYLOADS, max_size=10)
TYPES = st.fixed_dictionaries(
    {}, optional={name: st.sampled_from(["", "INTEGER", "REAL", "TEXT", "BLOB", "ANY"]) for name in "abc"}
)


def rank(number: int) -> bytes:
    return number.to_bytes(64, "big")


def needed(events: Mapping[int, dict[str, Any] | None]) -> dict[int, dict[str, Any] | None]:
    row = Needed(acceptance)
    return {number: events[number] for number in sorted(events, reverse=True) if row.needs(events[number])}


def folded(events: Mapping[int, dict[str, Any] | None], types: Mapping[str, str], horizon: int) -> tuple[Any, ...]:
    """The state and the values that a table with columns of these types gets; "" is an ordinary column."""
    fold = RowFold(None)
    for number, columns in events.items():
        if number < horizon:
            continue
        if columns is None:
            fold.delete(rank(number))
            continue
        taken = {
            name: value
            for name, value in columns.items()
            if name in types and (not types[name] or strict_accepts(value, types[name]))
        }
        fold.upsert(rank(number), taken)
    state = fold.state
    values = {name: repr(fold.values[name]) for name in state.columns}
    return state.tombstone, state.upsert, state.columns, values


@settings(max_examples=1000, deadline=None)
@given(events=ROWS, further=ROWS, types=TYPES, horizon=st.integers(0, 40))
def test_no_future_of_a_row_depends_on_what_is_left_out(
    events: dict[int, Any], further: dict[int, Any], types: dict[str, str], horizon: int
) -> None:
    kept = needed(events)
    later = {number: columns for number, columns in further.items() if number not in events}
    assert folded({**kept, **later}, types, horizon) == folded({**events, **later}, types, horizon)


@settings(max_examples=300, deadline=None)
@given(events=ROWS, further=ROWS, types=TYPES)
def test_compacting_again_after_more_came_changes_nothing_either(
    events: dict[int, Any], further: dict[int, Any], types: dict[str, str]
) -> None:
    later = {number: columns for number, columns in further.items() if number not in events}
    assert folded(needed({**needed(events), **later}), types, 0) == folded({**events, **later}, types, 0)
    assert needed(needed(events)) == needed(events)


def test_one_writer_of_whole_rows_leaves_one_event() -> None:
    events = {number: {"a": number, "b": number} for number in range(1, 30)}
    assert list(needed(events)) == [29]


def test_a_delete_leaves_itself_and_what_is_above_it() -> None:
    assert list(needed({1: {"a": 1}, 2: None, 3: {"b": 1}, 4: None, 5: {}, 6: {"a": 2}, 7: {}})) == [7, 6, 4]
