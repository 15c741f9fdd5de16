"""Take in a bundle that another device of the mesh wrote with `meshnode export-events`.

Its seal is checked before anything of it is used. Every event is judged as if a link had brought it, and the verdicts
are counted; importing a bundle twice does no harm. What was rejected (a clock that is ahead, a bound on storage) comes
once more with the next bundle.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from pathlib import Path

from meshnode.cli import connect
from meshnode.cli.output import print_one, printable
from meshnode.cli.progress import progress
from meshnode.errors import TransportError
from meshnode.model.wording import counted_text
from meshnode.node.bundleviews import IntakeView


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("file", metavar="FILE", help="the bundle, or `-` for standard input")


def run(options: argparse.Namespace) -> int:
    """Take it in, and say what became of it."""
    if options.file == "-":
        # It is read twice: nothing is used before the seal at its end was checked.
        with tempfile.TemporaryDirectory(prefix="meshnode-") as folder:
            path = Path(folder) / "standard input"
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                shutil.copyfileobj(sys.stdin.buffer, file)
            view = connect.run(_import(options, path))
    else:
        view = connect.run(_import(options, Path(options.file)))
    if options.output in ("json", "jsonl"):
        print_one(view, options.output)
    else:
        _print(view)
    return 0 if view.settled else 1


async def _import(options: argparse.Namespace, path: Path) -> IntakeView:
    last: IntakeView | None = None
    async with connect.writing(options, "import-events") as operations:
        with progress(path.name, "events") as advance:
            async for view in operations.import_events(path):
                last = view
                advance(view.bytes, view.size, view.events)
    if last is None or not last.done:
        raise TransportError("the node stopped before the bundle was taken in: import it again")
    return last


def _print(view: IntakeView) -> None:
    whom = repr(view.name) if view.name else view.short
    print(printable(f"From {whom} ({view.short}): {counted_text(view.events, 'event')}{_verdicts(view)}"))
    records = [(view.records, "new"), (view.records_dropped, "dropped"), (view.records_rejected, "rejected")]
    if any(count for count, _ in records):
        print(f"records: {', '.join(f'{count} {what}' for count, what in records if count)}")
    if view.gap:
        print("It goes on from what this device does not hold, so that was asked for: export a bundle for it next.")
    if not view.settled:
        print("What was rejected comes again with its next bundle; importing this one again is another try.")


def _verdicts(view: IntakeView) -> str:
    counts = ", ".join(f"{count:,} {verdict}" for verdict, count in view.verdicts.items())
    return f": {counts}" if counts else ""
