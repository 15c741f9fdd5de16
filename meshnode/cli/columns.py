"""Text to a column's value: what `=` and the cells of a CSV file mean (SQLite's affinities, strictly)."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from meshnode.errors import NotFoundError, UsageError
from meshnode.node.api import Operations
from meshnode.node.jsonvalues import INTEGER_HIGH, INTEGER_LOW, checked_value, parse_value
from meshnode.node.views import ColumnView, TableView, Values, parse_table, table_text

if TYPE_CHECKING:
    from meshnode.node.reads import Reading

_INTEGER = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)
_REAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", re.ASCII)
_TRUTHS = {"true": True, "false": False}


def affinity(declared: str) -> str:
    """SQLite's rules for a declared type: integer, text, blob, real, numeric, or any where nothing is declared."""
    name = declared.upper()
    if not name or name == "ANY":
        return "any"
    if "INT" in name:
        return "integer"
    if any(part in name for part in ("CHAR", "CLOB", "TEXT")):
        return "text"
    if "BLOB" in name:
        return "blob"
    return "real" if any(part in name for part in ("REAL", "FLOA", "DOUB")) else "numeric"


def value_of_text(text: str, column: ColumnView) -> Any:
    """The text as a value of this column's type; raises UsageError where it is none."""
    match affinity(column.type):
        case "integer":
            return _integer(text, column)
        case "real":
            return _real(text, column)
        case "blob":
            return _blob(text, column)
        case "numeric":
            return _numeric(text, column)
        case _:
            return checked_value(text)


def split_key(table: TableView, values: Mapping[str, Any]) -> tuple[Values, Values]:
    """Values to (key, other columns); raises UsageError for a column that is not there or a key that is not whole."""
    key_names = [column.name for column in table.key]
    known = {column.name for column in (*table.key, *table.columns)}
    for name in values:
        if name not in known:
            raise UsageError(f"table {table.table} has no column {name!r}{_nearest(name, known)}")
    for name in key_names:
        if values.get(name) is None:
            raise UsageError(f"the key column {name!r} of table {table.table} is missing")
        if isinstance(values[name], bool | float):
            raise UsageError(f"the key column {name!r} takes an integer, text or bytes: other keys alias in SQLite")
    key = {name: values[name] for name in key_names}
    return key, {name: value for name, value in values.items() if name not in key}


def parse_fields(fields: list[str], table: TableView) -> Values:
    """`column=text` and `column:=json` to values; raises UsageError, NotFoundError for a column that is not there."""
    types = {column.name: column for column in (*table.key, *table.columns)}
    values: Values = {}
    for field in fields:
        name, equals, text = field.partition("=")
        if not equals or name in ("", ":"):
            raise UsageError(f"{field!r} is no field: write COLUMN=TEXT, or COLUMN:=JSON")
        is_json = name.endswith(":") and name not in types
        name = name[:-1] if is_json else name
        if name in values:
            raise UsageError(f"the column {name!r} is given twice")
        if name not in types:
            raise NotFoundError(f"table {table.table} has no column {name!r}{_nearest(name, types)}")
        values[name] = _json_field(name, text) if is_json else value_of_text(text, types[name])
    return values


async def find_table(operations: Operations | Reading, text: str) -> TableView:
    """The registered table of this name; raises NotFoundError with the nearest one."""
    wanted = table_text(*parse_table(text))
    tables = {table.table: table for table in await operations.tables()}
    if wanted not in tables:
        hint = _nearest(wanted, tables) or "; `meshnode table list` shows them"
        raise NotFoundError(f"no table {wanted!r} takes part in the mesh{hint}")
    if tables[wanted].unusable:
        raise NotFoundError(f"table {wanted!r} cannot be used as it stands: {tables[wanted].unusable}")
    return tables[wanted]


def _json_field(name: str, text: str) -> Any:
    try:
        return parse_value(text)
    except UsageError as error:
        raise UsageError(f"column {name!r}: {error}") from error


def _integer(text: str, column: ColumnView) -> int:
    if not _INTEGER.fullmatch(text):
        raise UsageError(f"column {column.name!r} takes an integer, not {text[:40]!r}")
    value = int(text)
    if not INTEGER_LOW <= value <= INTEGER_HIGH:
        raise UsageError(f"column {column.name!r}: {text} does not fit a signed 64-bit integer")
    return value


def _real(text: str, column: ColumnView) -> float:
    if not _REAL.fullmatch(text) or not math.isfinite(float(text)):
        raise UsageError(f"column {column.name!r} takes a finite number, not {text[:40]!r}")
    return float(text)


def _blob(text: str, column: ColumnView) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError as error:
        raise UsageError(f"column {column.name!r} holds bytes: write them as hex digits") from error


def _numeric(text: str, column: ColumnView) -> Any:
    """Dates, decimals and booleans are NUMERIC to SQLite: a number where it is one, else the text as it is."""
    if _INTEGER.fullmatch(text):
        return _integer(text, column)
    if _REAL.fullmatch(text):
        return _real(text, column)
    if "BOOL" in column.type.upper() and text.lower() in _TRUTHS:
        return _TRUTHS[text.lower()]
    return checked_value(text)


def _nearest(name: str, known: Mapping[str, Any] | set[str]) -> str:
    near = difflib.get_close_matches(name, list(known), n=1)
    return f", did you mean {near[0]!r}?" if near else ""
