"""A peer's frames of a comparison, feature `verify`: exact shapes, sizes and ranges (profile §15).

Everything here takes what a peer sent and raises ProtocolError alone. Whether a tell fits what was asked is for whoever
asked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from meshnode.codec.digest import DIGEST_BYTES
from meshnode.errors import CloseCode, ProtocolError
from meshnode.limits import (
    COMPARED_COLUMNS,
    COMPARED_ITEMS,
    COMPARED_RANGES,
    COMPARED_TABLES,
    EVENT_BYTES,
    LABEL_BYTES,
    NAME_BYTES,
    PAYLOAD_COLUMNS,
)
from meshnode.model import comparison, frames, range_tree
from meshnode.model import frame_fields_untrusted as fields
from meshnode.model.comparison import ITEM_BYTES, SHAPE_BYTES
from meshnode.model.frame_fields_untrusted import Read
from meshnode.model.site import SITE_BYTES

_ID: Final = fields.byte_string(comparison.ID_BYTES)
_ITEM: Final = fields.byte_string(ITEM_BYTES)
_SHAPE: Final = fields.byte_string(SHAPE_BYTES)
_NAME: Final = fields.text(NAME_BYTES, 1)
_SITE: Final = fields.byte_string(SITE_BYTES)
_EVENT_ID: Final = fields.byte_string(DIGEST_BYTES)
_TABLE_NO: Final = fields.unsigned(0, COMPARED_TABLES - 1)
_ROW_SET: Final = fields.unsigned(comparison.ROWS, comparison.FROZEN)


def _few(read_item: Read, most: int) -> Read:
    """An array of at most so many entries."""
    read_array = fields.array(read_item)

    def read(value: Any) -> tuple[Any, ...]:
        if type(value) is list and len(value) > most:
            raise ProtocolError(f"more than {most} entries", CloseCode.LIMIT)
        items: tuple[Any, ...] = read_array(value)
        return items

    return read


def _entry(kind: Callable[..., Any], *reads: Read) -> Read:
    """An array of exactly these fields, as a named tuple."""

    def read(value: Any) -> Any:
        if type(value) is not list or len(value) != len(reads):
            raise ProtocolError(f"not an array of {len(reads)} fields")
        return kind(*(read_field(field) for read_field, field in zip(reads, value, strict=True)))

    return read


def _flag(value: Any) -> bool:
    if type(value) is not bool:
        raise ProtocolError("neither true nor false")
    return value


def _bytes_up_to(most: int, unit: int = 1) -> Read:
    def read(value: Any) -> bytes:
        if type(value) is not bytes or len(value) > most or len(value) % unit:
            raise ProtocolError(f"not a byte string of at most {most} bytes, in {unit}s")
        return value

    return read


_COLUMN: Final = _entry(comparison.ColumnTold, _NAME, _SHAPE)
_TABLE: Final = _entry(
    comparison.TableTold,
    _NAME,
    _NAME,
    fields.u64,
    fields.u64,
    fields.byte_string(0, SHAPE_BYTES),
    _few(_COLUMN, COMPARED_COLUMNS),
)
_RANGE: Final = _entry(
    comparison.Range,
    fields.unsigned(0, comparison.FROZEN),
    fields.unsigned(0, range_tree.DEPTH),
    fields.unsigned(0, range_tree.LEAVES - 1),
)
_EVENT: Final = _entry(
    comparison.EventName,
    fields.unsigned(comparison.EVENTS, comparison.EVENTS),
    _TABLE_NO,
    _SITE,
    fields.u64,
    fields.u64,
    _EVENT_ID,
    _bytes_up_to(EVENT_BYTES),
    fields.optional(_few(_NAME, PAYLOAD_COLUMNS)),
    fields.unsigned(0, comparison.DAMAGED),
)
_ROW: Final = _entry(
    comparison.RowName,
    _ROW_SET,
    _TABLE_NO,
    _bytes_up_to(EVENT_BYTES),
    fields.hlc,
    fields.hlc,
    _ITEM,
    fields.unsigned(0, comparison.MISSING),
)


def _name(value: Any) -> comparison.Name:
    name: comparison.Name = (_EVENT if type(value) is list and value[:1] == [comparison.EVENTS] else _ROW)(value)
    return name


def _range(value: Any) -> comparison.Range:
    wanted: comparison.Range = _RANGE(value)
    if wanted.prefix >= range_tree.FANOUT**wanted.depth:
        raise ProtocolError("there is no such range")
    return wanted


def _inner_range(value: Any) -> comparison.Range:
    wanted = _range(value)
    if wanted.depth == range_tree.DEPTH:
        raise ProtocolError("that range is not divided any more")
    return wanted


_TOTAL: Final = _entry(comparison.Total, fields.u64, _ITEM)
_TOTALS: Final = _entry(
    comparison.TableTotals, _entry(lambda *each: each, *[_TOTAL] * len(comparison.SETS)), fields.u64, fields.u64
)
_ASKED: Final[Mapping[str, Read]] = {
    comparison.TABLES: _few(_TABLE_NO, COMPARED_TABLES),
    comparison.RANGES: _few(_inner_range, COMPARED_RANGES),
    comparison.ITEMS: _few(_range, COMPARED_RANGES),
    comparison.NAMES: _few(_ITEM, COMPARED_RANGES),
    comparison.WHY: _few(_name, COMPARED_RANGES),
    comparison.AGAIN: _few(_ITEM, COMPARED_RANGES),
}
_TOLD: Final[Mapping[str, Read]] = {
    comparison.TABLES: _few(_TOTALS, COMPARED_TABLES),
    comparison.RANGES: _few(fields.byte_string(range_tree.CHILDREN_BYTES), COMPARED_RANGES),
    comparison.ITEMS: _few(_bytes_up_to(COMPARED_ITEMS * ITEM_BYTES, ITEM_BYTES), COMPARED_RANGES),
    comparison.NAMES: _few(fields.optional(_name), COMPARED_RANGES),
    comparison.WHY: _few(fields.unsigned(0, comparison.WAITED_FOR), COMPARED_RANGES),
    comparison.AGAIN: _few(fields.u64, 1),
}


def _compare(value: dict[str, Any]) -> frames.Compare:
    compare: frames.Compare = _COMPARE(value)
    names = {(each.schema, each.name) for each in compare.tables}
    if len(names) != len(compare.tables) or sum(len(each.columns) for each in compare.tables) > COMPARED_COLUMNS:
        raise ProtocolError("tables are named once, with a bounded number of columns")
    return compare


def _exchange(kind: type[Any], of: Mapping[str, Read]) -> Read:
    whole = {
        what: fields.struct(kind, {"id": _ID, "no": fields.u64, "what": _NAME, "of": read}) for what, read in of.items()
    }

    def read(value: dict[str, Any]) -> Any:
        what = value.get("what")
        if type(what) is not str or what not in whole:
            raise ProtocolError(f"asks for one of {', '.join(whole)}")
        return whole[what](value)

    return read


_COMPARE: Final = fields.struct(
    frames.Compare,
    {
        "id": _ID,
        "nonce": fields.byte_string(comparison.NONCE_BYTES),
        "hlc": fields.hlc,
        "thinned": _flag,
        "tables": _few(_TABLE, COMPARED_TABLES),
    },
)

COMPARE_FRAMES: Final[Mapping[str, Read]] = {
    "compare": _compare,
    "compare-ask": _exchange(frames.CompareAsk, _ASKED),
    "compare-tell": _exchange(frames.CompareTell, _TOLD),
    "compare-end": fields.struct(frames.CompareEnd, {"id": _ID, "reason": fields.text(LABEL_BYTES)}),
}
