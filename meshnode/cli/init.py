"""Found a mesh on this device: makes its keys, its database and its settings."""

from __future__ import annotations

import argparse
import platform
from pathlib import Path

from meshnode.cli import connect
from meshnode.cli.output import print_one, printable
from meshnode.node.views import FoundView


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument(
        "--name", default="", help="what other people see this device called (default: the host's name)"
    )


def run(options: argparse.Namespace) -> int:
    """Found it, and say what to do next."""
    found = connect.run(_found(options))
    if options.output in ("json", "jsonl"):
        print_one(found, options.output)
        return 0
    print(founded_text(found))
    print("\nOr write these words down, they are the same key:\n" + _words(found))
    return 0


async def _found(options: argparse.Namespace) -> FoundView:
    from meshnode.node.founding import found

    async with connect.new_home(options, "init") as home:
        return await found(home, name=options.name or platform.node() or "meshnode")


def founded_text(found: FoundView) -> str:
    """What a person has to know after founding."""
    return (
        f"Founded mesh {found.mesh_tag}; this device is {printable(found.name)!r}, site {found.short}, "
        f"in {found.home}\n"
        f"Move {found.recovery_key} to a safe place off this device: no other key stands above it.\n"
        "Next: `meshnode up` runs the node, `meshnode invite` lets another device in."
    )


def _words(found: FoundView) -> str:
    """The recovery key as words, a few to a line."""
    from meshnode.node.home import read_key
    from meshnode.node.words import words_of

    words = words_of(read_key(Path(found.recovery_key)).seed)
    return "\n".join("  " + " ".join(words[at : at + 6]) for at in range(0, len(words), 6))
