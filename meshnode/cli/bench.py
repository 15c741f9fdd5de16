"""Measure this machine's ceilings and this node's own figures on it, in one run, and tell the ratios between them.

It takes 45 s. `--full` measures what the figures of a release are taken from, five rounds and a million events, which
takes half an hour on a machine that does nothing else. Nodes are processes on loopback with homes in a temporary
folder: no node of this device is touched, and nothing is said to the network. What else runs shows in the figures.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import tempfile
from collections.abc import Coroutine
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meshnode.cli.output import json_line, print_many, print_table, printable
from meshnode.errors import UsageError, reason_of

if TYPE_CHECKING:
    from meshnode.bench.figures import Figures


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("--full", action="store_true", help="five rounds, and up to a million events")
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="NAME",
        help="this scenario alone (repeatable): ceilings, goodput, author, apply, start, catch-up, live, fan-out, idle "
        "or growth",
    )
    parser.add_argument(
        "--dir", metavar="DIR", help="folder for the files, whose disk is measured (default: temporary)"
    )
    parser.add_argument("--svg", metavar="FILE", help="draw how the rate changes with the log into this file")
    parser.add_argument("--json", action="store_true", help="the same as --output json: one line")


def run(options: argparse.Namespace) -> int:
    """Measure, then print."""
    from meshnode.bench.plan import FULL, QUICK
    from meshnode.bench.running import chosen, measure

    chosen(options.only)
    target = None if options.svg is None else _writable(options.svg)
    with tempfile.TemporaryDirectory(prefix="meshnode-bench-", dir=_folder(options.dir)) as folder:
        work = measure(FULL if options.full else QUICK, options.only, Path(folder), _say)
        figures = asyncio.run(_to_its_end(work))
    if target is not None:
        from meshnode.bench.plot import svg

        target.write_text(svg(figures), encoding="utf-8")
    _print(figures, "json" if options.json else options.output)
    return 0


async def _to_its_end(work: Coroutine[Any, Any, Figures]) -> Figures:
    """When this process is told to end, its nodes end with it: they are in sessions of their own."""
    task = asyncio.ensure_future(work)
    for name in ("SIGTERM", "SIGHUP"):
        if hasattr(signal, name):
            with suppress(NotImplementedError):  # Windows has no signals to end a loop by
                asyncio.get_running_loop().add_signal_handler(getattr(signal, name), task.cancel)
    try:
        return await task
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


def _print(figures: Figures, output: str | None) -> None:
    from meshnode.bench.report import COLUMNS, as_object, head, lines, rows

    if output == "json":
        print(json_line(as_object(figures)))
    elif output == "jsonl":
        print_many(rows(lines(figures)), output)
    else:
        print(printable(head(figures)))
        print_table(rows(lines(figures)), COLUMNS)


def _say(text: str) -> None:
    print(printable(text), file=sys.stderr, flush=True)


def _folder(named: str | None) -> Path | None:
    if named is None:
        return None
    folder = Path(named).absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot make the folder {folder}: {reason_of(error)}") from error
    return folder


def _writable(named: str) -> Path:
    """A file that can be written, looked at before anything is measured."""
    path = Path(named).absolute()
    if path.is_dir() or not path.parent.is_dir():
        raise UsageError(f"cannot write {path}: name a file in a folder that is there")
    return path
