"""Rows from CSV, TSV and JSONL files, one at a time: a bad one is an error with its line, and the next one is read on.

The bytes of a file are untrusted: lines are bounded, bytes that are not of the encoding spoil their own row alone.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, TextIO

from meshnode.cli.columns import affinity, split_key, value_of_text
from meshnode.errors import UsageError, reason_of
from meshnode.limits import EVENT_BYTES
from meshnode.node.jsonvalues import checked_value, parse_json
from meshnode.node.views import ColumnView, RowChange, TableView, Values

LINE_CHARACTERS = 8 * EVENT_BYTES  # of one line; a row of more could not be an event whatever its quoting
FORMATS = ("csv", "tsv", "jsonl")
_SUFFIXES = {".csv": "csv", ".tsv": "tsv", ".tab": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl"}
_DELIMITERS = {"csv": ",", "tsv": "\t"}
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")


class UnreadableError(UsageError):
    """The rest of a file cannot be read as rows; `line` is where that was found, from 1."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line


@dataclass(frozen=True, slots=True)
class Read:
    """One row read, or why the row at this line is none."""

    line: int  # where the row begins, from 1
    row: RowChange | None = None
    problem: str = ""


def format_of(name: str, first_bytes: bytes) -> str:
    """By the file's name, else by its first character: JSONL begins with a brace."""
    for suffix, kind in _SUFFIXES.items():
        if name.lower().endswith(suffix):
            return kind
    return "jsonl" if first_bytes.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] == b"{" else "csv"


def read_rows(binary: BinaryIO, kind: str, encoding: str, table: TableView) -> Iterator[Read]:
    """The rows of a file; raises UnreadableError where it cannot be read on."""
    text = io.TextIOWrapper(binary, encoding=encoding, errors="surrogateescape", newline="")
    try:
        lines = _Lines(text)
        yield from _jsonl_rows(lines, table) if kind == "jsonl" else _csv_rows(lines, _DELIMITERS[kind], table)
    finally:
        text.detach()  # the file stays its opener's


def check_mark(first_bytes: bytes, encoding: str) -> None:
    """Refuse what a spreadsheet saved as UTF-16, with what to do about it."""
    if first_bytes.startswith(_UTF16_MARKS) and not encoding.lower().startswith("utf-16"):
        raise UnreadableError(1, "the file is UTF-16: save it as UTF-8, or give --encoding utf-16")


class _TooLongError(Exception):
    """A line beyond the bound; the rest of it was skipped."""


class _Lines:
    """Counts and bounds lines; going on after an error is fine."""

    def __init__(self, text: TextIO) -> None:
        self._text = text
        self.number = 0

    def __iter__(self) -> _Lines:
        return self

    def __next__(self) -> str:
        try:
            line = self._text.readline(LINE_CHARACTERS)
            self.number += 1
            if len(line) == LINE_CHARACTERS and not line.endswith("\n"):
                while (rest := self._text.readline(LINE_CHARACTERS)) and not rest.endswith("\n"):
                    pass
                raise _TooLongError
        except (UnicodeError, OSError) as error:  # an encoding with more than bytes to be wrong, or the disk
            raise UnreadableError(self.number + 1, f"cannot be read on: {reason_of(error)}") from error
        if not line:
            raise StopIteration
        return line.removeprefix("\ufeff") if self.number == 1 else line


def _csv_rows(lines: _Lines, delimiter: str, table: TableView) -> Iterator[Read]:
    csv.field_size_limit(LINE_CHARACTERS)
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    columns = _header(reader, lines, table)
    while True:
        first = lines.number + 1
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield Read(first, problem=_csv_problem(str(error)))
            continue
        except _TooLongError:
            yield Read(first, problem=f"the line is longer than {LINE_CHARACTERS} characters")
            reader = csv.reader(lines, delimiter=delimiter, strict=True)  # the old one may be inside a quoted field
            continue
        if cells:
            yield _read(first, lambda cells=cells: _cells(cells, columns), table)


def _header(reader: Iterator[list[str]], lines: _Lines, table: TableView) -> list[ColumnView]:
    """The columns that the first line names."""
    try:
        names = next(reader)
    except StopIteration:
        raise UnreadableError(1, "the file is empty: its first line names the columns") from None
    except (csv.Error, _TooLongError) as error:
        raise UnreadableError(1, f"no header: {error or 'the line is too long'}") from error
    known = {column.name: column for column in (*table.key, *table.columns)}
    for name in names:
        if name not in known:
            raise UnreadableError(lines.number, f"the header names {_shown(name)}, no column of {table.table}")
        if names.count(name) > 1:
            raise UnreadableError(lines.number, f"the header names the column {name!r} twice")
    for column in table.key:
        if column.name not in names:
            raise UnreadableError(lines.number, f"the header does not name the key column {column.name!r}")
    return [known[name] for name in names]


def _cells(cells: list[str], columns: list[ColumnView]) -> Values:
    """The cells of one CSV row as values; an empty one is empty text in a text column, and null in another."""
    if len(cells) != len(columns):
        raise UsageError(f"{len(cells)} fields where the header names {len(columns)}")
    values: Values = {}
    for cell, column in zip(cells, columns, strict=True):
        _check_encoding(cell, column.name)
        empty = not cell and affinity(column.type) not in ("text", "any")
        values[column.name] = None if empty else value_of_text(cell, column)
    return values


def _jsonl_rows(lines: _Lines, table: TableView) -> Iterator[Read]:
    while True:
        number = lines.number + 1
        try:
            line = next(lines)
        except StopIteration:
            return
        except _TooLongError:
            yield Read(number, problem=f"the line is longer than {LINE_CHARACTERS} characters")
            continue
        if line.strip():
            yield _read(number, lambda line=line: _object(line), table)


def _object(line: str) -> Values:
    _check_encoding(line, None)
    values: Any = parse_json(line)
    if not isinstance(values, dict):
        raise UsageError("not a JSON object: its keys name the columns")
    for name, value in values.items():
        try:
            checked_value(value)
        except UsageError as error:
            raise UsageError(f"column {name!r}: {error}") from error
    return values


def _read(line: int, parse: Any, table: TableView) -> Read:
    try:
        key, columns = split_key(table, parse())
    except UsageError as error:
        return Read(line, problem=str(error))
    return Read(line, row=RowChange(key=key, columns=columns))


def _check_encoding(text: str, column: str | None) -> None:
    """`surrogateescape` left marks where bytes were none of the encoding."""
    for character in text if not text.isascii() else "":
        if "\udc80" <= character <= "\udcff":
            where = "" if column is None else f" in column {column!r}"
            byte = ord(character) - 0xDC00
            raise UsageError(f"byte 0x{byte:02x}{where} is not of this encoding: save as UTF-8, or give --encoding")


def _csv_problem(text: str) -> str:
    if text == "unexpected end of data":
        return "a quoted field begins here and never ends"
    return f"quoted wrongly: {text}"


def _shown(name: str) -> str:
    return repr(name if len(name) <= 40 else name[:40] + "…")
