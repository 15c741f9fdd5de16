"""How far a long verb is: a bar on a terminal, nothing elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from meshnode.cli.output import printable

Advance = Callable[[int, int | None, int], None]
"""How much of how much, in bytes or positions, and how many things that is."""


@contextmanager
def progress(what: str, things: str) -> Iterator[Advance]:
    """Show it until the block ends."""
    if not sys.stderr.isatty():
        yield lambda _completed, _total, _count: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    counted = TextColumn(f"{{task.fields[count]}} {things}")
    with Progress(*columns, counted, console=Console(stderr=True)) as bar:
        task = bar.add_task(printable(what), total=None, count=0)
        yield lambda completed, total, count: bar.update(task, completed=completed, total=total, count=count)
