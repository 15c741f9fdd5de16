"""Write the events that another device may not have into a bundle: a file to carry there, on a stick for instance.

It has everything from where that device is known to stand, by a bundle of its that was imported here or by its
acknowledgements on links, and so repeats what may have been lost on the way. `meshnode import-events` takes it in
there; a bundle that comes back says so. What is in it is signed, and not encrypted.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from pathlib import Path

import msgspec

from meshnode.cli import connect
from meshnode.cli.output import print_one, printable
from meshnode.cli.progress import progress
from meshnode.errors import TransportError, UsageError
from meshnode.model.wording import counted_text
from meshnode.node.bundleviews import ExportView


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("file", metavar="FILE", help="the bundle to write, or `-` for standard output")
    whom = parser.add_mutually_exclusive_group()
    whom.add_argument(
        "--for", dest="peer", metavar="PEER", help="for one member: its site id, long or short, or its name"
    )
    whom.add_argument("--all", action="store_true", help="for any member (the default)")
    parser.add_argument("--force", action="store_true", help="put it in the place of a file that is there")


def run(options: argparse.Namespace) -> int:
    """Write it, and say what is in it."""
    if options.file != "-":
        view = connect.run(_export(options, Path(options.file), force=options.force))
        if options.output in ("json", "jsonl"):
            print_one(view, options.output)
        else:
            print(_text(view))
        return 0
    if sys.stdout.isatty():
        raise UsageError("a bundle is no text for a terminal: name a file, or send standard output somewhere")
    with tempfile.TemporaryDirectory(prefix="meshnode-") as folder:
        path = Path(folder) / "bundle"
        view = connect.run(_export(options, path, force=False))
        with path.open("rb") as file:
            shutil.copyfileobj(file, sys.stdout.buffer)
    print(_text(msgspec.structs.replace(view, file="standard output")), file=sys.stderr)
    return 0


async def _export(options: argparse.Namespace, path: Path, *, force: bool) -> ExportView:
    last = ExportView(file=str(path))
    async with connect.writing(options, "export-events") as operations:
        with progress(os.path.basename(options.file), "events") as advance:
            async for last in operations.export_events(path, peer=options.peer, force=force):
                advance(last.position, last.last, last.events)
    if not last.done:
        raise TransportError("the node stopped before the bundle was written: export it again")
    return last


def _text(view: ExportView) -> str:
    whom = printable(repr(view.name) if view.name else view.site[:8]) if view.site else "any member"
    since = f"since position {view.start}, up to which it has everything" if view.start else "from the beginning"
    answers = f", and the answer to {counted_text(view.answered, 'request')}" if view.answered else ""
    return (
        f"{printable(view.file)}: {counted_text(view.events, 'event')} and {counted_text(view.records, 'record')} "
        f"for {whom}, {since}{answers}; {counted_text(view.bytes, 'byte')}"
    )
