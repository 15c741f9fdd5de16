"""Write rows from a file: the header of a CSV or TSV file, or the keys of JSONL objects, name the columns.

Bad rows are left out, one line of standard error each with file and line number; all others are written, and the exit
code is 1. An empty cell is empty text in a TEXT column and null in any other.
"""

from __future__ import annotations

import argparse
import codecs
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

from meshnode.cli import connect
from meshnode.cli.columns import find_table
from meshnode.cli.output import print_one, printable
from meshnode.cli.progress import progress
from meshnode.cli.readers import FORMATS, Read, UnreadableError, check_mark, format_of, read_rows
from meshnode.errors import MembershipError, RegistrationError, UsageError, unreadable_file
from meshnode.limits import EVENT_BYTES
from meshnode.model.wording import counted_text
from meshnode.node.api import ROWS_PER_IMPORT, Operations
from meshnode.node.views import RowChange

BATCH_CHARACTERS = 4 * EVENT_BYTES  # of text and bytes in one batch: a request stays small whatever the rows are
PROBLEMS_SHOWN = 1000  # bad rows that get their line; the rest is counted
_PEEK_BYTES = 4096


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("table", metavar="TABLE", help="the table: NAME, or SCHEMA.NAME")
    parser.add_argument("file", metavar="FILE", help="a .csv, .tsv or .jsonl file, or `-` for standard input")
    parser.add_argument("--format", choices=FORMATS, help="form of the file, where its name does not tell")
    parser.add_argument(
        "--encoding", default="utf-8", metavar="NAME", help="encoding of the file's text (default: utf-8)"
    )


def run(options: argparse.Namespace) -> int:
    """Import it, and count what was written and what was left out."""
    try:
        codecs.lookup(options.encoding)
    except LookupError as error:
        raise UsageError(f"there is no encoding {options.encoding!r}") from error
    importer = connect.run(_import(options))
    counts = {"rows": importer.written, "refused": importer.refused}
    if options.output in ("json", "jsonl"):
        print_one(counts, options.output)
    else:
        left_out = f", {importer.refused} refused" if importer.refused else ""
        print(f"{counted_text(importer.written, 'row')} written{left_out}")
    return 1 if importer.refused else 0


async def _import(options: argparse.Namespace) -> Importer:
    with _opened(options.file) as file:
        async with connect.writing(options, "import") as operations:
            table = await find_table(operations, options.table)
            shown = "standard input" if options.file == "-" else options.file
            importer = Importer(operations, table.table, shown)
            size = os.fstat(file.fileno()).st_size or None
            with progress(os.path.basename(shown), "rows") as advance:
                try:
                    check_mark(first := file.peek(_PEEK_BYTES), options.encoding)
                    kind = options.format or format_of(options.file, first)
                    for read in read_rows(file, kind, options.encoding, table):
                        await importer.take(read)
                        advance(file.tell() if size else 0, size, importer.written)
                except UnreadableError as error:
                    importer.refuse(error.line, str(error))
                await importer.flush()
                advance(size or 0, size, importer.written)
            importer.close()
            return importer


class Importer:
    """Gathers rows into batches, each one transaction; a batch that is refused is tried row by row to name the bad."""

    def __init__(self, operations: Operations, table: str, source: str) -> None:
        self._operations = operations
        self._table = table
        self._source = source
        self._batch: list[tuple[int, RowChange]] = []
        self._characters = 0
        self.written = 0
        self.refused = 0

    async def take(self, read: Read) -> None:
        """One row, good or bad."""
        if read.row is None:
            self.refuse(read.line, read.problem)
            return
        size = sum(len(value) for value in read.row.columns.values() if isinstance(value, str | bytes))
        if self._characters + size > BATCH_CHARACTERS:
            await self.flush()
        self._batch.append((read.line, read.row))
        self._characters += size
        if len(self._batch) >= ROWS_PER_IMPORT:
            await self.flush()

    async def flush(self) -> None:
        """Write what was gathered."""
        batch, self._batch, self._characters = self._batch, [], 0
        if not batch:
            return
        try:
            self.written += (await self._operations.import_rows(self._table, [row for _, row in batch])).rows
        except RegistrationError:
            raise  # about the table, not about a row
        except MembershipError as error:  # about this device: so it would be said of every row that is left
            raise MembershipError(f"written: {counted_text(self.written, 'row')}, then no more: {error}") from error
        except UsageError:
            for line, row in batch:
                await self._single(line, row)

    async def _single(self, line: int, row: RowChange) -> None:
        try:
            self.written += (await self._operations.import_rows(self._table, [row])).rows
        except UsageError as error:
            self.refuse(line, str(error))

    def refuse(self, line: int | None, problem: str) -> None:
        """One line for one bad row, or for the file."""
        self.refused += 1
        if self.refused <= PROBLEMS_SHOWN:
            where = self._source if line is None else f"{self._source}:{line}"
            print(f"meshnode: {printable(where)}: {printable(problem)}", file=sys.stderr)

    def close(self) -> None:
        """Say how many bad rows got no line."""
        if self.refused > PROBLEMS_SHOWN:
            print(f"meshnode: and {self.refused - PROBLEMS_SHOWN} more bad rows", file=sys.stderr)


@contextmanager
def _opened(name: str) -> Iterator[io.BufferedReader]:
    if name == "-":
        yield cast(io.BufferedReader, sys.stdin.buffer)
        return
    try:
        file = open(name, "rb")  # noqa: SIM115  # closed below; the error is about opening alone
    except OSError as error:
        raise unreadable_file(name, error) from error
    with file:
        yield file
