"""Frames of a comparison, feature `verify`: what is written is read back, and nothing else is read (profile §15)."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.laws import cbor_values

from meshnode.codec import cbor
from meshnode.errors import CloseCode, ProtocolError
from meshnode.limits import COMPARED_COLUMNS, COMPARED_ITEMS, COMPARED_RANGES, COMPARED_TABLES
from meshnode.model import comparison as words
from meshnode.model.comparison import ColumnTold, EventName, Range, RowName, TableTold, TableTotals, Total
from meshnode.model.frames import Compare, CompareAsk, CompareEnd, CompareFrame, CompareTell, encode_frame
from meshnode.model.frames_untrusted import decode_control_untrusted
from meshnode.model.hlc import Hlc
from meshnode.model.range_tree import CHILDREN_BYTES, DEPTH, LEAVES

FEATURE = frozenset({"verify"})
ID, ITEM, SHAPE = b"i" * 8, b"x" * 16, b"s" * 8
EVENT = EventName(words.EVENTS, 3, b"s" * 16, 5, 6, b"e" * 32, b"\xa0", ("a", "b"), words.PENDING)
ROW = RowName(words.FROZEN, 0, b"\xa0", Hlc(1, 2), Hlc(3, 4), ITEM, words.WITHHELD)
TABLE = TableTold("main", "t", 1, 2, SHAPE, (ColumnTold("a", SHAPE),))
COMPARE = Compare(ID, b"n" * 16, Hlc(1, 2), True, (TABLE, TableTold("main", "u", 0, 0)))
TOTALS = TableTotals((Total(1, ITEM), Total(0, bytes(16)), Total(2**40, ITEM)), 7, 8)

FRAMES: dict[str, CompareFrame] = {
    "compare": COMPARE,
    "ask tables": CompareAsk(ID, 1, words.TABLES, (0, 5)),
    "ask ranges": CompareAsk(ID, 2, words.RANGES, (Range(0, 0, 0), Range(2, DEPTH - 1, 16**3 - 1))),
    "ask items": CompareAsk(ID, 3, words.ITEMS, (Range(1, DEPTH, LEAVES - 1),)),
    "ask names": CompareAsk(ID, 4, words.NAMES, (ITEM,)),
    "ask why": CompareAsk(ID, 5, words.WHY, (EVENT, ROW, EVENT._replace(columns=None))),
    "ask again": CompareAsk(ID, 6, words.AGAIN, (ITEM,)),
    "tell tables": CompareTell(ID, 1, words.TABLES, (TOTALS,)),
    "tell ranges": CompareTell(ID, 2, words.RANGES, (bytes(CHILDREN_BYTES),)),
    "tell items": CompareTell(ID, 3, words.ITEMS, (b"", ITEM * 3)),
    "tell names": CompareTell(ID, 4, words.NAMES, (None, EVENT, ROW)),
    "tell why": CompareTell(ID, 5, words.WHY, (0, 4)),
    "tell again": CompareTell(ID, 6, words.AGAIN, (1,)),
    "end": CompareEnd(ID, "done"),
}


@pytest.mark.parametrize("name", FRAMES)
def test_what_is_written_is_read_back_where_the_feature_was_agreed(name: str) -> None:
    data = encode_frame(FRAMES[name])
    assert decode_control_untrusted(data, FEATURE) == FRAMES[name]
    with pytest.raises(ProtocolError):
        decode_control_untrusted(data)


def plain(name: str) -> dict[str, Any]:
    value: Any = cbor.decode_untrusted(encode_frame(FRAMES[name]))
    return value  # type: ignore[no-any-return]


def of(name: str, *entries: Any) -> dict[str, Any]:
    return {**plain(name), "of": list(entries)}


TOLD = plain("compare")["tables"][0]
NAMED_EVENT, NAMED_ROW = plain("ask why")["of"][:2]
REFUSED: dict[str, dict[str, Any]] = {
    "another id": {**plain("end"), "id": b"short"},
    "a key more": {**plain("compare"), "more": 1},
    "a key less": {name: value for name, value in plain("compare").items() if name != "hlc"},
    "thinned is a number": {**plain("compare"), "thinned": 1},
    "a table twice": {**plain("compare"), "tables": [TOLD, TOLD]},
    "a table without a name": {**plain("compare"), "tables": [["main", "", *TOLD[2:]]]},
    "a table with a field less": {**plain("compare"), "tables": [TOLD[:-1]]},
    "columns without a shape": {**plain("compare"), "tables": [[*TOLD[:5], [["a"]]]]},
    "another question": {**plain("ask tables"), "what": "everything"},
    "no question": {**plain("ask tables"), "what": 1},
    "a table by its name": of("ask tables", "t"),
    "a set that is none": of("ask items", [3, 0, 0]),
    "a range that is none": of("ask items", [0, 1, 16]),
    "a range that is not divided": of("ask ranges", [0, DEPTH, 0]),
    "deeper than the tree": of("ask items", [0, DEPTH + 1, 0]),
    "half an item": of("ask names", ITEM[:8]),
    "an event with a field less": of("ask why", NAMED_EVENT[:-1]),
    "an event without an id": of("ask why", [*NAMED_EVENT[:5], b"", *NAMED_EVENT[6:]]),
    "an event in another state": of("ask why", [*NAMED_EVENT[:-1], 9]),
    "columns that are bytes": of("ask why", [*NAMED_EVENT[:7], [b"a"], 0]),
    "a row of no set": of("ask why", [7, *NAMED_ROW[1:]]),
    "a row that is empty": of("ask why", []),
    "false for a set": of("ask why", [False, *NAMED_EVENT[1:]]),
    "totals of two sets": of("tell tables", [plain("tell tables")["of"][0][0][:2], 0, 0]),
    "too few sums": of("tell ranges", bytes(CHILDREN_BYTES - 1)),
    "items and a half": of("tell items", ITEM + b"x"),
    "a reason that is none": of("tell why", 5),
}
TOO_MANY: dict[str, dict[str, Any]] = {
    "counts": of("tell again", 1, 2),
    "tables": {
        **plain("compare"),
        "tables": [["main", f"t{each}", 0, 0, b"", []] for each in range(COMPARED_TABLES + 1)],
    },
    "columns of one": {
        **plain("compare"),
        "tables": [[*TOLD[:5], [[f"c{each}", SHAPE] for each in range(COMPARED_COLUMNS + 1)]]],
    },
    "tables asked for": of("ask tables", *[0] * (COMPARED_TABLES + 1)),
    "ranges": of("ask ranges", *[[0, 0, 0]] * (COMPARED_RANGES + 1)),
    "names": of("tell names", *[None] * (COMPARED_RANGES + 1)),
    "columns of an event": of("ask why", [*NAMED_EVENT[:7], [f"c{each}" for each in range(257)], 0]),
}


@pytest.mark.parametrize("name", REFUSED)
def test_anything_else_breaks_the_protocol(name: str) -> None:
    with pytest.raises(ProtocolError) as refused:
        decode_control_untrusted(cbor.encode(REFUSED[name]), FEATURE)
    assert refused.value.code is CloseCode.PROTOCOL_ERROR


@pytest.mark.parametrize("name", TOO_MANY)
def test_too_many_of_anything_are_a_limit(name: str) -> None:
    with pytest.raises(ProtocolError) as refused:
        decode_control_untrusted(cbor.encode(TOO_MANY[name]), FEATURE)
    assert refused.value.code is CloseCode.LIMIT


@given(st.sampled_from(sorted(FRAMES)), st.sampled_from(["of", "tables", "what", "hlc", "id"]), cbor_values)
def test_no_value_raises_anything_but_a_protocol_error(name: str, field: str, value: Any) -> None:
    with suppress(ProtocolError):
        decode_control_untrusted(cbor.encode({**plain(name), field: value}), FEATURE)


def test_a_list_of_items_is_bounded() -> None:
    most = CompareTell(ID, 1, words.ITEMS, (ITEM * COMPARED_ITEMS,))
    assert decode_control_untrusted(encode_frame(most), FEATURE) == most
    with pytest.raises(ProtocolError):
        decode_control_untrusted(encode_frame(CompareTell(ID, 1, words.ITEMS, (ITEM * (COMPARED_ITEMS + 1),))), FEATURE)
