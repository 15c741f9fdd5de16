"""Values of rows as pages show them: of what kind each is, its beginning, how large all of it is (profile §5). Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlencode

from meshnode.codec.digest import blake3_256
from meshnode.control.web.texts import count, shown, size, whole
from meshnode.errors import UsageError
from meshnode.node.jsonvalues import checked_values, parse_json, to_json
from meshnode.node.views import ColumnView, TableView, Values

CUT: Final = 60  # characters of a value in a table, and half as many bytes
ADDRESS: Final = 3500  # characters of a key that fit the address of a page
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Shown:
    """One value: `text` is its beginning, on one line."""

    kind: str  # text, empty, number, truth, bytes, null, cleared or unmaterialized
    text: str
    large: str = ""  # how large all of it is, where `text` is not all
    inside: str = ""  # more of it, or all
    whole: bool = True  # `inside`, or `text` where there is none, is all of it


CLEARED: Final = Shown("cleared", "cleared")
UNMATERIALIZED: Final = Shown("unmaterialized", "never written")
EVICTED: Final = Shown("unmaterialized", "no longer in the log")
_NULL: Final = Shown("null", "null")
_EMPTY: Final = Shown("empty", "empty text")


def value_shown(value: Any, inside: int = 0, most: int = CUT) -> Shown:
    """One value; `inside` is how many characters of a long one there is room for where it is opened."""
    if value is None:
        return _NULL
    if isinstance(value, bytes):
        return _bytes_shown(value, inside, most)
    if value == "":
        return _EMPTY
    if isinstance(value, str):
        if len(value) <= most:
            return Shown("text", shown(value, most))
        more = whole(value, inside) if inside else ""
        return Shown("text", shown(value, most), count(len(value), "character"), more, len(value) <= inside)
    return Shown("truth" if isinstance(value, bool) else "number", shown(str(value).lower(), most))


def _bytes_shown(value: bytes, inside: int, most: int) -> Shown:
    length = size(len(value)) if len(value) >= 1024 else count(len(value), "byte")
    if 2 * len(value) <= most:
        return Shown("bytes", value.hex(), length)
    more = "\n".join(_dumped(value[: inside // 3]))
    return Shown("bytes", f"{value[: most // 2].hex()}…", length, more, len(value) <= inside // 3)


def _dumped(data: bytes) -> list[str]:
    return [data[at : at + 16].hex(" ") for at in range(0, len(data), 16)]


def cells_of(columns: Sequence[str], values: Values, cleared: Sequence[str]) -> list[Shown]:
    """The cells of one row in a table: what no write reached is absent, what a delete cleared is null (profile §5)."""
    gone = frozenset(cleared)
    return [
        CLEARED if name in gone else value_shown(values[name]) if name in values else UNMATERIALIZED for name in columns
    ]


def key_token(key: Values) -> str:
    """A key in an address: one line of JSON."""
    return to_json(key)


def key_of(token: str) -> Values:
    """The key that an address names; UsageError."""
    if not token:
        raise UsageError("the address names no row: it lacks its `key`; choose the row on the page of its table")
    found = parse_json(token)
    if not isinstance(found, dict):
        raise UsageError("the key in the address is no JSON object of its columns")
    return checked_values(found)


def key_typed(table: TableView, typed: Mapping[str, str]) -> Values:
    """The key that somebody typed, a text for each of its columns in their order; UsageError."""
    return {column.name: _typed(typed.get(f"k{at}", ""), column) for at, column in enumerate(table.key)}


def _typed(text: str, column: ColumnView) -> int | str | bytes:
    kind = column.type.upper()
    if "INT" in kind:
        if not _INTEGER.fullmatch(text.strip()):
            raise UsageError(f"the key column {shown(column.name, 40)} takes a whole number, not {shown(text, 40)!r}")
        return int(text)
    if "BLOB" in kind:
        try:
            return bytes.fromhex(text)
        except ValueError:
            raise UsageError(f"the key column {shown(column.name, 40)} takes bytes as hex digits") from None
    return text


def address(path: str, **query: str) -> str:
    """A page's address; empty where it would be too long for one."""
    found = f"{path}?{urlencode({name: value for name, value in query.items() if value})}"
    return found if len(found) <= ADDRESS else ""


def mark(*parts: str) -> str:
    """An id for a part of a page that is about this: the same as long as it is."""
    return blake3_256("\0".join(parts).encode("utf-8", "replace")).hex()[:16]
