"""Prints results as a table for people, or as JSON: what peers chose never reaches a terminal as control characters."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from meshnode.node.jsonvalues import to_json_builtins

_STEERING = "\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff"  # DEL, C1, and what turns a line around
_UNSAFE = re.compile(f"[\x00-\x1f{_STEERING}]")
_JSON_UNSAFE = re.compile(f"[{_STEERING}]")  # the other control characters JSON escapes itself
Row = Mapping[str, Any]


def printable(text: str) -> str:
    """The text with whatever could steer a terminal, or turn the line around, written as escapes."""
    return _UNSAFE.sub(_escape, text).encode("utf-8", "backslashreplace").decode()


def json_line(value: Any) -> str:
    """One line of JSON that a terminal can show."""
    text = json.dumps(to_json_builtins(value), ensure_ascii=False, separators=(",", ":"))
    return _JSON_UNSAFE.sub(_json_escape, text)


def print_one(value: Any, output: str | None) -> None:
    """One object: name and value a line, or JSON."""
    if output in ("json", "jsonl"):
        print(json_line(value))
        return
    row: Row = to_json_builtins(value)
    width = max((len(name) for name in row), default=0)
    for name, item in row.items():
        print(f"{printable(name):{width}}  {cell(item)}")


def print_many(values: Sequence[Any], output: str | None, columns: Sequence[str] = ()) -> None:
    """A list: a table with these columns, a JSON array, or a line of JSON each."""
    if output == "json":
        print(json_line(values))
    elif output == "jsonl":
        for value in values:
            print(json_line(value))
    else:
        print_table([to_json_builtins(value) for value in values], columns)


def print_summed(value: Any, lines: str, output: str) -> None:
    """One object that is mostly a list: JSON, or a line for each of its `lines`, then one with all the rest."""
    if output == "json":
        print(json_line(value))
        return
    rest = dict(to_json_builtins(value))
    for each in rest.pop(lines, ()):
        print(json_line(each))
    print(json_line({"line": "summary", **rest}))


def print_table(rows: Sequence[Row], columns: Sequence[str] = ()) -> None:
    """Aligned columns; drawn ones on a terminal."""
    names = list(columns) or list(dict.fromkeys(name for row in rows for name in row))
    cells = [[cell(row[name]) if name in row else "" for name in names] for row in rows]
    if sys.stdout.isatty():
        _rich_table(names, cells)
        return
    widths = [max(len(names[at]), *(len(line[at]) for line in cells), 0) for at in range(len(names))]
    for line in [[printable(name) for name in names], *cells]:
        print("  ".join(f"{text:{width}}" for text, width in zip(line, widths, strict=True)).rstrip())


def cell(value: Any) -> str:
    """One value as a person reads it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, Mapping | list):
        return printable(json_line(value))
    return str(value)


class JsonRows:
    """Prints rows as they come, as one JSON array or as lines."""

    def __init__(self, output: str) -> None:
        self._array = output == "json"
        self._any = False

    def add(self, rows: Iterable[Any]) -> None:
        """Print some more."""
        for row in rows:
            lead = (",\n" if self._any else "[") if self._array else ""
            sys.stdout.write(lead + json_line(row) + ("" if self._array else "\n"))
            self._any = True

    def close(self) -> None:
        """End the array."""
        if self._array:
            print("]" if self._any else "[]")


class TableRows:
    """Prints rows as aligned columns as they come; a column grows where a later row needs it."""

    def __init__(self, columns: Sequence[str] = ()) -> None:
        self._columns = columns  # for the header where there is no row
        self._widths: dict[str, int] = {}

    def add(self, rows: Iterable[Row]) -> None:
        """Print some more; every row has the same names."""
        lines = [{name: cell(value) for name, value in row.items()} for row in rows]
        if lines and not self._widths:
            lines.insert(0, {name: printable(name) for name in lines[0]})
        for line in lines:
            for name, text in line.items():
                self._widths[name] = max(self._widths.get(name, 0), len(text))
        for line in lines:
            print("  ".join(f"{text:{self._widths[name]}}" for name, text in line.items()).rstrip())

    def close(self) -> None:
        """Where there was no row, the header tells that, as in every table."""
        if not self._widths and self._columns:
            print_table([], self._columns)


def _rich_table(names: Sequence[str], cells: Sequence[Sequence[str]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table()
    for name in names:
        table.add_column(Text(printable(name)), overflow="fold")
    for line in cells:
        table.add_row(*(Text(text) for text in line))
    Console().print(table)


def _escape(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode()


def _json_escape(match: re.Match[str]) -> str:
    return f"\\u{ord(match[0]):04x}"
